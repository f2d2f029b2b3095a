"""ova-logistic: one logistic regression a label on all texts."""

from __future__ import annotations

from typing import Any

from megalabel.linear import OneVsAll
from megalabel.systems import System
from megalabel.systems.linear_parts import (
    FEATURES_RACE,
    few_labels,
    linear_tagger,
    plan_one_vs_all,
)
from megalabel.tagger import Tagger


def ova_logistic(
    *,
    cost: float = 10.0,
    weighting: str | None = None,
    propensities: Any = None,
    eps: float = 0.01,
    prune: float = 0.05,
    precision: str = "int8",
    min_df: int | float = 1,
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """One-versus-all with the logistic loss."""
    classifier = OneVsAll(
        loss="logistic",
        cost=cost,
        weighting=weighting,
        propensities=propensities,
        eps=eps,
        prune=prune,
        precision=precision,
    )
    return linear_tagger(classifier, "ova-logistic", min_df, calibrate, seed)


SYSTEM = System(
    name="ova-logistic",
    summary="one logistic regression a label: probabilities of every label by itself",
    paper="Babbar and Schölkopf 2017 (DiSMEC), with the logistic loss",
    cost="O(labels x words of all texts)",
    build=ova_logistic,
    plan=plan_one_vs_all,
    prepares=True,
    cost_class="dear",
    race=({"cost": 20.0}, {"cost": 5.0}, *FEATURES_RACE, {"prune": 0.02}),
    suits=few_labels,
)
