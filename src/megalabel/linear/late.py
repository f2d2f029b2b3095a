"""Linear classifiers of labels that came after training: what becomes of them with more texts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, hstack

from megalabel.data.matrix import check_targets, check_width
from megalabel.errors import ParameterError, ShapeError
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.base import Matrix
    from megalabel.data import LabelSet

log = logging.getLogger(__name__)

_AT_ONCE = 256  # labels whose margins are held at a time
_NEGATIVES, _MORE = 20, 10  # the hardest texts of other labels: so many, and so many a positive
_ROUNDS, _ENOUGH = 50, 1e-6


def joined(classifier: Any, more: int) -> np.ndarray:
    """Which labels came after training, once so many more have come."""
    before = classifier.joined_
    if before is None:
        before = np.zeros(len(classifier.labels_), bool)
    return np.append(before, np.ones(more, bool))


def learnable(
    classifier: Any, X: Matrix, Y: csr_matrix, labels: LabelSet, width: int
) -> np.ndarray:
    """The labels of some rows whose classifiers can go on learning; an error if there are none."""
    check_width(classifier, X, width)
    Y, name = check_targets(X, Y), type(classifier).__name__
    known = classifier.labels_
    if not len(labels) == Y.shape[1] == len(known):
        raise ShapeError(
            f"Y is {Y.shape} and there are {len(labels)} labels, but {name} knows {len(known)}: "
            "others must be added first (add_labels)"
        )
    met = np.unique(Y.indices).astype(np.int64)
    came = np.zeros(0, np.int64) if classifier.joined_ is None else met[classifier.joined_[met]]
    if not len(came):
        raise ParameterError(
            f"a {name} is trained on all rows at once, and goes on learning labels alone that were "
            "added later (add_labels): fit it anew, or take the system online-plt "
            "(linear.OnlineTree), which goes on learning and takes in new labels"
        )
    if len(came) < len(met):
        log.warning(
            "%d of the %d labels of these texts were trained on all rows at once: their "
            "classifiers stay as they are",
            len(met) - len(came),
            len(met),
        )
    return came


def updated(
    weights: csr_matrix, X: csr_matrix, Y: csr_matrix, loss: str, cost: float, bias: float
) -> csr_matrix:
    """Classifiers (labels, features + 1) that have learned rows X and whether they carry the labels
    (rows, labels); biases stay.

    Of each, 1/2 |w - before|² + C Σ loss(t <x, w>) is minimised over the rows that carry the label
    and the hardest of the others, those with the largest margins: of the rows of training, it knows
    what it was before.

    Examples
    --------
    >>> before, rows = csr_matrix([[0.0, 0, -1]]), csr_matrix([[1.0, 0], [0, 1]])
    >>> after = updated(before, rows, csr_matrix([[1.0], [0]]), "squared-hinge", 1.0, 1.0)
    >>> after.toarray().round(2)
    array([[ 1.33,  0.  , -1.  ]])
    """
    extended = hstack([X, np.full((X.shape[0], 1), bias)], "csr")
    extended.sort_indices()
    Y, columns = Y.tocsc(), []
    with progress("learning more of labels", Y.shape[1]) as bar:
        for start in range(0, Y.shape[1], _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, Y.shape[1]))
            margins = (weights[part] @ extended.T).toarray().astype(np.float64)
            for place, own in enumerate(margins):
                label = start + place
                positive = Y.indices[Y.indptr[label] : Y.indptr[label + 1]]
                columns.append(_moved(X, positive, own, loss, cost))
            bar.advance(part.stop - part.start)
    shares = csr_matrix(
        (
            np.concatenate([values for _, values in columns]),
            np.concatenate([rows for rows, _ in columns]),
            np.append(0, np.cumsum([len(rows) for rows, _ in columns])),
        ),
        shape=(Y.shape[1], X.shape[0]),
    )
    change = csr_matrix(shares @ X)
    change.resize(weights.shape)
    return csr_matrix(weights + change)


def _moved(
    X: csr_matrix, positive: np.ndarray, margins: np.ndarray, loss: str, cost: float
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that a classifier learns from, and how much of each is added to it."""
    others = np.delete(np.arange(len(margins)), positive)
    most = min(len(others), _NEGATIVES + _MORE * len(positive))
    hardest = others[np.argsort(-margins[others], kind="stable")[:most]]
    rows = np.sort(np.append(positive, hardest))
    truth = np.where(np.isin(rows, positive), 1.0, -1.0)
    own = X[rows].astype(np.float64)
    solve = _logistic if loss == "logistic" else _hinge
    return rows, solve((own @ own.T).toarray(), truth, margins[rows], cost)


def _hinge(products: np.ndarray, truth: np.ndarray, before: np.ndarray, cost: float) -> np.ndarray:
    """Squared hinge by its active set: a row within the margin has b = 2 C (t - m)."""
    shares, active = np.zeros(len(truth)), truth * before < 1
    for _ in range(_ROUNDS):
        shares[:] = 0
        at = np.flatnonzero(active)
        system = products[np.ix_(at, at)] + np.eye(len(at)) / (2 * cost)
        shares[at] = np.linalg.solve(system, (truth - before)[at])
        now = truth * (before + products @ shares) < 1
        if (now == active).all():
            break
        active = now
    return shares


def _logistic(
    products: np.ndarray, truth: np.ndarray, before: np.ndarray, cost: float
) -> np.ndarray:
    """Logistic loss by Newton's steps, each at most halved until the objective falls."""

    def objective(shares: np.ndarray) -> float:
        margins = before + products @ shares
        return float(
            shares @ products @ shares / 2 + cost * np.logaddexp(0, -truth * margins).sum()
        )

    shares = np.zeros(len(truth))
    best = objective(shares)
    for _ in range(_ROUNDS):
        margins = before + products @ shares
        miss = 1 / (1 + np.exp(np.clip(truth * margins, -500, 500)))  # 1 - P(truth)
        curve = np.maximum(cost * miss * (1 - miss), 1e-12)
        wanted = margins - before + cost * truth * miss / curve
        step = np.linalg.solve(products + np.diag(1 / curve), wanted) - shares
        size = 1.0
        while size > 1e-4 and objective(shares + size * step) > best:
            size /= 2
        shares = shares + size * step
        now = objective(shares)
        if best - now <= _ENOUGH * abs(best):
            break
        best = now
    return shares
