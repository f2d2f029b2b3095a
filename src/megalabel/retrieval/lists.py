"""Vectors in lists: how the arrays of a VectorIndex are made, joined and cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from megalabel import _native
from megalabel.data.matrix import unit_rows

UNIT = _native.VECTOR_UNIT
REMOVED = -1  # the key of a vector that was removed
BLOCK = 1 << 14  # rows copied at a time
_SAMPLES = ((32, 8), (128, 6))  # vectors a list, and steps of k-means


class Segment(NamedTuple):
    """Vectors (places, columns) in the order of their lists, their keys, and where lists start."""

    vectors: np.ndarray
    keys: np.ndarray
    starts: np.ndarray

    @property
    def alive(self) -> np.ndarray:
        """Which vectors have not been removed."""
        return np.asarray(self.keys >= 0)

    def native(self) -> _native.VectorSegment:
        """The same for the native core."""
        return _native.VectorSegment(vectors=self.vectors, keys=self.keys, starts=self.starts)


def columns_for(width: int) -> int:
    """The columns in which vectors are kept: up to a whole number of registers."""
    return -(-width // UNIT) * UNIT


def padded(X: np.ndarray, *, unit: bool) -> np.ndarray:
    """Rows with zeros at their ends up to `columns_for` their width, and of length one if asked.

    Examples
    --------
    >>> padded(np.array([[3.0, 4.0]], np.float32), unit=True)[0, :4]
    array([0.6, 0.8, 0. , 0. ], dtype=float32)
    """
    X = unit_rows(X) if unit else X
    more = columns_for(X.shape[1]) - X.shape[1]
    return np.pad(X, ((0, 0), (0, more))) if more else X


def learned_centres(X: np.ndarray, drawn: np.ndarray, lists: int) -> np.ndarray:
    """Unit vectors of so many clusters of directions: spherical k-means of the first rows drawn.

    It begins with some of the rows, and goes on with a larger sample once clusters have formed.
    """
    centres = padded(X[drawn[:lists]], unit=True)
    for most, steps in _SAMPLES:
        rows = padded(X[np.sort(drawn[: most * lists])], unit=True)
        for _ in range(steps):
            order, starts = _by_list(_native.nearest_centres(rows, centres), lists)
            there = np.flatnonzero(np.diff(starts))  # one that is left by all stays where it is
            centres[there] = unit_rows(np.add.reduceat(rows[order], starts[there], axis=0))
    return centres


def in_lists(
    X: np.ndarray, keys: np.ndarray, centres: np.ndarray, dtype: Any, *, unit: bool
) -> Segment:
    """Rows put into the lists of the centres in whose direction they point."""
    nearest = np.zeros(len(X), np.int32)
    if len(centres):
        directions = unit_rows(centres)
        for i in range(0, len(X), BLOCK):
            block = padded(X[i : i + BLOCK], unit=False)
            nearest[i : i + BLOCK] = _native.nearest_centres(block, directions)
    order, starts = _by_list(nearest, max(1, len(centres)))
    vectors = np.empty((len(X), columns_for(X.shape[1])), dtype)
    with np.errstate(over="ignore"):  # the caller looks for what is not finite
        for i in range(0, len(X), BLOCK):
            vectors[i : i + BLOCK] = padded(X[order[i : i + BLOCK]], unit=unit)
    return Segment(vectors, keys[order], starts)


def joined(segments: Sequence[Segment]) -> Segment:
    """One segment of several, without what was removed."""
    alive = [segment.alive for segment in segments]
    lists = len(segments[0].starts) - 1
    numbers = [
        np.repeat(np.arange(lists, dtype=np.int32), np.diff(segment.starts))[kept]
        for segment, kept in zip(segments, alive, strict=True)
    ]
    order, starts = _by_list(np.concatenate(numbers), lists)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first = segments[0].vectors
    vectors, keys = np.empty((len(order), first.shape[1]), first.dtype), np.empty(len(order), "i4")
    done = 0
    for segment, kept in zip(segments, alive, strict=True):
        rows = np.flatnonzero(kept)
        for i in range(0, len(rows), BLOCK):
            some = rows[i : i + BLOCK]
            to = place[done + i : done + i + len(some)]
            vectors[to], keys[to] = segment.vectors[some], segment.keys[some]
        done += len(rows)
    return Segment(vectors, keys, starts)


def _by_list(numbers: np.ndarray, lists: int) -> tuple[np.ndarray, np.ndarray]:
    """The order of vectors whose lists have these numbers, and where the lists start."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=lists))])
    return np.argsort(numbers, kind="stable"), starts.astype(np.int64)


def lengths_of_lists(segment: Segment) -> np.ndarray:
    """The mean Euclidean length of the vectors of each list; 1 where it is empty."""
    squares = [
        np.square(segment.vectors[i : i + BLOCK], dtype=np.float64).sum(axis=1)
        for i in range(0, len(segment.keys), BLOCK)
    ]
    sums = np.concatenate([[0.0], np.cumsum(np.sqrt(np.concatenate(squares)))])
    counts = np.diff(segment.starts)
    totals = sums[segment.starts[1:]] - sums[segment.starts[:-1]]
    return np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)
