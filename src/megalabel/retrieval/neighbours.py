"""NearestNeighbours: a text's labels are those of the training texts most similar to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, issparse, vstack

from megalabel import _native
from megalabel.base import (
    Check,
    Learned,
    array,
    boolean,
    check_array,
    integer,
    label_numbers,
    made_once,
    number,
    one_of,
    optional,
    part,
    unfitted,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import (
    canonical,
    check_targets,
    check_width,
    checked_csr,
    clamped,
    picked_rows,
    row_numbers,
    stacked,
    unit_rows,
    with_values,
)
from megalabel.data.strings import to_arrays
from megalabel.errors import DataError, ShapeError
from megalabel.linear.chunks import marks_of
from megalabel.linear.prior import Prior
from megalabel.parts import Classifier
from megalabel.retrieval.inverted_index import InvertedIndex, features

if TYPE_CHECKING:
    from megalabel.base import Matrix

# Rows whose neighbours are held at once.
BLOCK = 1 << 15
_LONGEST = 320  # bytes of a title


class NearestNeighbours(Classifier):
    """Labels scored by the votes of a text's nearest neighbours among the training texts.

    score(label) = Σ wⱼ Yⱼₗ / Σ wⱼ over the nearest neighbours j, each with the weight
    wⱼ = similarityⱼ ** power: the weighted share of the neighbours that carry the label, from 0
    to 1. Labels that no neighbour carries fill what is left of k: by falling frequency, each with
    its frequency times the lowest score that was voted for, so below every vote. A text without
    neighbours (empty, or of unknown words) gets the labels' frequencies themselves.

    Parameters
    ----------
    neighbours : int
        How many neighbours vote, at most. Only texts that share a term are neighbours.
    similarity : "cosine" or "bm25"
        cosine: rows of X are scaled to length one, so any features will do, dense ones included.
        bm25: X holds counts of words; weights come from those of the training texts.
    power : float
        How much more the nearest count: 0 gives every neighbour the same vote.
    k1, b : float
        BM25's saturation of counts, and how far they are related to a text's length.
    keep_titles : bool
        Whether the beginnings of the training texts are kept, where there are texts: explanations
        name neighbours by them.

    Examples
    --------
    >>> X = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> Y = csr_matrix([[1.0, 0], [1, 0], [0, 1]])
    >>> model = NearestNeighbours().fit(X, Y, LabelSet(["cat", "dog"]))
    >>> model.rank(csr_matrix([[1.0, 0, 0], [0, 0, 2]]), k=1).tags()
    [[Tag(label='cat', probability=1.0)], [Tag(label='dog', probability=1.0)]]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "neighbours": integer(1),
        "similarity": one_of("cosine", "bm25"),
        "power": number(0),
        "k1": number(0),
        "b": number(0, 1),
        "keep_titles": boolean(),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "index_": part(InvertedIndex),
        "prior_": part(Prior),
        "label_starts_": array(np.int64, "documents+1"),
        "label_ids_": array(np.int32, "entries"),
        "relevances_": array(np.float32, "entries"),
        "counts_": optional(array(np.float32, "counts")),
        "idf_": optional(array(np.float32, "columns")),
        "title_starts_": optional(array(np.int64, "documents+1")),
        "title_bytes_": optional(array(np.uint8, "bytes")),
        "points_": optional(array(np.int64, "points")),
    }

    index_: InvertedIndex
    prior_: Prior
    label_starts_: np.ndarray
    label_ids_: np.ndarray
    relevances_: np.ndarray
    counts_: np.ndarray | None = None
    idf_: np.ndarray | None = None
    # not Arrow strings, which would be read and checked whenever a model is opened
    title_starts_: np.ndarray | None = None
    title_bytes_: np.ndarray | None = None
    points_: np.ndarray | None = None  # rows that came with a label, and leave with it

    def __init__(
        self,
        *,
        neighbours: int = 30,
        similarity: str = "cosine",
        power: float = 3.0,
        k1: float = 1.2,
        b: float = 0.75,
        keep_titles: bool = True,
    ) -> None:
        self.neighbours = neighbours
        self.similarity = similarity
        self.power = power
        self.k1 = k1
        self.b = b
        self.keep_titles = keep_titles

    @property
    def labels_(self) -> LabelSet:
        """The labels, kept with the prior."""
        self.check_fitted()
        return self.prior_.labels_

    @labels_.setter
    def labels_(self, labels: LabelSet) -> None:
        self.prior_.labels_ = labels

    @property
    def learns_label_points(self) -> bool:
        """True: as neighbours that vote for their label."""
        return True

    @property
    def weighs_label_points(self) -> bool:
        """True: it is what their votes are multiplied with."""
        return True

    def _fit(self, examples: Examples) -> None:
        """Index the rows and keep their labels."""
        X = self._features(examples.rows)
        if self.similarity == "cosine" and issparse(X):
            sparse = csr_matrix(X)
            if sparse.nnz > X.shape[0] * X.shape[1] / 3:  # an index gains nothing on such rows
                X = sparse.toarray()
        self.prior_ = Prior().fit_examples(examples)
        self._index(X)
        targets = examples.targets
        if examples.label_points is not None:
            point = np.zeros(len(examples), bool)
            point[examples.label_points] = True
            weights = np.where(point, examples.label_point_weight, 1.0)
            targets = with_values(targets, targets.data * weights[row_numbers(targets)])
        self._keep(targets)
        self._keep_titles(examples.titles if self.keep_titles else None)

    def partial_fit(
        self,
        X: Matrix,
        Y: csr_matrix,
        labels: LabelSet,
        titles: pa.LargeStringArray | None = None,
    ) -> Self:
        """Add rows, as if all had been given to `fit`; labels may have new ones at its end.

        The index is built anew: adding many rows at once is cheaper than one by one. `titles` are
        the beginnings of the new rows' texts.
        """
        if not self.fitted:
            return self.fit(X, Y, labels)
        check_width(self, X, self.index_.shape[1])
        X, Y = self._features(X), check_targets(X, Y)
        targets = self._targets(Y.shape[1])
        self.prior_.partial_fit(X, Y, labels)
        if self.counts_ is None:
            self.index_.partial_fit(unit_rows(X))
        else:
            counts = with_values(self.index_.rows, self.counts_)
            self._index_counts(vstack([counts, X], format="csr"))
        self._keep(vstack([targets, Y], format="csr"))
        self._add_titles(targets.shape[0], Y.shape[0], titles)
        return self

    def add_labels(
        self, labels: LabelSet, rows: Matrix, owners: np.ndarray, titles: pa.LargeStringArray
    ) -> Self:
        """A copy that knows more labels, after its own: each by rows that vote for it, as training
        texts do. They do not count as texts, and leave with their labels.

        Parameters
        ----------
        labels : LabelSet
        rows : CSR matrix or array (rows, features)
            Such as those of the labels' names.
        owners : int array (rows,)
            Which of the new labels each row votes for.
        titles : Arrow array of str
            What people know the rows by.
        """
        self.check_fitted()
        check_width(self, rows, self.index_.shape[1])
        rows, known = self._features(rows), len(self.labels_)
        made, more, before = type(self)(**self.get_params(deep=False)), len(labels), self._documents
        all_labels = known + more
        made.prior_ = self.prior_.add_labels(labels)
        made._index(stacked(self._given_rows(), rows))
        votes = np.ones(len(owners), np.float32)
        more_targets = csr_matrix(
            (votes, (np.arange(len(owners)), known + owners)), (len(owners), all_labels)
        )
        made._keep(vstack([self._targets(all_labels), more_targets], format="csr"))
        made.title_starts_, made.title_bytes_ = self.title_starts_, self.title_bytes_
        made._add_titles(before, len(owners), titles)
        points = np.arange(before, before + len(owners), dtype=np.int64)
        made.points_ = points if self.points_ is None else np.append(self.points_, points)
        return made

    def widened(self, columns: int) -> Self:
        """A copy over more columns, which follow those there are; no row has a value there."""
        self.check_fitted()
        made = type(self)(**self.get_params(deep=False))
        rows = csr_matrix(self._given_rows())
        rows.resize((rows.shape[0], columns))
        made._index(rows)
        prior = with_learned(unfitted(self.prior_), **self.prior_.learned())
        prior.n_features_ = columns
        kept = {"index_": made.index_, "counts_": made.counts_, "idf_": made.idf_, "prior_": prior}
        return with_learned(made, **self.learned() | kept)

    @property
    def _documents(self) -> int:
        """How many rows are indexed."""
        return len(self.label_starts_) - 1

    def _given_rows(self) -> Matrix:
        """The rows as they were given: counts, where similarity is of counts."""
        rows = self.index_.rows
        return rows if self.counts_ is None else with_values(rows, self.counts_)

    def _index(self, X: Matrix) -> None:
        if self.similarity == "cosine":
            self.counts_ = self.idf_ = None
            self.index_ = InvertedIndex().fit(unit_rows(X))
        else:
            self._index_counts(X)

    def _index_counts(self, X: csr_matrix) -> None:
        rows = row_numbers(X)
        lengths = np.bincount(rows, weights=X.data, minlength=X.shape[0])
        mean = max(lengths.sum() / max(1, len(lengths)), np.finfo(np.float64).tiny)
        spread = self.k1 * (1 - self.b + self.b * lengths / mean)
        counts = X.data.astype(np.float64)
        weights = np.divide(
            counts * (self.k1 + 1),
            counts + spread[rows],
            out=np.zeros_like(counts),
            where=counts > 0,
        )
        self.counts_ = X.data
        self.index_ = InvertedIndex().fit(with_values(X, weights))
        frequencies = np.diff(self.index_.term_starts_)
        idf = np.log1p((X.shape[0] - frequencies + 0.5) / (frequencies + 0.5))
        self.idf_ = idf.astype(np.float32)

    def _keep(self, Y: csr_matrix) -> None:
        vars(self).pop("_native", None)  # that of other labels
        for name, array_ in _stored(Y).items():
            setattr(self, name, array_)

    def _keep_titles(self, titles: pa.LargeStringArray | None) -> None:
        self.title_starts_ = self.title_bytes_ = None
        if titles is not None:
            starts, data = to_arrays(titles)
            self.title_bytes_ = data[starts[0] : starts[-1]].copy()
            self.title_starts_ = starts - starts[0]

    def _add_titles(self, old: int, new: int, titles: pa.LargeStringArray | None) -> None:
        """Keep titles of so many new rows behind those of the old; "" where there is none."""
        if not self.keep_titles or (titles is None and self.title_starts_ is None):
            return
        starts, data = np.zeros(old + 1, np.int64), np.zeros(0, np.uint8)
        if self.title_starts_ is not None and self.title_bytes_ is not None:
            starts, data = self.title_starts_, self.title_bytes_
        bounds, more = (
            (np.zeros(new + 1, np.int64), data[:0]) if titles is None else to_arrays(titles)
        )
        self.title_starts_ = np.concatenate([starts, len(data) + bounds[1:] - bounds[0]])
        self.title_bytes_ = np.concatenate([data, more[bounds[0] : bounds[-1]]])

    def title(self, row: int) -> str:
        """How a training text begins, on one line; "" where that is not known."""
        if self.title_starts_ is None or self.title_bytes_ is None:
            return ""
        first, last = self.title_starts_[row : row + 2].tolist()
        title = bytes(self.title_bytes_[first : min(last, first + _LONGEST)])
        return " ".join(title.decode("utf-8", "replace").split())

    def votes(self, X: Matrix, label: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The neighbours of a single row that vote for a label: their numbers, their similarities,
        and their shares of all votes, which add up to the label's score."""
        self.check_fitted()
        check_width(self, X, self.index_.shape[1])
        found, similarities = (part[0] for part in self._search(self._features(X), None))
        near = similarities > 0
        rows, similarities = found[near], similarities[near].astype(np.float64)
        weights = (similarities / similarities.max(initial=0)) ** self.power
        relevances = np.zeros(len(rows))
        for place, row in enumerate(rows.tolist()):
            own = slice(*self.label_starts_[row : row + 2].tolist())
            relevances[place] = self.relevances_[own][self.label_ids_[own] == label].sum()
        shares = weights * relevances / max(weights.sum(), np.finfo(np.float64).tiny)
        voting = shares > 0
        return rows[voting], similarities[voting], shares[voting]

    def _targets(self, labels: int) -> csr_matrix:
        shape = (len(self.label_starts_) - 1, labels)
        return checked_csr(self.relevances_, self.label_ids_, self.label_starts_, shape)

    def _features(self, X: Matrix) -> Matrix:
        if self.similarity == "cosine":
            return features(X)
        X = canonical(X, "X")
        if X.nnz and X.data.min() < 0:
            raise DataError("bm25 needs counts, but X holds a value below zero")
        return X

    def _queries(self, X: Matrix) -> Matrix:
        return unit_rows(X) if self.idf_ is None else _scaled_columns(X, self.idf_)

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels of each row, best first; k is at most the number of labels."""
        return self._rank(X, k, None)

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        return self._rank(X, k, None, allowed)

    @property
    def ranks_held_out(self) -> bool:
        """True: each row is ranked by its neighbours among all others."""
        return True

    def rank_held_out(self, X: Matrix, rows: np.ndarray, k: int) -> Ranking:
        """Rank some of the training rows, each by its neighbours among all others."""
        self.check_fitted()
        if X.shape[0] != len(rows):
            raise ShapeError(f"X is {X.shape} but {len(rows)} rows are to be ranked")
        return self._rank(X, k, rows)

    def _rank(
        self,
        X: Matrix,
        k: int,
        leave_out: np.ndarray | None,
        allowed: np.ndarray | None = None,
    ) -> Ranking:
        self.check_fitted()
        check_width(self, X, self.index_.shape[1])
        width = max(1, clamped(k, len(self.prior_.order_)))
        X = self._features(X)
        ids = np.empty((X.shape[0], width), np.int32)
        scores = np.empty((X.shape[0], width), np.float32)
        labels = made_once(self, "_native", self._labels_as_native)
        for begin in range(0, X.shape[0], BLOCK):
            rows = slice(begin, begin + BLOCK)
            found, similarities = self._search(
                X if X.shape[0] <= BLOCK else X[rows],
                None if leave_out is None else leave_out[rows],
            )
            ids[rows], scores[rows] = _native.vote(
                ids=found,
                similarities=similarities,
                power=self.power,
                labels=labels,
                prior=self.prior_.frequencies_,
                by_prior=self.prior_.order_,
                allowed=marks_of(allowed),
                k=width,
            )
        return Ranking(ids, scores, self.labels_)

    def _labels_as_native(self) -> _native.SparseRows:
        """The labels of the training texts, as the native core takes them."""
        return _native.SparseRows(
            starts=self.label_starts_,
            columns=self.label_ids_,
            values=self.relevances_,
            width=len(self.prior_.frequencies_),
        )

    def _search(self, X: Matrix, leave_out: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours of rows, and how similar they are."""
        most = max(1, min(self.neighbours, self.index_.shape[0]))
        return self.index_.search(self._queries(X), most, leave_out=leave_out)

    def check_learned(self) -> None:
        """Index, prior and labels must fit. Sizes are checked here, every position when used."""
        vars(self).pop("_native", None)  # that of other labels
        owner, (documents, width) = "NearestNeighbours", self.index_.shape
        check_array(owner, "label_starts_", self.label_starts_, np.int64, (documents + 1,))
        if self.prior_.n_features_ != width:
            raise ValueError(
                f"the prior of {owner} has {self.prior_.n_features_} columns, the index {width}"
            )
        if self.similarity == "bm25":
            entries = len(getattr(self.index_, "row_terms_", ()))
            check_array(owner, "idf_", self.idf_, np.float32, (width,))
            check_array(owner, "counts_", self.counts_, np.float32, (entries,))
        elif self.idf_ is not None or self.counts_ is not None:
            raise ValueError(f"{owner} with cosine similarity has neither idf_ nor counts_")

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """All texts still vote, each for those of its labels that are taken."""
        numbers = label_numbers(numbers, len(self.labels_))
        targets = self._targets(len(self.labels_))[:, numbers]
        targets.sort_indices()
        taken = super()._taken(numbers)
        if self.points_ is not None:
            left = np.ones(self._documents, bool)
            left[self.points_[np.diff(targets.indptr)[self.points_] == 0]] = False
            if not left.all():
                return taken | self._with_rows(left, targets)
        return taken | _stored(targets)

    def _with_rows(self, left: np.ndarray, targets: csr_matrix) -> dict[str, Any]:
        """What is learned of the rows that are left."""
        part = type(self)(**self.get_params(deep=False))
        rows = np.flatnonzero(left)
        part._index(self._given_rows()[rows])
        assert self.points_ is not None
        points = np.searchsorted(rows, self.points_[left[self.points_]]).astype(np.int64)
        learned = {
            "index_": part.index_,
            "counts_": part.counts_,
            "idf_": part.idf_,
            "points_": points if len(points) else None,
            **_stored(targets[rows]),
        }
        if self.title_starts_ is not None and self.title_bytes_ is not None:
            at, starts = picked_rows(self.title_starts_, rows)
            learned |= {"title_starts_": starts, "title_bytes_": self.title_bytes_[at]}
        return learned


def _stored(Y: csr_matrix) -> dict[str, np.ndarray]:
    """The labels of texts, as they are kept."""
    return {
        "label_starts_": Y.indptr.astype(np.int64),
        "label_ids_": Y.indices.astype(np.int32),
        "relevances_": Y.data.astype(np.float32),
    }


def _scaled_columns(X: csr_matrix, scale: np.ndarray) -> csr_matrix:
    return with_values(X, X.data * scale[X.indices])
