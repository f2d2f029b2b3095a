"""What one map over all labels and ranks shares: pooling the pairs of score and hit."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from megalabel.base import Check, integer
from megalabel.data import Ranking
from megalabel.data.truth import hits
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.parts import Calibrator

log = logging.getLogger(__name__)


class Pairs(NamedTuple):
    """The ranked labels of some rows, one after another: their scores, and which are right."""

    scores: np.ndarray
    hits: np.ndarray
    weights: np.ndarray | None

    def some(self, chosen: np.ndarray) -> Pairs:
        """The chosen pairs."""
        weights = None if self.weights is None else self.weights[chosen]
        return Pairs(self.scores[chosen], self.hits[chosen], weights)


def pool(ranking: Ranking, Y: csr_matrix, weights: ArrayLike | None) -> Pairs:
    """The pairs of a ranking's labels; weights are those of its rows."""
    hit = hits(ranking, Y)
    of_rows = None
    if weights is not None:
        of_rows = np.asarray(weights, np.float32)
        if of_rows.shape != (len(ranking),):
            raise ShapeError(f"weights are {of_rows.shape} for {len(ranking)} ranked rows")
        if not (np.isfinite(of_rows) & (of_rows >= 0)).all():
            raise ParameterError("weights must be finite and not negative")
        of_rows = np.repeat(of_rows, ranking.k)
    pairs = Pairs(ranking.scores.ravel(), hit.ravel(), of_rows)
    present = ranking.present.ravel()
    if not present.all():
        pairs = pairs.some(present)
    if np.isnan(pairs.scores).any():
        raise DataError("the ranking holds a score that is not a number")
    return pairs


class PooledCalibrator(Calibrator):
    """One map from score to probability that never falls, for all labels and ranks alike.

    So the order of labels stays: labels whose scores the map makes equal keep theirs too.

    Parameters
    ----------
    k : int
        How many labels of each row are learned from: as many as will be answered, as a map learned
        on top-5 lists does not hold for top-100 lists.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"k": integer(1)}

    def __init__(self, k: int = 5) -> None:
        self.k = k

    def fit(
        self,
        ranking: Ranking,
        Y: csr_matrix,
        *,
        label_counts: np.ndarray | None = None,
        counted: bool = False,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Learn from the top k of rows that the classifier has not seen, and their labels.

        `weights` say how much each row counts; the counts of labels are not looked at.
        """
        self.check_parameters()
        return self.fit_pairs(pool(ranking.top(self.k), Y, weights))

    def fit_pairs(self, pairs: Pairs) -> Self:
        """Learn from pairs of score and hit. From none, scores stay as they are within [0, 1]."""
        if len(pairs.scores) and (pairs.weights is None or pairs.weights.any()):
            self._learn(pairs)
        else:
            log.warning("no ranked label to calibrate on: scores stay as they are within [0, 1]")
            self._learn_nothing()
        return self

    @abstractmethod
    def _learn(self, pairs: Pairs) -> None:
        """Learn the map; some pair counts."""

    @abstractmethod
    def _learn_nothing(self) -> None:
        """Become the map that leaves scores as they are."""

    @abstractmethod
    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Scores (float32, one dimension) through the map."""

    def apply(self, ranking: Ranking) -> Ranking:
        """The same ranking with probabilities for scores; labels keep their order, ties too."""
        self.check_fitted()
        mapped = self.probabilities(ranking.scores.ravel()).reshape(ranking.scores.shape)
        mapped[~ranking.present] = -np.inf
        return Ranking(ranking.ids, mapped, ranking.labels)
