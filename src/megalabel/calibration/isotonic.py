"""Isotonic regression: the best non-decreasing map from score to hit rate."""

from __future__ import annotations

import numpy as np

from megalabel import _native
from megalabel.base import array
from megalabel.calibration.pooled import Pairs, PooledCalibrator


class Isotonic(PooledCalibrator):
    """The non-decreasing map that fits best, whatever its shape, fitted on pooled top-k lists.

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
    >>> from scipy.sparse import csr_matrix
    >>> from megalabel import LabelSet, Ranking
    >>> labels = LabelSet(["cat", "dog"])
    >>> ranking = Ranking([[0, 1], [1, 0]], [[9, 4], [7, 4]], labels)
    >>> calibrator = Isotonic(k=2).fit(ranking, csr_matrix([[1, 0], [1, 1]]))
    >>> calibrator.apply(ranking).scores
    array([[1. , 0.5],
           [1. , 0.5]], dtype=float32)
    """

    LEARNED = {  # noqa: RUF012
        "thresholds_": array(np.float32, "knots"),
        "values_": array(np.float32, "knots"),
    }

    thresholds_: np.ndarray
    values_: np.ndarray

    def _learn(self, pairs: Pairs) -> None:
        weights = np.zeros(0, np.float32) if pairs.weights is None else pairs.weights
        hits = pairs.hits.view(np.uint8)
        self.thresholds_, self.values_ = _native.isotonic_fit(
            scores=pairs.scores, hits=hits, weights=weights
        )

    def _learn_nothing(self) -> None:
        self.thresholds_ = self.values_ = np.array([0, 1], np.float32)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Scores through the map."""
        return _native.isotonic_apply(
            scores=scores, thresholds=self.thresholds_, values=self.values_
        )

    def check_learned(self) -> None:
        """The knots must be a non-decreasing map into [0, 1]."""
        thresholds, values = self.thresholds_, self.values_
        for name, knots in (("thresholds_", thresholds), ("values_", values)):
            if len(knots) == 0 or not np.isfinite(knots).all():
                raise ValueError(f"{name} of Isotonic must hold finite numbers")
        if (thresholds[1:] <= thresholds[:-1]).any():
            raise ValueError("thresholds_ of Isotonic must rise")
        if values[0] < 0 or values[-1] > 1 or (values[1:] < values[:-1]).any():
            raise ValueError("values_ of Isotonic must be probabilities that never fall")
