"""parabel: linear classifiers down three balanced binary trees of labels."""

from __future__ import annotations

from megalabel.linear import TreeClassifier
from megalabel.systems import System
from megalabel.systems.linear_parts import linear_tagger, plan_tree
from megalabel.tagger import Tagger


def parabel(
    *,
    trees: int = 3,
    max_leaf: int = 100,
    label_vectors: str = "pifa",
    beam: int = 10,
    cost: float = 1.0,
    eps: float = 0.01,
    prune: float = 0.05,
    precision: str = "int8",
    min_df: int | float = 1,
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """Balanced binary trees with leaves of up to a hundred labels."""
    classifier = TreeClassifier(
        trees=trees,
        arity=2,
        max_leaf=max_leaf,
        label_vectors=label_vectors,
        beam=beam,
        post="l2-hinge",
        cost=cost,
        eps=eps,
        prune=prune,
        precision=precision,
        seed=seed,
    )
    return linear_tagger(classifier, "parabel", min_df, calibrate, seed)


SYSTEM = System(
    name="parabel",
    summary="linear classifiers down three binary trees of labels, averaged",
    paper="Prabhu et al. 2018",
    cost="O(words of all texts x depth)",
    build=parabel,
    plan=plan_tree,
    prepares=True,
)
