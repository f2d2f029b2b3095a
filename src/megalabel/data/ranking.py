"""Ranking: the answer for n texts, the best k labels of each with their scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from megalabel import _native, html
from megalabel.data.corpus import Corpus, first_rows
from megalabel.data.labelset import LabelSet
from megalabel.data.matrix import canonical
from megalabel.data.tabular import lists, to_pandas
from megalabel.errors import ShapeError

_AT_ONCE = 8192  # rows made at a time


class Tag(NamedTuple):
    """One label of one text, for people; with its identifier, where labels have one that is not
    their name, and its notation, where a vocabulary has one.

    Examples
    --------
    >>> Tag("dog", 0.9), Tag("dog", 0.9, "Q144")
    (Tag(label='dog', probability=0.9), Tag(label='dog', probability=0.9, id='Q144'))
    """

    label: str
    probability: float
    id: str | None = None
    notation: str | None = None

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"Tag({fields})"

    def to_dict(self) -> dict[str, Any]:
        """Label and probability by name, for JSON; identifier and notation where there are any."""
        needed = ("label", "probability")
        fields = self._asdict().items()
        return {name: value for name, value in fields if value is not None or name in needed}


class Ranking:
    """The k best labels of each of n texts, best first.

    Parameters
    ----------
    ids : int32 array (n, k)
        Label numbers. A row with fewer than k labels is padded with the number of labels, which
        is no label's number.
    scores : float32 array (n, k)
        Falling along each row; padding has -inf.
    labels : LabelSet
        What the numbers mean.

    Examples
    --------
    >>> ranking = Ranking([[1, 0]], [[0.9, 0.2]], LabelSet(["cat", "dog"]))
    >>> ranking.tags()
    [[Tag(label='dog', probability=0.9), Tag(label='cat', probability=0.2)]]
    """

    def __init__(self, ids: np.ndarray, scores: np.ndarray, labels: LabelSet) -> None:
        self.ids = np.ascontiguousarray(ids, dtype=np.int32)
        self.scores = np.ascontiguousarray(scores, dtype=np.float32)
        self.labels = labels
        if self.ids.ndim != 2 or self.ids.shape != self.scores.shape:
            raise ShapeError(
                f"ids and scores must both be (n, k): {self.ids.shape} and {self.scores.shape}"
            )

    @classmethod
    def from_csr(cls, scores: csr_matrix, k: int, labels: LabelSet) -> Ranking:
        """The k best stored entries of each row, ties to the lower number."""
        n, width = scores.shape
        k = max(1, min(k, width))
        rows = np.repeat(np.arange(n), np.diff(scores.indptr))
        order = np.lexsort((scores.indices, -scores.data, rows))
        position = np.arange(len(rows)) - np.repeat(scores.indptr[:-1], np.diff(scores.indptr))
        kept = position < k
        order, rows, position = order[kept], rows[kept], position[kept]
        ids = np.full((n, k), len(labels), np.int32)
        best = np.full((n, k), -np.inf, np.float32)
        ids[rows, position] = scores.indices[order]
        best[rows, position] = scores.data[order]
        return cls(ids, best, labels)

    @property
    def k(self) -> int:
        """The width: at most this many labels a text."""
        return int(self.ids.shape[1])

    @property
    def present(self) -> np.ndarray:
        """Which cells hold a label (the others are padding)."""
        return self.ids < len(self.labels)

    def native(self, rows: slice = slice(None)) -> _native.Ranked:
        """Some rows as the native core takes them."""
        return _native.Ranked(ids=self.ids[rows], scores=self.scores[rows], labels=len(self.labels))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice | np.ndarray) -> Ranking:
        return Ranking(self.ids[rows], self.scores[rows], self.labels)

    def __repr__(self) -> str:
        return f"Ranking({len(self)} texts, top {self.k} of {len(self.labels)} labels)"

    def top(self, k: int) -> Ranking:
        """The first k columns."""
        return self if k >= self.k else Ranking(self.ids[:, :k], self.scores[:, :k], self.labels)

    def in_language(self, language: str | None) -> Ranking:
        """The same with the names that labels have in a language (`LabelSet.names_in`)."""
        return Ranking(self.ids, self.scores, self.labels.in_language(language))

    def emptied(self, rows: np.ndarray) -> Ranking:
        """The same without any label in the rows where a mask is true."""
        if not rows.any():
            return self
        ids = np.where(rows[:, None], len(self.labels), self.ids)
        return Ranking(ids, np.where(rows[:, None], -np.inf, self.scores), self.labels)

    def only(self, allowed: np.ndarray) -> Ranking:
        """Drop all labels but those of a mask (labels,); those behind them move up.

        Examples
        --------
        >>> ranking = Ranking([[1, 0]], [[0.9, 0.2]], LabelSet(["cat", "dog"]))
        >>> ranking.only(np.array([True, False])).tags()
        [[Tag(label='cat', probability=0.2)]]
        """
        return self.with_cells(np.append(allowed, False)[np.minimum(self.ids, len(self.labels))])

    def with_cells(self, kept: np.ndarray) -> Ranking:
        """Drop the labels in all cells but those of a mask (n, k); those behind them move up."""
        labels = len(self.labels)
        order = np.argsort(~kept, axis=1, kind="stable")
        kept = np.take_along_axis(kept, order, 1)
        ids = np.where(kept, np.take_along_axis(self.ids, order, 1), labels)
        scores = np.where(kept, np.take_along_axis(self.scores, order, 1), -np.inf)
        return Ranking(ids, scores, self.labels)

    def lacks(self, other: Ranking) -> np.ndarray:
        """Which cells of another ranking of the same rows hold a label that is not in the same row
        here: bool (n, k)."""
        row = np.arange(len(self))[:, None] * (len(self.labels) + 1)  # numbers of cells
        ours, theirs = np.sort(self.ids + row, axis=1).ravel(), other.ids + row
        if not len(ours):
            return other.present
        at = np.minimum(np.searchsorted(ours, theirs.ravel()), len(ours) - 1)
        fresh: np.ndarray = other.present & (ours[at].reshape(theirs.shape) != theirs)
        return fresh

    def without(self, excluded: csr_matrix | None) -> Ranking:
        """Drop the (text, label) cells stored in `excluded`; those behind them move up."""
        if excluded is None or excluded.nnz == 0:
            return self
        if excluded.shape != (len(self), len(self.labels)):
            raise ShapeError(
                f"excluded is {excluded.shape}, the ranking {(len(self), len(self.labels))}"
            )
        cells = canonical(excluded, "excluded")
        dropped = _native.Truth(
            indptr=cells.indptr.astype(np.int64, copy=False),
            indices=cells.indices.astype(np.int32, copy=False),
            positive=np.ones(cells.nnz, np.uint8),
        )
        ids, scores = _native.drop_labels(self.native(), dropped)
        return Ranking(ids, scores, self.labels)

    def to_csr(self) -> csr_matrix:
        """Scores as a sparse matrix (n, labels). Zero scores stay stored."""
        present = self.present
        indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
        matrix = csr_matrix(
            (self.scores[present], self.ids[present], indptr), shape=(len(self), len(self.labels))
        )
        matrix.sort_indices()
        return matrix

    def to_arrow(self) -> pa.Table:
        """A table with a list of label names and a list of scores for each text; and one of
        identifiers, `label_ids`, where labels have some that are not their names, and one of
        notations, `label_notations`, where a vocabulary has some."""
        present = self.present
        lengths, numbers = present.sum(axis=1), pa.array(self.ids[present])
        columns = {"labels": self.labels.names.take(numbers)}
        if self.labels.identified:
            columns["label_ids"] = self.labels.ids.take(numbers)
        if (notations := self.labels.notations) is not None:
            columns["label_notations"] = notations.take(numbers)
        columns["scores"] = pa.array(self.scores[present])
        return pa.table({name: lists(lengths, values) for name, values in columns.items()})

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a pandas data frame; `explode(["labels", "scores"])` of it has
        a row for each label."""
        return to_pandas(self.to_arrow())

    def _repr_html_(self) -> str:
        shown = self[: first_rows(len(self))]
        # scores between 0 and 1 are probabilities, if they are not calibrated poor ones
        found = self.scores[self.present]
        percent = bool(len(found)) and bool(found.min() >= 0) and bool(found.max() <= 1)
        rows = [
            [number, ", ".join(f"{tag.label} {_score(tag.probability, percent)}" for tag in tags)]
            for number, tags in enumerate(shown.tags())
        ]
        caption = f"{len(self):,} texts, the best {self.k} of {len(self.labels):,} labels"
        scores = "probabilities" if percent else "scores"
        return html.sheet(caption, ["text", f"labels and their {scores}"], rows)

    def rows(self, corpus: Corpus | None = None) -> Iterator[dict[str, Any]]:
        """A row a text, ready for JSON: `labels`, each a `label` with its `probability`, its `id`
        where labels have identifiers, and its `notation` where a vocabulary has one.

        Of a corpus, whose texts these are, the rows have `text` too (None of vectors), and `uid`
        where there is one.

        Examples
        --------
        >>> ranking = Ranking([[1]], [[0.9]], LabelSet(["cat", "dog"]))
        >>> next(ranking.rows(Corpus(["It barks."])))
        {'text': 'It barks.', 'labels': [{'label': 'dog', 'probability': 0.9}]}
        """
        if corpus is not None and len(corpus) != len(self):
            raise ShapeError(f"{len(corpus)} texts and {len(self)} rows of a ranking")
        for start in range(0, len(self), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            for i, tags in enumerate(self[part].tags(), start):
                row: dict[str, Any] = {}
                if corpus is not None:
                    if corpus.ids is not None and (uid := corpus.ids[i].as_py()):
                        row["uid"] = uid
                    row["text"] = None if corpus.texts is None else corpus.texts[i].as_py()
                yield row | {"labels": [tag.to_dict() for tag in tags]}

    def tags(self) -> list[list[Tag]]:
        """Label names and scores as plain Python lists, one a text."""
        names, known = self.labels.names, len(self.labels)
        ids = self.labels.ids if self.labels.identified else None
        notations = self.labels.notations
        return [
            # the shortest decimal of the float32, not the long one of its float64
            [
                Tag(
                    names[number].as_py(),
                    float(str(score)),
                    None if ids is None else ids[number].as_py(),
                    None if notations is None else notations[number].as_py(),
                )
                for number, score in zip(row, scores, strict=True)
                if number < known
            ]
            for row, scores in zip(self.ids.tolist(), self.scores, strict=True)
        ]


def _score(score: float, percent: bool) -> str:
    return f"{score:.0%}" if percent else f"{score:.2f}"


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
