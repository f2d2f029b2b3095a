"""A map for each group of labels: by how frequent they are in training, or by rank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.base import (
    Check,
    Learned,
    array,
    boolean,
    clone,
    instance,
    integer,
    list_of,
    number,
    part,
    sequence_of,
)
from megalabel.calibration.pooled import PooledCalibrator, pool
from megalabel.data import Ranking
from megalabel.errors import ParameterError, ShapeError
from megalabel.parts import Calibrator

_FEWEST = 500  # pairs of a group: fewer would calibrate to chance


class Grouped(Calibrator):
    """A map of its own for each group of pairs.

    Each map never falls, but two of them may cross, so that a label comes out above one that was
    ranked before it. Then either the labels are ranked anew, or they keep their order and get the
    mean of their probabilities. That is done among the first k labels, those that were learned
    from; after them, a probability is at most that of the label before.
    """

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "maps_": list_of(part(PooledCalibrator)),
        "bins_": array(np.uint8, "members"),
    }

    calibrator: PooledCalibrator
    rerank: bool
    maps_: list[PooledCalibrator]
    bins_: np.ndarray

    @property
    def k(self) -> int:  # type: ignore[override]
        """How many labels of each row are learned from: as the calibrator says."""
        return self.calibrator.k

    def shortlist(self, k: int) -> int:
        """The labels that may change places, or means."""
        return max(k, self.k)

    def fit(
        self,
        ranking: Ranking,
        Y: csr_matrix,
        *,
        label_counts: np.ndarray | None = None,
        counted: bool = False,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Learn from the top k of rows that the classifier has not seen, and their labels.

        `label_counts` say how often each label occurs in training, `weights` how much a row counts.
        """
        self.check_parameters()
        self.calibrator.check_parameters()
        top = ranking.top(self.k)
        pairs = pool(top, Y, weights)
        self.bins_ = self._learn_groups(top, label_counts).astype(np.uint8)
        groups = self._groups(top)[top.present]
        self.maps_ = [
            clone(self.calibrator).fit_pairs(pairs.some(groups == group))
            for group in range(int(self.bins_.max()) + 1)
        ]
        return self

    @abstractmethod
    def _learn_groups(self, top: Ranking, label_counts: np.ndarray | None) -> np.ndarray:
        """The group of each label or rank, numbered without gaps."""

    @abstractmethod
    def _groups(self, ranking: Ranking) -> np.ndarray:
        """The group of each cell of a ranking."""

    def apply(self, ranking: Ranking) -> Ranking:
        """The same labels with probabilities for scores."""
        self.check_fitted()
        groups, mapped = self._groups(ranking), np.full(ranking.scores.shape, -np.inf, np.float32)
        for g, calibrator in enumerate(self.maps_):
            chosen = (groups == g) & ranking.present
            mapped[chosen] = calibrator.probabilities(ranking.scores[chosen])
        return arranged(ranking, mapped, self.k, self.rerank)

    def check_learned(self) -> None:
        """Each group must have a map of the calibrator's kind."""
        name, kind = type(self).__name__, type(self.calibrator)
        if not self.maps_ or any(type(one) is not kind for one in self.maps_):
            raise ValueError(f"maps_ of {name} must each be a {kind.__name__}")
        if len(self.bins_) == 0 or self.bins_.max() >= len(self.maps_):
            raise ValueError(f"bins_ of {name} must be numbers of its maps")


class ByFrequency(Grouped):
    """A map for rare labels, others for more and more frequent ones.

    Parameters
    ----------
    calibrator : PooledCalibrator
        Makes each of the maps.
    bins : int or list of numbers
        How many groups, of as many ranked labels each; or the label counts that divide them, each
        the least of its group. Groups with too few ranked labels to learn from are joined.
    rerank : bool
        Whether labels are ranked anew by probability; else they keep their order.

    Attributes
    ----------
    maps_ : list of calibrators
        One a group, the rarest labels first.
    bins_ : uint8 array
        The group of each label. A label that came later belongs to the rarest.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> from megalabel.calibration import Isotonic
    >>> ranking = Ranking([[0, 1]] * 1000, [[0.5, 0.4]] * 1000, LabelSet(["rare", "frequent"]))
    >>> truth = csr_matrix([[0, 1]] * 1000)
    >>> calibrator = ByFrequency(Isotonic(k=2), bins=2, rerank=True)
    >>> calibrator.fit(ranking, truth, label_counts=np.array([3, 90])).apply(ranking).tags()[0]
    [Tag(label='frequent', probability=1.0), Tag(label='rare', probability=0.0)]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "calibrator": instance(PooledCalibrator),
        "bins": integer(1, 256) | sequence_of(number(0)),
        "rerank": boolean(),
    }

    def __init__(
        self,
        calibrator: PooledCalibrator,
        bins: int | Sequence[float] = 5,
        rerank: bool = False,
    ) -> None:
        self.calibrator = calibrator
        self.bins = bins
        self.rerank = rerank

    def _learn_groups(self, top: Ranking, label_counts: np.ndarray | None) -> np.ndarray:
        if label_counts is None:
            raise ParameterError("calibration by frequency needs label_counts, those of training")
        counts = np.asarray(label_counts)[: len(top.labels)]
        if counts.shape != (len(top.labels),):
            raise ShapeError(f"{counts.shape} label counts for {len(top.labels)} labels")
        # pairs of the labels with each count, rare to frequent
        distinct, where = np.unique(counts, return_inverse=True)
        pairs = np.bincount(where[top.ids[top.present]], minlength=len(distinct))
        if isinstance(self.bins, int):
            middle = 2 * np.cumsum(pairs) - pairs  # of those with one count, doubled
            group = middle * self.bins // max(1, 2 * pairs.sum())
        else:
            group = np.searchsorted(np.sort(self.bins), distinct, side="right")
        return _joined(group, pairs)[where]

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """Labels keep their groups."""
        known = numbers < len(self.bins_)
        bins = np.where(known, self.bins_[np.where(known, numbers, 0)], 0).astype(np.uint8)
        return super()._taken(numbers) | {"bins_": bins}

    def _groups(self, ranking: Ranking) -> np.ndarray:
        # padding, and labels that came after calibration, belong to the rarest
        known = ranking.ids < len(self.bins_)
        return np.where(known, self.bins_[np.where(known, ranking.ids, 0)], 0)


class ByRank(Grouped):
    """A map for the first label of each text, one for the second, and so on.

    Parameters
    ----------
    calibrator : PooledCalibrator
        Makes each of the maps. Labels after the k that it learns from go by the last.
    rerank : bool
        Whether labels are ranked anew by probability; else they keep their order.

    Attributes
    ----------
    maps_ : list of calibrators
        One a group of ranks; a rank is a group by itself where there are texts enough.
    bins_ : uint8 array
        The group of each rank.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> from megalabel.calibration import Isotonic
    >>> ranking = Ranking([[0, 1]] * 1000, [[0.5, 0.5]] * 1000, LabelSet(["cat", "dog"]))
    >>> truth = csr_matrix([[1, 0]] * 1000)
    >>> ByRank(Isotonic(k=2)).fit(ranking, truth).apply(ranking[:1]).scores
    array([[1., 0.]], dtype=float32)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "calibrator": instance(PooledCalibrator),
        "rerank": boolean(),
    }

    def __init__(self, calibrator: PooledCalibrator, rerank: bool = False) -> None:
        self.calibrator = calibrator
        self.rerank = rerank

    def _learn_groups(self, top: Ranking, label_counts: np.ndarray | None) -> np.ndarray:
        pairs = top.present.sum(axis=0)
        return _joined(np.arange(len(pairs)), pairs)

    def _groups(self, ranking: Ranking) -> np.ndarray:
        ranks = np.minimum(np.arange(ranking.k), len(self.bins_) - 1)
        return np.broadcast_to(self.bins_[ranks], ranking.ids.shape)


def arranged(ranking: Ranking, mapped: np.ndarray, first: int, rerank: bool) -> Ranking:
    """A ranking with probabilities that never rise along a row.

    Of the first labels of a row, those that would rise share their mean, or with `rerank` are
    ranked anew; after these a probability is at most the one before.
    """
    ids = ranking.ids
    if rerank:
        order = np.argsort(-mapped[:, :first], axis=1, kind="stable")
        ids = np.hstack([np.take_along_axis(ids, order, axis=1), ids[:, first:]])
        mapped = np.hstack([np.take_along_axis(mapped, order, axis=1), mapped[:, first:]])
    return Ranking(ids, _native.falling_rows(mapped, first), ranking.labels)


def _joined(groups: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Groups (never falling) numbered anew without gaps, those with too few pairs joined with the
    next, or the last with the one before."""
    joined, now, held = np.empty(len(groups), np.int64), 0, 0
    for group in np.unique(groups):
        if held >= _FEWEST:
            now, held = now + 1, 0
        joined[groups == group] = now
        held += int(pairs[groups == group].sum())
    if held < _FEWEST and now > 0:
        joined[joined == now] = now - 1
    return joined
