"""A head whose labels are shared out over the ranks of torch.distributed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from megalabel.neural.heads.base import Head, HeadModule, best
from megalabel.neural.losses.base import Loss
from megalabel.neural.processes import gathered, gathered_rows
from megalabel.neural.targets import Targets


def begin(
    head: Head,
    width: int,
    counts: np.ndarray,
    rows: int,
    loss: Loss,
    *,
    device: torch.device,
    seed: int,
) -> HeadModule:
    """The module that a head builds, to be trained; where there are several processes, shared out
    over them. The parameters are those of `Head.build`."""
    head.check_parameters()
    if not dist.is_initialized():
        return head.build(width, counts, rows, loss, device=device, seed=seed)
    shard = shard_of(len(counts))
    return ShardedModule(
        head.build(width, counts, rows, loss, device=device, seed=seed, shard=shard)
    )


def shard_of(labels: int, group: dist.ProcessGroup | None = None) -> tuple[int, int]:
    """The first and the last of the labels that this rank holds."""
    each = -(-labels // dist.get_world_size(group))
    first = min(labels, dist.get_rank(group) * each)
    return first, min(labels, first + each)


class ShardedModule(HeadModule):
    """Each rank owns the weights, the loss and the optimiser of its labels.

    Every rank is given its own rows of the batch. Features are gathered, so that each rank scores
    all rows against its labels, and the features' gradients are summed over ranks once. The step is
    that of one head over all rows and labels: the loss returned is the mean over the rows of all
    ranks, and the gradient is scaled so that averaging the encoder's gradients over ranks, as
    DistributedDataParallel does, gives the gradient of that mean.

    Parameters
    ----------
    local
        The head of this rank's labels (`shard_of`), whose loss is a sum over labels, or a softmax
        whose denominators it passes through `merge_normaliser`.
    group
        The ranks; None: all of them.
    """

    shared_out = True

    def __init__(self, local: HeadModule, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(local.width, local.labels)
        self.group = group
        self.local = local
        local.merge_normaliser = self._merged  # type: ignore[method-assign]

    def forward(
        self, features: Tensor, targets: Targets, shortlist: Tensor | None = None
    ) -> Tensor:
        """The mean loss over the rows of all ranks; in training mode, also a step."""
        self.check(features, targets)
        if shortlist is not None:
            raise ValueError(
                "a head that is shared out scores all labels, not those of a shortlist"
            )
        rows = _Gathered.apply(features, self.group)  # type: ignore[no-untyped-call]
        value = self.local(rows, self._gather_targets(targets))
        return _Summed.apply(value, self.group)  # type: ignore[no-any-return, no-untyped-call]

    @torch.no_grad()
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids of the k best labels of each of this rank's rows, over all ranks."""
        self.check(features)
        rows, own = gathered_rows(features, self.group)
        empty = rows.new_zeros((len(rows), 0), dtype=torch.float32)
        held = self.local.last > self.local.first
        scores, ids = self.local.top_k(rows, k) if held else (empty, empty.long())
        # ranks may hold fewer than k labels, and all must give as many
        missing = (0, k - scores.shape[1])
        scores = torch.nn.functional.pad(scores, missing, value=-torch.inf)
        ids = torch.nn.functional.pad(ids, missing, value=0x7FFFFFFF)
        parts = [torch.cat(gathered(part, self.group), dim=1)[own] for part in (scores, ids)]
        return best(parts[0], parts[1], min(k, self.labels))

    @torch.no_grad()
    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist`."""
        rows, own = gathered_rows(features, self.group)
        wanted, _ = gathered_rows(shortlist, self.group)
        scores = self.local.scores(rows, wanted)
        dist.all_reduce(scores, dist.ReduceOp.MAX, group=self.group)
        return scores[own]

    def tensors(self) -> dict[str, Tensor]:
        """Those of all ranks."""
        return {
            name: gathered_rows(part, self.group)[0] for name, part in self.local.tensors().items()
        }

    def _gather_targets(self, targets: Targets) -> Targets:
        parts = (targets.indptr.diff(), targets.indices, targets.values)
        counts, indices, values = (gathered_rows(part, self.group)[0] for part in parts)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Targets(indptr, indices, values, targets.labels)

    def _merged(self, normaliser: Tensor) -> Tensor:
        return torch.stack(gathered(normaliser, self.group)).logsumexp(0)


class _Gathered(torch.autograd.Function):
    """The rows of all ranks, in float32; backward, the sum of all ranks' gradients by own rows."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        rows, own = gathered_rows(features.float(), group)
        ctx.group, ctx.own, ctx.dtype = group, own, features.dtype
        return rows

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        gradient = outer[0].contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return (gradient[ctx.own] * dist.get_world_size(ctx.group)).to(ctx.dtype), None


class _Summed(torch.autograd.Function):
    """The sum of a number over all ranks, by each of whose parts its derivative is 1."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        total = value.detach().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        return outer[0], None
