"""plt: a probabilistic label tree, searched for the exact k best labels."""

from __future__ import annotations

from megalabel.linear import TreeClassifier
from megalabel.systems import System
from megalabel.systems.linear_parts import linear_tagger, plan_tree
from megalabel.tagger import Tagger


def plt(
    *,
    trees: int = 1,
    arity: int = 16,
    max_leaf: int = 100,
    label_vectors: str = "pifa",
    cost: float = 10.0,
    eps: float = 0.01,
    prune: float = 0.1,
    precision: str = "int8",
    min_df: int | float = 1,
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """A tree of logistic regressions; a label's score is the product down its path."""
    classifier = TreeClassifier(
        trees=trees,
        arity=arity,
        max_leaf=max_leaf,
        label_vectors=label_vectors,
        post="sigmoid",
        exact=True,
        loss="logistic",
        cost=cost,
        eps=eps,
        prune=prune,
        precision=precision,
        seed=seed,
    )
    return linear_tagger(classifier, "plt", min_df, calibrate, seed)


SYSTEM = System(
    name="plt",
    summary="a tree of logistic classifiers whose products are probabilities; exact top-k",
    paper="Jasinska et al. 2016; Jasinska-Kobus et al. 2020 (napkinXC)",
    cost="O(words of all texts x depth)",
    build=plt,
    plan=plan_tree,
    prepares=True,
)
