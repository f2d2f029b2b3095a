"""NearestLabels: the labels nearest to a vector, scored by classifiers of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from megalabel.base import Check, Learned, array, instance, integer, number, part, value
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import as_dense, check_width, clamped, normalised_rows
from megalabel.errors import ParameterError
from megalabel.features.bag import check_block, residual
from megalabel.parts import Classifier
from megalabel.rankers.dense import best, best_products, filled, log_sigmoid, only, shortlisted

if TYPE_CHECKING:
    from megalabel.base import Matrix


class NearestLabels(Classifier):
    """What Astec has learned over an encoder: labels' centroids, a residual block, classifiers.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself. A label's
    score is a mean of two probabilities, the classifier's and that of the nearness.

    Parameters
    ----------
    shortlist : int
        How many of the nearest labels are looked at.
    beta : float
        The share of the classifier in a label's score.

    Attributes
    ----------
    centroids_, weights_ : float16 arrays (labels, width)
    bias_ : float32 array (labels,)
    block_ : dict of arrays
        As of `features.bag.residual`.
    label_counts_ : int64 array (labels,)
        How many texts had each label.
    labels_ : LabelSet
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"shortlist": integer(1), "beta": number(0, 1)}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "centroids_": array(np.float16, "labels", "width"),
        "weights_": array(np.float16, "labels", "width"),
        "bias_": array(np.float32, "labels"),
        "block_": value(instance(dict)),
        "label_counts_": array(np.int64, "labels"),
    }

    centroids_: np.ndarray
    weights_: np.ndarray
    bias_: np.ndarray
    block_: dict[str, np.ndarray]
    label_counts_: np.ndarray

    def __init__(self, *, shortlist: int = 500, beta: float = 0.5) -> None:
        self.shortlist = shortlist
        self.beta = beta

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError(
            "NearestLabels is a part of a trained tagger: fit the system that made it"
        )

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels of the shortlist; places beyond it go to the most frequent others."""
        return self._searched(X, k)

    @property
    def may_miss(self) -> bool:
        """True where the shortlist does not have all labels."""
        return self.shortlist < len(self.labels_)

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        return self._searched(X, k, allowed)

    def _searched(self, X: Matrix, k: int, allowed: np.ndarray | None = None) -> Ranking:
        self.check_fitted()
        check_width(self, X, self.weights_.shape[1])
        labels = len(self.labels_)
        X, k = as_dense(X), clamped(k, labels)
        unit = np.asarray(normalised_rows(X))
        behind = self._behind
        if allowed is not None:
            behind = only(behind, np.flatnonzero(allowed))
        cosines, near = best_products(unit, self.centroids_, behind, self.shortlist)
        made = shortlisted(residual(X, self.block_), self.weights_, self.bias_, near)
        sure, near_by = np.exp(log_sigmoid(made)), np.exp(log_sigmoid(cosines))
        both = self.beta * sure + (1 - self.beta) * near_by
        both[(self.label_counts_[near] == 0) | (cosines == -np.inf)] = -np.inf
        found, at = best(both, near, k)
        at[found == -np.inf] = labels
        left = ((0, 0), (0, k - at.shape[1]))
        ids = np.pad(at, left, constant_values=labels)
        scores = np.pad(found, left, constant_values=-np.inf)
        return filled(Ranking(ids, scores, self.labels_), self.label_counts_, allowed)

    def check_learned(self) -> None:
        """The block must fit the classifiers."""
        check_block(type(self).__name__, self.block_, self.weights_.shape[1])
        vars(self).pop("_behind", None)  # that of other centroids

    @cached_property
    def _behind(self) -> np.ndarray:
        """What is added to cosines: labels whose texts had no direction are behind all others."""
        return np.where(np.any(self.centroids_, axis=1), np.float32(0), np.float32(-2))
