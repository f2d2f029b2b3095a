"""dismec: one linear classifier a label on all texts, with the squared hinge."""

from __future__ import annotations

from typing import Any

from megalabel.linear import OneVsAll
from megalabel.systems import LABEL_POINTS_RACE, System
from megalabel.systems.linear_parts import (
    FEATURES_RACE,
    linear_tagger,
    plan_one_vs_all,
)
from megalabel.tagger import Tagger


def dismec(
    *,
    cost: float = 0.7,
    weighting: str | None = None,
    propensities: Any = None,
    eps: float = 0.01,
    bias: float = 2.0,
    prune: float = 0.055,
    precision: str = "int8",
    min_df: int | float = 1,
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """One-versus-all with the squared hinge; `weighting="propensity"` against missing labels."""
    classifier = OneVsAll(
        cost=cost,
        weighting=weighting,
        propensities=propensities,
        eps=eps,
        bias=bias,
        prune=prune,
        precision=precision,
    )
    return linear_tagger(classifier, "dismec", min_df, calibrate, seed)


SYSTEM = System(
    name="dismec",
    summary="one linear classifier a label, squared hinge: the most accurate linear system",
    paper="Babbar and Schölkopf 2017 (DiSMEC); Schultheis and Babbar 2022 (DiSMEC++)",
    cost="O(labels x words of all texts)",
    build=dismec,
    plan=plan_one_vs_all,
    prepares=True,
    cost_class="dear",
    race=(LABEL_POINTS_RACE, {"cost": 1.4}, {"cost": 0.4}, *FEATURES_RACE, {"prune": 0.02}),
)
