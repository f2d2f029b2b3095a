"""A dense head whose labels are shared out over the ranks of torch.distributed."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from megalabel.neural.heads.base import Head, Learned, best
from megalabel.neural.heads.dense import DenseHead
from megalabel.neural.losses.base import Loss
from megalabel.neural.processes import gathered, gathered_rows
from megalabel.neural.targets import Targets


class ShardedHead(Head):
    """Each rank owns the weights, the loss and the optimiser of its labels.

    Every rank is given its own rows of the batch. Features are gathered, so that each rank scores
    all rows against its labels, and the features' gradients are summed over ranks once. The step is
    that of one `DenseHead` over all rows and labels: the loss returned is the mean over the rows of
    all ranks, and the gradient is scaled so that averaging the encoder's gradients over ranks, as
    DistributedDataParallel does, gives the gradient of that mean.

    Parameters
    ----------
    width, labels, loss
        As of `DenseHead`; `labels` are those of all ranks.
    group
        The ranks; None: all of them.
    **options
        Further parameters of `DenseHead`, the same on every rank.
    """

    def __init__(
        self,
        width: int,
        labels: int,
        loss: Loss | None,
        *,
        group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        super().__init__(width, labels)
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        each = -(-labels // self.ranks)
        first = min(labels, self.rank * each)
        shard = (first, min(labels, first + each))
        self.local = _Shard(width, labels, loss, shard=shard, **options)
        self.local.group = group

    def forward(
        self, features: Tensor, targets: Targets, shortlist: Tensor | None = None
    ) -> Tensor:
        """The mean loss over the rows of all ranks; in training mode, also a step."""
        self.check(features, targets)
        if shortlist is not None:
            raise ValueError("a dense head scores all labels; a shortlist is for ShortlistHead")
        self.local.learning_rate = self.learning_rate
        if self.training and torch.is_grad_enabled():
            return Learned.apply(features, self, targets)  # type: ignore[no-any-return, no-untyped-call]
        return self.learn(features.detach(), targets, update=False)[0]

    @torch.no_grad()
    def learn(
        self, features: Tensor, targets: Targets, *, update: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The mean loss and the gradient by this rank's features; with `update`, a step."""
        rows, own = gathered_rows(features.float(), self.group)
        wanted = self._gather_targets(targets)
        kept = self.local.drop(torch.ones_like(rows))
        value, gradient = self.local.learn(rows * kept, wanted, update=update)
        value = value.clone()
        dist.all_reduce(value, group=self.group)
        dist.all_reduce(gradient, group=self.group)
        gradient = (gradient * kept)[own] * self.ranks
        return value, gradient.to(features.dtype)

    @torch.no_grad()
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids of the k best labels of each of this rank's rows, over all ranks."""
        self.check(features)
        rows, own = gathered_rows(features, self.group)
        empty = rows.new_zeros((len(rows), 0), dtype=torch.float32)
        held = len(self.local.weights) > 0
        scores, ids = self.local.top_k(rows, k) if held else (empty, empty.long())
        # ranks may hold fewer than k labels, and all must give as many
        missing = (0, k - scores.shape[1])
        scores = torch.nn.functional.pad(scores, missing, value=-torch.inf)
        ids = torch.nn.functional.pad(ids, missing, value=0x7FFFFFFF)
        parts = [torch.cat(gathered(part, self.group), dim=1)[own] for part in (scores, ids)]
        return best(parts[0], parts[1], min(k, self.labels))

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist`."""
        rows, own = gathered_rows(features, self.group)
        wanted, _ = gathered_rows(shortlist, self.group)
        scores = self.local.scores(rows, wanted)
        dist.all_reduce(scores, dist.ReduceOp.MAX, group=self.group)
        return scores[own]

    def _gather_targets(self, targets: Targets) -> Targets:
        parts = (targets.indptr.diff(), targets.indices, targets.values)
        counts, indices, values = (gathered_rows(part, self.group)[0] for part in parts)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Targets(indptr, indices, values, targets.labels)


class _Shard(DenseHead):
    """The labels of one rank."""

    group: dist.ProcessGroup | None = None

    def merge_normaliser(self, normaliser: Tensor) -> Tensor:
        return torch.stack(gathered(normaliser, self.group)).logsumexp(0)
