"""Labels of a group see the same few features; the frequent ones perhaps all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from megalabel.base import Check, integer, number, one_of
from megalabel.neural.heads.rewiring import Rewiring
from megalabel.neural.heads.shared import SparseHead


class GroupedFanInHead(SparseHead):
    """Labels of a group have own weights for the same few features.

    What a group sees is gathered once, and then it is a small dense layer: so that it takes little
    more time than its operations do.

    Parameters
    ----------
    fan_in : int, optional
        Features that a group sees; None: a tenth of them, or 16 where that is less.
    group : int
        Labels of a group.
    grouping : "frequency" or "clusters"
        Labels of a group are about as frequent, or lie side by side in a tree of labels.
    rewiring : Rewiring, optional
        How features are exchanged for others in training; None: as by default.
    precision, optimiser, momentum
        As of a `DenseHead`.

    Examples
    --------
    >>> from megalabel.neural import heads
    >>> heads.create("grouped-fan-in", group=32).fan_in_of(768)
    77
    """

    name = "grouped-fan-in"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **SparseHead.PARAMETERS,
        "group": integer(1),
        "grouping": one_of("frequency", "clusters"),
    }

    def __init__(
        self,
        *,
        fan_in: int | None = None,
        group: int = 16,
        grouping: str = "frequency",
        rewiring: Rewiring | None = None,
        precision: str = "auto",
        optimiser: str = "sgd",
        momentum: float = 0.0,
    ) -> None:
        self.fan_in = fan_in
        self.group = group
        self.grouping = grouping
        self.rewiring = rewiring
        self.precision = precision
        self.optimiser = optimiser
        self.momentum = momentum


class FrequentAndSparseHead(GroupedFanInHead):
    """Frequent labels see all features, those of groups of rare ones the same few.

    Parameters
    ----------
    frequent : float
        The share of labels, the most frequent ones, that see all features.
    fan_in, group, grouping, rewiring, precision, optimiser, momentum
        Of all others, as of a `GroupedFanInHead`.
    """

    name = "frequent-and-sparse"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **GroupedFanInHead.PARAMETERS,
        "frequent": number(0, 1),
    }

    def __init__(
        self,
        *,
        frequent: float = 0.1,
        fan_in: int | None = None,
        group: int = 16,
        grouping: str = "frequency",
        rewiring: Rewiring | None = None,
        precision: str = "auto",
        optimiser: str = "sgd",
        momentum: float = 0.0,
    ) -> None:
        super().__init__(
            fan_in=fan_in,
            group=group,
            grouping=grouping,
            rewiring=rewiring,
            precision=precision,
            optimiser=optimiser,
            momentum=momentum,
        )
        self.frequent = frequent
