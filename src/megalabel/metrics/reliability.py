"""Do probabilities mean what they say? Confidence against hit rate over the top-k lists.

The (confidence, hit) pairs of all top-k lists are pooled: over all labels, calibration would look
perfect because nearly every label is an easy miss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from megalabel._native import reliability_sums
from megalabel.data import Corpus, Ranking
from megalabel.data.truth import label_matrix, truth_arrays
from megalabel.errors import DataError, ParameterError


class Bins(NamedTuple):
    """Sums over bins of equal width on [0, 1], one row a rank or one row in all."""

    pairs: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray

    def top(self, k: int) -> Bins:
        """The sums over the first k ranks."""
        return Bins(*(column[:k].sum(axis=0) for column in self))

    def expected_calibration_error(self) -> float:
        """The gap between mean confidence and hit rate, weighted by the pairs in each bin."""
        gap = np.abs(self.confidence - self.hits).sum()
        return float(gap / max(self.pairs.sum(), 1))


def bins_by_rank(ranking: Ranking, truth: Corpus | csr_matrix, k: int, bins: int) -> Bins:
    """Pairs of the top k by rank and bin; a bin holds its lower end, the last one 1.0 too."""
    if bins < 1:
        raise ParameterError(f"bins must be an integer of at least 1, not {bins!r}")
    k = min(k, ranking.k)
    arrays = truth_arrays(ranking, label_matrix(truth, ranking.labels))
    try:
        sums = reliability_sums(ranking.ids, ranking.scores, len(ranking.labels), *arrays, k, bins)
    except ValueError:
        confidence = ranking.scores[:, :k][ranking.present[:, :k]]
        if ((confidence >= 0) & (confidence <= 1)).all():
            raise
        raise DataError(
            "the ranking's scores are not probabilities: "
            f"they reach from {confidence.min()} to {confidence.max()}"
        ) from None
    return Bins(*np.moveaxis(sums.reshape(k, bins, 3), 2, 0))


def reliability(
    ranking: Ranking, truth: Corpus | csr_matrix, k: int = 5, *, bins: int = 15
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
        One row a bin: `low`, `high`, `count`, `confidence` and `hit_rate`, the last two null in
        an empty bin.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> ranking = Ranking([[0, 1], [1, 0]], [[0.75, 0.25], [0.75, 0.25]], LabelSet(["a", "b"]))
    >>> reliability(ranking, csr_matrix([[1, 0], [1, 0]]), k=2, bins=2).to_pandas()
       low  high  count  confidence  hit_rate
    0  0.0   0.5      2        0.25       0.5
    1  0.5   1.0      2        0.75       0.5
    """
    table = bins_by_rank(ranking, truth, k, bins).top(k)
    edges, empty = np.linspace(0, 1, bins + 1), table.pairs == 0
    filled = np.maximum(table.pairs, 1)
    return pa.table(
        {
            "low": edges[:-1],
            "high": edges[1:],
            "count": table.pairs.astype(np.int64),
            "confidence": pa.array(table.confidence / filled, mask=empty),
            "hit_rate": pa.array(table.hits / filled, mask=empty),
        }
    )
