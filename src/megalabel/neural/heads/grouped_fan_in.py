"""Labels of a group see the same few features; the frequent ones perhaps all of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import Check, integer, number, one_of
from megalabel.labels import LabelTree, label_vectors
from megalabel.neural.batches import words_of
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

    frequent: float = 0.0
    _like: np.ndarray | None = None

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

    def prepared(self, rows: Any, targets: csr_matrix, seed: int) -> Self:
        """The same head, which knows which labels are alike where it groups them so."""
        if self.grouping != "clusters":
            return self
        made = copy.copy(self)
        tree = cluster_labels(rows, targets, max(2, self.group), seed)
        made._like = tree.leaf_of_label
        return made

    def order(self, counts: np.ndarray) -> tuple[np.ndarray, int]:
        frequent = round(self.frequent * len(counts))
        order = np.argsort(-counts, kind="stable")
        if self._like is not None:
            rest = order[frequent:]
            order[frequent:] = rest[np.argsort(self._like[rest], kind="stable")]
        return order, frequent


def cluster_labels(rows: Any, targets: csr_matrix, size: int, seed: int) -> LabelTree:
    """A tree of halves down to clusters of at most so many labels, which come in like texts."""
    words = rows if isinstance(rows, np.ndarray) else words_of(rows)
    vectors = label_vectors(words, targets, "pifa")
    return LabelTree.balanced(vectors, max_leaf=size, arity=2, seed=seed)


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
