"""Metrics that are made of sums over the texts: one value a text, then the mean over all texts.

Texts without labels count too. 0/0 is 0 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from megalabel import _native

ROW_SUMS = tuple(_native.RowTotal.__members__)
SUMS_BEFORE = _native.ROW_SUMS_BEFORE
"""The number of rows and of positives come before the sums at each cutoff."""

UNBOUNDED = ("PSP-raw", "PSR-raw", "PSnDCG-raw", "log-loss")
"""The metrics that may be above 1."""


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Their quotient in float64, with 0/0 = 0."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    found: np.ndarray = np.zeros(shape)
    np.divide(numerator, denominator, where=denominator != 0, out=found)
    return found


def row_metrics(
    sums: np.ndarray, cutoffs: Sequence[int], *, weighted: bool, probabilities: bool
) -> dict[str, np.ndarray]:
    """Metrics by name from sums over rows, (..., sums) as `add_row_sums` lays them out.

    Each value has the leading shape of the sums and the cutoffs last. The published propensity
    scores are ratios of two sums over all rows: what the ranking gained, and the most it could
    have gained.
    """
    n, positives = sums[..., 0, None], sums[..., 1, None]
    kinds = sums[..., SUMS_BEFORE:].reshape(*sums.shape[:-1], len(ROW_SUMS), len(cutoffs))
    of = {name: kinds[..., i, :] for i, name in enumerate(ROW_SUMS)}
    k = np.asarray(cutoffs, np.float64)
    hits, predicted = of["hits"], of["predicted"]
    found = {
        "P": ratio(hits, n * k),
        "R": ratio(of["recall"], n),
        "F1": ratio(of["f1"], n),
        "nDCG": ratio(of["ndcg"], n),
        "MRR": ratio(of["reciprocal_rank"], n),
        "abandonment": ratio(n - of["any_hit"], n),
        "micro-P": ratio(hits, predicted),
        "micro-R": ratio(hits, positives),
        "micro-F1": ratio(2 * hits, predicted + positives),
    }
    if weighted:
        found |= {
            "PSP": ratio(of["gained"], of["attainable"]),
            "PSR": ratio(of["gained_recall"], of["attainable_recall"]),
            "PSnDCG": ratio(of["gained_ndcg"], of["attainable_ndcg"]),
            "PSP-raw": ratio(of["gained"], n * k),
            "PSR-raw": ratio(of["gained_recall"], n),
            "PSnDCG-raw": ratio(of["gained_ndcg"], n),
        }
    if probabilities:
        found |= {
            "Brier": ratio(of["squared_error"], predicted),
            "log-loss": ratio(of["log_loss"], predicted),
        }
    return found
