"""LabelVectors: labels ranked by the products of a text's vector with vectors of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from megalabel.base import (
    Check,
    Learned,
    array,
    number,
    optional,
    part,
    unfitted,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import as_dense, check_width, clamped
from megalabel.errors import ParameterError
from megalabel.parts import Classifier
from megalabel.rankers.dense import filled, log_sigmoid
from megalabel.retrieval import VectorIndex

if TYPE_CHECKING:
    from megalabel.base import Matrix


class LabelVectors(Classifier):
    """What a dual encoder answers with: an index of label vectors, searched with a text's vector.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself: labels need
    no texts of training, only vectors. Keys of the index are label numbers; a label without a
    vector is not found. The score is sigmoid(scale * product + bias).

    Parameters
    ----------
    scale, bias : float
        What takes products to logits, such as one over a temperature.

    Attributes
    ----------
    index_ : VectorIndex
    label_counts_ : int64 array (labels,), optional
        How many texts had each label: the most frequent fill places that are left over.
    labels_ : LabelSet

    Examples
    --------
    >>> model = LabelVectors(scale=2)
    >>> model.restore(
    ...     {"index_": VectorIndex().fit(np.eye(2)), "labels_": LabelSet(["cat", "dog"])}
    ... )
    >>> model.rank(np.array([[-1.0, 1.0]]), k=1).tags()
    [[Tag(label='dog', probability=0.88...)]]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"scale": number(0), "bias": number()}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "index_": part(VectorIndex),
        "label_counts_": optional(array(np.int64, "labels")),
    }

    index_: VectorIndex
    label_counts_: np.ndarray | None = None

    def __init__(self, *, scale: float = 1.0, bias: float = 0.0) -> None:
        self.scale = scale
        self.bias = bias

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError(
            "LabelVectors is a part of a trained tagger: fit the system that made it"
        )

    def add_labels(self, labels: LabelSet, vectors: Matrix) -> Self:
        """A copy that knows more labels, after its own, by these vectors; it shares arrays.

        Examples
        --------
        >>> model = LabelVectors(scale=2)
        >>> model.restore(
        ...     {"index_": VectorIndex().fit(np.eye(2)), "labels_": LabelSet(["cat", "dog"])}
        ... )
        >>> more = model.add_labels(LabelSet(["eel"]), np.array([[2.0, 2.0]]))
        >>> more.rank(np.array([[-1.0, 2.0]]), k=1).tags()
        [[Tag(label='dog', probability=0.98...)]]
        """
        self.check_fitted()
        vectors, known = as_dense(vectors), len(self.labels_)
        check_width(self, vectors, self.index_.width_)
        keys = np.arange(known, known + len(labels))
        learned: dict[str, Any] = {
            "index_": self.index_.add(keys, vectors),
            "labels_": self.labels_.extended(labels),
        }
        if self.label_counts_ is not None:
            nothing = np.zeros(len(labels), np.int64)
            learned["label_counts_"] = np.append(self.label_counts_, nothing)
        return with_learned(unfitted(self), **learned)

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k labels whose vectors have the largest products with each row."""
        return self._searched(X, k)

    @property
    def may_miss(self) -> bool:
        """True where the index looks into some of its lists alone."""
        return len(self.index_.centres_) > 0

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        return self._searched(X, k, allowed)

    def _searched(self, X: Matrix, k: int, allowed: np.ndarray | None = None) -> Ranking:
        self.check_fitted()
        check_width(self, X, self.index_.width_)
        labels = len(self.labels_)
        ids, products = self.index_.search(as_dense(X), clamped(k, labels), allowed=allowed)
        there = ids >= 0
        if (ids >= labels).any():
            raise ValueError(f"the index has a vector of label {ids.max()} of {labels}")
        logits = np.float32(self.scale) * products[there] + np.float32(self.bias)
        scores = np.full(products.shape, -np.inf, np.float32)
        scores[there] = np.exp(log_sigmoid(logits))
        ranking = Ranking(np.where(there, ids, labels), scores, self.labels_)
        counts = self.label_counts_
        return ranking if counts is None else filled(ranking, counts, allowed)
