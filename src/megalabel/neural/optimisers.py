"""What moves the parameters of a model; RowAdam for tables of which a step touches a few rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from megalabel.neural.trainer import Trainer


def optimisers(
    model: nn.Module, rates: Mapping[nn.Module, float], trainer: Trainer
) -> list[torch.optim.Optimizer]:
    """AdamW for what is dense, RowAdam for tables of which a step touches some rows; at the rates
    of the modules that parameters belong to."""
    sparse = {
        id(p)
        for m in model.modules()
        if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse
        for p in m.parameters()
    }
    parameter_rates: dict[nn.Parameter, float] = {}
    for module, rate in rates.items():
        for parameter in module.parameters(recurse=False):
            parameter_rates.setdefault(parameter, rate)
    dense_groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    sparse_groups: dict[float, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        rate = parameter_rates[parameter]
        if id(parameter) in sparse:
            sparse_groups.setdefault(rate, []).append(parameter)
        else:
            decay = trainer.weight_decay if parameter.ndim > 1 else 0.0
            dense_groups.setdefault((rate, decay), []).append(parameter)
    made: list[torch.optim.Optimizer] = []
    if dense_groups:
        groups = [
            {"params": ps, "lr": rate, "base": rate, "weight_decay": decay}
            for (rate, decay), ps in dense_groups.items()
        ]
        # one pass over each parameter, without copies of it: on a CPU too
        made.append(torch.optim.AdamW(groups, eps=trainer.epsilon, fused=True))
    if sparse_groups:
        groups = [{"params": ps, "lr": rate, "base": rate} for rate, ps in sparse_groups.items()]
        made.append(RowAdam(groups, eps=trainer.epsilon))
    return made


class RowAdam(torch.optim.Optimizer):
    """Adam (Kingma and Ba 2015) of sparse gradients: rows without a gradient stay as they are, and
    so do their moments.

    Made of plain indexing, which checks its indices on every device, without torch's arithmetic of
    sparse tensors.

    Parameters
    ----------
    parameters
        Tables (rows, …), or groups of them, with sparse gradients (`nn.Embedding(sparse=True)`).
    lr : float
    betas : two floats
    eps : float

    Examples
    --------
    >>> import torch
    >>> table = torch.nn.Embedding.from_pretrained(torch.zeros(3, 1), freeze=False, sparse=True)
    >>> table(torch.tensor([1, 1])).sum().backward()
    >>> RowAdam(table.parameters(), lr=0.5).step()
    >>> table.weight.data.T
    tensor([[ 0.0000, -0.5000,  0.0000]])
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move the rows that have a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._move(table, group)

    def _move(self, table: Tensor, group: dict[str, Any]) -> None:
        state, (first, second) = self.state[table], group["betas"]
        if not state:
            state |= {"step": 0, "mean": torch.zeros_like(table), "square": torch.zeros_like(table)}
        state["step"] += 1
        assert table.grad is not None
        values = table.grad._values()
        rows, place = torch.unique(table.grad._indices()[0], return_inverse=True)
        gradient = values.new_zeros((len(rows), *values.shape[1:])).index_add_(0, place, values)
        mean = torch.lerp(gradient, state["mean"][rows], first)
        square = torch.lerp(gradient.square(), state["square"][rows], second)
        state["mean"][rows], state["square"][rows] = mean, square
        rate = group["lr"] * math.sqrt(1 - second ** state["step"]) / (1 - first ** state["step"])
        table.index_add_(0, rows, mean / (square.sqrt() + group["eps"]), alpha=-rate)
