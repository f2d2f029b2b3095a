"""Each label sees a few features of its own."""

from __future__ import annotations

import numpy as np

from megalabel.neural.heads.rewiring import Rewiring
from megalabel.neural.heads.shared import SparseHead


class FixedFanInHead(SparseHead):
    """Each label has weights for a few features of its own (Schultheis and Babbar 2023).

    Parameters
    ----------
    fan_in : int, optional
        Features that a label sees; None: a tenth of them, or 16 where that is less.
    rewiring : Rewiring, optional
        How features are exchanged for others in training; None: as by default.
    precision, optimiser, momentum
        As of a `DenseHead`.

    Examples
    --------
    >>> from megalabel.neural import heads
    >>> heads.create("fixed-fan-in", fan_in=32).fan_in_of(768)
    32
    """

    name = "fixed-fan-in"

    def __init__(
        self,
        *,
        fan_in: int | None = None,
        rewiring: Rewiring | None = None,
        precision: str = "auto",
        optimiser: str = "sgd",
        momentum: float = 0.0,
    ) -> None:
        self.fan_in = fan_in
        self.rewiring = rewiring
        self.precision = precision
        self.optimiser = optimiser
        self.momentum = momentum

    def order(self, counts: np.ndarray) -> tuple[np.ndarray, int]:
        return np.arange(len(counts)), 0
