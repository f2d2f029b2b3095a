"""HashedLabels: labels by the buckets that they were hashed into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from megalabel.base import Check, Learned, array, part
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import as_dense, check_width, clamped, products
from megalabel.errors import ParameterError
from megalabel.parts import Classifier
from megalabel.rankers.dense import best, log_sigmoid

if TYPE_CHECKING:
    from megalabel.base import Matrix

_SCORES = 1 << 22  # held at a time
_PRIME = (1 << 31) - 1


class HashedLabels(Classifier):
    """The buckets of labels, by linear weights: a label's score is the mean of what its buckets are
    likely (Medini et al. 2019, MACH).

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself.

    Attributes
    ----------
    buckets_ : int32 array (tables, labels)
        The bucket of each label in each table, of all tables' buckets; -1: nothing is known of it.
    weights_ : float16 array (buckets, width)
    bias_ : float32 array (buckets,)
    labels_ : LabelSet
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "buckets_": array(np.int32, "tables", "labels"),
        "weights_": array(np.float16, "buckets", "width"),
        "bias_": array(np.float32, "buckets"),
    }

    buckets_: np.ndarray
    weights_: np.ndarray
    bias_: np.ndarray

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError(
            "HashedLabels is a part of a trained tagger: fit the system that made it"
        )

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels."""
        self.check_fitted()
        check_width(self, X, self.weights_.shape[1])
        labels = len(self.labels_)
        k = clamped(k, labels)
        ids = np.empty((X.shape[0], k), np.int32)
        scores = np.empty(ids.shape, np.float32)
        size = max(1, _SCORES // max(labels, len(self.bias_)))
        for start in range(0, len(ids), size):
            some = slice(start, start + size)
            margins = products(as_dense(X[some]), self.weights_) + self.bias_
            likely = np.exp(log_sigmoid(margins)).astype(np.float64)
            mean = sum(likely[:, table] for table in self.buckets_) / len(self.buckets_)
            mean[:, self.buckets_[0] < 0] = 0.0
            scores[some], ids[some] = best(mean.astype(np.float32), np.arange(labels)[None], k)
        return Ranking(ids, scores, self.labels_)

    def check_learned(self) -> None:
        """Each label must be in a bucket of each table, or in none."""
        known = self.buckets_ >= 0
        if self.buckets_.max(initial=-1) >= len(self.bias_) or self.buckets_.min(initial=0) < -1:
            raise ValueError("buckets_ of HashedLabels must be buckets or -1")
        if not len(known) or (known != known[0]).any():
            raise ValueError("a label of HashedLabels must be in a bucket of each table or in none")


def hashed(labels: int, tables: int, buckets: int, seed: int) -> np.ndarray:
    """The bucket of each label in each table, (tables, labels) int32, numbered over all tables: by
    2-universal hashes ((a l + b) mod p) mod buckets.

    Examples
    --------
    >>> hashed(4, 2, 3, seed=0).shape
    (2, 4)
    """
    random = np.random.default_rng(seed)
    a = random.integers(1, _PRIME, (tables, 1), dtype=np.uint64)
    b = random.integers(0, _PRIME, (tables, 1), dtype=np.uint64)
    spread = (a * np.arange(labels, dtype=np.uint64) + b) % np.uint64(_PRIME)
    own = (spread % np.uint64(buckets)).astype(np.int64)
    return (own + buckets * np.arange(tables)[:, None]).astype(np.int32)
