"""Do probabilities mean what they say? Confidence against hit rate over the top-k lists.

The (confidence, hit) pairs of all top-k lists are pooled: over all labels, calibration would look
perfect because nearly every label is an easy miss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.data import Corpus, Ranking
from megalabel.data.truth import label_matrix, truth_arrays
from megalabel.errors import DataError, ParameterError
from megalabel.metrics.bootstrap import normal_quantile, wilson
from megalabel.metrics.instance import ratio
from megalabel.metrics.training import TrainLabels, train_counts

BINS = 15
OCTAVE = _native.OCTAVE_CELLS  # fine cells
LOWEST = _native.SMALLEST_CONFIDENCE
CELLS = _native.FINE_CELLS + BINS - 1
RANKS = (1, 2, 3, 4, 5, 10, 20, 100)  # the last ranks of groups; one more holds the ranks beyond
FREQUENCIES = (0, 1, 6, 20, 100)  # the fewest training texts of the labels of a group
DEBIASED = "-debiased"  # ends the names of calibration errors without what noise adds

By: TypeAlias = Literal["rank", "frequency"]
"""What answers are put into groups by."""


class Bins(NamedTuple):
    """Sums over bins of confidence, rising: where a bin ends, and what fell into it.

    `of_cell` is the bin of each fine cell, -1 for those that are left out.
    """

    low: np.ndarray
    high: np.ndarray
    pairs: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray
    of_cell: np.ndarray

    def expected_calibration_error(self) -> float:
        """The gap between mean confidence and hit rate, weighted by the pairs in each bin."""
        gap = np.abs(self.confidence - self.hits).sum()
        return float(gap / max(self.pairs.sum(), 1))

    def debiased_error(self, noise: np.ndarray) -> float:
        """The same without what noise adds: about 0 on average if there is no miscalibration.

        `noise` has the variance of the summed gap of each bin, of BINS bins. A gap g with the
        standard error s is on average larger than the true one: by s * sqrt(2 / pi) where there is
        none, by nothing where the true one is far above s. So s * sqrt(10 / pi) * exp(-2 (g / s)^2)
        is subtracted, which has the same average where there is none, and falls off as fast.
        """
        gaps = np.abs(self.confidence - self.hits)
        s = np.sqrt(noise[: len(gaps)])
        excess = s * np.sqrt(10 / np.pi) * np.exp(-2 * ratio(gaps, s) ** 2)
        return float((gaps - excess).sum() / max(self.pairs.sum(), 1))

    def table(self) -> pa.Table:
        """As `reliability` gives it."""
        return _table(self.low, self.high, self.pairs, self.confidence, self.hits)


def _table(
    low: Sequence[float] | np.ndarray,
    high: Sequence[float | None] | np.ndarray,
    pairs: np.ndarray,
    confidence: np.ndarray,
    hits: np.ndarray,
) -> pa.Table:
    empty = pairs == 0
    mean, rate, ends = ratio(confidence, pairs), ratio(hits, pairs), hit_intervals(hits, pairs)
    rates = {
        "confidence": mean,
        "hit_rate": rate,
        "hit_rate_low": ends[0],
        "hit_rate_high": ends[1],
        "gap": mean - rate,
    }
    return pa.table(
        {
            "low": pa.array(low),
            "high": pa.array(high),
            "count": pairs.astype(np.int64),
            **{name: pa.array(values, mask=empty) for name, values in rates.items()},
        }
    )


def hit_intervals(hits: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % intervals of Wilson for hit rates; from 0 to 1 where there are no pairs."""
    low, high = wilson(ratio(hits, pairs), np.maximum(pairs, 1), normal_quantile(0.95))
    return np.where(pairs > 0, low, 0), np.where(pairs > 0, high, 1)


def cells_at(
    ranking: Ranking, truth: csr_matrix, cutoffs: np.ndarray, bins: int = BINS
) -> np.ndarray:
    """Pairs, significands and hits by fine cell, from one cutoff to the next: (cutoffs, cells, 3).

    The cells are integers that add up exactly over batches of rows.
    """
    native_truth = _native.Truth(**truth_arrays(ranking, truth))
    with _probabilities(ranking, int(cutoffs[-1])):
        found = _native.reliability_cells(
            ranking.native(), native_truth, cutoffs=cutoffs, bins=bins
        )
    return np.asarray(found).reshape(len(cutoffs), -1, 3)


def grouped_at(
    ranking: Ranking, truth: csr_matrix, cutoffs: np.ndarray, counts: np.ndarray | None
) -> np.ndarray:
    """Pairs, summed confidences and hits by rank and training frequency: (segments, groups, 3).

    `counts` has how many training texts carry each label; all are of the first group without it.
    Confidences are integers, in units of 2^-32, so that they add up exactly over batches of rows.
    """
    known = len(ranking.labels)
    group_of = np.zeros(known, np.int32)
    if counts is not None:
        group_of = np.searchsorted(FREQUENCIES, counts[:known], side="right").astype(np.int32) - 1
    segments = rank_segments(cutoffs)
    native_truth = _native.Truth(**truth_arrays(ranking, truth))
    with _probabilities(ranking, int(cutoffs[-1])):
        found = _native.grouped_reliability(
            ranking.native(),
            native_truth,
            cutoffs=segments,
            group_of=group_of,
            groups=len(FREQUENCIES),
        )
    return np.asarray(found).reshape(len(segments), len(FREQUENCIES), 3)


@contextmanager
def _probabilities(ranking: Ranking, k: int) -> Iterator[None]:
    """Say it if scores are refused because they are no probabilities."""
    try:
        yield
    except ValueError:
        top = ranking.top(k)
        confidence = top.scores[top.present]
        if ((confidence >= 0) & (confidence <= 1)).all():
            raise
        raise DataError(
            "the ranking's scores are not probabilities: "
            f"they reach from {confidence.min()} to {confidence.max()}"
        ) from None


def rank_segments(cutoffs: np.ndarray) -> np.ndarray:
    """The last ranks of what is counted apart, so that groups of ranks and cutoffs are sums of it.

    Examples
    --------
    >>> rank_segments(np.array([1, 7])).tolist()
    [1, 2, 3, 4, 5, 7]
    """
    return np.union1d(cutoffs, [rank for rank in RANKS if rank < cutoffs[-1]]).astype(np.int64)


def grouped_table(grouped: np.ndarray, cutoffs: np.ndarray, k: int, by: By) -> pa.Table:
    """As `reliability` gives it by rank or by frequency, from `grouped_at` of these cutoffs."""
    segments = rank_segments(cutoffs)
    segments, grouped = segments[segments <= k], grouped[segments <= k]
    if by == "rank":
        group_of = np.searchsorted(RANKS, segments)
        counts = np.zeros((len(RANKS) + 1, 3), np.int64)
        np.add.at(counts, group_of, grouped.sum(axis=1))
        reached = np.flatnonzero(counts[:, 0])
        counts = counts[reached]
        low = np.array([1, *(rank + 1 for rank in RANKS)])[reached]
        high: np.ndarray | list[int | None] = np.minimum([*RANKS, k], k)[reached]
    else:
        counts = grouped.sum(axis=0)
        low, high = np.array(FREQUENCIES), [*(start - 1 for start in FREQUENCIES[1:]), None]
    return _table(low, high, counts[:, 0], counts[:, 1] * _native.CONFIDENCE_UNIT, counts[:, 2])


def _layout(cells: int, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """The bin and the fine cell of each cell; their numbers add up to the cell's own."""
    starts = np.array([_first_of(b, bins) for b in range(1, bins)], np.int64)
    bin_of = np.searchsorted(starts, np.arange(cells), side="right")
    return bin_of, np.arange(cells) - bin_of


def _first_of(b: int, bins: int) -> int:
    """The number of the first cell of bin b."""
    value = np.float32(b / bins)
    while int(float(value) * bins) >= b:
        value = np.nextafter(value, np.float32(0))
    while int(float(value) * bins) < b:
        value = np.nextafter(value, np.float32(1))
    return _fine(value) + b


def _fine(value: np.float32) -> int:
    if value < LOWEST:
        return 0
    lowest = int(np.float32(LOWEST).view(np.uint32))
    return (int(value.view(np.uint32)) >> 13) - (lowest >> 13) + 1


def _confidences(cells: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """The summed confidences of the cells from their summed significands."""
    exponent = np.where(fine == 0, -48, (fine - 1) // OCTAVE - 47)
    return np.ldexp(cells[:, 1].astype(np.float64), exponent)


def equal_width(cells: np.ndarray, bins: int = BINS) -> Bins:
    """Bins of equal width on [0, 1] from cells (cells, 3)."""
    bin_of, fine = _layout(len(cells), bins)
    confidence = _confidences(cells, fine)
    edges = np.linspace(0, 1, bins + 1)
    pairs, total, hits = (
        np.bincount(bin_of, weights=column, minlength=bins)
        for column in (cells[:, 0], confidence, cells[:, 2])
    )
    return Bins(edges[:-1], edges[1:], pairs, total, hits, bin_of)


def equal_mass(cells: np.ndarray) -> Bins:
    """Bins of equally many pairs from cells (cells, 3).

    Equal confidences stay together, and so do those that agree in their first ten binary digits:
    a bin begins with the cell at which its share of the pairs lies before. Bins that ties leave
    empty are left out.
    """
    _, fine = _layout(len(cells), BINS)
    filled = np.flatnonzero(cells[:, 0])
    of_cell = np.full(len(cells), -1)
    cells, fine = cells[filled], fine[filled]
    before = np.cumsum(cells[:, 0]) - cells[:, 0]
    number = before * BINS // max(int(cells[:, 0].sum()), 1)
    _, of = np.unique(number, return_inverse=True)
    of_cell[filled] = of
    pairs, total, hits = (
        np.bincount(of, weights=column)
        for column in (cells[:, 0], _confidences(cells, fine), cells[:, 2])
    )
    octave, place = np.divmod(np.maximum(fine - 1, 0), OCTAVE)
    start = np.where(fine == 0, 0, np.ldexp(1 + place / OCTAVE, octave - 24))
    low = start[np.flatnonzero(np.diff(of, prepend=-1))] if len(of) else start
    if len(low):
        low[0] = 0
    return Bins(low, np.append(low[1:], 1.0)[: len(low)], pairs, total, hits, of_cell)


CALIBRATION_ERRORS = {"ECE": equal_width, "ACE": equal_mass}
"""The bins that each error is measured in."""


def reliability(
    ranking: Ranking,
    truth: Corpus | csr_matrix,
    k: int = 5,
    *,
    bins: int = BINS,
    by: By | None = None,
    train_labels: TrainLabels | None = None,
) -> pa.Table:
    """A reliability table: mean confidence and hit rate of the top-k lists by confidence.

    Parameters
    ----------
    ranking : Ranking
        Its scores are probabilities.
    truth : CSR matrix or Corpus
        The labels the rows really carry.
    k : int
        How many labels of each row are looked at.
    bins : int
        The number of bins of equal width on [0, 1].
    by : "rank" or "frequency", optional
        Instead of bins, groups of answers by their rank (1, 2, 3, 4, 5, 6 to 10, 11 to 20, 21 to
        100, beyond), or by how many training texts carry the label (0, 1 to 5, 6 to 19, 20 to 99,
        100 or more).
    train_labels : CSR matrix, Corpus, or pair (counts, n), optional
        The training labels, as for `evaluate`; `by="frequency"` needs them.

    Returns
    -------
    Arrow table
        One row a bin or group: `low` and `high` ends, `count`, `confidence`, `hit_rate` and the
        ends of its 95 % interval (Wilson), `hit_rate_low` and `hit_rate_high`, and the `gap`
        between the two: above 0, answers are surer than right. Ends of groups belong to them;
        `high` is null where there is none. Rates are null without answers.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> ranking = Ranking([[0, 1], [1, 0]], [[0.75, 0.25], [0.75, 0.25]], LabelSet(["a", "b"]))
    >>> truth = csr_matrix([[1, 0], [1, 0]])
    >>> table = reliability(ranking, truth, k=2, bins=2)
    >>> table.select(["low", "high", "count", "confidence", "hit_rate"]).to_pandas()
       low  high  count  confidence  hit_rate
    0  0.0   0.5      2        0.25       0.5
    1  0.5   1.0      2        0.75       0.5
    >>> reliability(ranking, truth, k=2, by="rank")["gap"].to_pylist()
    [0.25, -0.25]
    """
    if bins < 1:
        raise ParameterError(f"bins must be an integer of at least 1, not {bins!r}")
    matrix, cutoffs = label_matrix(truth, ranking.labels), np.array([k])
    if by is None:
        return equal_width(cells_at(ranking, matrix, cutoffs, bins)[0], bins).table()
    if by not in get_args(By):
        raise ParameterError(f"by must be one of {', '.join(get_args(By))}, not {by!r}")
    counts = None
    if by == "frequency":
        if train_labels is None:
            raise ParameterError("give train_labels to reliability: by='frequency' needs them")
        counts, _ = train_counts(train_labels, ranking.labels, len(ranking.labels), matrix.shape[1])
    return grouped_table(grouped_at(ranking, matrix, cutoffs, counts), cutoffs, k, by)
