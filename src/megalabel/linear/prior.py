"""Prior: labels by how frequent they are, the same answer for every text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import (
    Check,
    Learned,
    array,
    integer,
    number,
    part,
    unfitted,
    value,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import check_targets, check_width, clamped
from megalabel.errors import ShapeError
from megalabel.parts import Classifier

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
    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "rows_": value(integer(0)),
        "n_features_": value(integer(0)),
        "label_counts_": array(np.float64, "labels"),
        "frequencies_": array(np.float32, "labels"),
        "order_": array(np.int32, "labels"),
    }

    def __init__(self, *, smoothing: float = 1.0) -> None:
        self.smoothing = smoothing

    def _fit(self, examples: Examples) -> None:
        """Count the labels of the texts. Of the rows, only the shape matters."""
        self.n_features_ = int(examples.rows.shape[1])
        self.rows_ = 0
        self.label_counts_ = np.zeros(len(examples.labels))
        targets = examples.targets
        self._add(targets if examples.label_points is None else targets[examples.texts])

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
        self._add(Y)
        return self

    def add_labels(self, labels: LabelSet) -> Self:
        """A copy that knows more labels, after its own, which no row carried; scores of the others
        stay.

        Examples
        --------
        >>> prior = Prior().fit(np.zeros((2, 1)), csr_matrix([[1, 0, 1], [0, 0, 1]]))
        >>> [round(float(f), 2) for f in prior.add_labels(LabelSet(["new"])).frequencies_]
        [0.5, 0.17, 0.83, 0.17]
        """
        self.check_fitted()
        mean = self.label_counts_.sum() / max(1, self.rows_ * len(self.label_counts_))
        share = min(1.0, self.smoothing * mean / max(1, self.rows_ + self.smoothing))
        more = len(labels)
        frequencies = np.append(self.frequencies_, np.full(more, share, np.float32))
        learned = {
            "labels_": self.labels_.extended(labels),
            "label_counts_": np.append(self.label_counts_, np.zeros(more)),
            "frequencies_": frequencies,
            "order_": _falling(frequencies),
        }
        return with_learned(unfitted(self), **(self.learned() | learned))

    def _add(self, Y: csr_matrix) -> None:
        self.rows_ += int(Y.shape[0])
        counts = np.bincount(Y.indices, weights=Y.data, minlength=Y.shape[1])
        self.label_counts_ = self.label_counts_ + counts
        mean = self.label_counts_.sum() / max(1, self.rows_ * len(counts))
        shares = (self.label_counts_ + self.smoothing * mean) / max(1, self.rows_ + self.smoothing)
        self.frequencies_ = np.minimum(shares, 1).astype(np.float32)
        self.order_ = _falling(self.frequencies_)

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k most frequent labels, for every row; k is at most the number of labels."""
        self.check_fitted()
        return self._first(X, self.order_[: clamped(k, len(self.labels_))])

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        top = self.order_[allowed[self.order_]][:k]
        left = np.full(k - len(top), len(allowed))
        return self._first(X, np.append(top, left).astype(np.int32))

    def _first(self, X: Matrix, top: np.ndarray) -> Ranking:
        """These labels, for every row."""
        check_width(self, X, self.n_features_)
        if not len(top):  # no labels at all: a column of padding
            none = np.full((X.shape[0], 1), len(self.labels_))
            return Ranking(none, np.full(none.shape, -np.inf), self.labels_)
        shape = (X.shape[0], len(top))
        return Ranking(
            np.broadcast_to(top, shape),
            np.broadcast_to(np.append(self.frequencies_, -np.inf)[top], shape),
            self.labels_,
        )

    @property
    def ranks_held_out(self) -> bool:
        """True: one row more or less is lost in the frequencies."""
        return True

    def rank_held_out(self, X: Matrix, rows: np.ndarray, k: int) -> Ranking:
        """The same as `rank`: one row more or less is lost in the frequencies."""
        return self.rank(X, k)

    def check_learned(self) -> None:
        """The order must be one of the labels."""
        n = len(self.labels_)
        if n and (np.min(self.order_) < 0 or np.max(self.order_) >= n):
            raise ValueError(f"order_ of Prior must hold numbers of its {n} labels")

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """Labels keep the scores that they have among all."""
        return super()._taken(numbers) | {"order_": _falling(self.frequencies_[numbers])}


def _falling(frequencies: np.ndarray) -> np.ndarray:
    """Labels by falling frequency, ties to the lower number."""
    return np.argsort(-frequencies, kind="stable").astype(np.int32)
