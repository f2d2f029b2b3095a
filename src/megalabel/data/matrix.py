"""Matrices, sparse or dense: the checks and small operations that every room needs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csc_matrix, csr_matrix, issparse, vstack

from megalabel import _native
from megalabel.base import Component, integer
from megalabel.errors import DataError, ParameterError, ShapeError

if TYPE_CHECKING:
    from megalabel.base import Matrix

NORMS = {None: _native.Norm.none, "l1": _native.Norm.l1, "l2": _native.Norm.l2}
_MOST_ENTRIES = np.iinfo(np.int32).max
NO_WEIGHTS = np.zeros(0, np.float32)
_COUNT = integer(1)  # made once, as it is asked with every query


def canonical(matrix: Any, what: str = "matrix") -> csr_matrix:
    """A float32 CSR matrix with sorted, unique columns and finite values; a copy only if needed."""
    if not issparse(matrix):
        matrix = np.asarray(matrix)
        if matrix.ndim != 2:
            raise ShapeError(f"{what} must have two dimensions, not shape {matrix.shape}")
    ready = isinstance(matrix, csr_matrix) and matrix.dtype == np.float32
    result = matrix if ready else csr_matrix(matrix, dtype=np.float32)
    if not result.has_canonical_format:
        result = result.copy()  # sorting works in place, and the arrays may be the caller's
        result.sum_duplicates()
    if not _native.all_finite(result.data):
        row = int(
            np.searchsorted(result.indptr, np.flatnonzero(~np.isfinite(result.data))[0], "right")
        )
        raise DataError(f"{what} holds a value that is not a finite number in row {row - 1}")
    return result


def dense(matrix: Any, what: str = "features") -> np.ndarray:
    """A contiguous two-dimensional array of finite float32; a copy only if needed."""
    try:
        result = np.asarray(matrix, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{what} must be a matrix of numbers") from None
    if result.ndim != 2:
        raise ShapeError(f"{what} must have two dimensions, not shape {result.shape}")
    if not np.isfinite(result).all():
        raise DataError(f"{what} holds a value that is not a finite number")
    return np.ascontiguousarray(result)


def as_dense(X: Matrix) -> np.ndarray:
    """X as an array of float32."""
    return np.asarray(X if isinstance(X, np.ndarray) else X.toarray(), np.float32)


def checked_csr(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> csr_matrix:
    """A CSR matrix over arrays of a model folder, every position of which is looked at.

    SciPy's own routines read wherever the arrays point, so that those of a damaged model would end
    the process. (Its full check passes over matrices whose last row pointer is 0.)
    """
    matrix = csr_matrix((data, indices, indptr), shape=shape)
    if (np.diff(indptr) < 0).any():
        raise ValueError("the row pointers of a sparse matrix must not fall")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise ValueError(f"a sparse matrix of {shape} holds a column outside its width")
    return matrix


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


def check_width(classifier: Component, X: Matrix, width: int) -> None:
    """A ShapeError unless X has the columns that the classifier was fitted on."""
    if len(X.shape) != 2 or X.shape[1] != width:
        raise ShapeError(
            f"X is {X.shape} but {type(classifier).__name__} was fitted on {width} columns"
        )


def filled_rows(matrix: Matrix) -> np.ndarray:
    """Which rows hold anything but zeros.

    Examples
    --------
    >>> filled_rows(np.array([[0.0, 2.0], [0.0, 0.0]]))
    array([ True, False])
    """
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix.any(axis=1))
    return np.asarray(np.diff(matrix.indptr) > 0)


def products(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """X @ weights.T in float32, each row and column the same whatever others are beside it.

    Weights in float16 are not copied as a whole.

    Examples
    --------
    >>> products(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]], dtype=float32)
    """
    # BLAS has several kernels, by the shapes, which round in different ways
    kept = weights.dtype if weights.dtype == np.float16 else np.float32
    out = np.empty((len(X), len(weights)), np.float32)
    _native.products(
        rows=np.ascontiguousarray(X, np.float32),
        weights=np.ascontiguousarray(weights, kept),
        out=out,
    )
    return out


def clamped(k: int, n: int) -> int:
    """k, but at most n; a ParameterError unless it is an integer of at least 1."""
    if not _COUNT.accepts(k):
        raise ParameterError(f"k must be an integer of at least 1, not {k!r}")
    return min(int(k), n)


def csr_of(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, columns: int) -> csr_matrix:
    """The matrix over arrays of the native core; no copy of data and indices.

    Columns must rise within each row. That is not looked at, nor is anything else: SciPy's checks
    of a single row would take longer than to make it.
    """
    if len(data) > _MOST_ENTRIES:  # scipy wants indptr and indices of one type
        matrix = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, columns))
        matrix.has_canonical_format = True
        return matrix
    matrix = csr_matrix.__new__(csr_matrix)
    vars(matrix).update(_attributes(len(indptr) - 1, columns))
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr.astype(np.int32, copy=False)
    return matrix


@lru_cache(maxsize=16)
def _attributes(rows: int, columns: int) -> dict[str, Any]:
    """What a matrix of that shape consists of besides its arrays."""
    matrix = csr_matrix((rows, columns), dtype=np.float32)
    matrix.has_canonical_format = True
    return {k: v for k, v in vars(matrix).items() if k not in ("data", "indices", "indptr")}


def sparse_rows(matrix: csr_matrix) -> _native.SparseRows:
    """A CSR matrix of float32 as the native core takes it; a copy only of indices of another
    width."""
    return _native.SparseRows(
        starts=matrix.indptr.astype(np.int64, copy=False),
        columns=matrix.indices.astype(np.int32, copy=False),
        values=matrix.data,
        width=matrix.shape[1],
    )


def normalised_rows(matrix: Matrix, weight: float = 1.0, counted: int | None = None) -> Matrix:
    """A float32 copy whose rows have length `weight`; rows of zeros stay as they are.

    `counted`: so many of the columns of a CSR matrix make the length, where a row has one of them.
    """
    if isinstance(matrix, np.ndarray):
        rows = np.array(matrix, dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        rows *= (weight / np.where(lengths == 0, 1, lengths)).astype(np.float32)[:, None]
        return rows
    values = matrix.data.astype(np.float32)  # always a copy
    _native.weigh_rows(
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.int32, copy=False),
        values,
        idf=NO_WEIGHTS,
        binary=False,
        sublinear=False,
        norm=_native.Norm.l2,
        counted=matrix.shape[1] if counted is None else counted,
    )
    values *= np.float32(weight)
    return with_values(matrix, values)


def unit_rows(X: Matrix) -> Matrix:
    """Rows scaled to length one; rows of zeros stay. Rows do not depend on those around them."""
    if issparse(X):
        return normalised_rows(X)
    result = np.empty_like(X)
    for i in range(0, len(X), 1024):
        part = X[i : i + 1024].astype(np.float64)
        length = np.sqrt(np.square(part).sum(axis=1, keepdims=True))
        result[i : i + 1024] = part / np.where(length == 0, 1, length)
    return result


def stacked(rows: Any, more: Any) -> Any:
    """Rows and more of the same kind below them: of matrices, or of whatever has `stacked`."""
    if issparse(rows):
        return vstack([rows, more], "csr")
    if isinstance(rows, np.ndarray):
        more = more.toarray() if issparse(more) else more
        return np.concatenate([rows, more.astype(rows.dtype, copy=False)])
    return rows.stacked(more)


def some_rows(rows: Any, numbers: np.ndarray) -> Any:
    """Some of the rows that a classifier sees: of a matrix, of texts, of several such (a list), or
    of whatever takes numbers in brackets.

    Examples
    --------
    >>> some_rows([np.eye(3), ["a", "b", "c"]], np.array([2]))
    [array([[0., 0., 1.]]), ['c']]
    """
    if isinstance(rows, pa.Array):
        return rows.take(pa.array(numbers))
    if not isinstance(rows, list):
        return rows[numbers]
    if rows and isinstance(rows[0], str):
        return [rows[number] for number in numbers.tolist()]
    return [some_rows(part, numbers) for part in rows]


def row_count(rows: Any) -> int:
    """How many rows a classifier sees: of a matrix, of texts, or of several such (a list).

    Examples
    --------
    >>> row_count([np.eye(3), ["a", "b", "c"]])
    3
    """
    if hasattr(rows, "shape"):
        return int(rows.shape[0])
    of_several = isinstance(rows, list) and rows and not isinstance(rows[0], str)
    return row_count(rows[0]) if of_several else len(rows)


def scaled_rows(Y: csr_matrix, norm: str | None) -> csr_matrix:
    """Y with each row divided by its sum, its length or its largest value."""
    if norm is None or not Y.nnz:
        return Y
    if norm == "max":
        sizes = Y.max(axis=1).toarray().ravel()
    else:
        power = 1 if norm == "l1" else 2
        sizes = np.asarray(Y.power(power).sum(axis=1)).ravel() ** (1 / power)
    scaled = Y.data / np.repeat(sizes, np.diff(Y.indptr))
    return csr_matrix((scaled.astype(np.float32), Y.indices, Y.indptr), shape=Y.shape)


def row_numbers(X: csr_matrix) -> np.ndarray:
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def picked_rows(starts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of some rows are, of rows of any lengths in one array, and where each of
    these rows starts once the entries are taken.

    Examples
    --------
    >>> picked_rows(np.array([0, 2, 2, 5]), np.array([2, 0]))
    (array([2, 3, 4, 0, 1]), array([0, 3, 5]))
    """
    lengths = starts[rows + 1] - starts[rows]
    ends = np.append(0, np.cumsum(lengths))
    return np.repeat(starts[rows] - ends[:-1], lengths) + np.arange(ends[-1]), ends


def with_values(X: csr_matrix, values: np.ndarray) -> csr_matrix:
    """Other values in the places of X, whose arrays it shares.

    SciPy's checks of a single row, which X has passed, would take longer than to make it.
    """
    matrix = csr_matrix.__new__(csr_matrix)
    vars(matrix).update(vars(X))
    matrix.data = values.astype(np.float32, copy=False)
    return matrix


def row_slice(matrix: csr_matrix, some: slice) -> csr_matrix:
    """Rows that follow each other, in the memory of the matrix."""
    starts = matrix.indptr[some.start : some.stop + 1]
    entries = slice(starts[0], starts[-1])
    parts = (matrix.data[entries], matrix.indices[entries], starts - starts[0])
    return csr_matrix(parts, shape=(some.stop - some.start, matrix.shape[1]))


def column_slice(matrix: csc_matrix, some: slice) -> csc_matrix:
    """Columns that follow each other, in the memory of the matrix."""
    return row_slice(matrix.T, some).T
