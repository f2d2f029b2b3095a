"""Heads that move their own weights while they compute the loss."""

from __future__ import annotations

import os
from abc import abstractmethod
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from megalabel.neural.heads.base import LearnedModule
from megalabel.neural.heads.steps.plain import Pass, normaliser_of, plain_step
from megalabel.neural.losses.base import Loss
from megalabel.neural.targets import Targets


class LearningModule(LearnedModule):
    """A head without parameters: calling it in training mode is a step of its own optimiser.

    The step is plain torch over the passes that a subclass begins, or one made of kernels where it
    has one.

    Parameters
    ----------
    width, labels
        Length of the features and number of labels.
    loss
        A loss that is a sum over labels (`separable`), or the cross-entropy of a softmax over all
        labels (`normalised`), which takes two passes.
    dropout
        Share of the features that are left out of a step.
    value_every
        The loss's value is computed in every so many-th step; steps between return the last one,
        while their gradients are right. None: in every step on a CPU, and in every 16th by kernels
        of a GPU, which need the value for nothing else.
    seed
        Of initial weights, dropout and rounding.
    shard
        (first, last): hold the weights of these labels alone; see `ShardedModule`.
    """

    value: Tensor
    steps: Tensor

    def __init__(
        self,
        width: int,
        labels: int,
        loss: Loss | None,
        *,
        dropout: float = 0.0,
        value_every: int | None = None,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(width, labels, shard)
        self.loss = loss
        self.dropout = dropout
        self.value_every = value_every
        self.seed = seed
        self.share = 1.0
        """What the loss counts for beside others: its weights move so much less."""
        self.pace = 1.0
        """What the rate of its weights is multiplied by."""
        self.register_buffer("value", torch.zeros((), device=device))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        self._step: int | None = 0
        self._fused: Any = None
        self.register_load_state_dict_post_hook(LearningModule._forget_step)  # type: ignore[no-untyped-call]

    def _forget_step(self, _: Any) -> None:
        self._step = None

    @abstractmethod
    def begin_pass(self, features: Tensor) -> Pass:
        """The products of these features with the weights, and their gradients."""

    def step_of_kernels(self, device: torch.device) -> Any:
        """A step made of kernels, which is called as `plain_step` is; None: plain torch."""
        return None

    def own_normaliser(self, features: Tensor) -> Tensor:
        """Each row's log-sum-exp over the labels held here, of scores as the loss takes them."""
        return normaliser_of(self, features)

    @property
    def rate(self) -> float:
        """The rate of this step."""
        return self.learning_rate * self.share * self.pace

    @property
    def step(self) -> int:
        """How many steps have been made."""
        if self._step is None:
            self._step = int(self.steps)
        return self._step

    def drop(self, features: Tensor) -> Tensor:
        """The features with some of them left out, in training; a function of seed and step."""
        if not (self.training and self.dropout):
            return features
        source = torch.Generator(features.device).manual_seed(mixed(self.seed, self.step, 2))
        kept = torch.rand(features.shape, generator=source, device=features.device) >= self.dropout
        return features * (kept / (1 - self.dropout)).to(features.dtype)

    @torch.no_grad()
    def learn(
        self, features: Tensor, targets: Targets, *, update: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The mean loss over rows and its gradient by the features; with `update`, a step."""
        fused = self._fused_step(features.device)
        usual: int = 1 if fused is None else getattr(fused, "value_every", 16)
        every = self.value_every or usual
        valued = not update or self.step % every == 0
        with torch.autocast(features.device.type, enabled=False):
            step = plain_step if fused is None or len(features) == 0 else fused
            value, gradient = step(self, features, targets, update=update, valued=valued)
        if not valued:
            value = self.value
        if update:
            self.value = value
            self._step = self.step + 1
            self.steps += 1
        return value, gradient.to(features.dtype)

    def _fused_step(self, device: torch.device) -> Any:
        """The step made of kernels, where there are kernels for what this head does."""
        if self._fused is None or self._fused[0] != device:
            self._fused = (device, self.step_of_kernels(device))
        return self._fused[1]


def launches_kernels(device: torch.device, asked_for: bool) -> bool:
    """Whether kernels run there; Triton's interpreter runs them on a CPU, slowly, so only where
    both it and a tuning ask for them."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and asked_for
    return (device.type == "cuda" or interpreted) and find_spec("triton") is not None


def mixed(seed: int, *parts: int) -> int:
    """A seed of several numbers."""
    for part in parts:
        seed = (seed * 6364136223846793005 + part * 1442695040888963407 + 1) & (2**63 - 1)
        seed ^= seed >> 29
    return seed
