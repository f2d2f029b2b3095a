"""Isotonic regression: the best non-decreasing map from score to hit rate."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import Calibrator, Check, integer
from megalabel.data import Ranking
from megalabel.data.truth import hits
from megalabel.errors import DataError

log = logging.getLogger(__name__)
_FINITE = np.finfo(np.float32)
_BLOCK = 1 << 20  # scores mapped at a time: no float64 copy of the whole ranking


class Isotonic(Calibrator):
    """One non-decreasing map from score to probability, fitted on pooled top-k lists.

    Scores seen in fit get the hit rate of their block of scores, so that on the fit rows the mean
    probability is the hit rate. Between blocks the map is linear rather than a step: a new score
    there is not torn to either side, and fewer labels tie. Beyond the scores seen it is constant.

    Parameters
    ----------
    k : int
        How many labels of each row are learned from: as many as will be answered, as a map learned
        on top-5 lists does not hold for top-100 lists.

    Attributes
    ----------
    thresholds_, values_ : float32 arrays
        The map's knots: scores, and their probabilities. Where there was no label to learn from,
        the map leaves scores as they are within [0, 1].

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> labels = LabelSet(["cat", "dog"])
    >>> ranking = Ranking([[0, 1], [1, 0]], [[9, 4], [7, 4]], labels)
    >>> calibrator = Isotonic(k=2).fit(ranking, csr_matrix([[1, 0], [1, 1]]))
    >>> calibrator.apply(ranking).scores
    array([[1. , 0.5],
           [1. , 0.5]], dtype=float32)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"k": integer(1)}

    def __init__(self, k: int = 5) -> None:
        self.k = k

    def fit(self, ranking: Ranking, Y: csr_matrix) -> Self:
        """Learn from the top k of rows that the classifier has not seen, and their labels."""
        from scipy.optimize import isotonic_regression  # slow to import, and not needed to apply

        self.check_parameters()
        top = ranking.top(self.k)
        present = top.present
        hit = hits(top, Y)[present]
        scores = _finite(top.scores[present])
        if np.isnan(scores).any():
            raise DataError("the ranking holds a score that is not a number")
        if len(scores) == 0:
            log.warning("no ranked label to calibrate on: scores stay as they are within [0, 1]")
            self.thresholds_ = self.values_ = np.array([0, 1], np.float32)
            return self
        # equal scores must get one probability: they are one point of their joint weight
        distinct, where, weights = np.unique(scores, return_inverse=True, return_counts=True)
        rates = np.bincount(where, hit) / weights
        fitted = isotonic_regression(rates, weights=weights)
        first = fitted.blocks[:-1]
        last = fitted.blocks[1:] - 1
        knots = np.unique(np.concatenate([first, last]))
        self.thresholds_ = distinct[knots]
        # float32 knots, so that rounding can never make the map fall between them
        self.values_ = np.clip(fitted.x[knots], 0, 1).astype(np.float32)
        return self

    def apply(self, ranking: Ranking) -> Ranking:
        """The same ranking with probabilities for scores; labels keep their order, ties too."""
        self.check_fitted()
        scores = ranking.scores.ravel()
        mapped = np.empty_like(scores)
        for start in range(0, len(scores), _BLOCK):
            part = slice(start, start + _BLOCK)
            mapped[part] = np.interp(_finite(scores[part]), self.thresholds_, self.values_)
        probabilities = mapped.reshape(ranking.scores.shape)
        probabilities[~ranking.present] = -np.inf
        return Ranking(ranking.ids, probabilities, ranking.labels)

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take the knots back; they must be a non-decreasing map into [0, 1]."""
        if set(learned) != {"thresholds_", "values_"}:
            raise ValueError(f"Isotonic learns thresholds_ and values_, not {sorted(learned)}")
        for name, knots in learned.items():
            if not isinstance(knots, np.ndarray) or knots.dtype != np.float32 or knots.ndim != 1:
                raise ValueError(f"{name} of Isotonic must be a float32 array of one dimension")
            if len(knots) == 0 or not np.isfinite(knots).all():
                raise ValueError(f"{name} of Isotonic must hold finite numbers")
        thresholds, values = learned["thresholds_"], learned["values_"]
        if len(thresholds) != len(values):
            raise ValueError(f"{len(thresholds)} thresholds_ but {len(values)} values_ of Isotonic")
        if (thresholds[1:] <= thresholds[:-1]).any():
            raise ValueError("thresholds_ of Isotonic must rise")
        if values[0] < 0 or values[-1] > 1 or (values[1:] < values[:-1]).any():
            raise ValueError("values_ of Isotonic must be probabilities that never fall")
        super().restore(learned)


def _finite(scores: np.ndarray) -> np.ndarray:
    """Infinite scores as the largest finite ones, between which a line can be drawn."""
    return np.asarray(np.clip(scores, _FINITE.min, _FINITE.max))
