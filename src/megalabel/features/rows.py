"""Rows of matrices, sparse or dense: made, scaled and joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import _native

if TYPE_CHECKING:
    from megalabel.base import Matrix

NORMS = {None: 0, "l1": 1, "l2": 2}  # as the native core numbers them
NO_WEIGHTS = np.zeros(0, np.float32)


def csr_of(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, columns: int) -> csr_matrix:
    """The matrix over arrays whose columns rise within each row; no copy of data and indices."""
    if len(data) <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32, copy=False)  # scipy wants both of one type
    matrix = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, columns))
    matrix.has_canonical_format = True
    return matrix


def normalised_rows(matrix: Matrix, weight: float = 1.0) -> Matrix:
    """A float32 copy whose rows have length `weight`; rows of zeros stay as they are."""
    if isinstance(matrix, np.ndarray):
        rows = np.array(matrix, dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        rows *= (weight / np.where(lengths == 0, 1, lengths)).astype(np.float32)[:, None]
        return rows
    values = matrix.data.astype(np.float32)  # always a copy
    indptr = matrix.indptr.astype(np.int64, copy=False)
    _native.weigh_rows(indptr, matrix.indices, values, NO_WEIGHTS, False, False, NORMS["l2"])
    values *= np.float32(weight)
    result = csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    result.has_sorted_indices = matrix.has_sorted_indices
    return result
