"""Batches of a training, in an order that the seed and the epoch fix, and where they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

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
    """Some rows of X as encoders read them: of tokens, of a sparse matrix, or of an array."""
    if isinstance(X, Tokens):
        return X.batch(rows, device)
    if isinstance(X, np.ndarray):
        return on_device(torch.from_numpy(np.array(X[rows], np.float32)), device)
    part = csr_matrix(X[rows])
    arrays = (part.indices.astype(np.int64), part.indptr[:-1].astype(np.int64), part.data)
    return BagBatch(*(on_device(torch.from_numpy(np.array(a)), device) for a in arrays))


def lengths_of(X: Any) -> np.ndarray:
    """How long each row is."""
    if isinstance(X, Tokens):
        return X.lengths
    if isinstance(X, np.ndarray):
        return np.full(len(X), X.shape[1])
    return np.diff(csr_matrix(X).indptr)


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


class Source(ABC):
    """Where the batches of a training come from.

    What is learned from is numbered, and an epoch goes through all numbers, in batches of a size
    that the trainer says. A training that is resumed asks again for the order of the epoch that it
    was in: it may depend on nothing but the arguments and what `state` gives.
    """

    @property
    def lengths(self) -> np.ndarray | None:
        """How many tokens the encoder reads of each number; None: not known beforehand."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """How many numbers there are."""

    @abstractmethod
    def order(self, epoch: int, size: int, seed: int) -> list[np.ndarray]:
        """The numbers of each batch of an epoch: of `size`, the last ones perhaps of fewer, so
        that there are len(self) / size batches, rounded up."""

    @abstractmethod
    def batch(self, rows: np.ndarray, device: torch.device, labelled: int | None = None) -> Any:
        """What the model's forward takes, of such numbers.

        Of several processes each takes some numbers of a batch. One that has none, where the loss
        is of the rows of all, passes on another's with `labelled=0`: none of them has labels.
        """

    def between_epochs(self, epoch: int, model: nn.Module) -> None:  # noqa: B027
        """An epoch is about to begin, and another has ended: a time to mine.

        The model is as it answers: without dropout, and without gradients. What is drawn by torch
        depends on the seed and the epoch.
        """

    def state(self) -> dict[str, Tensor]:
        """What was found between epochs, for a checkpoint."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Go on from what `state` gave."""

    def rows_from(
        self, batch: int, size: int, seed: int, between: Callable[[int], None]
    ) -> Iterator[np.ndarray]:
        """The numbers of every batch from one on, epoch after epoch, without end; `between` is
        called with each epoch, but the first, that is about to begin."""
        epoch, skipped = divmod(batch, -(-len(self) // size))
        while True:
            if epoch and not skipped:
                between(epoch)
            yield from self.order(epoch, size, seed)[skipped:]
            epoch, skipped = epoch + 1, 0


class TextSource(Source):
    """Rows with their labels: every row once an epoch, rows of like length together.

    Parameters
    ----------
    X : Tokens or CSR matrix
    Y : CSR matrix
        The labels of each row.
    """

    def __init__(self, X: Any, Y: csr_matrix) -> None:
        self.X, self.Y = X, Y
        self._lengths = lengths_of(X)

    @property
    def lengths(self) -> np.ndarray:
        return self._lengths

    def __len__(self) -> int:
        return int(self.Y.shape[0])

    def order(self, epoch: int, size: int, seed: int) -> list[np.ndarray]:
        random = np.random.default_rng((seed, epoch))
        rows = random.permutation(len(self))
        room = size * _SORTED
        for start in range(0, len(rows), room):
            part = rows[start : start + room]
            rows[start : start + room] = part[np.argsort(self._lengths[part], kind="stable")]
        cut = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [cut[i] for i in random.permutation(len(cut))]

    def batch(self, rows: np.ndarray, device: torch.device, labelled: int | None = None) -> Batch:
        targets = Targets.from_csr(self.Y[rows[:labelled]], device)
        return Batch(rows, rows_on(self.X, rows, device), targets)
