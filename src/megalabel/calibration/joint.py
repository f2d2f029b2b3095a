"""Joint: probabilities by score, rank and label frequency together."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.base import Check, Learned, array, boolean, integer, made_once, with_learned
from megalabel.calibration.grouped import arranged
from megalabel.calibration.isotonic import Isotonic
from megalabel.calibration.pooled import Pairs, pool
from megalabel.calibration.sigmoid import expit
from megalabel.data import Ranking
from megalabel.errors import ShapeError
from megalabel.parts import Calibrator

log = logging.getLogger(__name__)

RANKS = (1, 2, 3, 5, 10, 30)  # knots, and three or ten times as many as far as k
FREQUENCIES = (0, 1, 3, 10, 30, 100, 1000)  # knots: texts of a label
STEPS = 12  # levels a unit of a frequency's logarithm: to 4 %, in a byte; models hold such levels
SCORES = 30  # knots at most, so many hits or more to each
HITS = 20
POOLED = 10  # labels of a text that may share the mean of their probabilities
LEAST_SLOPE = 0.02  # so that a higher score always has a higher probability
# How firmly neighbouring knots are held together, as many hits would: those of rank and frequency
# by themselves, then pairs of both, where a slope is held firmer than a constant.
FIRM, FIRMER = 1.0, (3.0, 30.0)
NEWTON_STEPS, ENOUGH = 40, 1e-5


class Joint(Calibrator):
    """One map from score, rank and label frequency to probability that rises with the score.

    logit p = a(r, f) + b(r, f) h(s) for a label of frequency f at rank r with the score s. h is a
    rising line in pieces; a and b >= 0 are interpolated between some ranks and frequencies. First
    h is learned with a(r, f) = a1(r) + a2(f) and b = 1, then a and b, held near to that where there
    are few texts to learn from. In the end isotonic regression makes p right on average, with half
    a miss above all pairs and half a hit below them: nothing is promised for certain.

    Labels keep their order: where a label would come out above one that was ranked before it, both
    get the mean of their probabilities among the first ten of a text; after these, a probability is
    at most that of the label before.

    Parameters
    ----------
    k : int
        How many labels of each row are learned from. Further down, a label counts as the k-th.
    rerank : bool
        Whether the first k labels are ranked anew by probability; else they keep their order.

    Attributes
    ----------
    knots_, heights_ : float64 arrays
        h. Where there was no label to learn from, both are empty, and scores stay as they are
        within [0, 1].
    ranks_, frequencies_ : float64 arrays
        The logarithms of the ranks, and of the frequencies + 1, between which a and b are learned.
    constants_, slopes_ : float64 arrays (ranks, frequencies)
        a and b.
    levels_ : uint8 array (labels,)
        The frequencies of the labels, as logarithms.
    thresholds_, values_ : float32 arrays
        The isotonic map in the end.

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> labels = LabelSet(["rare", "frequent"])
    >>> ranking = Ranking([[1, 0]] * 500 + [[0, 1]] * 500, [[0.5, 0.5]] * 1000, labels)
    >>> truth = csr_matrix([[0, 1]] * 500 + [[1, 0]] * 250 + [[0, 0]] * 250)
    >>> joint = Joint(k=2).fit(ranking, truth, label_counts=np.array([3, 90]))
    >>> joint.apply(ranking[[0, 999]]).scores.round(1)
    array([[1. , 0. ],
           [0.5, 0. ]], dtype=float32)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"k": integer(1), "rerank": boolean()}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "knots_": array(np.float64, "knots"),
        "heights_": array(np.float64, "knots"),
        "ranks_": array(np.float64, "ranks"),
        "frequencies_": array(np.float64, "frequencies"),
        "constants_": array(np.float64, "ranks", "frequencies"),
        "slopes_": array(np.float64, "ranks", "frequencies"),
        "levels_": array(np.uint8, "labels"),
        "thresholds_": array(np.float32, "thresholds"),
        "values_": array(np.float32, "thresholds"),
    }

    knots_: np.ndarray
    heights_: np.ndarray
    ranks_: np.ndarray
    frequencies_: np.ndarray
    constants_: np.ndarray
    slopes_: np.ndarray
    levels_: np.ndarray
    thresholds_: np.ndarray
    values_: np.ndarray

    def __init__(self, k: int = 100, rerank: bool = False) -> None:
        self.k = k
        self.rerank = rerank

    def shortlist(self, k: int) -> int:
        """The labels that may change places, or means."""
        return max(k, self.k if self.rerank else min(POOLED, self.k))

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

        See `Calibrator.fit`. Without counts all labels are as frequent.
        """
        self.check_parameters()
        vars(self).pop("_native", None)  # that of what was learned before
        labels, top = len(ranking.labels), ranking.top(self.k)
        counts = np.zeros(labels, np.int64) if label_counts is None else np.asarray(label_counts)
        counts = counts[:labels]
        if counts.shape != (labels,):
            raise ShapeError(f"{counts.shape} label counts for {labels} labels")
        self.levels_ = _levels(counts)
        pairs, levels = pool(top, Y, weights), self._levels_of(top)
        if counted and label_counts is not None:
            own, present = np.zeros(top.ids.shape, bool), top.present
            own[present] = pairs.hits
            levels[own] = _levels(counts[top.ids[own]] - 1)
        self.ranks_ = np.log(_ranks(self.k))
        self.frequencies_ = np.log1p(np.array(FREQUENCIES, np.float64))
        if not len(pairs.scores) or (pairs.weights is not None and not pairs.weights.any()):
            log.warning("no ranked label to calibrate on: scores stay as they are within [0, 1]")
            self._learn_nothing()
            return self
        present = top.present
        ranks = np.broadcast_to(np.arange(1, top.k + 1), top.ids.shape)[present]
        self._learn(
            np.clip(pairs.scores, -1e30, 1e30).astype(np.float64),
            ranks,
            levels[present],
            pairs.hits,
            np.ones(len(ranks)) if pairs.weights is None else pairs.weights.astype(np.float64),
        )
        last = Isotonic().fit_pairs(_doubted(pool(self._arranged(top, levels), Y, weights)))
        self.thresholds_, self.values_ = last.thresholds_, last.values_
        return self

    def for_counts(self, label_counts: np.ndarray) -> Self:
        """The same for a classifier that has seen each label so often."""
        other = copy.copy(self)
        vars(other).pop("_native", None)
        other.levels_ = _levels(np.asarray(label_counts))
        return other

    def with_unseen(self, more: int) -> Self:
        """The same, and more labels of the frequency 0."""
        other = copy.copy(self)
        vars(other).pop("_native", None)
        other.levels_ = np.append(self.levels_, _levels(np.zeros(more, np.int64)))
        return other

    def apply(self, ranking: Ranking) -> Ranking:
        """The same labels with probabilities for scores."""
        native = self.native()
        if native is not None:
            answer = _native.joint_answer(
                native, ids=ranking.ids, scores=ranking.scores, labels=len(ranking.labels)
            )
            return Ranking(ranking.ids, answer, ranking.labels)
        if not len(self.knots_):
            scores = np.clip(ranking.scores, 0, 1)
            scores[~ranking.present] = -np.inf
            return Ranking(ranking.ids, scores, ranking.labels)
        return self._last().apply(self._arranged(ranking, self._levels_of(ranking)))

    def native(self) -> _native.Joint | None:
        """What the native core answers by; None where labels are ranked anew, or nothing was
        learned."""
        self.check_fitted()
        if self.rerank or not len(self.knots_):
            return None
        return made_once(self, "_native", self._as_native)

    def _as_native(self) -> _native.Joint:
        return _native.Joint(
            levels=self.levels_,
            pooled=POOLED,
            thresholds=self.thresholds_,
            values=self.values_,
            **self._model(),
        )

    def _model(self) -> dict[str, Any]:
        """The map before isotonic regression, as the native core takes it."""
        names = ("knots", "heights", "ranks", "frequencies", "constants", "slopes")
        return {"steps": STEPS} | {name: getattr(self, f"{name}_") for name in names}

    def _last(self) -> Isotonic:
        """The map in the end."""
        learned = {"thresholds_": self.thresholds_, "values_": self.values_}
        return with_learned(Isotonic(k=self.k), **learned)

    def _levels_of(self, ranking: Ranking) -> np.ndarray:
        """Those of the ranked labels. Labels that came after calibration count as never seen."""
        known = ranking.ids < len(self.levels_)
        if known.all():
            return self.levels_[ranking.ids]
        levels = np.zeros(ranking.ids.shape, np.uint8)
        levels[known] = self.levels_[ranking.ids[known]]
        return levels

    def _arranged(self, ranking: Ranking, levels: np.ndarray) -> Ranking:
        """Probabilities before isotonic regression, falling along each row."""
        mapped = _native.joint_apply(scores=ranking.scores, levels=levels, **self._model())
        mapped[~ranking.present] = -np.inf
        return arranged(ranking, mapped, self.k if self.rerank else POOLED, self.rerank)

    def _learn_nothing(self) -> None:
        none, shape = np.zeros(0), (len(self.ranks_), len(self.frequencies_))
        self.knots_, self.heights_ = none, none
        self.constants_, self.slopes_ = np.zeros(shape), np.zeros(shape)
        self.thresholds_ = self.values_ = np.array([0, 1], np.float32)

    def _learn(
        self,
        scores: np.ndarray,
        ranks: np.ndarray,
        levels: np.ndarray,
        hits: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        """Learn all but the isotonic map, from sums over cells of like pairs."""
        self.knots_ = _knots(scores, scores[(ranks <= 5) | hits], int(hits.sum()))
        cells = _Cells.of(scores, ranks, levels, hits, weights, self.knots_)
        rising = np.clip((cells.scores[:, None] - self.knots_[:-1]) / np.diff(self.knots_), 0, 1)
        by_rank = _hats(cells.ranks, self.ranks_)
        by_frequency = _hats(cells.frequencies, self.frequencies_)
        rises, r, f = rising.shape[1], by_rank.shape[1], by_frequency.shape[1]

        # h, and a as a sum
        start = np.zeros(1 + rises + r + f)
        share = np.clip(cells.hits.sum() / cells.weights.sum(), 1e-6, 1 - 1e-6)
        start[0], start[1 : 1 + rises] = np.log(share / (1 - share)), 0.1
        least = np.full(len(start), -np.inf)
        least[1 : 1 + rises] = 1e-3
        firm = _blocks(
            np.full((1, 1), 1e-4),
            1e-2 * np.eye(rises),
            FIRM * _apart(r) + 1e-2 * np.eye(r),
            FIRM * _apart(f) + 1e-2 * np.eye(f),
        )
        terms = np.hstack([np.ones((len(rising), 1)), rising, by_rank, by_frequency])
        found = _regression(terms, cells, firm, np.zeros(len(start)), start, least)
        self.heights_ = np.append(0, np.cumsum(found[1 : 1 + rises]))
        of_rank, of_frequency = found[1 + rises : 1 + rises + r], found[1 + rises + r :]

        # a and b
        pairs = (by_rank[:, :, None] * by_frequency[:, None, :]).reshape(len(rising), -1)
        heights = np.interp(cells.scores, self.knots_, self.heights_)
        sums = found[0] + of_rank[:, None] + of_frequency
        centre = np.append(sums.ravel(), np.ones(r * f))
        together = (
            np.kron(_apart(r), np.eye(f)) + np.kron(np.eye(r), _apart(f)) + 0.1 * np.eye(r * f)
        )
        firm = _blocks(FIRMER[0] * together, FIRMER[1] * together)
        least = np.repeat([-np.inf, LEAST_SLOPE], r * f)
        terms = np.hstack([pairs, pairs * heights[:, None]])
        found = _regression(terms, cells, firm, centre, centre, least)
        self.constants_, self.slopes_ = found.reshape(2, r, f)

    def check_learned(self) -> None:
        """The maps must rise, and be of finite numbers."""
        vars(self).pop("_native", None)  # that of other maps
        for name in ("knots_", "heights_", "constants_", "slopes_", "ranks_", "frequencies_"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} of Joint must hold finite numbers")
        for name in ("knots_", "ranks_", "frequencies_"):
            knots = getattr(self, name)
            if (np.diff(knots) <= 0).any() or len(knots) == 1:
                raise ValueError(f"{name} of Joint must be several numbers that rise")
        if (np.diff(self.heights_) < 0).any() or (self.slopes_ < 0).any():
            raise ValueError("heights_ and slopes_ of Joint must not fall with the score")
        self._last().check_learned()


def _doubted(pairs: Pairs) -> Pairs:
    """Pairs with half a miss at the highest score and half a hit at the lowest, so that nothing is
    promised for certain."""
    weights = np.ones(len(pairs.scores), np.float32) if pairs.weights is None else pairs.weights
    return Pairs(
        np.append(pairs.scores, [pairs.scores.max(), pairs.scores.min()]).astype(np.float32),
        np.append(pairs.hits, [False, True]),
        np.append(weights, [0.5, 0.5]).astype(np.float32),
    )


def _levels(counts: np.ndarray) -> np.ndarray:
    """Frequencies of labels as bytes."""
    levels = np.rint(STEPS * np.log1p(np.maximum(counts, 0)))
    return np.asarray(np.minimum(levels, 255).astype(np.uint8))


def _ranks(k: int) -> list[int]:
    """The ranks that are knots, the last of them k; two at least."""
    ranks = list(RANKS)
    while ranks[-1] < k:
        ranks += [ranks[-1] // 3 * 10, ranks[-1] * 10]
    return [*(rank for rank in ranks if rank < k), max(2, k)]


def _knots(scores: np.ndarray, near: np.ndarray, hits: int) -> np.ndarray:
    """Between which h is a line: quantiles of scores near the top, fewer where hits are few."""
    count = int(np.clip(hits / HITS, 2, SCORES))
    ends = [scores.min(), scores.max()]
    knots = np.unique(np.append(ends, np.quantile(near, np.linspace(0, 1, count))))
    if len(knots) == 1:
        return np.append(knots, knots + max(1.0, abs(float(knots[0]))))
    apart = 1e-5 * (knots[-1] - knots[0])
    kept = [knots[0]]
    for knot in knots[1:]:
        if knot - kept[-1] > apart:
            kept.append(knot)
    return np.array(kept)


class _Cells(NamedTuple):
    """Sums and means of pairs of like score, rank and frequency."""

    scores: np.ndarray
    ranks: np.ndarray
    """Logarithms, as are frequencies."""
    frequencies: np.ndarray
    hits: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(
        cls,
        scores: np.ndarray,
        ranks: np.ndarray,
        levels: np.ndarray,
        hits: np.ndarray,
        weights: np.ndarray,
        knots: np.ndarray,
    ) -> _Cells:
        edges = np.sort(np.append(knots, (knots[1:] + knots[:-1]) / 2))
        depth = int(ranks.max())
        rank_of = np.rint(5 * np.log(np.arange(1, depth + 1))).astype(np.int64)
        key = np.searchsorted(edges, scores) * (rank_of[-1] + 1) + rank_of[ranks - 1]
        key = key * 64 + levels // 6
        _, cell = np.unique(key, return_inverse=True)
        total = np.bincount(cell, weights=weights)
        kept = total > 0

        def mean(values: np.ndarray) -> np.ndarray:
            return np.asarray(np.bincount(cell, weights=weights * values)[kept] / total[kept])

        logs = np.log(np.arange(1, depth + 1))[ranks - 1]
        hit = np.bincount(cell, weights=weights * hits)[kept]
        return cls(mean(scores), mean(logs), mean(levels / STEPS), hit, total[kept])


def _hats(values: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """How much each knot counts when interpolating at values: (values, knots)."""
    values = np.clip(values, knots[0], knots[-1])
    at = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2)
    share = (values - knots[at]) / (knots[at + 1] - knots[at])
    hats, rows = np.zeros((len(values), len(knots))), np.arange(len(values))
    hats[rows, at], hats[rows, at + 1] = 1 - share, share
    return hats


def _apart(n: int) -> np.ndarray:
    """The quadratic form of the differences between neighbours."""
    differences = np.diff(np.eye(n), axis=0)
    return np.asarray(differences.T @ differences)


def _blocks(*blocks: np.ndarray) -> np.ndarray:
    """A matrix with these on its diagonal."""
    size, at = sum(map(len, blocks)), 0
    matrix = np.zeros((size, size))
    for block in blocks:
        matrix[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    return matrix


def _regression(
    terms: np.ndarray,
    cells: _Cells,
    firm: np.ndarray,
    centre: np.ndarray,
    start: np.ndarray,
    least: np.ndarray,
) -> np.ndarray:
    """Logistic regression of hits on terms, no coefficient below its least.

    Distances from the centre cost by the quadratic form `firm`. By Newton's method on the
    coefficients that are free to move, with steps that end at the bounds, halved while they lead
    up.
    """

    def loss(point: np.ndarray) -> float:
        margins, away = terms @ point, point - centre
        likelihood = cells.weights @ np.logaddexp(0, margins) - cells.hits @ margins
        return float(likelihood + away @ firm @ away / 2)

    here = np.maximum(start, least)
    now = loss(here)
    for _ in range(NEWTON_STEPS):
        rates = expit(terms @ here)
        gradient = terms.T @ (cells.weights * rates - cells.hits) + firm @ (here - centre)
        free = (here > least) | (gradient < 0)
        curvature = _native.weighted_gram(terms, cells.weights * rates * (1 - rates)) + firm
        step, size = np.zeros(len(here)), 1.0
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        while (there := loss(np.maximum(here - size * step, least))) > now and size > 1e-4:
            size /= 2
        if there > now:
            break
        here, gain, now = np.maximum(here - size * step, least), now - there, there
        if gain < ENOUGH:
            break
    return np.asarray(here)
