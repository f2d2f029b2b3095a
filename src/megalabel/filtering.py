"""Rankings among some labels, with the probabilities that these labels have among all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from megalabel.data import Ranking
from megalabel.data.matrix import clamped, row_count, some_rows
from megalabel.parts import Calibrator, Classifier

Calibrate = Callable[[Any, Ranking], Ranking]
"""Makes probabilities of the scores of rows."""


def ranked_among(
    classifier: Classifier,
    X: Any,
    k: int,
    allowed: np.ndarray,
    calibration: Calibrator | None,
    calibrate: Calibrate,
) -> Ranking:
    """The k best labels of each row among those allowed, with probabilities.

    What a label's probability is may depend on the labels around it. So labels are ranked among all
    first, as deep as calibration learned, and keep the probabilities that they have there. The
    search among the allowed ones adds others, for rows that lack some, or for all rows where the
    first search may have missed better ones; each has the probability that it would have at its
    place among all.
    """
    if calibration is None:
        return classifier.rank_allowed(X, k, allowed)
    k = clamped(k, max(1, len(allowed)))
    wanted = min(k, int(allowed.sum()))
    scored = classifier.rank(X, max(calibration.shortlist(k), calibration.k))
    found = _widened(calibrate(X, scored).only(allowed), k)
    lacking = np.arange(row_count(X))
    if not classifier.may_miss:
        lacking = np.flatnonzero(found.present.sum(axis=1) < wanted)
    if not len(lacking) or not wanted:
        return found
    rows = X if len(lacking) == row_count(X) else some_rows(X, lacking)
    scored, more = scored[lacking], classifier.rank_allowed(rows, k, allowed)
    fresh = scored.lacks(more)
    if not fresh.any():
        return found
    more = more.with_cells(fresh)
    sure = calibrate(rows, beside(scored, more))
    best = beside(found[lacking], sure.with_cells(~more.lacks(sure) & sure.present))
    found.ids[lacking], found.scores[lacking] = best.ids[:, :k], best.scores[:, :k]
    return found


def beside(first: Ranking, second: Ranking) -> Ranking:
    """The labels of two rankings, which have none in common, by their scores; those of the first
    before those of the second where scores are equal.

    Examples
    --------
    >>> from megalabel.data import LabelSet
    >>> labels = LabelSet(["cat", "dog", "fox"])
    >>> beside(Ranking([[0]], [[0.5]], labels), Ranking([[2, 1]], [[0.9, 0.5]], labels)).ids
    array([[2, 0, 1]], dtype=int32)
    """
    ids = np.hstack([first.ids, second.ids])
    scores = np.hstack([first.scores, second.scores])
    order = np.lexsort((-scores, ids >= len(first.labels)))  # places left over come last
    return Ranking(
        np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1), first.labels
    )


def _widened(ranking: Ranking, k: int) -> Ranking:
    """The first k columns of a ranking, or all of them and places left over."""
    left = ((0, 0), (0, max(0, k - ranking.k)))
    ids = np.pad(ranking.ids[:, :k], left, constant_values=len(ranking.labels))
    return Ranking(
        ids, np.pad(ranking.scores[:, :k], left, constant_values=-np.inf), ranking.labels
    )
