"""Training of linear classifiers: what one-versus-all models and trees share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, issparse

from megalabel import _native
from megalabel.base import Check, integer, number, one_of
from megalabel.data.corpus import canonical
from megalabel.errors import ShapeError
from megalabel.linear.chunks import PRECISIONS

if TYPE_CHECKING:
    from megalabel.base import Matrix

LOSSES = ("squared-hinge", "logistic")

# The parameters that all linear classifiers share.
PARAMETERS: Mapping[str, Check] = {
    "loss": one_of(*LOSSES),
    "cost": number(1e-6, 1e6),
    "eps": number(1e-6, 1),
    "bias": number(0),
    "prune": number(0),
    "precision": one_of(*PRECISIONS),
    "seed": integer(0),
}


def rows_of(X: Matrix) -> csr_matrix:
    """X as the solver takes it: sparse, canonical; dense rows are stored whole."""
    return canonical(X if issparse(X) else csr_matrix(np.asarray(X, np.float32)), "X")


def train(
    X: csr_matrix,
    targets: csc_matrix,
    *,
    group_starts: np.ndarray | None = None,
    reach: csc_matrix | None = None,
    positive_costs: np.ndarray,
    negative_costs: np.ndarray,
    factors: np.ndarray | None = None,
    loss: str,
    eps: float,
    bias: float,
    prune: float,
) -> csr_matrix:
    """Weights of one classifier for each column of `targets`, (columns, features + 1), bias last.

    Parameters
    ----------
    X : CSR matrix (n, features)
    targets : CSC matrix (n, columns)
        Stored entries are the positives.
    group_starts : array, optional
        Columns `group_starts[g]` to `group_starts[g + 1]` are trained on the rows stored in column
        g of `reach`. None: all on all rows.
    reach : CSC matrix (n, groups), optional
    positive_costs, negative_costs : float arrays (columns,)
        What an error costs.
    factors : float array (stored entries of targets,), optional
        What the cost of each positive is multiplied with.
    loss, eps, bias, prune
        As in `OneVsAll`.
    """
    if X.shape[0] != targets.shape[0]:
        raise ShapeError(f"X is {X.shape} but the targets are {targets.shape}")
    columns = targets.shape[1]
    if reach is None:
        row_starts, rows = np.empty(0, np.int64), np.empty(0, np.int32)
        group_starts = np.array([0, columns])
    else:
        row_starts, rows = reach.indptr.astype(np.int64), reach.indices.astype(np.int32)
    arrays: tuple[Any, ...] = _native.train_groups(
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        X.data,
        X.shape[1],
        row_starts,
        rows,
        np.asarray(group_starts, np.int64),
        targets.indptr.astype(np.int64, copy=False),
        targets.indices.astype(np.int32, copy=False),
        np.asarray(positive_costs, np.float32),
        np.asarray(negative_costs, np.float32),
        np.empty(0, np.float32) if factors is None else np.asarray(factors, np.float32),
        loss == "logistic",
        float(eps),
        float(bias),
        float(prune),
    )
    starts, indices, values = arrays
    return csr_matrix((values, indices, starts), shape=(columns, X.shape[1] + 1))
