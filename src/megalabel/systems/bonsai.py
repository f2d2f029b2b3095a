"""bonsai: linear classifiers down shallow, wide trees of labels."""

from __future__ import annotations

from megalabel.linear import TreeClassifier
from megalabel.systems import LABEL_POINTS_RACE, System
from megalabel.systems.linear_parts import (
    FEATURES_RACE,
    linear_tagger,
    many_labels,
    plan_tree,
)
from megalabel.tagger import Tagger


def bonsai(
    *,
    trees: int | None = None,
    arity: int = 100,
    max_leaf: int | None = None,
    label_vectors: str = "pifa",
    negatives: str = "teacher",
    beam: int = 10,
    cost: float | None = None,
    eps: float = 0.01,
    prune: float = 0.06,
    precision: str = "int8",
    min_df: int | float = 1,
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """Unbalanced k-means trees.

    `trees`, `max_leaf` and `cost` are left to the number of labels: see `TreeClassifier`.
    """
    classifier = TreeClassifier(
        trees=trees,
        shape="kmeans",
        arity=arity,
        max_leaf=max_leaf,
        label_vectors=label_vectors,
        negatives=negatives,
        beam=beam,
        cost=cost,
        eps=eps,
        prune=prune,
        precision=precision,
        seed=seed,
    )
    return linear_tagger(classifier, "bonsai", min_df, calibrate, seed)


SYSTEM = System(
    name="bonsai",
    summary="linear classifiers down wide k-means trees of labels; one-versus-all where few",
    paper="Khandagale et al. 2020",
    cost="O(words of all texts x arity)",
    build=bonsai,
    plan=plan_tree,
    prepares=True,
    cost_class="linear",
    race=(
        LABEL_POINTS_RACE,
        {"cost": 2.0},
        {"cost": 0.5},
        *FEATURES_RACE,
        {"beam": 30},
        {"prune": 0.03},
    ),
    thrifty={"trees": 1},
    suits=many_labels,
)
