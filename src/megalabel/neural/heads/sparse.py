"""Few features a label: groups of labels that share the features they see, with own weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from megalabel.neural.heads.base import best_of_chunks
from megalabel.neural.heads.learning import LearningModule, launches_kernels
from megalabel.neural.heads.recent import RecentRows
from megalabel.neural.heads.rewiring import Rewiring, drawn
from megalabel.neural.heads.steps import native
from megalabel.neural.heads.steps.optimisers import Optimiser, create
from megalabel.neural.heads.steps.plain import Pass
from megalabel.neural.heads.steps.rounding import random_halves
from megalabel.neural.heads.steps.sparse import SparsePass
from megalabel.neural.losses.base import Loss
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.heads.steps.fused_groups import Searched
    from megalabel.neural.kernels.tuning import GroupTuning

PLACES = 1 << 22
"""Numbers gathered at a time."""


class SparseModule(LearningModule):
    """Groups of labels: of a group each label has a weight for each of the same few features.

    Weights are (groups, fan_in, group): those of the labels of a group are side by side. The
    features of a group, `indices` (groups, fan_in) int32, are sorted and without duplicates. With
    `group=1` each label has features of its own.

    Labels are numbered so that those of a group follow one another; the last group may have places
    that no label has. Everything random is a function of the seed, the step and the number of a
    group's first label, so that shards hold what the whole would.

    Parameters
    ----------
    width, labels, loss
        As of any `LearningModule`.
    fan_in
        Features that a label sees.
    group
        Labels that see the same.
    rewiring
        How features are exchanged while it learns; None: they stay.
    dtype, optimiser, momentum, weight_decay, bias, dropout, value_every, seed, device
        As of a dense head.
    shard
        (first, last): hold these labels alone: whole groups, the first of which starts with
        `first`.
    chunk
        Groups at a time; None: by the memory that a chunk takes.
    tuning
        How the GPU kernels are cut (`kernels.tuning.GroupTuning`).

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads.sparse import SparseModule
    >>> head = SparseModule(100, 10, loss=None, fan_in=8, group=4)
    >>> head.indices.shape, head.weights.shape
    (torch.Size([3, 8]), torch.Size([3, 8, 4]))
    """

    indices: Tensor
    weights: Tensor
    bias: Tensor | None

    def __init__(
        self,
        width: int,
        labels: int,
        loss: Loss | None,
        *,
        fan_in: int,
        group: int = 1,
        rewiring: Rewiring | None = None,
        dtype: torch.dtype = torch.float32,
        optimiser: str = "sgd",
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        bias: bool = True,
        dropout: float = 0.0,
        chunk: int | None = None,
        value_every: int | None = None,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        tuning: GroupTuning | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            width,
            labels,
            loss,
            dropout=dropout,
            value_every=value_every,
            seed=seed,
            shard=shard,
            device=device,
        )
        if dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"weights are torch.float32 or torch.bfloat16, not {dtype}")
        if fan_in < 1 or group < 1:
            raise ValueError(f"groups of {group} labels cannot see {fan_in} features")
        self.fan_in = min(fan_in, width)
        self.group = group
        self.rewiring = rewiring
        self.chunk = chunk
        self.tuning = tuning
        self.held = self.last - self.first
        """How many labels it holds: in the last group there may be more places."""
        groups = -(-self.held // group)
        shape = (groups, self.fan_in, group)
        firsts = torch.arange(self.first, self.first + groups * group, group, device=device)
        indices = torch.empty((groups, self.fan_in), dtype=torch.int32, device=device)
        weights = torch.empty(shape, dtype=dtype, device=device)
        bound = 1 / math.sqrt(self.fan_in)
        for first, last in self._slices(groups, self.fan_in * max(8, group)):
            indices[first:last] = drawn(firsts[first:last], self.fan_in, width, seed)
            halves = random_halves(seed, -1, 0, firsts[first:last], self.fan_in * group)
            uniform = (halves.float() + 0.5) / 2**15 - 1
            weights[first:last] = (uniform * bound).view(last - first, *shape[1:])
        self.register_buffer("indices", indices)
        self.register_buffer("weights", weights)
        made = torch.zeros((groups, group), device=device) if bias else None
        self.register_buffer("bias", made)
        self.optimiser: Optimiser = create(
            optimiser, weights, weight_decay=weight_decay, momentum=momentum
        )
        self._last: tuple[Tensor, Targets] | None = None
        self.recent = RecentRows()
        """What was learned from since features were last exchanged, for growth by gradient."""
        self.searched: Searched | None = None
        """What kernels searched last."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "searched": None}  # recordings of a GPU are not to be copied

    def begin_pass(self, features: Tensor) -> Pass:
        """The products of these features with the weights, and their gradients."""
        return SparsePass(self, features)

    def step_of_kernels(self, device: torch.device) -> Any:
        """The step made of kernels, where there are kernels for what this head does."""
        if launches_kernels(device, self.tuning is not None):
            from megalabel.neural.heads.steps.fused_groups import step_for

            return step_for(self)
        return native.step_for(self) if device.type == "cpu" else None

    def own_normaliser(self, features: Tensor) -> Tensor:
        """Each row's log-sum-exp over the labels held here, of scores as the loss takes them."""
        step = self._fused_step(features.device)
        if isinstance(step, native.NativeStep):
            return step.normaliser(self, features)
        return super().own_normaliser(features)

    def chunks(self, rows: int, least: int = 1) -> list[tuple[int, int]]:
        """First and last of the labels, counted from this head's first, that come together, where a
        group takes `least` numbers or more."""
        each = max(least, max(self.fan_in, self.group) * rows)
        cut = self._slices(len(self.indices), each)
        return [(first * self.group, last * self.group) for first, last in cut]

    def _slices(self, groups: int, each: int) -> Iterator[tuple[int, int]]:
        """First and last of the groups that come together, where one takes `each` numbers."""
        size = self.chunk or max(1, PLACES // each)
        for first in range(0, groups, size):
            yield first, min(first + size, groups)

    @torch.no_grad()
    def learn(
        self, features: Tensor, targets: Targets, *, update: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The mean loss over rows and its gradient by the features; with `update`, a step."""
        if update and self.rewiring is not None and self.rewiring.growth == "gradient":
            self._last = features, targets
        if not update or self.bias is None or self.pace == 1:
            return super().learn(features, targets, update=update)
        # the pace makes up for features that weights do not see; a bias is as any other
        bias = self.bias.clone()
        learned = super().learn(features, targets, update=update)
        self.bias.copy_(bias.lerp_(self.bias, 1 / self.pace))
        return learned

    @torch.no_grad()
    def after_update(self, step: int, total: int) -> None:
        """A time to exchange features."""
        if self.rewiring is None or not self.held:
            return
        if getattr(self.loss, "normalised", False):  # denominators of other parts: the last batch's
            self.recent.clear()
        if self._last is not None and step <= self.rewiring.until * total:
            self.recent.add(*self._last)
        self._last = None
        if self.rewiring.is_due(step, total):
            self.rewiring.rewire(self, step, total, self.recent.rows())
            self.recent.clear()

    @torch.no_grad()
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and numbers of each row's k best labels, best first, ties to the lower one."""
        self.check(features)
        found = self.best_by_kernels(features, k)
        return best_of_chunks(self.chunk_scores(features), k) if found is None else found

    def best_by_kernels(
        self, features: Tensor, k: int, order: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """What `top_k` gives, by kernels, which never write all scores; None: there are none here.

        With `order`, the label of each place of a whole layer, labels are numbered as there.
        """
        if not (self.held and len(features)):
            return None
        if launches_kernels(features.device, self.tuning is not None):
            from megalabel.neural.heads.steps.fused_groups import best_labels

            return best_labels(self, features, k, order)
        return (
            native.best_labels(self, features, k, order) if features.device.type == "cpu" else None
        )

    def chunk_scores(self, features: Tensor) -> Iterator[tuple[Tensor, int]]:
        """The scores of chunks of labels, each with the number of its first label."""
        made = SparsePass(self, features)
        for first, last in made.chunks():
            yield made.scores(first, last)[:, : self.held - first], self.first + first

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist`; minus infinity where not held."""
        self.check(features)
        here = (shortlist >= self.first) & (shortlist < self.last)
        at = torch.where(here, shortlist - self.first, 0)
        groups, places = at // self.group, at % self.group
        x = features.to(self.weights.dtype).float()
        seen = x[torch.arange(len(x), device=x.device)[:, None, None], self.indices[groups].long()]
        scores = (seen * self.weights[groups, :, places].float()).sum(2)
        if self.bias is not None:
            scores = scores + self.bias[groups, places]
        return scores.masked_fill(~here, -math.inf)

    def tensors(self) -> dict[str, Tensor]:
        """What is kept of it; with a row for every group."""
        bias = {} if self.bias is None else {"bias": self.bias}
        return {"indices": self.indices, "weights": self.weights, **bias}

    def load_weights(self, indices: Any, weights: Any, bias: Any = None) -> None:
        """Go on from these, in the layout that `tensors` gives."""
        self.indices.copy_(torch.as_tensor(indices))
        self.weights.copy_(torch.as_tensor(weights))
        if self.bias is not None and bias is not None:
            self.bias.copy_(torch.as_tensor(bias))

    def extra_repr(self) -> str:
        return (
            f"width={self.width}, labels={self.labels}, fan_in={self.fan_in}, "
            f"group={self.group}, dtype={self.weights.dtype}"
        )
