"""Instance-wise metrics: one value a row, then the mean over all rows, those without labels too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix

from megalabel._native import ranking_sums
from megalabel.data import Ranking
from megalabel.data.truth import truth_arrays


def instance_metrics(
    ranking: Ranking,
    truth: csr_matrix,
    cutoffs: Sequence[int],
    inverse_propensities: np.ndarray | None = None,
) -> dict[str, float]:
    """P, R, nDCG and, where propensities are known, PSP at each of the rising cutoffs.

    The published PSP is a ratio of two sums over all rows: what the ranking gained, and the most
    it could have gained. 0/0 is 0 throughout.
    """
    weights = np.empty(0) if inverse_propensities is None else inverse_propensities
    hits, recall, ndcg, gained, attainable = ranking_sums(
        ranking.ids,
        len(ranking.labels),
        *truth_arrays(ranking, truth),
        np.asarray(cutoffs, np.int64),
        weights,
    )
    n, k = len(ranking), np.asarray(cutoffs)
    columns = {"P": hits / (n * k), "R": recall / n, "nDCG": ndcg / n}
    if inverse_propensities is not None:
        columns["PSP"] = np.divide(gained, attainable, where=attainable > 0, out=np.zeros(len(k)))
        columns["PSP-raw"] = gained / (n * k)
    return {
        f"{name}@{cutoff}": float(value)
        for name, values in columns.items()
        for cutoff, value in zip(cutoffs, values, strict=True)
    }
