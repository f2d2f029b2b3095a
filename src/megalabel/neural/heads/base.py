"""What a head is: from a text's features to its labels, the loss included."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from megalabel.neural.targets import Targets


class Head(nn.Module, ABC):
    """Scores labels from features, and learns to.

    The trainer calls the head like any module and sets `learning_rate` before each step. A head
    that updates its own weights does it with that rate while it computes the loss; another exposes
    parameters. Whoever trains need not know which.
    """

    def __init__(self, width: int, labels: int) -> None:
        super().__init__()
        if width < 1 or labels < 1:
            raise ValueError(f"a head needs features and labels, not {width} and {labels}")
        self.width = width
        self.labels = labels
        self.learning_rate = 0.05

    @abstractmethod
    def forward(
        self, features: Tensor, targets: Targets, shortlist: Tensor | None = None
    ) -> Tensor:
        """The mean of the rows' losses; its backward gives the gradient by the features."""

    @abstractmethod
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids of each row's k best labels, best first, ties to the lower id."""

    @abstractmethod
    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist` (rows, candidates)."""

    def check(self, features: Tensor, targets: Targets | None = None) -> None:
        """Raise a ValueError that names both shapes where features or targets do not fit."""
        if features.ndim != 2 or features.shape[1] != self.width:
            raise ValueError(
                f"features of shape {tuple(features.shape)} do not fit a head of width {self.width}"
            )
        if targets is not None and (len(targets), targets.labels) != (len(features), self.labels):
            raise ValueError(
                f"targets of {len(targets)} rows and {targets.labels} labels do not fit "
                f"{len(features)} rows of features and a head of {self.labels} labels"
            )


def best(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of each row (rows, candidates), ties to the lower id; both float32 and int64.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads.base import best
    >>> best(torch.tensor([[1.0, 3.0, 1.0]]), torch.tensor([[7, 8, 2]]), 2)
    (tensor([[3., 1.]]), tensor([[8, 2]]))
    """
    # one integer says both: a float's bits, in the order of floats, then the id from high to low
    bits = (scores.float() + 0.0).contiguous().view(torch.int32).long()
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (ordered << 32) | (0x7FFFFFFF - ids)
    keys = keys.topk(min(k, keys.shape[1]), dim=1).values
    ordered, ids = keys >> 32, 0x7FFFFFFF - (keys & 0xFFFFFFFF)
    bits = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered)
    return bits.to(torch.int32).view(torch.float32), ids


def best_of_chunks(chunks: Iterable[tuple[Tensor, int]], k: int) -> tuple[Tensor, Tensor]:
    """The k best of each row, where scores come in chunks of labels, each with its first label."""
    found: tuple[Tensor, Tensor] | None = None
    for scores, first in chunks:
        ids = torch.arange(first, first + scores.shape[1], device=scores.device)
        part = best(scores, ids.expand_as(scores), k)
        if found is not None:
            both = [torch.cat(pair, dim=1) for pair in zip(found, part, strict=True)]
            part = best(both[0], both[1], k)
        found = part
    if found is None:
        raise ValueError("there are no labels to rank")
    return found


class Learned(torch.autograd.Function):
    """A loss whose gradient by the features was found while the head's weights moved."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, head: Any, targets: Targets) -> Tensor:
        value, gradient = head.learn(features.detach(), targets)
        ctx.save_for_backward(gradient)
        return value.clone()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * outer[0].to(gradient.dtype), None, None
