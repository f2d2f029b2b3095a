"""How a tagger is calibrated, and how well that went."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import clone
from megalabel.data import Ranking
from megalabel.metrics import evaluate, reliability
from megalabel.parts import Calibrator

_FOLDS = 5
_SHOWN = 5  # labels of each text that the tables are of


class Calibrated(NamedTuple):
    """A fitted calibrator and what it does on texts that it has not seen."""

    calibrator: Calibrator
    metrics: dict[str, Any]
    """Of the calibrated ranking, as `Evaluation.to_dict` gives them."""
    reliability: dict[str, Any]
    """`k`, `texts`, and the reliability tables `before` and `after`, each with its `ECE`; before is
    None where scores were not probabilities."""


def calibrated(
    calibrator: Calibrator,
    ranking: Ranking,
    targets: csr_matrix,
    label_counts: np.ndarray,
    counted: bool,
    train_labels: tuple[np.ndarray, int],
) -> Calibrated:
    """Fit a copy of a calibrator on the ranking of held-out texts.

    Each text is measured by a calibrator learned from the other folds, so that no text is measured
    by what was learned from it; the calibrator that stays learns from all of them.

    Parameters
    ----------
    calibrator : Calibrator
    ranking : Ranking
    targets : CSR matrix
    label_counts, counted
        As `Calibrator.fit` takes them.
    train_labels : (label counts, number of texts)
        Those of all texts of training, for metrics.
    """

    def fit(rows: Any) -> Calibrator:
        counts: dict[str, Any] = {"label_counts": label_counts, "counted": counted}
        fitted: Calibrator = clone(calibrator).fit(ranking[rows], targets[rows], **counts)
        return fitted

    fitted = fit(slice(None))
    if len(ranking) < 2 or not targets.nnz:
        return Calibrated(fitted, {}, {})
    fold = np.arange(len(ranking)) % _FOLDS
    ids, scores = np.empty_like(ranking.ids), np.empty_like(ranking.scores)
    for number in range(min(_FOLDS, len(ranking))):
        inside = fold == number
        applied = fit(~inside).apply(ranking[inside])
        ids[inside], scores[inside] = applied.ids, applied.scores
    after = Ranking(ids, scores, ranking.labels)
    measured = evaluate(after, targets, train_labels=train_labels, probabilities=True)
    k = min(_SHOWN, calibrator.k)
    tables: dict[str, Any] = {"k": k, "texts": len(ranking), "before": None}
    present = ranking.scores[ranking.present]
    if ((present >= 0) & (present <= 1)).all():
        tables["before"] = _table(ranking, targets, k)
    tables["after"] = _table(after, targets, k)
    return Calibrated(fitted, measured.to_dict(), tables)


def _table(ranking: Ranking, targets: csr_matrix, k: int) -> dict[str, Any]:
    error = evaluate(ranking, targets, k=k, probabilities=True)[f"ECE@{k}"]
    return {"ECE": error, **reliability(ranking, targets, k).to_pydict()}
