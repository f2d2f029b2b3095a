"""Matrices as the native core takes them."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from megalabel._native import SparseRows


def sparse_rows(matrix: csr_matrix) -> SparseRows:
    """A CSR matrix of float32; a copy only of indices of another width."""
    return SparseRows(
        starts=matrix.indptr.astype(np.int64, copy=False),
        columns=matrix.indices.astype(np.int32, copy=False),
        values=matrix.data,
        width=matrix.shape[1],
    )
