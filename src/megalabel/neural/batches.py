"""Batches of rows with their labels, in an order that the seed and the epoch fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.data.matrix import normalised_rows
from megalabel.neural.targets import Targets
from megalabel.neural.tokens import Tokens, on_device

_SORTED = 50  # batches whose rows are sorted by length among themselves


@dataclass(frozen=True)
class BagBatch:
    """Rows of a sparse matrix on the device: the words of each text, weighted."""

    indices: Tensor
    offsets: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Batch:
    """Some rows: their numbers, what the encoder reads, and their labels."""

    rows: np.ndarray
    inputs: Any
    targets: Targets


def rows_on(X: Any, rows: np.ndarray, device: torch.device) -> Any:
    """Some rows of X as encoders read them: of tokens, or of a sparse matrix."""
    if isinstance(X, Tokens):
        return X.batch(rows, device)
    part = csr_matrix(X[rows])
    arrays = (part.indices.astype(np.int64), part.indptr[:-1].astype(np.int64), part.data)
    return BagBatch(*(on_device(torch.from_numpy(np.array(a)), device) for a in arrays))


def lengths_of(X: Any) -> np.ndarray:
    """How long each row is."""
    return X.lengths if isinstance(X, Tokens) else np.diff(csr_matrix(X).indptr)


def words_of(X: Any) -> csr_matrix:
    """X as a sparse matrix of words; of tokens, how often each comes, weighed as tf-idf.

    Examples
    --------
    >>> tokens = Tokens(np.array([1, 2, 2, 1, 3], np.int32), np.array([0, 3, 5]), vocabulary=4)
    >>> words_of(tokens).toarray()
    array([[0., 0., 1., 0.],
           [0., 0., 0., 1.]], dtype=float32)
    """
    if not isinstance(X, Tokens):
        return csr_matrix(X)
    counts = csr_matrix((np.ones(len(X.ids), np.float32), X.ids, X.indptr), X.shape, copy=True)
    counts.sum_duplicates()
    texts = np.bincount(counts.indices, minlength=X.shape[1])
    counts.data *= np.log(len(X) / np.maximum(1, texts)).astype(np.float32)[counts.indices]
    made: csr_matrix = normalised_rows(counts)
    return made


class Batches:
    """The batches of an epoch: every row once, rows of like length together.

    Parameters
    ----------
    X : Tokens or CSR matrix
    Y : CSR matrix
        The labels of each row.
    size : int
        Rows a batch; the last one may be smaller.
    seed : int
    device : torch.device
    """

    def __init__(self, X: Any, Y: csr_matrix, size: int, seed: int, device: torch.device) -> None:
        self.X, self.Y, self.size, self.seed, self.device = X, Y, size, seed, device
        self._lengths = lengths_of(X)

    def __len__(self) -> int:
        return -(-int(self.Y.shape[0]) // self.size)

    def order(self, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of an epoch."""
        random = np.random.default_rng((self.seed, epoch))
        rows = random.permutation(self.Y.shape[0])
        room = self.size * _SORTED
        for start in range(0, len(rows), room):
            part = rows[start : start + room]
            rows[start : start + room] = part[np.argsort(self._lengths[part], kind="stable")]
        cut = [rows[start : start + self.size] for start in range(0, len(rows), self.size)]
        return [cut[i] for i in random.permutation(len(cut))]

    def of(self, rows: np.ndarray, labelled: int | None = None) -> Batch:
        """A batch of the given rows; with `labelled`, so many of them have labels."""
        targets = Targets.from_csr(self.Y[rows[:labelled]], self.device)
        return Batch(rows, rows_on(self.X, rows, self.device), targets)

    def from_step(self, step: int) -> Iterator[np.ndarray]:
        """The rows of every batch from a step on, epoch after epoch, without end."""
        epoch, skipped = divmod(step, len(self))
        while True:
            yield from self.order(epoch)[skipped:]
            epoch, skipped = epoch + 1, 0
