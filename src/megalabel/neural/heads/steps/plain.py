"""A dense head's step in plain torch: any device, any loss, the same arithmetic as the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from megalabel.neural.heads.steps.rounding import random_halves, round_randomly
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.heads.dense import DenseModule


def product(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product summed in float32, whatever the factors' dtype."""
    if a.is_cuda and a.dtype == torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def column_share(loss: object, columns: int, labels: int) -> float:
    """What a loss over some columns counts for in a loss over all labels."""
    return columns / labels if getattr(loss, "reduction", "sum") == "mean" else 1.0


def row_targets(head: DenseModule, targets: Targets) -> tuple[Tensor, Tensor]:
    """For a softmax over labels: the weight of each entry of the targets, and each row's sum."""
    labels, values, mask = targets.padded()
    loss: Any = head.loss
    weights = loss.row_targets(values, labels, mask, step=head.step).float() * mask
    return weights[mask], weights.sum(1)


def plain_step(
    head: DenseModule, features: Tensor, targets: Targets, *, update: bool, valued: bool
) -> tuple[Tensor, Tensor]:
    """The mean loss and its gradient by the features; with `update`, the weights move."""
    loss = head.loss
    if loss is None:
        raise ValueError("a head without a loss cannot learn")
    normalised = getattr(loss, "normalised", False)
    cooling = 1 / getattr(loss, "temperature", 1.0)
    if not (normalised or getattr(loss, "separable", False)):
        raise ValueError(
            f"a dense head takes labels in chunks; {type(loss).__name__} is neither a sum over "
            "labels nor a softmax over them"
        )
    rows = max(1, len(features))
    dtype = head.weights.dtype
    x = features.to(dtype)
    gradient = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    value = torch.zeros((), dtype=torch.float32, device=x.device)

    def scored(first: int, last: int) -> Tensor:
        scores = product(x, head.weights[first:last].T)
        return scores if head.bias is None else scores + head.bias[first:last]

    if normalised:
        entries, mass = row_targets(head, targets)
        weighted = targets.with_values(entries)
        normaliser = torch.full((len(x),), -torch.inf, device=x.device)
        for first, last in head.chunks(len(x)):
            normaliser = torch.logaddexp(normaliser, (scored(first, last) * cooling).logsumexp(1))
        normaliser = head.merge_normaliser(normaliser)
    for first, last in head.chunks(len(x)):
        scores = scored(first, last)
        ids = torch.arange(head.first + first, head.first + last, device=x.device)
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
        by_score = by_score.to(dtype)
        weights = head.weights[first:last]
        gradient += product(by_score, weights)
        if update:
            move(head, first, last, product(by_score.T, x) / rows)
            if head.bias is not None:
                head.bias[first:last] -= head.learning_rate * by_score.float().sum(0) / rows
    return value / rows, gradient / rows


def move(head: DenseModule, first: int, last: int, gradient: Tensor) -> None:
    """Move the weights of a chunk by their gradient."""
    labels = torch.arange(head.first + first, head.first + last, device=gradient.device)

    def rounding(x: Tensor, stream: int) -> Tensor:
        if head.weights.dtype == torch.float32:
            return x
        return round_randomly(x, random_halves(head.seed, head.step, stream, labels, head.width))

    head.optimiser.move(
        head.weights[first:last], gradient, first, head.learning_rate, head.step + 1, rounding
    )
