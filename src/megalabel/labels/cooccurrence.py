"""Which labels come together: soft targets for the texts of labels."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix, identity, vstack
from scipy.special import expit

from megalabel import _native
from megalabel.base import check_argument, integer, number
from megalabel.data.matrix import canonical, csr_of, sparse_rows
from megalabel.progress import progress

_AT_ONCE = 8_192  # labels whose walks are counted at a time: bounds memory
_GLAS = "symmetric"
METHODS = ("self", "cooccurrence", "random-walk", _GLAS)


def label_targets(Y: csr_matrix, method: str, threshold: float, seed: int = 0) -> csr_matrix:
    """What the text of each label is taught, by one of `METHODS`: a row a label, values up to 1.

    "self" is the label itself; "cooccurrence", "random-walk" and "symmetric" are `cooccurrence`,
    `random_walks` and `symmetric_cooccurrence`.

    Examples
    --------
    >>> Y = csr_matrix([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    >>> label_targets(Y, "self", 0.1).toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if method == "self":
        return identity(Y.shape[1], np.float32, "csr")
    if method == "random-walk":
        return random_walks(Y, threshold, seed=seed)
    return (symmetric_cooccurrence if method == _GLAS else cooccurrence)(Y, threshold)


def cooccurrence(Y: csr_matrix, threshold: float = 0.1) -> csr_matrix:
    """For each label j, a row, the share of its texts that carry label i as well: G_ij / G_jj of
    G = YᵀY, where it is above the threshold; 1 for j itself (Gandalf, Kharbanda et al. 2024).

    A label of no text has itself alone. Relevances count as 1.

    Parameters
    ----------
    Y : CSR matrix (texts, labels)
        Of training.
    threshold : float from 0 to 1
        Without one the result has a cell for every two labels that ever come together, which may
        be very many; memory is bounded by what is above it.

    Returns
    -------
    CSR matrix (labels, labels) of float32

    Examples
    --------
    >>> Y = csr_matrix([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    >>> cooccurrence(Y).toarray().tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 1.0, 1.0]]
    """
    check_argument("threshold", threshold, number(0, 1))
    texts = _carried(Y)
    with progress("counting labels that come together"):
        starts, columns, values = _native.cooccurrence(
            texts=sparse_rows(texts), labels=sparse_rows(texts.T.tocsr()), threshold=threshold
        )
    return csr_of(values, columns, starts, Y.shape[1])


def symmetric_cooccurrence(Y: csr_matrix, threshold: float = 0.0) -> csr_matrix:
    """The logistic function of S, where S_ij is above the threshold: the mean of the shares of j's
    texts with label i, and of i's with j (as GLaS, Guo et al. 2019, regularises by).

    Examples
    --------
    >>> Y = csr_matrix([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    >>> symmetric_cooccurrence(Y).toarray().round(2).tolist()
    ... # doctest: +NORMALIZE_WHITESPACE
    [[0.73..., 0.62..., 0.0], [0.62..., 0.73..., 0.68...], [0.0, 0.68..., 0.73...]]
    """
    check_argument("threshold", threshold, number(0, 1))
    shares = cooccurrence(Y, 0.0)
    both = csr_matrix((shares + shares.T) / 2, dtype=np.float32)
    both.data[both.data <= threshold] = 0
    both.eliminate_zeros()
    both.data = expit(both.data)
    return canonical(both)


def random_walks(
    Y: csr_matrix,
    threshold: float = 0.0,
    *,
    length: int = 400,
    restart: float = 0.8,
    neighbours: int = 10,
    head: int = 500,
    seed: int = 0,
) -> csr_matrix:
    """For each label, a row, how often a random walk from it comes by each other label, for each
    time that it is at home; 1 for itself (ECLARE, Mittal et al. 2021).

    A step leads from a label to one of its texts and on to one of that text's labels; or, by
    chance, home again.

    Parameters
    ----------
    Y : CSR matrix (texts, labels)
    threshold : float from 0 to 1
        Only what is above it is kept.
    length : int
        Steps of each walk.
    restart : float from 0 to 1
        How often a step leads home.
    neighbours : int
        Labels that are kept, those that the walk came by most often; of the same, lower numbers.
    head : int
        A label of more texts is nobody's neighbour.
    seed : int
        Fixes the walks.

    Examples
    --------
    >>> Y = csr_matrix([[1, 1, 0], [1, 0, 0], [0, 0, 1]])
    >>> (random_walks(Y) > 0).toarray().tolist()
    [[True, True, False], [True, True, False], [False, False, True]]
    """
    check_argument("threshold", threshold, number(0, 1))
    check_argument("length", length, integer(1))
    check_argument("restart", restart, number(0, 1))
    check_argument("neighbours", neighbours, integer(1))
    texts = _carried(Y)
    labels = texts.T.tocsr()
    counts = np.diff(labels.indptr)
    rows = []
    with progress("walking from label to label", -(-Y.shape[1] // _AT_ONCE)) as bar:
        for first in range(0, Y.shape[1], _AT_ONCE):
            homes = np.arange(first, min(Y.shape[1], first + _AT_ONCE))
            random = np.random.default_rng((seed, first))
            visits = _visits(texts, labels, homes, length, restart, random)
            rows.append(_nearest(visits, homes, counts > head, neighbours, threshold))
            bar.advance()
    return canonical(vstack(rows, "csr")) if rows else csr_matrix((0, 0), dtype=np.float32)


def _carried(Y: csr_matrix) -> csr_matrix:
    """Y with 1 for every label that a text carries, however relevant."""
    Y = canonical(Y, "Y")
    if Y.nnz and Y.data.min() <= 0:
        Y = canonical(Y.multiply(Y > 0))
        Y.eliminate_zeros()
    return csr_matrix((np.ones(Y.nnz, np.float32), Y.indices, Y.indptr), Y.shape)


def _visits(
    texts: csr_matrix,
    labels: csr_matrix,
    homes: np.ndarray,
    length: int,
    restart: float,
    random: np.random.Generator,
) -> csr_matrix:
    """How often the walk of each label is where: (homes, labels)."""

    def stepped(matrix: csr_matrix, rows: np.ndarray) -> np.ndarray:
        """An entry of each row, at random."""
        starts, sizes = matrix.indptr[rows], np.diff(matrix.indptr)[rows]
        picked = (random.random(len(rows)) * sizes).astype(np.int64)
        return np.asarray(matrix.indices[starts + np.minimum(picked, sizes - 1)])

    width = texts.shape[1]
    walking = np.diff(labels.indptr)[homes] > 0
    start = homes[walking]
    here, seen = start.copy(), []
    for _ in range(length if len(start) else 0):
        away = stepped(texts, stepped(labels, here))
        here = np.where(random.random(len(start)) < restart, start, away)
        seen.append(here)
    visits = np.tile(np.flatnonzero(walking), len(seen))
    places = np.concatenate([*seen, np.zeros(0, np.int64)])
    ones = np.ones(len(places), np.float32)
    counted = csr_matrix((ones, (visits, places.astype(np.int64))), (len(homes), width))
    counted.sum_duplicates()
    return counted


def _nearest(
    visits: csr_matrix, homes: np.ndarray, head: np.ndarray, most: int, threshold: float
) -> csr_matrix:
    """Of each row the labels visited most, for each visit of its own, which counts 1."""
    rows = np.repeat(np.arange(len(homes)), np.diff(visits.indptr))
    own = visits.indices == homes[rows]
    at_home = np.bincount(rows[own], visits.data[own], minlength=len(homes))
    kept = ~own & ~head[visits.indices]
    rows, columns, values = rows[kept], visits.indices[kept], visits.data[kept]
    shares = values / np.maximum(1, at_home)[rows]
    order = np.lexsort((columns, -values, rows))
    place = np.arange(len(order)) - np.searchsorted(rows, rows)  # rows stay in their order
    order = order[(place < most) & (shares[order] > threshold)]
    where = (
        np.append(rows[order], np.arange(len(homes))),
        np.append(columns[order], homes),
    )
    shares = np.append(np.minimum(shares[order], 1), np.ones(len(homes)))
    return csr_matrix((shares.astype(np.float32), where), visits.shape)
