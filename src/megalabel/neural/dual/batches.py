"""DualSource: batches of texts, and of the labels that they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.neural.batches import Source, lengths_of, rows_on
from megalabel.neural.dual.mining import clusters_of, hard_negatives
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.dual.network import DualModel, TableModel


@dataclass(frozen=True)
class DualBatch:
    """Some texts, the labels that they are compared with, and which of them go together."""

    rows: np.ndarray
    """The numbers of the texts."""
    texts: list[Any]
    """What the encoder reads of them, in chunks."""
    labels: Tensor
    """The numbers of the labels, each once."""
    names: list[Any]
    """What the encoder reads of them, in chunks."""
    targets: Targets
    """Of each text, its labels among these, by their places."""
    hidden: Targets
    """Cells (text, label) of which nothing is learned."""


class DualSource(Source):
    """Texts, each with some of its labels and some that it does not have.

    The labels of a batch are those drawn for its texts: of each text up to `positives` that it has
    and `negatives` of those that the model takes for its labels though they are not. What is true
    of a text and a label of the batch does not depend on what was drawn: each label that the text
    has is a positive.

    Parameters
    ----------
    X, Z : Tokens, CSR matrices or arrays
        What the encoder reads of texts and of labels; arrays are vectors that it has made. Z may be
        None where labels are not read.
    Y : CSR matrix (texts, labels)
    hidden : CSR matrix (texts, labels)
        Cells of which nothing is learned, such as a text's own label.
    positives, negatives : int
    mined_by : "labels", "cosines" or "products"
        What negatives are mined by: the dual encoder, or the scores of both halves.
    refresh : int
        Epochs after which clusters and negatives are found anew.
    cluster : callable
        The size of the clusters of an epoch: texts that are near each other come in one batch, so
        that the labels of one are hard for the others. 1: batches are random.
    extra : bool
        False: labels of a text that were not drawn for it are left out of its loss.
    all_labels : bool
        Texts are compared with all labels, whatever is drawn.
    chunk : int, optional
        The most texts, or labels, that the encoder is to read at once.
    """

    def __init__(
        self,
        X: Any,
        Z: Any,
        Y: csr_matrix,
        hidden: csr_matrix,
        *,
        positives: int = 1,
        negatives: int = 0,
        mined_by: str = "labels",
        refresh: int = 5,
        cluster: Callable[[int], int] = lambda epoch: 1,
        extra: bool = True,
        all_labels: bool = False,
        chunk: int | None = None,
        seed: int = 0,
    ) -> None:
        self.X, self.Z, self.Y, self.hidden = X, Z, Y, hidden
        self.positives, self.negatives, self.refresh = positives, negatives, refresh
        self.mined_by = mined_by
        self.cluster, self.extra, self.all_labels = cluster, extra, all_labels
        self.chunk, self.seed = chunk, seed
        self.clusters = np.zeros(0, np.int32)
        """The cluster of each text; empty: there are none."""
        self.hard = np.zeros((0, 0), np.int32)
        """Labels that each text is taken for and does not have; -1 for none."""
        self._lengths = None if isinstance(X, np.ndarray) else lengths_of(X)
        self._every: tuple[torch.device, list[Any]] | None = None

    @property
    def lengths(self) -> np.ndarray | None:
        return self._lengths

    def __len__(self) -> int:
        return int(self.Y.shape[0])

    def order(self, epoch: int, size: int, seed: int) -> list[np.ndarray]:
        random = np.random.default_rng((seed, epoch))
        rows = random.permutation(len(self))
        if len(self.clusters):
            place = random.permutation(int(self.clusters.max()) + 1)
            rows = rows[np.argsort(place[self.clusters[rows]], kind="stable")]
        cut = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [cut[i] for i in random.permutation(len(cut))]

    def batch(
        self, rows: np.ndarray, device: torch.device, labelled: int | None = None
    ) -> DualBatch:
        # steps seed torch, so what is drawn depends on the step alone
        random = np.random.default_rng(int(torch.randint(1 << 62, ())))
        Y, hidden = self.Y[rows], self.hidden[rows]
        if labelled is not None:  # a process without a row of its own passes on another's
            Y = csr_matrix(Y.shape, dtype=np.float32)
        drawn = _drawn(Y, self.positives, random)
        if self.all_labels:
            pool = np.arange(Y.shape[1])
        else:
            pool = np.unique(np.concatenate([Y.indices[drawn], self._hard(rows, random)]))
            if not len(pool):  # texts without labels
                pool = random.integers(Y.shape[1], size=1)
        targets, known = _columns(Y, pool), _columns(hidden, pool)
        if not self.extra:
            chosen = csr_matrix(Y, copy=True)
            chosen.data = np.where(drawn, Y.data, 0)
            chosen.eliminate_zeros()
            chosen = _columns(chosen, pool)
            known = known + (targets > chosen).astype(np.float32)
            targets = chosen
        return DualBatch(
            rows,
            self._chunks(self.X, rows, device),
            torch.from_numpy(pool.astype(np.int64)).to(device),
            self._names(pool, device),
            Targets.from_csr(csr_matrix(targets), device),
            Targets.from_csr(csr_matrix(known), device),
        )

    def between_epochs(self, epoch: int, model: DualModel | TableModel) -> None:  # type: ignore[override]
        size, before = self.cluster(epoch), self.cluster(max(0, epoch - 1))
        due = epoch % self.refresh == 0
        if (size > 1 and (due or size != before)) or (self.negatives and due):
            texts = model.seen_texts(self.X)
            if size > 1:
                self.clusters = clusters_of(texts, size, self.seed + epoch)
            if self.negatives and due:
                known = csr_matrix(self.Y + self.hidden)
                count = self.negatives * self.refresh
                # before the first epoch labels' own vectors say nothing
                if self.mined_by == "labels" or epoch == 0:
                    labels = model.seen_labels(self.Z)
                else:
                    cosines = self.mined_by == "cosines"
                    texts, labels = model.seen_by_both(self.X, self.Z, cosines)  # type: ignore[operator]
                self.hard = hard_negatives(texts, labels, known, count)

    def state(self) -> dict[str, Tensor]:
        return {"clusters": torch.from_numpy(self.clusters), "hard": torch.from_numpy(self.hard)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.clusters, self.hard = (state[name].cpu().numpy() for name in ("clusters", "hard"))

    def _hard(self, rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Of the labels mined for each text, some."""
        if not self.hard.size:
            return np.zeros(0, np.int32)
        mined = random.permuted(self.hard[rows], axis=1)[:, : self.negatives]
        return mined[mined >= 0]

    def _names(self, pool: np.ndarray, device: torch.device) -> list[Any]:
        if not self.all_labels:
            return self._chunks(self.Z, pool, device)
        if self._every is None or self._every[0] != device:
            self._every = device, self._chunks(self.Z, pool, device)
        return self._every[1]

    def _chunks(self, X: Any, rows: np.ndarray, device: torch.device) -> list[Any]:
        if X is None:
            return []
        if isinstance(X, np.ndarray):
            return [torch.from_numpy(X[rows]).to(device)]
        size = self.chunk or max(1, len(rows))
        return [
            rows_on(X, rows[start : start + size], device) for start in range(0, len(rows), size)
        ]


def _drawn(Y: csr_matrix, most: int, random: np.random.Generator) -> np.ndarray:
    """Which entries of Y are drawn: up to so many of each row."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    order = np.lexsort((random.random(Y.nnz), rows))
    place = np.empty(Y.nnz, np.int64)
    place[order] = np.arange(Y.nnz) - Y.indptr[rows]
    return place < most


def _columns(matrix: csr_matrix, pool: np.ndarray) -> csr_matrix:
    """Some columns of a matrix, which are given in order."""
    if len(pool) == matrix.shape[1]:
        return matrix
    place = np.searchsorted(pool, matrix.indices)
    there = pool[np.minimum(place, len(pool) - 1)] == matrix.indices
    counts = np.concatenate([[0], np.cumsum(there)])[matrix.indptr]
    return csr_matrix(
        (matrix.data[there], place[there], counts), (matrix.shape[0], len(pool)), copy=False
    )
