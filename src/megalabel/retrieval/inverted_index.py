"""InvertedIndex: the k documents most similar to a query, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from megalabel import _native
from megalabel.base import Component, array, integer, made_once, number, optional, value
from megalabel.data.matrix import canonical, checked_csr, dense, sparse_rows
from megalabel.errors import ParameterError, ShapeError

if TYPE_CHECKING:
    from megalabel.base import Matrix

# Tiers of common terms whose share of each document is kept.
TIERS = _native.TIERS
# Similarities held at once by a dense search.
DENSE_BLOCK = 1 << 24
_VECTORS = optional(array(np.float32, "documents", "columns"))
_SPARSE = {
    "row_starts_": optional(array(np.int64, "documents+1")),
    "row_terms_": optional(array(np.int32, "entries")),
    "row_weights_": optional(array(np.float32, "entries")),
    "largest_": optional(array(np.float32, "terms")),
    "term_starts_": optional(array(np.int64, "terms+1")),
    "term_documents_": optional(array(np.int32, "postings")),
    "term_weights_": optional(array(np.float32, "postings")),
    "common_": optional(array(np.uint8, "tiers")),
}


class InvertedIndex(Component):
    """Documents as rows of a matrix, searched exactly by dot product.

    A sparse matrix is turned into postings and searched term by term, rare terms first, with early
    termination. A dense array is kept as it is and searched by matrix product. Both give the same
    answers whatever the number of threads or of queries at once, ties go to the lower document
    number, and `search` may be called from several threads.

    Examples
    --------
    >>> index = InvertedIndex().fit(csr_matrix([[1.0, 0, 0], [0, 2, 1], [0, 1, 0]]))
    >>> ids, similarities = index.search(csr_matrix([[0.0, 1, 1]]), k=3)
    >>> ids.tolist(), similarities.tolist()  # the first document shares nothing: not found
    ([[1, 2, 3]], [[3.0, 1.0, -inf]])
    """

    LEARNED = {"norm_": value(number(0)), "vectors_": _VECTORS, **_SPARSE}  # noqa: RUF012

    row_starts_: np.ndarray
    row_terms_: np.ndarray
    row_weights_: np.ndarray
    term_starts_: np.ndarray
    term_documents_: np.ndarray
    term_weights_: np.ndarray
    largest_: np.ndarray
    common_: np.ndarray
    vectors_: np.ndarray
    norm_: float

    def fit(self, X: Matrix) -> Self:
        """Index the rows of X."""
        X = features(X)
        if max(X.shape) >= 2**31:
            raise ShapeError(f"X is {X.shape}: more rows or columns than 32 bits can number")
        learned: dict[str, Any] = {}
        if issparse(X):
            learned |= zip(("row_starts_", "row_terms_", "row_weights_"), _arrays(X), strict=True)
            names = ("term_starts_", "term_documents_", "term_weights_", "largest_", "common_")
            postings = _native.build_postings(sparse_rows(X))
            learned |= zip((*names, "norm_"), postings, strict=True)
        else:
            blocks = (X[i : i + 1024] for i in range(0, len(X), 1024))
            learned = {"vectors_": X, "norm_": max(map(_length, blocks), default=0.0)}
        self.restore(learned)
        return self

    def partial_fit(self, X: Matrix) -> Self:
        """Add the rows of X after those there are; as if all had been given to `fit`."""
        if not self.fitted:
            return self.fit(X)
        X = self._like_ours(X)
        return self.fit(
            np.concatenate([self.vectors_, X])
            if self._dense
            else vstack([self.rows, X], format="csr")
        )

    @property
    def _dense(self) -> bool:
        return getattr(self, "vectors_", None) is not None

    @property
    def shape(self) -> tuple[int, int]:
        """The number of documents and of columns."""
        self.check_fitted()
        if self._dense:
            return self.vectors_.shape[0], self.vectors_.shape[1]
        return len(self.row_starts_) - 1, len(self.largest_)

    @property
    def rows(self) -> Matrix:
        """The documents, as they were given."""
        self.check_fitted()
        if self._dense:
            return self.vectors_
        return checked_csr(self.row_weights_, self.row_terms_, self.row_starts_, self.shape)

    def search(
        self,
        queries: Matrix,
        k: int,
        *,
        leave_out: np.ndarray | None = None,
        early_termination: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k documents most similar to each query, best first.

        Parameters
        ----------
        queries : CSR matrix or array (n, columns)
        k : int
        leave_out : int array (n,), optional
            A document for each query that is not to be found, such as the query itself.
        early_termination : bool
            False: add up all postings. The answer is the same; for comparison.

        Returns
        -------
        ids : int32 array (n, k)
            Document numbers. Only documents with a similarity above zero are found: places left
            over hold the number of documents.
        similarities : float32 array (n, k)
            Dot products; -inf in places left over.
        """
        queries = self._like_ours(queries)
        if not integer(1).accepts(k):
            raise ParameterError(f"k must be an integer of at least 1, not {k!r}")
        own = np.empty(0, np.int64) if leave_out is None else np.asarray(leave_out, np.int64)
        if leave_out is not None and own.shape != (queries.shape[0],):
            raise ShapeError(f"queries are {queries.shape} but leave_out is {own.shape}")
        found = max(1, min(int(k), self.shape[0]))  # more would only be padding
        if self._dense:
            ids, similarities = self._search_dense(queries, found, own)
        else:
            postings, rows = made_once(self, "_native", self._as_native)
            ids, similarities = _native.search_postings(
                postings=postings,
                rows=rows,
                queries=sparse_rows(queries),
                k=found,
                left_out=own,
                prune=early_termination,
            )
        if found < k:
            left = ((0, 0), (0, k - found))
            ids = np.pad(ids, left, constant_values=self.shape[0])
            similarities = np.pad(similarities, left, constant_values=-np.inf)
        return ids, similarities

    def _as_native(self) -> tuple[_native.Postings, _native.SparseRows]:
        """What is sparse, by columns and by rows, as the native core takes it."""
        postings = _native.Postings(
            starts=self.term_starts_,
            documents=self.term_documents_,
            weights=self.term_weights_,
            largest=self.largest_,
            common=self.common_,
            norm=self.norm_,
        )
        rows = _native.SparseRows(
            starts=self.row_starts_,
            columns=self.row_terms_,
            values=self.row_weights_,
            width=len(self.largest_),
        )
        return postings, rows

    def _search_dense(
        self, queries: np.ndarray, k: int, own: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pick candidates by a product in single precision, then score them exactly."""
        n, width = self.shape
        block = max(1, DENSE_BLOCK // max(n, 1))
        # What rounding can make of a dot product of this width (twice, for two of them).
        error = 2 * (width + 2) * np.finfo(np.float32).eps * self.norm_
        answers = []
        for begin in range(0, queries.shape[0], block):
            part = queries[begin : begin + block]
            # all values are finite: kernels of BLAS may raise the flag over what pads their tiles
            with np.errstate(invalid="ignore"):
                products = part @ self.vectors_.T
            if len(own):
                products[np.arange(len(part)), own[begin : begin + block]] = -np.inf
            margin = error * np.linalg.norm(part.astype(np.float64), axis=1, keepdims=True)
            bar = np.zeros((len(part), 1))
            if n > k:
                bar = np.maximum(bar, np.partition(products, n - k, axis=1)[:, n - k, None])
            picked = products >= bar - margin
            starts = np.concatenate([[0], np.cumsum(picked.sum(axis=1))])
            candidates = np.nonzero(picked)[1].astype(np.int32)
            answers.append(
                _native.rescore_dense(
                    queries=part,
                    documents=self.vectors_,
                    starts=starts,
                    candidates=candidates,
                    k=k,
                )
            )
        if not answers:
            return np.empty((0, k), np.int32), np.empty((0, k), np.float32)
        ids, similarities = zip(*answers, strict=True)
        return np.concatenate(ids), np.concatenate(similarities)

    def _like_ours(self, X: Matrix) -> Matrix:
        """X in the form of the documents: sparse or dense, and as wide."""
        X = features(X)
        if X.shape[1] != self.shape[1]:
            raise ShapeError(f"rows are {X.shape} but the index is {self.shape}")
        if self._dense:
            return csr_matrix(X).toarray() if issparse(X) else X
        return X if issparse(X) else canonical(X)

    def check_learned(self) -> None:
        """It is sparse or dense. Sizes are checked here, every position when it is used."""
        vars(self).pop("_native", None)  # that of other rows
        there = {name for name in _SPARSE if getattr(self, name, None) is not None}
        if there != (set() if self._dense else set(_SPARSE)):
            raise ValueError("InvertedIndex must have either vectors_, or all of a sparse matrix")
        if not self._dense and len(self.common_) != TIERS * self.shape[0]:
            raise ValueError(f"common_ of InvertedIndex must be of {self.shape[0]} documents")

    @staticmethod
    def index_bytes(documents: int, terms: int, entries: int) -> int:
        """The memory that an index of a sparse matrix takes."""
        return 16 * entries + (8 + TIERS) * documents + 12 * terms + 16

    @staticmethod
    def search_bytes(documents: int, terms: int) -> int:
        """The most working memory that a search takes for each thread, results aside."""
        return 12 * documents + 4 * terms


def features(X: Matrix) -> Matrix:
    """X as a canonical CSR matrix or a contiguous array of finite float32."""
    return canonical(X, "X") if issparse(X) else dense(X, "X")


def _arrays(X: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.ascontiguousarray(X.indptr, dtype=np.int64),
        np.ascontiguousarray(X.indices, dtype=np.int32),
        np.ascontiguousarray(X.data, dtype=np.float32),
    )


def _length(X: np.ndarray) -> float:
    """The largest Euclidean length of a row."""
    return float(np.sqrt(np.square(X, dtype=np.float64).sum(axis=1).max(initial=0)))
