"""Corpus: texts and/or vectors, with the labels they carry."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, issparse

from megalabel import html
from megalabel.data.concepts import repeated
from megalabel.data.joining import join
from megalabel.data.labelset import LabelSet
from megalabel.data.matrix import canonical, dense
from megalabel.data.strings import row_of, split_labels, strings
from megalabel.data.tabular import lists, to_pandas
from megalabel.errors import DataError, ParameterError, ShapeError, UnknownLabelError

if TYPE_CHECKING:
    from megalabel.data.vocabulary import Vocabulary

log = logging.getLogger(__name__)

_AT_ONCE = 8192  # records made at a time


class Record(NamedTuple):
    """One text of a corpus with the names of its labels, for people."""

    text: str | None
    """None of a corpus of vectors."""
    labels: tuple[str, ...]
    uid: str | None = None
    """The text's own identifier, where it has one."""


class Corpus:
    """Texts and/or feature vectors, and the labels of each.

    Parameters
    ----------
    texts : sequence of str, optional
    features : CSR matrix or 2-d array, optional
        Vectors made elsewhere. At least one of `texts` and `features` is needed.
    targets : CSR matrix (n, labels), indicator array, or list of lists of label names, optional
        The labels of each text; values are relevances. A string in place of a list of names is
        split at `;` and `|`. None: a corpus without labels.
    labels : LabelSet or sequence of str, optional
        What the columns of `targets` mean. With names in `targets` and no `labels`, the label
        set is the sorted names that occur.
    ids : sequence of str, optional
        The texts' own identifiers.
    excluded : CSR matrix (n, labels), optional
        Cells that evaluation must leave out, such as a text's own label.
    source : mapping, optional
        Where it came from: kept in a model's provenance.

    Examples
    --------
    >>> corpus = Corpus(["a red dress", "blue jeans"], targets=[["dress", "red"], ["jeans"]])
    >>> len(corpus), corpus.labels.names.to_pylist()
    (2, ['dress', 'jeans', 'red'])
    >>> corpus[1]
    Record(text='blue jeans', labels=('jeans',), uid=None)
    """

    def __init__(
        self,
        texts: Sequence[str] | pa.Array | None = None,
        features: csr_matrix | np.ndarray | None = None,
        targets: Any = None,
        labels: LabelSet | Sequence[str] | None = None,
        *,
        ids: Sequence[str] | pa.Array | None = None,
        excluded: csr_matrix | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        if texts is None and features is None:
            raise DataError("a corpus needs texts or features")
        self.texts = None if texts is None else strings(texts)
        if features is not None:
            features = canonical(features, "features") if issparse(features) else dense(features)
        self.features = features
        self.ids = None if ids is None else strings(ids)
        n = len(self)
        if labels is not None and not isinstance(labels, LabelSet):
            labels = LabelSet(labels)
        elif labels is None and hasattr(targets, "columns") and hasattr(targets, "to_numpy"):
            labels = LabelSet([str(name) for name in targets.columns])  # a data frame names them
            targets = targets.to_numpy()
        if targets is None:
            labels = LabelSet([]) if labels is None else labels
            targets = csr_matrix((n, len(labels)), dtype=np.float32)
        else:
            targets = _listed(targets)
            if by_name(targets):
                targets, labels = _targets_from_names(targets, labels)
        self.targets = canonical(targets, "targets")
        self.labels = LabelSet.numbered(self.targets.shape[1]) if labels is None else labels
        self.excluded = None if excluded is None else canonical(excluded, "excluded")
        self.source = dict(source or {})
        self._check_shapes(n)

    def _check_shapes(self, n: int) -> None:
        rows = {
            "texts": None if self.texts is None else len(self.texts),
            "features": None if self.features is None else self.features.shape[0],
            "targets": self.targets.shape[0],
            "ids": None if self.ids is None else len(self.ids),
            "excluded": None if self.excluded is None else self.excluded.shape[0],
        }
        for name, count in rows.items():
            if count is not None and count != n:
                raise ShapeError(f"{n} texts but {count} rows of {name}")
        for name, matrix in (("targets", self.targets), ("excluded", self.excluded)):
            if matrix is not None and matrix.shape[1] != len(self.labels):
                raise ShapeError(
                    f"{name} are {matrix.shape} but there are {len(self.labels)} labels"
                )

    def __len__(self) -> int:
        if self.texts is not None:
            return len(self.texts)
        return int(self.features.shape[0])  # type: ignore[union-attr]

    def __repr__(self) -> str:
        parts = [f"{len(self)} texts" if self.texts is not None else f"{len(self)} rows"]
        if self.features is not None:
            parts.append(f"{self.features.shape[1]} features")
        parts.append(f"{len(self.labels)} labels")
        return f"Corpus({', '.join(parts)})"

    def __iter__(self) -> Iterator[Record]:
        """All texts with the names of their labels."""
        for start in range(0, len(self), _AT_ONCE):
            for row in self[start : start + _AT_ONCE].to_arrow().to_pylist():
                yield Record(row.get("text"), tuple(row["labels"]), row.get("uid"))

    def head(self, n: int = 5) -> list[Record]:
        """The first n texts with the names of their labels.

        Examples
        --------
        >>> corpus = Corpus(["a red dress", "blue jeans"], targets=[["dress", "red"], ["jeans"]])
        >>> for text, labels, _ in corpus.head():
        ...     print(text, labels)
        a red dress ('dress', 'red')
        blue jeans ('jeans',)
        """
        return list(self[: max(n, 0)])

    def to_arrow(self) -> pa.Table:
        """A table of `uid` and `text`, where there are any, and lists of label names, `labels`.

        `read` takes it, or a data frame of it, as a corpus. Vectors and relevances are left out.
        """
        columns = {"uid": self.ids, "text": self.texts}
        found = {name: column for name, column in columns.items() if column is not None}
        carried = self.targets.data > 0
        before = np.concatenate([[0], np.cumsum(carried)])
        names = self.labels.names.take(pa.array(self.targets.indices[carried]))
        return pa.table(found | {"labels": lists(np.diff(before[self.targets.indptr]), names)})

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a pandas data frame."""
        return to_pandas(self.to_arrow())

    def _repr_html_(self) -> str:
        columns = {"uid": self.ids, "text": self.texts}
        named = [name for name, column in columns.items() if column is not None]
        rows = []
        for i, record in enumerate(self.head(first_rows(len(self)))):
            shown = [*(getattr(record, name) for name in named), ", ".join(record.labels)]
            rows.append([i, *(html.cut(text, 200) for text in shown)])
        kind = "texts" if self.texts is not None else "rows"
        return html.sheet(
            f"Corpus of {len(self):,} {kind} with {len(self.labels):,} labels",
            ["", *named, "labels"],
            rows,
        )

    @overload
    def __getitem__(self, rows: int | np.integer) -> Record: ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray | Sequence[int]) -> Corpus: ...
    def __getitem__(
        self, rows: int | np.integer | slice | np.ndarray | Sequence[int]
    ) -> Record | Corpus:
        """One text with the names of its labels; or some of the rows, as a corpus with the same
        labels."""
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
            return next(iter(self[[int(rows)]]))
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))

            def strings_of(column: pa.Array) -> pa.Array:
                return column[start:stop]  # no copy
        else:
            rows = np.arange(len(self))[rows]
            if np.ndim(rows) != 1:
                raise TypeError(
                    "a corpus is made of rows: corpus[3] is the fourth text with its labels, "
                    "corpus[[3]] a corpus of it"
                )
            taken = pa.array(rows)

            def strings_of(column: pa.Array) -> pa.Array:
                return column.take(taken)

        return Corpus(
            None if self.texts is None else strings_of(self.texts),
            None if self.features is None else self.features[rows],
            self.targets[rows],
            self.labels,
            ids=None if self.ids is None else strings_of(self.ids),
            excluded=None if self.excluded is None else self.excluded[rows],
            source=self.source,
        )

    @property
    def label_counts(self) -> np.ndarray:
        """How many texts carry each label: those with a relevance above 0."""
        carried = self.targets.indices[self.targets.data > 0]
        return np.bincount(carried, minlength=len(self.labels))

    def with_labels(self, labels: Any) -> Corpus:
        """All rows with some of the labels.

        Parameters
        ----------
        labels : slice, array of numbers or bool, or sequence of str
            Which labels, by number or by id or name, in the order they are to have.

        Examples
        --------
        >>> corpus = Corpus(["a red dress", "blue jeans"], targets=[["dress", "red"], ["jeans"]])
        >>> corpus.with_labels(["red", "dress"]).targets.toarray().tolist()
        [[1.0, 1.0], [0.0, 0.0]]
        """
        if not isinstance(labels, slice):
            labels = [self.labels.index(x) if isinstance(x, str) else x for x in labels]
        numbers = np.arange(len(self.labels))[labels]
        if len(np.unique(numbers)) < len(numbers):
            raise DataError("a corpus cannot have a label twice")
        return Corpus(
            self.texts,
            self.features,
            self.targets[:, numbers],
            self.labels.take(numbers),
            ids=self.ids,
            excluded=None if self.excluded is None else self.excluded[:, numbers],
            source=self.source,
        )

    def label_shard(self, number: int, of: int) -> Corpus:
        """All rows with the labels of one shard: the `number`-th of `of` even parts of the label
        set, from 1. Models of all shards merge into one (`megalabel.merge`).

        Examples
        --------
        >>> corpus = Corpus(["a red dress", "blue jeans"], targets=[["dress", "red"], ["jeans"]])
        >>> [corpus.label_shard(i, 2).labels.ids.to_pylist() for i in (1, 2)]
        [['dress'], ['jeans', 'red']]
        """
        if not 1 <= number <= of <= len(self.labels):
            raise ParameterError(
                f"shard {number} of {of}: shards count from 1, and each has at least one of the "
                f"{len(self.labels)} labels"
            )
        first, last = ((number - i) * len(self.labels) // of for i in (1, 0))
        shard = self.with_labels(slice(first, last))
        shard.source["label_shard"] = f"{number}/{of}"
        return shard

    def joined(
        self,
        vocabulary: Vocabulary,
        language: str | None = None,
        *,
        all_concepts: bool = False,
        keep_deprecated: bool = False,
    ) -> Corpus:
        """The same texts with labels that are concepts of a vocabulary.

        Each label finds its concept by identifier, notation or name; how many did, and how, is in
        `source["vocabulary"]`, and logged. Those that are not found stay as they are. Labels of one
        concept become one.

        Parameters
        ----------
        vocabulary : Vocabulary
        language : str, optional
            The language that the names of labels are to be in; by default they keep their names.
        all_concepts : bool
            Whether all concepts of the vocabulary become labels, also those that no text carries:
            for systems that tell labels by their names.
        keep_deprecated : bool
            Whether deprecated concepts stay, also where another one replaces them.

        Examples
        --------
        >>> from megalabel.data import Concept, Vocabulary
        >>> animals = Vocabulary.of([Concept("http://x/Q1", {"en": "dog", "fi": "koira"})])
        >>> corpus = Corpus(["It barks."], targets=[["Dog"]]).joined(animals, "fi")
        >>> corpus[0].labels, corpus.labels.ids[0].as_py(), corpus.source["vocabulary"]
        (('koira',), 'http://x/Q1', {'labels': 1, 'by': {'name': 1}})
        """
        labels, numbers, joining = join(
            self.labels,
            vocabulary,
            language,
            all_concepts=all_concepts,
            keep_deprecated=keep_deprecated,
        )
        most = 2 * joining.found < joining.labels
        log.log(logging.WARNING if most else logging.INFO, "%s", joining)
        excluded = self.excluded
        return Corpus(
            self.texts,
            self.features,
            _merged(self.targets, numbers, len(labels)),
            labels,
            ids=self.ids,
            excluded=None if excluded is None else _merged(excluded, numbers, len(labels)),
            source=self.source | {"vocabulary": joining.to_dict()},
        )

    def aligned(self, labels: LabelSet) -> Corpus:
        """The same corpus with columns numbered and named as in `labels`; labels unknown there come
        after.

        Labels are the same by id, else by name, else as concepts of the vocabulary of `labels`.
        """
        if labels is self.labels:
            return self
        if labels == self.labels and labels.names.equals(self.labels.names):
            return self
        column = labels.numbers_of(self.labels)
        new = np.flatnonzero(column < 0)
        union = labels.extended(self.labels.take(new)) if len(new) else labels
        column[new] = union.indices(self.labels.ids.take(pa.array(new)))
        excluded = self.excluded
        return Corpus(
            self.texts,
            self.features,
            _merged(self.targets, column, len(union)),
            union,
            ids=self.ids,
            excluded=None if excluded is None else _merged(excluded, column, len(union)),
            source=self.source,
        )


def first_rows(n: int) -> int:
    """How many of n rows a notebook is shown: all of a few, else the first ones."""
    return n if n <= 10 else 5


def _merged(matrix: csr_matrix, column: np.ndarray, width: int) -> csr_matrix:
    """The matrix with new numbers for its columns; of cells that become one the largest stays."""
    if len(np.unique(column)) == len(column):
        cells = (matrix.data, column[matrix.indices], matrix.indptr)
        return csr_matrix(cells, shape=(matrix.shape[0], width))
    rows = row_of(np.diff(matrix.indptr))
    cells = rows * max(1, width) + column[matrix.indices]
    order = np.lexsort((-matrix.data, cells))
    first = order[~repeated(cells[order])]
    shape = (matrix.shape[0], width)
    return csr_matrix((matrix.data[first], (rows[first], column[matrix.indices[first]])), shape)


def by_name(targets: Any) -> bool:
    """Whether labels are given as lists of names, not as a matrix of zeros and ones."""
    targets = _listed(targets)
    return isinstance(targets, list | tuple | str) and not _is_indicator(targets)


def _listed(targets: Any) -> Any:
    """A column of label lists (a series, an Arrow array, an array of objects) as a plain list."""
    if len(getattr(targets, "shape", (0,))) == 1:
        for name in ("to_pylist", "to_list", "tolist"):
            if hasattr(targets, name):
                return getattr(targets, name)()
    return targets


def _is_indicator(rows: Sequence[Any]) -> bool:
    """Whether a list of lists is a matrix of zeros and ones rather than a list of names."""
    return (
        len(rows) > 0
        and all(
            isinstance(row, Iterable)
            and not isinstance(row, str)
            and all(isinstance(v, int | float | np.number) and v in (0, 1) for v in row)
            for row in rows
        )
        and len({len(row) for row in rows}) == 1
        and len(rows[0]) > 0
    )


def _targets_from_names(
    rows: Sequence[Sequence[str] | str], labels: LabelSet | None
) -> tuple[csr_matrix, LabelSet]:
    if isinstance(rows, str):
        raise DataError(f"expected the labels of each text in a list, found the string {rows!r}")
    given = [row for row in rows if isinstance(row, str)]
    names_of = iter(split_labels(strings(given)).to_pylist())
    rows = [next(names_of) if isinstance(row, str) else row for row in rows]
    for i, row in enumerate(rows):
        if isinstance(row, Mapping) or not isinstance(row, Iterable):
            raise DataError(f"expected a list of label names for text {i}, found {row!r}")
        for name in row:
            if not isinstance(name, str) or not name:
                raise DataError(
                    f"expected label names for text {i}, found {name!r}; labels are named by "
                    "strings, or given as a matrix of zeros and ones"
                )
    flat = [name for row in rows for name in row]
    if labels is None:
        labels = LabelSet(sorted(set(flat)))
    columns = labels.indices(flat)
    if (columns < 0).any():
        labels.index(flat[int(np.flatnonzero(columns < 0)[0])])  # raises, with suggestions
        raise UnknownLabelError(flat[int(np.flatnonzero(columns < 0)[0])])
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    targets = csr_matrix(
        (np.ones(len(flat), np.float32), columns, indptr), shape=(len(rows), len(labels))
    )
    targets.sum_duplicates()
    np.minimum(targets.data, 1, out=targets.data)  # a name given twice counts once
    return targets, labels
