"""What is mined between epochs: clusters of texts, and labels that texts are taken for."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.labels import LabelTree
from megalabel.progress import progress
from megalabel.rankers.dense import best_products

_ROWS = 1024  # texts whose labels are searched for at a time


def clusters_of(vectors: np.ndarray, size: int, seed: int) -> np.ndarray:
    """The cluster of each vector, of `size` at most and all about as large: balanced 2-means, again
    and again (Dahiya et al. 2023, NGAME).

    Examples
    --------
    >>> near = clusters_of(np.array([[1.0, 0], [0, 1], [2, 0], [0, 3]]), 2, seed=0).tolist()
    >>> near[0] == near[2], near[1] == near[3], near[0] == near[1]
    (True, True, False)
    """
    tree = LabelTree.balanced(vectors, arity=2, max_leaf=size, seed=seed)
    clusters = np.zeros(len(vectors), np.int32)
    if tree.depth > 1:
        counts = np.diff(tree.levels_[-1])
        clusters[tree.label_of_leaf_] = np.repeat(np.arange(len(counts)), counts)
    return clusters


def hard_negatives(
    texts: np.ndarray, labels: np.ndarray, known: csr_matrix, count: int
) -> np.ndarray:
    """The labels nearest to each text that it is not known to have, int32 (texts, count), best
    first; -1 where there are no more.

    Examples
    --------
    >>> hard_negatives(np.eye(2), np.eye(2), csr_matrix(np.eye(2)), 1).tolist()
    [[1], [0]]
    """
    width = labels.shape[0]
    most = int(np.diff(known.indptr).max(initial=0))
    found = np.full((len(texts), count), -1, np.int32)
    with progress("mining labels", len(texts)) as bar:
        for start in range(0, len(texts), _ROWS):
            part = known[start : start + _ROWS]
            near = nearest_labels(texts[start : start + _ROWS], labels, min(width, count + most))
            rows = np.arange(part.shape[0])
            cells = np.repeat(rows, np.diff(part.indptr)) * width + part.indices
            wrong = ~np.isin(near + rows[:, None] * width, cells)
            place = np.cumsum(wrong, axis=1) - 1
            row, column = np.nonzero(wrong & (place < count))
            found[start + row, place[row, column]] = near[row, column]
            bar.advance(part.shape[0])
    return found


def nearest_labels(texts: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """The numbers of the k labels of the largest products with each text, best first."""
    return best_products(texts, labels, np.zeros(len(labels), np.float32), k)[1]
