"""Shortlists: the nodes of a tree's level that a row is trained and scored on."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.neural.targets import Targets
from megalabel.neural.tokens import on_device


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


class Candidates:
    """The children of rows' parents, found on the device where they are scored.

    What sizes depend on is known on the host, so that it never waits for the device.

    Parameters
    ----------
    parents : CSR matrix (n, parents)
        What is stored is a parent of the row, with its score.
    starts : array (parents + 1,)
        The children of parent p are `starts[p]` to `starts[p + 1]`.
    device : torch.device
    names : array, optional
        The number that each child goes by; by default its place.

    Examples
    --------
    >>> parents = csr_matrix([[1.0, 0, 0.5], [0, 1.0, 0]])
    >>> found = Candidates(parents, np.array([0, 1, 3, 5]), torch.device("cpu"))
    >>> found.all_of(np.array([0, 1]))
    (tensor([[ 0,  3,  4],
            [ 1,  2, -1]]), tensor([[1.0000, 0.5000, 0.5000],
            [1.0000, 1.0000, 0.0000]]))
    """

    def __init__(
        self,
        parents: csr_matrix,
        starts: np.ndarray,
        device: torch.device,
        names: np.ndarray | None = None,
    ) -> None:
        # the children of all rows as one long line, of which nothing is held but where parts begin
        ends = np.append(0, np.cumsum(np.diff(starts)[parents.indices]))
        self._begins = ends[parents.indptr]
        self._ends, self._first, self._scores = (
            torch.from_numpy(np.array(array, kind)).to(device)
            for array, kind in (
                (ends, np.int64),
                (starts[parents.indices] - ends[:-1], np.int64),
                (parents.data, np.float32),
            )
        )
        self._names = None if names is None else torch.from_numpy(names.astype(np.int64)).to(device)
        self._device = device

    def all_of(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """All candidates of rows, (rows, most), -1 where none is, and their parents' scores."""
        begins, counts = self._line(rows)
        place = torch.arange(max(1, int(counts.max(initial=1))), device=self._device)
        begin, count = on_device(torch.from_numpy(np.stack([begins, counts])), self._device)
        return self._found(begin[:, None] + place, place < count[:, None])

    def some_of(self, rows: np.ndarray, targets: Targets, most: int) -> Tensor:
        """At most so many candidates of each row: all that `targets` has, and some of the others,
        drawn by torch's generator of the device."""
        begins, counts = self._line(rows)
        if counts.max(initial=0) <= most:
            return self.all_of(rows)[0]
        true, _, there = targets.padded()
        room = max(0, most - true.shape[1])
        begin, count = on_device(torch.from_numpy(np.stack([begins, counts])), self._device)
        # a row's candidates in `room` runs of like length, of each of which one is drawn
        bounds = torch.arange(room + 1, device=self._device) * count[:, None] // max(1, room)
        sizes = bounds.diff(dim=1)
        drawn = (torch.rand(sizes.shape, device=self._device) * sizes).long()
        drawn = torch.minimum(drawn, (sizes - 1).clamp(min=0))  # a product may be rounded up
        others, _ = self._found(begin[:, None] + bounds[:, :-1] + drawn, sizes > 0)
        others = others.masked_fill(targets.of(others) > 0, -1)
        return torch.cat([true.masked_fill(~there, -1), others], 1)

    def _line(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the candidates of rows begin, and how many they are."""
        begins = self._begins[rows]
        return begins, self._begins[rows + 1] - begins

    def _found(self, places: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """The candidates at places of the line, and their parents' scores."""
        if not len(self._first):
            return torch.full_like(places, -1), torch.zeros(places.shape, device=self._device)
        parent = torch.searchsorted(self._ends, places, right=True) - 1
        parent = parent.clamp(max=len(self._first) - 1)
        numbers = (self._first[parent] + places).where(there, -1)
        if self._names is not None:
            numbers = self._names[numbers.clamp(min=0)].where(there, -1)
        return numbers, self._scores[parent].where(there, 0)


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
