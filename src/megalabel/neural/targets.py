"""The labels of a batch of texts, sparse, on the device where the loss is computed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


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

    @classmethod
    def from_csr(cls, matrix: csr_matrix, device: torch.device | str = "cpu") -> Self:
        """Those of a sparse matrix (texts, labels)."""
        parts = (matrix.indptr, matrix.indices, matrix.data)
        indptr, indices, values = (torch.tensor(part) for part in parts)
        return cls(indptr, indices, values, matrix.shape[1]).to(device)

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

    def dense(self, first: int, last: int) -> Tensor:
        """The values of labels first to last - 1 as a (rows, last - first) matrix."""
        out = self.values.new_zeros((len(self), last - first))
        here = (self.indices >= first) & (self.indices < last)
        out[self.rows[here], self.indices[here] - first] = self.values[here]
        return out

    def of(self, shortlist: Tensor) -> Tensor:
        """The values of the labels in each row of `shortlist`; 0 for ids outside the labels."""
        rows = torch.arange(len(self), device=self.device)[:, None]
        found = torch.zeros(shortlist.shape, dtype=torch.float32, device=self.device)
        if not len(self.indices):
            return found
        keys = self.rows * self.labels + self.indices
        wanted = rows * self.labels + shortlist
        at = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        known = (shortlist >= 0) & (shortlist < self.labels) & (keys[at] == wanted)
        return torch.where(known, self.values[at], found)

    def padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each row's labels and values as (rows, most labels of a row), and where they are real."""
        counts = self.indptr.diff()
        most = max(1, int(counts.max())) if len(self) else 1
        place = torch.arange(most, device=self.device)
        mask = place < counts[:, None]
        labels = torch.zeros(mask.shape, dtype=torch.long, device=self.device)
        values = torch.zeros(mask.shape, dtype=torch.float32, device=self.device)
        labels[mask], values[mask] = self.indices, self.values
        return labels, values, mask
