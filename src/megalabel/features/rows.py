"""Rows of matrices, sparse or dense: made, scaled and joined."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import _native

if TYPE_CHECKING:
    from megalabel.base import Matrix

NORMS = {None: _native.Norm.none, "l1": _native.Norm.l1, "l2": _native.Norm.l2}
_MOST_ENTRIES = np.iinfo(np.int32).max
NO_WEIGHTS = np.zeros(0, np.float32)


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


def normalised_rows(matrix: Matrix, weight: float = 1.0) -> Matrix:
    """A float32 copy whose rows have length `weight`; rows of zeros stay as they are."""
    if isinstance(matrix, np.ndarray):
        rows = np.array(matrix, dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        rows *= (weight / np.where(lengths == 0, 1, lengths)).astype(np.float32)[:, None]
        return rows
    values = matrix.data.astype(np.float32)  # always a copy
    indptr = matrix.indptr.astype(np.int64, copy=False)
    _native.weigh_rows(
        indptr,
        matrix.indices,
        values,
        idf=NO_WEIGHTS,
        binary=False,
        sublinear=False,
        norm=_native.Norm.l2,
    )
    values *= np.float32(weight)
    result = csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    result.has_sorted_indices = matrix.has_sorted_indices
    return result
