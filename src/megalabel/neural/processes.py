"""What the processes of one training exchange; nothing where there is no process group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn

Group = distributed.ProcessGroup | None


def is_first() -> bool:
    """Whether this is the process that writes what all of them have in common."""
    return not distributed.is_initialized() or distributed.get_rank() == 0


def gathered(tensor: Tensor, group: Group = None) -> list[Tensor]:
    """A tensor of the same shape from every process, in order."""
    parts = [torch.empty_like(tensor) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(parts, tensor.contiguous(), group=group)
    return parts


def gathered_rows(tensor: Tensor, group: Group = None) -> tuple[Tensor, slice]:
    """The rows of all processes in order, however many each has, and which are this one's."""
    count = torch.tensor([len(tensor)], device=tensor.device)
    counts = torch.cat(gathered(count, group)).tolist()
    padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    parts = [part[:n] for part, n in zip(gathered(padded, group), counts, strict=True)]
    start = sum(counts[: distributed.get_rank(group)])
    return torch.cat(parts), slice(start, start + len(tensor))


def mean(value: Tensor) -> Tensor:
    """The mean of a number over all processes."""
    if not distributed.is_initialized():
        return value
    total = value.clone()
    distributed.all_reduce(total)
    return total / distributed.get_world_size()


def of_the_first(value: float, device: torch.device) -> float:
    """The first process's number, in all of them: rounding must not let them decide differently."""
    if not distributed.is_initialized():
        return value
    shared = torch.tensor(value, dtype=torch.float64, device=device)
    distributed.broadcast(shared, 0)
    return float(shared)


def same_everywhere(step: int) -> bool:
    """Whether all processes have come equally far: they may have been killed between two files."""
    if not distributed.is_initialized():
        return True
    steps: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(steps, step)
    return len(set(steps)) == 1


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """The mean of the gradients of all processes, in each of them the same to the last bit."""
    if not distributed.is_initialized():
        return
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.is_sparse:
            parameter.grad = _gathered_gradient(parameter.grad)
        else:
            distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()


def _gathered_gradient(gradient: Tensor) -> Tensor:
    """The sum of a table's gradients, each of some of its rows: NCCL sums no sparse tensors."""
    rows, _ = gathered_rows(gradient._indices().T)
    values, _ = gathered_rows(gradient._values())
    summed = torch.sparse_coo_tensor(rows.T, values, gradient.shape, check_invariants=False)
    return summed.coalesce()  # each row once, summed in one order
