"""The labels of a batch of texts, sparse, on the device where the loss is computed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from megalabel.neural.tokens import on_device

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_DENSE = 64  # up to so many labels a place of a shortlist, all of them are faster than a search


class Targets:
    """Which labels each row has, and how much: soft values in [0, 1].

    Parameters
    ----------
    indptr, indices, values
        As in a CSR matrix: row i has labels `indices[indptr[i]:indptr[i + 1]]`. A label named twice
        by a row counts once, with the larger value; the entries kept are sorted by row and label.
    labels
        How many labels there are.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.targets import Targets
    >>> t = Targets(torch.tensor([0, 2, 3]), torch.tensor([4, 1, 0]), torch.ones(3), labels=5)
    >>> t.dense(0, 2)
    tensor([[0., 1.],
            [1., 0.]])
    >>> t.of(torch.tensor([[4, 3], [0, -1]]))
    tensor([[1., 0.],
            [1., 0.]])
    """

    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor, labels: int) -> None:
        self.labels = labels
        self.indptr = indptr.long()
        indices, values = indices.long(), values.float()
        if len(indices) != len(values) or int(self.indptr[-1]) != len(indices):
            raise ValueError(
                f"targets of {int(self.indptr[-1])} entries have {len(indices)} labels and "
                f"{len(values)} values"
            )
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < labels):
            raise ValueError(
                f"targets name labels {int(indices.min())} to {int(indices.max())}; "
                f"there are {labels}"
            )
        rows = torch.repeat_interleave(self.indptr.diff())
        keys = rows * labels + indices
        if bool((keys.diff() <= 0).any()):
            keys, order = torch.unique(keys, return_inverse=True)
            values = torch.zeros(len(keys)).to(values).scatter_reduce(0, order, values, "amax")
            rows, indices = keys // labels, keys % labels
            counts = torch.bincount(rows, minlength=len(self))
            self.indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self.rows = rows
        self.indices = indices
        self.values = values
        self.most = int(self.indptr.diff().max()) if len(self) else 0
        """How many labels a row has at most; known on the host."""

    @classmethod
    def from_csr(cls, matrix: csr_matrix, device: torch.device | str = "cpu") -> Self:
        """Those of a sparse matrix (texts, labels); a GPU takes them while the host goes on."""
        device = torch.device(device)
        counts = np.diff(matrix.indptr)
        rows = np.repeat(np.arange(len(counts)), counts)
        keys = rows * matrix.shape[1] + matrix.indices
        if not (keys[1:] > keys[:-1]).all() or matrix.indices.max(initial=0) >= matrix.shape[1]:
            parts = (matrix.indptr, matrix.indices, matrix.data)
            indptr, indices, values = (torch.tensor(part) for part in parts)
            return cls(indptr, indices, values, matrix.shape[1]).to(device)
        made = cls.__new__(cls)
        made.labels, made.most = int(matrix.shape[1]), int(counts.max(initial=0))
        numbers = np.concatenate([matrix.indptr, rows, matrix.indices], dtype=np.int64)
        moved = on_device(torch.from_numpy(numbers), device)
        sizes = [len(counts) + 1, len(rows), len(rows)]
        made.indptr, made.rows, made.indices = torch.split(moved, sizes)
        values = torch.from_numpy(np.array(matrix.data, np.float32))
        made.values = on_device(values, device)
        return made

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one after another."""
        counts = torch.cat([part.indptr.diff() for part in parts])
        return cls(
            torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
            torch.cat([part.indices for part in parts]),
            torch.cat([part.values for part in parts]),
            parts[0].labels,
        )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def device(self) -> torch.device:
        """Where the targets are."""
        return self.indices.device

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        moved = copy.copy(self)
        for name in ("indptr", "rows", "indices", "values"):
            setattr(moved, name, getattr(self, name).to(device, non_blocking=True))
        return moved

    def with_values(self, values: Tensor) -> Self:
        """The same labels with other values."""
        changed = copy.copy(self)
        changed.values = values
        return changed

    def grouped(self, group: Tensor, groups: int) -> Self:
        """Groups in place of labels: label l is one of `group[l]`.

        A group that several labels of a row belong to is there several times, the largest value
        first, which is what `dense` and `of` answer with; so nothing waits for the device.
        """
        made = copy.copy(self)
        made.labels, made.indices = groups, group[self.indices]
        larger = self.values.argsort(descending=True)
        order = larger[(self.rows * groups + made.indices)[larger].argsort(stable=True)]
        made.indices, made.values = made.indices[order], self.values[order]
        return made

    def dense(self, first: int, last: int) -> Tensor:
        """The values of labels first to last - 1 as a (rows, last - first) matrix."""
        out = self.values.new_zeros(len(self) * (last - first))
        if last == first:
            return out.view(len(self), 0)
        here = (self.indices >= first) & (self.indices < last)
        at = (self.rows * (last - first) + self.indices - first).where(here, 0)
        out.scatter_reduce_(0, at, self.values.where(here, 0), "amax")
        return out.view(len(self), last - first)

    def of(self, shortlist: Tensor) -> Tensor:
        """The values of the labels in each row of `shortlist`; 0 for ids outside the labels."""
        known = (shortlist >= 0) & (shortlist < self.labels)
        if self.labels <= _DENSE * shortlist.shape[1]:
            at = shortlist.where(known, 0)
            return self.dense(0, self.labels).gather(1, at).where(known, 0)
        if not len(self.indices):
            return torch.zeros(shortlist.shape, device=self.device)
        rows = torch.arange(len(self), device=self.device)[:, None]
        keys = self.rows * self.labels + self.indices
        wanted = rows * self.labels + shortlist
        at = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        return self.values[at].where(known & (keys[at] == wanted), 0)

    def padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each row's labels and values as (rows, most labels of a row), and where they are real."""
        place = torch.arange(max(1, self.most), device=self.device)
        mask = place < self.indptr.diff()[:, None]
        if not len(self.indices):
            return mask.long(), mask.float(), mask
        at = (self.indptr[:-1, None] + place).clamp(max=len(self.indices) - 1)
        return self.indices[at].where(mask, 0), self.values[at].where(mask, 0), mask
