"""Prior: labels by how frequent they are, the same answer for every text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import Check, Classifier, check_array, integer, number
from megalabel.data import LabelSet, Ranking
from megalabel.data.corpus import canonical
from megalabel.errors import DataError, ParameterError, ShapeError

_COUNT = integer(1)  # made once, as it is asked with every query

if TYPE_CHECKING:
    from megalabel.base import Matrix


class Prior(Classifier):
    """Ranks labels by their frequency in the training rows.

    The score of label l is (n_l + s m) / (n + s): its share of the n rows, smoothed as if s more
    rows carried every label with the mean share m. The scores of all labels sum to the mean number
    of labels a row, and a label never seen still gets a small share.

    Parameters
    ----------
    smoothing : float
        s, the number of rows added. 0: plain frequencies.

    Attributes
    ----------
    labels_ : LabelSet
    label_counts_ : float64 array (labels,)
        The sum of relevances of each label.
    frequencies_ : float32 array (labels,)
        The scores.
    order_ : int32 array (labels,)
        The labels by falling score, ties to the lower number.

    Examples
    --------
    >>> Y = csr_matrix([[1, 0, 1], [0, 0, 1]])
    >>> prior = Prior(smoothing=0).fit(np.zeros((2, 1)), Y)
    >>> prior.rank(np.zeros((1, 1)), k=2).tags()
    [[Tag(label='2', probability=1.0), Tag(label='0', probability=0.5)]]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"smoothing": number(0)}

    def __init__(self, *, smoothing: float = 1.0) -> None:
        self.smoothing = smoothing

    def fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet | None = None) -> Self:
        """Count the labels of Y. Of X, only the shape matters."""
        Y = begin(self, X, Y, labels)
        self.n_features_ = int(X.shape[1])
        self.rows_ = 0
        self.label_counts_ = np.zeros(Y.shape[1])
        return self._add(Y)

    def partial_fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet) -> Self:
        """Count more rows; `labels` is the known label set, with any new labels at its end."""
        if not self.fitted:
            return self.fit(X, Y, labels)
        check_width(self, X, self.n_features_)
        Y = check_targets(X, Y)
        known = len(self.label_counts_)
        if not known <= len(labels) == Y.shape[1]:
            raise ShapeError(f"Y is {Y.shape}, there are {len(labels)} labels and were {known}")
        self.labels_ = labels
        self.label_counts_ = np.append(self.label_counts_, np.zeros(len(labels) - known))
        return self._add(Y)

    def _add(self, Y: csr_matrix) -> Self:
        self.rows_ += int(Y.shape[0])
        counts = np.bincount(Y.indices, weights=Y.data, minlength=len(self.labels_))
        self.label_counts_ = self.label_counts_ + counts
        mean = self.label_counts_.sum() / max(1, self.rows_ * len(counts))
        shares = (self.label_counts_ + self.smoothing * mean) / max(1, self.rows_ + self.smoothing)
        self.frequencies_ = np.minimum(shares, 1).astype(np.float32)
        self.order_ = np.argsort(-self.frequencies_, kind="stable").astype(np.int32)
        return self

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k most frequent labels, for every row; k is at most the number of labels."""
        self.check_fitted()
        check_width(self, X, self.n_features_)
        top = self.order_[: clamped(k, len(self.labels_))]
        if not len(top):  # no labels at all: a column of padding
            return Ranking(
                np.zeros((X.shape[0], 1)), np.full((X.shape[0], 1), -np.inf), self.labels_
            )
        shape = (X.shape[0], len(top))
        return Ranking(
            np.broadcast_to(top, shape),
            np.broadcast_to(self.frequencies_[top], shape),
            self.labels_,
        )

    @property
    def ranks_held_out(self) -> bool:
        """Always."""
        return True

    def rank_held_out(self, X: Matrix, Y: csr_matrix, rows: np.ndarray, k: int) -> Ranking:
        """The same as `rank`: one row more or less is lost in the frequencies."""
        return self.rank(X[rows], k)

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take the counts and frequencies back; ValueError where they do not fit together."""
        super().restore(learned)
        for name in ("labels_", "rows_", "n_features_", "label_counts_", "frequencies_", "order_"):
            if not hasattr(self, name):
                raise ValueError(f"Prior lacks {name}")
        if not isinstance(self.labels_, LabelSet):
            raise ValueError("labels_ of Prior must be a label set")
        for name in ("rows_", "n_features_"):
            if not integer(0).accepts(getattr(self, name)):
                raise ValueError(f"{name} of Prior must be an integer of at least 0")
        n = len(self.labels_)
        check_array("Prior", "label_counts_", self.label_counts_, np.float64, (n,))
        check_array("Prior", "frequencies_", self.frequencies_, np.float32, (n,))
        check_array("Prior", "order_", self.order_, np.int32, (n,))
        if n and (np.min(self.order_) < 0 or np.max(self.order_) >= n):
            raise ValueError(f"order_ of Prior must hold numbers of its {n} labels")


def begin(classifier: Classifier, X: Matrix, Y: csr_matrix, labels: LabelSet | None) -> csr_matrix:
    """Start a fit: check the parameters and Y, which is returned as by `check_targets`, and give
    the classifier its `labels_`, numbered ones where there are none."""
    classifier.check_parameters()
    Y = check_targets(X, Y)
    labels = LabelSet.numbered(Y.shape[1]) if labels is None else labels
    if len(labels) != Y.shape[1]:
        raise ShapeError(f"Y is {Y.shape} but there are {len(labels)} labels")
    classifier.labels_ = labels
    return Y


def check_targets(X: Matrix, Y: csr_matrix) -> csr_matrix:
    """Y in canonical form and without stored zeros; an error unless it has as many rows as X and
    no relevance below zero."""
    Y = canonical(Y, "Y")
    if X.shape[0] != Y.shape[0]:
        raise ShapeError(f"X is {X.shape} but Y is {Y.shape}: as many rows are needed")
    if Y.nnz and Y.data.min() < 0:
        raise DataError("Y holds a relevance below zero")
    if not Y.data.all():
        Y = Y.copy()  # its arrays may be the caller's
        Y.eliminate_zeros()
    return Y


def check_width(classifier: Classifier, X: Matrix, width: int) -> None:
    """A ShapeError unless X has the columns that the classifier was fitted on."""
    if len(X.shape) != 2 or X.shape[1] != width:
        raise ShapeError(
            f"X is {X.shape} but {type(classifier).__name__} was fitted on {width} columns"
        )


def clamped(k: int, n: int) -> int:
    """k, but at most n; a ParameterError unless it is an integer of at least 1."""
    if not _COUNT.accepts(k):
        raise ParameterError(f"k must be an integer of at least 1, not {k!r}")
    return min(int(k), n)


def unnamed_scores(ranking: Ranking) -> np.ndarray:
    """What a label counts, in each row, that a ranking does not name: 0, or the lowest score that
    it names where that is below 0, as margins may be. A label that was not found is then never
    before one that was.

    Examples
    --------
    >>> labels = LabelSet(["cat", "dog", "fox"])
    >>> unnamed_scores(Ranking([[0, 1], [2, 3]], [[0.5, -2.0], [0.5, -np.inf]], labels))
    array([-2.,  0.])
    """
    named = ranking.present & np.isfinite(ranking.scores)
    lowest: np.ndarray = np.where(named, ranking.scores, 0).min(axis=1, initial=0)
    return lowest.astype(np.float64)
