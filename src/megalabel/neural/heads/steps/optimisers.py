"""How a head's weights move by their gradient, a chunk of labels at a time.

The state is kept in the weights' own dtype and rounded as they are. Plain torch; for bfloat16 on a
GPU, `kernels/update.py` does what `step` and `move` do in one kernel, told by `rates` and `pace`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

Rounding = Callable[[Tensor, int], Tensor]  # (float32 numbers, stream) -> the weights' dtype


class Optimiser(nn.Module, ABC):
    """Moves the rows of one matrix of weights.

    Parameters
    ----------
    weights
        The matrix, (labels, width); or (groups, places, labels of a group), the rows of which are
        groups.
    weight_decay
        A share of the weights taken away with every step, times the learning rate.
    compensated
        Labels for which what rounding to nearest loses is kept and given back in the next step
        (Kahan's sum), rather than rounded stochastically; None: no label.
    """

    residual: Tensor | None
    slots: Tensor | None

    def __init__(self, weights: Tensor, weight_decay: float, compensated: Tensor | None) -> None:
        super().__init__()
        self.weight_decay = weight_decay
        slots = residual = None
        if compensated is not None and len(compensated):
            slots = torch.full((len(weights),), -1, dtype=torch.int32, device=weights.device)
            order = torch.arange(len(compensated), dtype=torch.int32, device=weights.device)
            slots[compensated.to(weights.device)] = order
            residual = weights.new_zeros((len(compensated), *weights.shape[1:]))
        self.register_buffer("slots", slots)
        self.register_buffer("residual", residual)

    @property
    @abstractmethod
    def moment(self) -> Tensor | None:
        """The moving mean of gradients, of the weights' shape and dtype, if one is kept."""

    @abstractmethod
    def rates(self) -> tuple[float, float]:
        """What the gradient and what the moment before count for in the moment."""

    def pace(
        self, squares: Callable[[], Tensor], first: int, last: int, steps: int
    ) -> Tensor | None:
        """A factor of each label's step along the moment, decay apart; None: 1, decay included.

        `squares` gives the mean square of each label's gradient, labels first to last - 1.
        """
        return None

    @abstractmethod
    def step(
        self, weights: Tensor, gradient: Tensor, first: int, rate: float, steps: int
    ) -> Tensor:
        """What to add to the weights (float32) of the labels from `first` on; `steps` from 1."""

    def move(
        self,
        weights: Tensor,
        gradient: Tensor,
        first: int,
        rate: float,
        steps: int,
        rounding: Rounding,
    ) -> None:
        """Change the weights of a chunk of labels, from label `first` on, in place."""
        self._rounding = rounding
        before = weights.float()
        change = self.step(before, gradient, first, rate, steps)
        after = rounding(before + change, 0)
        if self.slots is not None and self.residual is not None:
            slots = self.slots[first : first + len(weights)]
            kept = slots >= 0
            at = slots[kept].long()
            old = before[kept]
            wanted = change[kept] - self.residual[at].float()
            nearest = (old + wanted).to(weights.dtype)
            self.residual[at] = ((nearest.float() - old) - wanted).to(weights.dtype)
            after[kept] = nearest
        weights.copy_(after)


class Sgd(Optimiser):
    """Stochastic gradient descent, with momentum or without."""

    velocity: Tensor | None

    def __init__(
        self,
        weights: Tensor,
        weight_decay: float = 0.0,
        compensated: Tensor | None = None,
        momentum: float = 0.0,
    ) -> None:
        super().__init__(weights, weight_decay, compensated)
        self.momentum = momentum
        self.register_buffer("velocity", torch.zeros_like(weights) if momentum else None)

    @property
    def moment(self) -> Tensor | None:
        return self.velocity

    def rates(self) -> tuple[float, float]:
        return 1.0, self.momentum

    def step(
        self, weights: Tensor, gradient: Tensor, first: int, rate: float, steps: int
    ) -> Tensor:
        move = gradient + self.weight_decay * weights
        if self.velocity is not None:
            velocity = self.velocity[first : first + len(weights)]
            move += self.momentum * velocity.float()
            velocity.copy_(self._rounding(move, 1))
        return -rate * move


class Adam(Optimiser):
    """Adam with decoupled weight decay, whose second moment is one number a label.

    The mean of the squared gradient over a label's weights stands for that of each: a label's own
    scale is what differs by orders of magnitude between frequent and rare labels.
    """

    mean: Tensor
    square: Tensor

    def __init__(
        self,
        weights: Tensor,
        weight_decay: float = 0.0,
        compensated: Tensor | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(weights, weight_decay, compensated)
        self.betas = betas
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros_like(weights))
        labels = (len(weights), *weights.shape[2:])
        self.register_buffer(
            "square", torch.zeros(labels, dtype=torch.float32, device=weights.device)
        )

    @property
    def moment(self) -> Tensor:
        return self.mean

    def rates(self) -> tuple[float, float]:
        return 1 - self.betas[0], self.betas[0]

    def pace(self, squares: Callable[[], Tensor], first: int, last: int, steps: int) -> Tensor:
        square = self.square[first:last]
        square.lerp_(squares(), 1 - self.betas[1])
        spread = (square / (1 - self.betas[1] ** steps)).sqrt() + self.epsilon
        return 1 / ((1 - self.betas[0] ** steps) * spread)

    def step(
        self, weights: Tensor, gradient: Tensor, first: int, rate: float, steps: int
    ) -> Tensor:
        here = slice(first, first + len(weights))
        share, kept = self.rates()
        mean = kept * self.mean[here].float() + share * gradient
        self.mean[here] = self._rounding(mean, 1)
        pace = self.pace(lambda: gradient.square().mean(1), first, here.stop, steps)
        return -rate * (mean * pace[:, None] + self.weight_decay * weights)


def create(
    name: str,
    weights: Tensor,
    *,
    weight_decay: float = 0.0,
    compensated: Tensor | None = None,
    momentum: float = 0.0,
) -> Optimiser:
    """An optimiser by name: "sgd" or "adam"."""
    if name == "sgd":
        return Sgd(weights, weight_decay, compensated, momentum)
    if name == "adam":
        return Adam(weights, weight_decay, compensated)
    raise ValueError(f'the optimiser is "sgd" or "adam", not {name!r}')
