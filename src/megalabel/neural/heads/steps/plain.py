"""A head's step in plain torch: any device, any loss, the same arithmetic as the kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from megalabel.neural.heads.steps.rounding import random_halves, round_randomly
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.heads.learning import LearningModule


def product(a: Tensor, b: Tensor) -> Tensor:
    """A product of matrices, or of stacks of them, summed in float32 whatever their dtype."""
    if a.is_cuda and a.dtype == torch.bfloat16:
        made = torch.mm if a.ndim == 2 else torch.bmm
        return made(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def column_share(loss: object, columns: int, labels: int) -> float:
    """What a loss over some columns counts for in a loss over all labels."""
    return columns / labels if getattr(loss, "reduction", "sum") == "mean" else 1.0


def row_targets(head: LearningModule, targets: Targets) -> tuple[Tensor, Tensor]:
    """For a softmax over labels: the weight of each entry of the targets, and each row's sum."""
    labels, values, mask = targets.padded()
    loss: Any = head.loss
    weights = loss.row_targets(values, labels, mask, step=head.step).float() * mask
    return weights[mask], weights.sum(1)


class Pass(ABC):
    """A batch's features on their way through a head's weights and back, a chunk of labels at a
    time.

    Chunks are first and last of the labels, counted from the head's first. Where a chunk has more
    columns than there are labels, the others score so low that no loss looks at them.
    """

    gradient: Tensor
    """By the features (rows, width), float32: the sum over the chunks that were learned."""
    dtype: torch.dtype
    """Of the weights."""

    @abstractmethod
    def chunks(self) -> list[tuple[int, int]]:
        """First and last of the labels that come together."""

    @abstractmethod
    def scores(self, first: int, last: int) -> Tensor:
        """The scores (rows, last - first) of a chunk, float32."""

    @abstractmethod
    def learn(self, first: int, last: int, by_score: Tensor, *, update: bool) -> None:
        """Take the gradient by the scores of the chunk that was scored last: add to that by the
        features and, with `update`, move the weights."""


def plain_step(
    head: LearningModule,
    features: Tensor,
    targets: Targets,
    *,
    update: bool,
    valued: bool,
    made: Pass | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean loss and its gradient by the features; with `update`, the weights move.

    `made` is a pass that has begun; None: the head begins one.
    """
    loss = head.loss
    if loss is None:
        raise ValueError("a head without a loss cannot learn")
    normalised = getattr(loss, "normalised", False)
    cooling = 1 / getattr(loss, "temperature", 1.0)
    if not (normalised or getattr(loss, "separable", False)):
        raise ValueError(
            f"this head takes labels in chunks; {type(loss).__name__} is neither a sum over labels "
            "nor a softmax over them"
        )
    rows = max(1, len(features))
    made = head.begin_pass(features) if made is None else made
    value = torch.zeros((), dtype=torch.float32, device=features.device)
    if normalised:
        entries, mass = row_targets(head, targets)
        weighted = targets.with_values(entries)
        normaliser = head.merge_normaliser(normaliser_of(head, features))
    for first, last in made.chunks():
        scores = made.scores(first, last)
        ids = torch.arange(head.first + first, head.first + last, device=features.device)
        ids = ids.clamp(max=head.labels - 1)  # what is beyond is looked at by no loss
        if normalised:
            wanted = weighted.dense(head.first + first, head.first + last)
            logits = scores * cooling - normaliser[:, None]
            by_score = cooling * (mass[:, None] * torch.exp(logits) - wanted)
            value -= (wanted * logits).sum()
        else:
            wanted = targets.dense(head.first + first, head.first + last)
            share = column_share(loss, last - first, head.labels)
            by_score = loss.gradient(scores, wanted, labels=ids).float() * share
            if valued:
                value += loss(scores, wanted, labels=ids).float().sum() * share
        made.learn(first, last, by_score.to(made.dtype), update=update)
    return value / rows, made.gradient / rows


def normaliser_of(head: LearningModule, features: Tensor) -> Tensor:
    """Each row's log-sum-exp over a head's own labels, of scores as the loss takes them."""
    cooling = 1 / getattr(head.loss, "temperature", 1.0)
    made = head.begin_pass(features)
    normaliser = torch.full((len(features),), -torch.inf, device=features.device)
    for first, last in made.chunks():
        own = (made.scores(first, last) * cooling).logsumexp(1)
        normaliser = torch.logaddexp(normaliser, own)
    return normaliser


def move(head: Any, first: int, last: int, gradient: Tensor, ids: Tensor) -> None:
    """Move rows first to last - 1 of a head's weights by their gradient; `ids` number them in any
    shard alike, for what is drawn."""
    width = gradient[0].numel()

    def rounding(x: Tensor, stream: int) -> Tensor:
        if head.weights.dtype == torch.float32:
            return x
        halves = random_halves(head.seed, head.step, stream, ids, width)
        return round_randomly(x, halves.view(x.shape))

    head.optimiser.move(
        head.weights[first:last], gradient, first, head.rate, head.step + 1, rounding
    )
