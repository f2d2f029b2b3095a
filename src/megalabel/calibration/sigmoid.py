"""Platt, temperature and beta calibration: a sigmoid of one to three numbers.

They learn from fewer pairs than isotonic regression and never tie scores that differ much, but fit
only where the true map has their shape.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import ClassVar

import numpy as np

from megalabel.base import Check, Learned, array, boolean, check_array, integer, one_of, value
from megalabel.calibration.pooled import Pairs, PooledCalibrator
from megalabel.errors import DataError

_EDGE = 1e-7  # probabilities nearer to 0 or 1 than that count as this near: logits stay finite
_BLOCK = 1 << 18  # pairs looked at a time: bounds memory
_STEPS = 60  # of Newton's method, which takes about ten


class Sigmoid(PooledCalibrator):
    """A sigmoid of a sum of rising terms of the score, by maximum likelihood.

    Targets are a little off 0 and 1 (Platt 1999), so that scores that tell hits from misses without
    error do not make the slope infinite. Slopes below 0, which would turn the ranking round, are
    not allowed.

    Attributes
    ----------
    coefficients_ : float64 array
        One a term, the constant last where there is one.
    of_probabilities_ : bool
        Whether scores were taken for probabilities, whose logits count, or for margins.
    """

    CONSTANT: ClassVar[bool] = True
    SLOPES: ClassVar[int] = 1

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "coefficients_": array(np.float64, "terms"),
        "of_probabilities_": value(boolean()),
    }

    coefficients_: np.ndarray
    of_probabilities_: bool

    @abstractmethod
    def _terms(self, scores: np.ndarray) -> np.ndarray:
        """The terms of scores: float64 (scores, terms)."""

    def _takes_probabilities(self, scores: np.ndarray) -> bool:
        """Whether the scores are to be taken for probabilities."""
        return bool(scores.min() >= 0 and scores.max() <= 1)

    def _learn(self, pairs: Pairs) -> None:
        self.of_probabilities_ = self._takes_probabilities(pairs.scores)
        terms = self.SLOPES + self.CONSTANT
        found = []
        # the best of the fits with some slopes left out is the best with no slope below 0
        for used in range(self.SLOPES, -1, -1):
            for slopes in combinations(range(self.SLOPES), used):
                kept = [*slopes, *range(self.SLOPES, terms)]
                coefficients = np.zeros(terms)
                coefficients[kept], loss = self._maximise(pairs, kept)
                if (coefficients[: self.SLOPES] >= 0).all():
                    found.append((loss, coefficients))
            if used == self.SLOPES and found:
                break
        self.coefficients_ = min(found, key=lambda fit: fit[0])[1]

    def _learn_nothing(self) -> None:
        self.of_probabilities_ = True
        self.coefficients_ = np.array([1.0] * self.SLOPES + [0.0] * self.CONSTANT)

    def _maximise(self, pairs: Pairs, kept: list[int]) -> tuple[np.ndarray, float]:
        """Coefficients of the kept terms by Newton's method, with halved steps, and their loss."""
        here = np.zeros(len(kept))
        loss, gradient, curvature = self._look(pairs, kept, here)
        for _ in range(_STEPS if kept else 0):
            # a little of the diagonal, for terms that do not vary
            damped = curvature + 1e-9 * np.diag(np.diag(curvature) + 1e-9)
            step = np.linalg.solve(damped, gradient)
            size = 1.0
            while (there := self._look(pairs, kept, here - size * step))[0] > loss and size > 1e-6:
                size /= 2
            if there[0] > loss:
                break
            gain, here = loss - there[0], here - size * step
            loss, gradient, curvature = there
            if gain <= 1e-12 * (1 + abs(loss)):
                break
        return here, loss

    def _look(
        self, pairs: Pairs, kept: list[int], coefficients: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The mean loss at some coefficients, its gradient and its curvature."""
        loss, gradient = 0.0, np.zeros(len(kept))
        curvature, total = np.zeros((len(kept), len(kept))), 0.0
        for terms, targets, weights in self._blocks(pairs, kept):
            margins = terms @ coefficients
            rates = expit(margins)
            loss += float(weights @ (np.logaddexp(0, margins) - targets * margins))
            gradient += terms.T @ (weights * (rates - targets))
            curvature += (terms * (weights * rates * (1 - rates))[:, None]).T @ terms
            total += float(weights.sum())
        return loss / total, gradient / total, curvature / total

    def _blocks(
        self, pairs: Pairs, kept: list[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Terms, targets and weights of the pairs, some at a time."""
        count = np.ones(1) if pairs.weights is None else pairs.weights
        of_hits = float(np.sum(count * pairs.hits, dtype=np.float64))
        of_all = float(len(pairs.hits) if pairs.weights is None else count.sum(dtype=np.float64))
        hit, miss = (of_hits + 1) / (of_hits + 2), 1 / (of_all - of_hits + 2)
        for start in range(0, len(pairs.scores), _BLOCK):
            part = slice(start, start + _BLOCK)
            hits = pairs.hits[part]
            weights = np.ones(len(hits)) if pairs.weights is None else pairs.weights[part]
            terms = self._terms(pairs.scores[part])[:, kept]
            yield terms, np.where(hits, hit, miss), weights.astype(np.float64)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Scores through the map."""
        mapped = np.empty(len(scores), np.float32)
        for start in range(0, len(scores), _BLOCK):
            part = slice(start, start + _BLOCK)
            terms = self._terms(scores[part])
            # added up one by one: a matrix product's rounding depends on how many rows it has
            margins = sum(c * terms[:, i] for i, c in enumerate(self.coefficients_))
            mapped[part] = expit(np.asarray(margins))
        return mapped

    def _margins(self, scores: np.ndarray) -> np.ndarray:
        """Scores as margins: as they are, or the logits of probabilities."""
        if not self.of_probabilities_:
            return np.clip(scores.astype(np.float64), -1e30, 1e30)
        p = _inner(scores)
        return np.asarray(np.log(p) - np.log1p(-p))

    def check_learned(self) -> None:
        """Slopes must not be below 0."""
        name, size = type(self).__name__, self.SLOPES + self.CONSTANT
        check_array(name, "coefficients_", self.coefficients_, np.float64, (size,))
        slopes = self.coefficients_[: self.SLOPES]
        if not np.isfinite(self.coefficients_).all() or (slopes < 0).any():
            raise ValueError(f"coefficients_ of {name} must be finite, and its slopes not below 0")


class Platt(Sigmoid):
    """A logistic regression on the score (Platt 1999): slope and constant.

    Parameters
    ----------
    k : int
        How many labels of each row are learned from.
    scores : "auto", "probabilities" or "margins"
        What scores are. Of probabilities the logits are taken; "auto" takes scores for
        probabilities where all that are learned from are within [0, 1].

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> from megalabel import LabelSet, Ranking
    >>> ranking = Ranking([[0, 1]] * 4, [[2, -2]] * 4, LabelSet(["cat", "dog"]))
    >>> truth = csr_matrix([[1, 0], [1, 0], [1, 1], [0, 0]])
    >>> Platt(k=2).fit(ranking, truth).apply(ranking[:1]).scores.round(2)
    array([[0.67, 0.33]], dtype=float32)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "k": integer(1),
        "scores": one_of("auto", "probabilities", "margins"),
    }

    def __init__(self, k: int = 5, scores: str = "auto") -> None:
        super().__init__(k)
        self.scores = scores

    def _takes_probabilities(self, scores: np.ndarray) -> bool:
        within = super()._takes_probabilities(scores)
        if self.scores == "probabilities" and not within:
            raise _not_probabilities(self, scores)
        return within and self.scores != "margins"

    def _terms(self, scores: np.ndarray) -> np.ndarray:
        margins = self._margins(scores)
        return np.column_stack([margins, np.ones(len(margins))])


class Temperature(Platt):
    """The logit divided by one number, the temperature (Guo et al. 2017).

    Parameters
    ----------
    k : int
        How many labels of each row are learned from.
    scores : "auto", "probabilities" or "margins"
        What scores are; see `Platt`.

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> from megalabel import LabelSet, Ranking
    >>> ranking = Ranking([[0, 1]] * 4, [[0.9, 0.1]] * 4, LabelSet(["cat", "dog"]))
    >>> truth = csr_matrix([[1, 0], [1, 0], [1, 1], [0, 0]])
    >>> Temperature(k=2).fit(ranking, truth).apply(ranking[:1]).scores.round(2)
    array([[0.67, 0.33]], dtype=float32)
    """

    CONSTANT: ClassVar[bool] = False

    def _terms(self, scores: np.ndarray) -> np.ndarray:
        return self._margins(scores)[:, None]


class Beta(Sigmoid):
    """Beta calibration (Kull et al. 2017): ln p, -ln(1 - p) and a constant, each with its weight.

    Can bend probabilities near 0 and near 1 by different amounts, which Platt's map cannot. Takes
    scores within [0, 1] only.

    Parameters
    ----------
    k : int
        How many labels of each row are learned from.

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> from megalabel import LabelSet, Ranking
    >>> ranking = Ranking([[0, 1]] * 4, [[0.9, 0.1]] * 4, LabelSet(["cat", "dog"]))
    >>> truth = csr_matrix([[1, 0], [1, 0], [1, 1], [0, 0]])
    >>> Beta(k=2).fit(ranking, truth).apply(ranking[:1]).scores.round(2)
    array([[0.67, 0.33]], dtype=float32)
    """

    SLOPES: ClassVar[int] = 2

    def _takes_probabilities(self, scores: np.ndarray) -> bool:
        if not super()._takes_probabilities(scores):
            raise _not_probabilities(self, scores)
        return True

    def _terms(self, scores: np.ndarray) -> np.ndarray:
        p = _inner(scores)
        return np.column_stack([np.log(p), -np.log1p(-p), np.ones(len(p))])


def _inner(scores: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(scores.astype(np.float64), _EDGE, 1 - _EDGE))


def expit(margins: np.ndarray) -> np.ndarray:
    """The probabilities of logits."""
    return np.asarray(1 / (1 + np.exp(-np.maximum(margins, -700))))


def _not_probabilities(calibrator: Sigmoid, scores: np.ndarray) -> DataError:
    return DataError(
        f"{type(calibrator).__name__} takes scores for probabilities, "
        f"but they reach from {scores.min()} to {scores.max()}"
    )
