"""Do probabilities mean what they say? Confidence against hit rate over the top-k lists.

The (confidence, hit) pairs of all top-k lists are pooled: over all labels, calibration would look
perfect because nearly every label is an easy miss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.data import Corpus, Ranking
from megalabel.data.truth import label_matrix, truth_arrays
from megalabel.errors import DataError, ParameterError
from megalabel.metrics.instance import ratio

BINS = 15
OCTAVE = _native.OCTAVE_CELLS  # fine cells
LOWEST = _native.SMALLEST_CONFIDENCE
CELLS = _native.FINE_CELLS + BINS - 1
Z = 1.959963984540054  # the normal distribution's 97.5 % quantile


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

    def slopes(self) -> np.ndarray:
        """By cell, whether its summed gap grows (1) or falls (-1) with the confidence of a pair."""
        signs = np.sign(self.confidence - self.hits)
        return np.asarray(np.append(signs, 0)[self.of_cell])

    def table(self) -> pa.Table:
        """As `reliability` gives it."""
        empty = self.pairs == 0
        rate = ratio(self.hits, self.pairs)
        low, high = wilson(self.hits, self.pairs)
        return pa.table(
            {
                "low": self.low,
                "high": self.high,
                "count": self.pairs.astype(np.int64),
                "confidence": pa.array(ratio(self.confidence, self.pairs), mask=empty),
                "hit_rate": pa.array(rate, mask=empty),
                "hit_rate_low": pa.array(low, mask=empty),
                "hit_rate_high": pa.array(high, mask=empty),
            }
        )


def wilson(hits: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % intervals of Wilson for hit rates; from 0 to 1 where there are no pairs."""
    n, rate = np.maximum(pairs, 1), ratio(hits, pairs)
    centre = (rate + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * np.sqrt(rate * (1 - rate) / n + Z * Z / (4 * n * n))
    low = np.where(pairs > 0, np.clip(centre - half, 0, rate), 0)
    return low, np.where(pairs > 0, np.clip(centre + half, rate, 1), 1)


def cells_at(
    ranking: Ranking, truth: csr_matrix, cutoffs: np.ndarray, bins: int = BINS
) -> np.ndarray:
    """Pairs, significands and hits by fine cell, from one cutoff to the next: (cutoffs, cells, 3).

    The cells are integers that add up exactly over batches of rows.
    """
    arrays = truth_arrays(ranking, truth)
    try:
        found = _native.reliability_cells(
            ranking.native(), _native.Truth(**arrays), cutoffs=cutoffs, bins=bins
        )
    except ValueError:
        top = ranking.top(int(cutoffs[-1]))
        confidence = top.scores[top.present]
        if ((confidence >= 0) & (confidence <= 1)).all():
            raise
        raise DataError(
            "the ranking's scores are not probabilities: "
            f"they reach from {confidence.min()} to {confidence.max()}"
        ) from None
    return np.asarray(found).reshape(len(cutoffs), -1, 3)


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
    ranking: Ranking, truth: Corpus | csr_matrix, k: int = 5, *, bins: int = BINS
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

    Returns
    -------
    Arrow table
        One row a bin: `low`, `high`, `count`, `confidence`, `hit_rate` and the ends of its 95 %
        interval (Wilson), `hit_rate_low` and `hit_rate_high`; rates are null in an empty bin.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> ranking = Ranking([[0, 1], [1, 0]], [[0.75, 0.25], [0.75, 0.25]], LabelSet(["a", "b"]))
    >>> table = reliability(ranking, csr_matrix([[1, 0], [1, 0]]), k=2, bins=2)
    >>> table.select(["low", "high", "count", "confidence", "hit_rate"]).to_pandas()
       low  high  count  confidence  hit_rate
    0  0.0   0.5      2        0.25       0.5
    1  0.5   1.0      2        0.75       0.5
    """
    if bins < 1:
        raise ParameterError(f"bins must be an integer of at least 1, not {bins!r}")
    matrix = label_matrix(truth, ranking.labels)
    return equal_width(cells_at(ranking, matrix, np.array([k]), bins)[0], bins).table()
