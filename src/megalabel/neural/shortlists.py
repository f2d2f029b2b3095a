"""Shortlists: the nodes of a tree's level that a row is trained and scored on."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.data import Ranking


def children(
    parents: csr_matrix, starts: np.ndarray, rows: np.ndarray | slice = slice(None)
) -> np.ndarray:
    """The children of each row's parents, side by side: (rows, most) numbers, -1 where none is.

    Parameters
    ----------
    parents : CSR matrix (n, parents)
        What is stored is a parent of the row.
    starts : array (parents + 1,)
        The children of parent p are `starts[p]` to `starts[p + 1]`.
    rows : array or slice
        Some of the rows.

    Examples
    --------
    >>> children(csr_matrix([[1, 0, 1], [0, 1, 0]]), np.array([0, 1, 3, 5]))
    array([[ 0,  3,  4],
           [ 1,  2, -1]])
    """
    part = parents[rows]
    sizes = np.diff(starts)[part.indices]
    ends = np.append(0, np.cumsum(sizes))
    flat = np.repeat(starts[part.indices] - ends[:-1], sizes) + np.arange(ends[-1])
    counts = np.diff(ends[part.indptr])
    there = np.arange(max(1, int(counts.max(initial=1)))) < counts[:, None]
    numbers = np.full(there.shape, -1)
    numbers[there] = flat
    return numbers


def thinned(
    numbers: np.ndarray, targets: csr_matrix, most: int, random: np.random.Generator
) -> np.ndarray:
    """At most so many of each row: all that `targets` has, and some of the others."""
    if numbers.shape[1] <= most:
        return numbers
    rows = np.repeat(np.arange(len(numbers)), numbers.shape[1])
    there = numbers >= 0
    true = np.asarray(targets[rows, np.maximum(numbers, 0).ravel()] > 0).reshape(numbers.shape)
    true &= there
    order = random.random(numbers.shape, np.float32)
    order[true] -= 1
    order[~there] = np.inf
    width = max(most, int(true.sum(1).max(initial=0)))
    chosen = np.sort(np.argsort(order, axis=1, kind="stable")[:, :width], axis=1)
    return np.take_along_axis(numbers, chosen, 1)


def best(scores: np.ndarray, numbers: np.ndarray, k: int, size: int) -> csr_matrix:
    """The k best of each row's shortlist, as a sparse matrix (rows, size) of their scores."""
    masked = np.where(numbers >= 0, scores, -np.inf)
    top = np.argsort(-masked, axis=1, kind="stable")[:, :k]
    numbers, scores = (np.take_along_axis(a, top, 1) for a in (numbers, scores))
    there = numbers >= 0
    rows = np.repeat(np.arange(len(scores)), there.sum(1))
    values = scores[there].astype(np.float32)
    found = csr_matrix((values, (rows, numbers[there])), (len(scores), size))
    found.sort_indices()
    return found


def filled(ranking: Ranking, counts: np.ndarray) -> Ranking:
    """Places that no candidate took go to the most frequent of the other labels, with a score of 0.

    Examples
    --------
    >>> from megalabel.data import LabelSet
    >>> short = Ranking([[2, 3]], [[0.5, -np.inf]], LabelSet(["a", "b", "c"]))
    >>> filled(short, np.array([1, 4, 2])).ids
    array([[2, 1]], dtype=int32)
    """
    frequent = np.argsort(-counts, kind="stable")[: 2 * ranking.k]
    ids, scores = ranking.ids.copy(), ranking.scores.copy()
    for row in np.flatnonzero(~ranking.present.all(1)):
        places = np.flatnonzero(~ranking.present[row])
        others = frequent[~np.isin(frequent, ids[row])]
        ids[row, places], scores[row, places] = others[: len(places)], 0
    return Ranking(ids, scores, ranking.labels)
