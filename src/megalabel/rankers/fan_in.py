"""Weights of labels that look at a few features, from weights for all features and back.

Labels come in groups that share their features: arrays of indices (groups, fan_in), of weights
(groups, fan_in, group), and of the label at each place (groups * group,), -1 for none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from megalabel.errors import ParameterError

_WEIGHTS = 1 << 24  # as a dense array, at a time


def index_dtype(width: int) -> type[np.unsignedinteger[Any]]:
    """The type of the numbers of so many features.

    Examples
    --------
    >>> index_dtype(65_536).__name__, index_dtype(65_537).__name__
    ('uint16', 'uint32')
    """
    return np.uint16 if width <= 1 << 16 else np.uint32


def sparse_weights(
    weights: Any, fan_in: int, *, group: int = 1, order: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest weights of each label, or those with the largest mean size in a group of labels.

    Parameters
    ----------
    weights : array or CSR matrix (labels, width)
    fan_in : int
        Features to be kept, at most all of them; of equal ones, the lower.
    group : int
        Labels of a group.
    order : int array, optional
        Labels in the order in which they are grouped, perhaps not all of them.

    Returns
    -------
    indices : uint16 or uint32 array (groups, fan_in)
        Rising.
    weights : float32 array (groups, fan_in, group)
    labels : int32 array (groups * group,)

    Examples
    --------
    >>> indices, kept, labels = sparse_weights(np.array([[1.0, 0, -3], [2, 1, 1]]), 2, group=2)
    >>> indices.tolist(), kept.tolist(), labels.tolist()
    ([[0, 2]], [[[1.0, 2.0], [-3.0, 1.0]]], [0, 1])
    """
    count, width = weights.shape
    if fan_in < 1 or group < 1:
        raise ParameterError(f"fan_in and group must be at least 1, not {fan_in} and {group}")
    fan_in = min(fan_in, width)
    order = np.arange(count) if order is None else np.asarray(order, np.int64)
    groups = -(-len(order) // group)
    labels = np.full(groups * group, -1, np.int32)
    labels[: len(order)] = order
    indices = np.empty((groups, fan_in), index_dtype(width))
    kept = np.zeros((groups, fan_in, group), np.float32)
    step = max(1, _WEIGHTS // (group * width))
    for start in range(0, groups, step):
        some = slice(start, start + step)
        here = labels[start * group : (start + step) * group]
        rows = weights[np.maximum(here, 0)]
        rows = (rows.toarray() if issparse(rows) else np.asarray(rows)).astype(np.float32)
        rows[here < 0] = 0
        block = rows.reshape(-1, group, width)
        sizes = np.abs(block).mean(axis=1, dtype=np.float64)
        chosen = np.sort(np.argsort(-sizes, axis=1, kind="stable")[:, :fan_in], axis=1)
        indices[some] = chosen
        kept[some] = np.take_along_axis(block, chosen[:, None, :], axis=2).swapaxes(1, 2)
    return indices, kept, labels


def dense_weights(
    indices: np.ndarray, weights: np.ndarray, labels: np.ndarray, width: int, count: int
) -> np.ndarray:
    """Weights (count, width) of so many labels for all features; those of a feature that is there
    twice add up.

    Examples
    --------
    >>> weights = np.array([[[1.0, 2.0], [-3.0, 1.0]]], np.float32)
    >>> dense_weights(np.array([[0, 2]]), weights, np.array([1, -1]), 3, 2)
    array([[ 0.,  0.,  0.],
           [ 1.,  0., -3.]], dtype=float32)
    """
    dense = np.zeros((count, width), np.float32)
    group = weights.shape[2]
    places = np.flatnonzero(labels >= 0)
    rows = np.broadcast_to(labels[places, None], (len(places), indices.shape[1]))
    values = weights[places // group, :, places % group]
    np.add.at(dense, (rows, indices[places // group]), values)
    return dense
