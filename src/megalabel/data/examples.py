"""Examples: what a classifier is fitted on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, vstack

from megalabel.data.labelset import LabelSet
from megalabel.data.matrix import canonical, check_targets, stacked
from megalabel.errors import ParameterError, ShapeError

if TYPE_CHECKING:
    from megalabel.base import Matrix


@dataclass(frozen=True)
class Examples:
    """Rows and the labels they carry, with what is known of the labels and of the columns.

    Parameters
    ----------
    rows : CSR matrix, array, tokens or views
        As the featurizer gives them; anything with a shape that can be indexed by row numbers.
    targets : CSR matrix (rows, labels)
        Relevances in float32, none of them zero or below (`Examples.of` checks them).
    labels : LabelSet
    label_points : array of row numbers, optional
        The rows that are texts of labels and not texts of the corpus. They are learned from, but
        neither counted nor held out.
    label_point_weight : float
        What such a row counts beside a text, where a classifier weighs rows.
    silent : CSR matrix (rows, labels), optional
        Cells of which nothing is said: linear classifiers take these rows neither for positives nor
        for negatives of the labels. Those that `targets` has are not meant.
    excluded : CSR matrix (rows, labels), optional
        Cells of which nothing is to be learned, such as a text's own label (`Corpus.excluded`).
    find_label_rows : callable, optional
        Gives a row for the text of each label; see `label_rows`.
    find_columns : callable, optional
        Gives the names of the columns; see `columns`.
    find_titles : callable, optional
        Gives what people know the rows by; see `titles`.

    Examples
    --------
    >>> some = Examples.of(np.eye(3), csr_matrix([[1, 0], [1, 1], [0, 1]]))
    >>> some.labels.names.to_pylist(), some.label_counts.tolist()
    (['0', '1'], [2, 2])
    >>> len(some.at(np.array([0, 2])))
    2
    """

    rows: Any
    targets: csr_matrix
    labels: LabelSet
    label_points: np.ndarray | None = None
    label_point_weight: float = 1.0
    silent: csr_matrix | None = None
    excluded: csr_matrix | None = None
    find_label_rows: Callable[[], Matrix] | None = None
    find_columns: Callable[[], Sequence[str] | None] | None = None
    find_titles: Callable[[], pa.LargeStringArray | None] | None = None

    @classmethod
    def of(
        cls,
        rows: Any,
        targets: csr_matrix,
        labels: LabelSet | None = None,
        **more: Any,
    ) -> Examples:
        """Examples of rows and targets that are checked; labels are numbered if there are none."""
        targets = check_targets(rows, targets)
        labels = LabelSet.numbered(targets.shape[1]) if labels is None else labels
        if len(labels) != targets.shape[1]:
            raise ShapeError(f"Y is {targets.shape} but there are {len(labels)} labels")
        return cls(rows, targets, labels, **more)

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    @property
    def texts(self) -> np.ndarray:
        """The numbers of the rows that are texts."""
        return np.delete(
            np.arange(len(self)), [] if self.label_points is None else self.label_points
        )

    @property
    def n_texts(self) -> int:
        """How many of the rows are texts."""
        return len(self.texts)

    @property
    def label_counts(self) -> np.ndarray:
        """How many texts carry each label."""
        targets = self.targets if self.label_points is None else self.targets[self.texts]
        return np.bincount(targets.indices, minlength=targets.shape[1])

    @property
    def taught(self) -> np.ndarray:
        """Whether any row, a text or a label point, carries each label."""
        return np.bincount(self.targets.indices, minlength=self.targets.shape[1]) > 0

    @property
    def label_rows(self) -> Matrix:
        """A row for the text of each label, made when it is asked for."""
        if self.find_label_rows is None:
            raise ParameterError("the texts of labels are needed: give label_rows")
        return self.find_label_rows()

    @property
    def columns(self) -> Sequence[str] | None:
        """What the columns of the rows are called, if they have names."""
        return None if self.find_columns is None else self.find_columns()

    @property
    def titles(self) -> pa.LargeStringArray | None:
        """What people know the rows by, such as the beginnings of texts, if that is known."""
        return None if self.find_titles is None else self.find_titles()

    def at(self, numbers: np.ndarray, rows: Any = None) -> Examples:
        """The examples of some rows; with `rows` in place of theirs."""
        points = None
        if self.label_points is not None:
            points = np.flatnonzero(np.isin(numbers, self.label_points))
        rows = self.rows[numbers] if rows is None else rows

        def titles() -> pa.LargeStringArray | None:
            of_all = self.titles
            return None if of_all is None else of_all.take(pa.array(numbers))

        return replace(
            self,
            rows=rows,
            targets=self.targets[numbers],
            label_points=points,
            silent=None if self.silent is None else self.silent[numbers],
            excluded=None if self.excluded is None else self.excluded[numbers],
            find_titles=titles,
        )

    def with_label_points(
        self,
        rows: Any,
        targets: csr_matrix,
        weight: float = 1.0,
        *,
        titles: pa.LargeStringArray | None = None,
        silent: csr_matrix | None = None,
    ) -> Examples:
        """The same examples and, after them, rows that are texts of labels; `silent` is of the
        examples before them.

        Examples
        --------
        >>> some = Examples.of(np.eye(2), csr_matrix([[1, 0], [1, 0]]))
        >>> more = some.with_label_points(np.ones((1, 2)), csr_matrix([[0.0, 1.0]]))
        >>> len(more), more.n_texts, more.label_counts.tolist()
        (3, 2, [2, 0])
        """

        def all_titles() -> pa.LargeStringArray | None:
            own = self.titles
            return None if own is None or titles is None else pa.concat_arrays([own, titles])

        return replace(
            self,
            rows=stacked(self.rows, rows),
            targets=canonical(vstack([self.targets, targets], "csr")),
            label_points=np.arange(len(self), len(self) + targets.shape[0]),
            label_point_weight=weight,
            silent=None if silent is None else vstack([silent, csr_matrix(targets.shape)], "csr"),
            find_titles=all_titles,
        )

    def with_rows(self, rows: Any) -> Examples:
        """The same examples with other rows in place of theirs, whose columns have no names."""
        return replace(self, rows=rows, find_label_rows=None, find_columns=None)
