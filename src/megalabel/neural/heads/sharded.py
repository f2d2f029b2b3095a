"""A dense head whose labels are shared out over the ranks of torch.distributed."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from megalabel.neural.heads.base import Head, Learned, best
from megalabel.neural.heads.dense import DenseHead
from megalabel.neural.losses.base import Loss
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
        gathered, own = self._gather(features.float())
        wanted = self._gather_targets(targets)
        kept = self.local.drop(torch.ones_like(gathered))
        value, gradient = self.local.learn(gathered * kept, wanted, update=update)
        value = value.clone()
        dist.all_reduce(value, group=self.group)
        dist.all_reduce(gradient, group=self.group)
        gradient = (gradient * kept)[own] * self.ranks
        return value, gradient.to(features.dtype)

    @torch.no_grad()
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids of the k best labels of each of this rank's rows, over all ranks."""
        self.check(features)
        gathered, own = self._gather(features)
        empty = gathered.new_zeros((len(gathered), 0), dtype=torch.float32)
        held = len(self.local.weights) > 0
        scores, ids = self.local.top_k(gathered, k) if held else (empty, empty.long())
        # ranks may hold fewer than k labels, and all must give as many
        missing = (0, k - scores.shape[1])
        scores = torch.nn.functional.pad(scores, missing, value=-torch.inf)
        ids = torch.nn.functional.pad(ids, missing, value=0x7FFFFFFF)
        parts = [torch.cat(self._all(part), dim=1)[own] for part in (scores, ids)]
        return best(parts[0], parts[1], min(k, self.labels))

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist`."""
        gathered, own = self._gather(features)
        wanted, _ = self._gather(shortlist)
        scores = self.local.scores(gathered, wanted)
        dist.all_reduce(scores, dist.ReduceOp.MAX, group=self.group)
        return scores[own]

    def _all(self, tensor: Tensor) -> list[Tensor]:
        """A tensor of the same shape from every rank."""
        parts = [torch.empty_like(tensor) for _ in range(self.ranks)]
        dist.all_gather(parts, tensor.contiguous(), group=self.group)
        return parts

    def _gather(self, tensor: Tensor) -> tuple[Tensor, slice]:
        """The rows of all ranks in order, and which of them are this rank's."""
        count = torch.tensor([len(tensor)], device=tensor.device)
        counts = torch.cat(self._all(count)).tolist()
        padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        parts = [part[:n] for part, n in zip(self._all(padded), counts, strict=True)]
        start = sum(counts[: self.rank])
        return torch.cat(parts), slice(start, start + len(tensor))

    def _gather_targets(self, targets: Targets) -> Targets:
        counts, _ = self._gather(targets.indptr.diff())
        indices, _ = self._gather(targets.indices)
        values, _ = self._gather(targets.values)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Targets(indptr, indices, values, targets.labels)


class _Shard(DenseHead):
    """The labels of one rank."""

    group: dist.ProcessGroup | None = None

    def merge_normaliser(self, normaliser: Tensor) -> Tensor:
        parts = [torch.empty_like(normaliser) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, normaliser, group=self.group)
        return torch.stack(parts).logsumexp(0)
