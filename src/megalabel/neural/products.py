"""The products of rankers on a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from megalabel.neural.heads.base import best_of_chunks
from megalabel.rankers.dense import Accelerator

_HELD = 1 << 24  # numbers held at a time beside what is given


def gpu() -> Accelerator | None:
    """What makes the products of rankers on the GPU; None where there is none."""
    return _on(torch.device("cuda")) if torch.cuda.is_available() else None


class TorchProducts:
    """`rankers.dense.Accelerator` by torch.

    Learned arrays stay on the device, in their own precision, for as long as they are in memory.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._held: dict[int, Tensor] = {}

    @torch.inference_mode()
    def best_products(
        self, X: np.ndarray, weights: np.ndarray, bias: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `rankers.dense.best_products`."""
        rows, table, biases = self._moved(X), self._kept(weights), self._kept(bias)

        def chunks() -> Iterator[tuple[Tensor, int]]:
            size = max(1, _HELD // max(1, len(rows), table.shape[1]))
            for first in range(0, len(table), size):
                part = slice(first, first + size)
                yield torch.addmm(biases[part].float(), rows, table[part].float().T), first

        scores, ids = best_of_chunks(chunks(), k)
        return scores.cpu().numpy(), ids.cpu().numpy()

    @torch.inference_mode()
    def shortlisted(
        self, X: np.ndarray, weights: np.ndarray, bias: np.ndarray, shortlist: np.ndarray
    ) -> np.ndarray:
        """As `rankers.dense.shortlisted`."""
        table, biases = self._kept(weights), self._kept(bias)
        at = np.maximum(shortlist, 0).astype(np.int64)
        size = max(1, _HELD // max(1, at.shape[1] * table.shape[1]))
        scores = np.empty(at.shape, np.float32)
        for start in range(0, len(X), size):
            part = slice(start, start + size)
            numbers, rows = torch.from_numpy(at[part]).to(self.device), self._moved(X[part])
            products = (table[numbers].float() @ rows[:, :, None])[..., 0]
            scores[part] = (products + biases[numbers].float()).cpu().numpy()
        return scores

    @torch.inference_mode()
    def attended(
        self,
        states: np.ndarray,
        mask: np.ndarray,
        queries: np.ndarray,
        layers: list[np.ndarray],
        numbers: np.ndarray,
    ) -> np.ndarray:
        """As `rankers.attention.attended`."""
        given, table = self._moved(states), self._kept(queries)
        padding = ~torch.from_numpy(mask).to(self.device)[:, None]
        linear = [self._kept(array) for array in layers]
        at = torch.from_numpy(np.ascontiguousarray(numbers, np.int64)).to(self.device)
        rows, length, width = given.shape
        size = max(1, _HELD // max(1, rows * (length + 2 * width)))
        parts = []
        for some in torch.split(at, size, dim=1):
            matches = table[some].float() @ given.transpose(1, 2)
            made = matches.masked_fill(padding, -torch.inf).softmax(2) @ given
            for weight, bias in zip(linear[:-2:2], linear[1:-2:2], strict=True):
                made = functional.linear(made, weight, bias).relu()
            parts.append(functional.linear(made, linear[-2], linear[-1])[..., 0])
        return torch.cat(parts, 1).cpu().numpy()

    def _moved(self, array: np.ndarray) -> Tensor:
        """What is given, on the device."""
        return torch.from_numpy(np.array(array, np.float32)).to(self.device)

    def _kept(self, array: np.ndarray) -> Tensor:
        """What was learned, on the device; it is moved there once."""
        found = self._held.get(id(array))
        if found is None:
            # a copy: arrays may be mapped read-only
            found = self._held[id(array)] = torch.from_numpy(np.array(array)).to(self.device)
            weakref.finalize(array, self._held.pop, id(array), None)
        return found


@cache
def _on(device: torch.device) -> TorchProducts:
    return TorchProducts(device)
