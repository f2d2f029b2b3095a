"""Rewiring: features that hardly count are exchanged for others while a sparse head learns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from megalabel.base import Check, Component, Learned, boolean, integer, number, one_of
from megalabel.neural.heads.steps.plain import plain_step, product
from megalabel.neural.heads.steps.rounding import philox
from megalabel.neural.heads.steps.sparse import SparsePass

if TYPE_CHECKING:
    from megalabel.neural.heads.sparse import SparseModule
    from megalabel.neural.targets import Targets

_PLACES = 1 << 22  # numbers worked on at a time
_TIMES, _APART = 40, 20
_LEAST = 1e-4  # what a threshold falls to
_INITIAL, _GROWN, _TIES = 0, 1, 2  # tell apart what is drawn


class Rewiring(Component):
    """Dynamic sparse training (Mocanu et al. 2018): how features of a sparse head are exchanged.

    The features that count least are pruned: those with the smallest weights, of a group the mean
    or the largest over its labels. As many others are grown in their places, so that the fan-in
    never changes, and what a group shares it shares afterwards.

    Parameters
    ----------
    every : int, optional
        Steps between times. None: 40 times in a training, though 20 steps apart at least.
    fraction : float
        The share of features that are pruned each time; 0: a network that stays as it is.
    falls : bool
        Whether the fraction falls with a cosine to 0 by the last time.
    threshold : float, optional
        In place of the fraction: features with smaller weights are pruned. It falls with a cosine
        to 1e-4 by the last time.
    scope : "layer" or "group"
        What the share is of: all features of all groups that a process holds, or those of each
        group.
    score : "mean" or "max"
        What a feature's weights in a group come to.
    growth : "random" or "gradient"
        Which others are grown: any, or those by which the loss of the rows since the last time, of
        2,048 at most, would fall most (Evci et al. 2020), which takes a dense pass over the labels.
    weights : "zero" or "kept"
        The weights that a new feature begins with: none, or the pruned one's. What the optimiser
        remembers of the pruned one is forgotten.
    until : float
        The share of the training in which there is a next time.

    Examples
    --------
    >>> rewiring = Rewiring(every=100, until=0.5)
    >>> [step for step in range(1, 1001) if rewiring.is_due(step, 1000)]
    [100, 200, 300, 400, 500]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "every": integer(1) | one_of(None),
        "fraction": number(0, 1),
        "falls": boolean(),
        "threshold": number(0) | one_of(None),
        "scope": one_of("layer", "group"),
        "score": one_of("mean", "max"),
        "growth": one_of("random", "gradient"),
        "weights": one_of("zero", "kept"),
        "until": number(0, 1),
    }
    LEARNED: ClassVar[Mapping[str, Learned]] = {}

    def __init__(
        self,
        *,
        every: int | None = None,
        fraction: float = 0.1,
        falls: bool = False,
        threshold: float | None = None,
        scope: str = "layer",
        score: str = "mean",
        growth: str = "random",
        weights: str = "zero",
        until: float = 0.66,
    ) -> None:
        self.every = every
        self.fraction = fraction
        self.falls = falls
        self.threshold = threshold
        self.scope = scope
        self.score = score
        self.growth = growth
        self.weights = weights
        self.until = until

    def is_due(self, step: int, total: int) -> bool:
        """Whether features are exchanged after so many steps of all."""
        every = self.every or max(_APART, round(self.until * total / _TIMES))
        moves = self.fraction > 0 or self.threshold is not None
        return moves and step % every == 0 and step <= self.until * total

    def rewire(
        self,
        module: SparseModule,
        step: int,
        total: int,
        last: tuple[Tensor, Targets] | None = None,
    ) -> int:
        """Exchange features of a module; how many.

        Parameters
        ----------
        step, total
            So many steps of all have been made.
        last
            Features and targets of the last rows, for growth by gradient.
        """
        pruned = self.chosen(module, step, total)
        if self.growth == "gradient" and last is not None:
            grown = _steepest(module, pruned, *last)
        else:
            grown = _redrawn(module, pruned, step)
        moment = module.optimiser.moment
        size = max(1, _PLACES // (module.fan_in * module.group))
        for first in range(0, len(pruned), size):
            here = slice(first, first + size)
            indices, order = grown[here].sort(1)
            module.indices[here] = indices
            mask, order = pruned[here].gather(1, order)[..., None], order[..., None]
            for tensor in (module.weights, moment):
                if tensor is None:
                    continue
                moved = tensor[here].gather(1, order.expand_as(tensor[here]))
                if tensor is moment or self.weights == "zero":
                    moved.masked_fill_(mask, 0)
                tensor[here] = moved
        return int(pruned.sum())

    def chosen(self, module: SparseModule, step: int, total: int) -> Tensor:
        """Which features are pruned (groups, fan_in)."""
        scores = self._scores(module)
        free = module.width - module.fan_in
        end = max(1.0, self.until * total)
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, step / end)))
        share = self.fraction * fall if self.falls else self.fraction
        if self.threshold is not None:
            mask = scores < _LEAST + max(0.0, self.threshold - _LEAST) * fall
        elif self.scope == "group":
            count = round(share * module.fan_in)
            order = scores.argsort(dim=1, stable=True).argsort(dim=1)
            mask = order < count
        else:
            mask = _smallest(scores, round(share * scores.numel()), module.seed, step)
        # places for what is drawn: a group has features left that it does not see
        most = (free + 1) // 2
        if most < module.fan_in:
            least_first = (
                scores.masked_fill(~mask, math.inf).argsort(dim=1, stable=True).argsort(dim=1)
            )
            mask &= least_first < most
        return mask

    def _scores(self, module: SparseModule) -> Tensor:
        """What each feature of each group counts for, without places that no label has."""
        padding = len(module.indices) * module.group - module.held
        scores = torch.empty(module.indices.shape, device=module.weights.device)
        size = max(1, _PLACES // (module.fan_in * module.group))
        for first in range(0, len(scores), size):
            scores[first : first + size] = self._sizes(module.weights[first : first + size])
        if padding and len(scores):
            scores[-1] = self._sizes(module.weights[-1, :, : module.group - padding])
        return scores

    def _sizes(self, weights: Tensor) -> Tensor:
        """What weights (…, labels) come to over the labels."""
        sizes = weights.float().abs()
        return sizes.mean(-1) if self.score == "mean" else sizes.amax(-1)


def _smallest(scores: Tensor, count: int, seed: int, step: int) -> Tensor:
    """Where the `count` smallest of all scores are; of those that tie, any."""
    if not count:
        return torch.zeros_like(scores, dtype=torch.bool)
    flat = scores.flatten()
    last = flat.kthvalue(count).values
    mask = flat < last
    ties = (flat == last).nonzero()[:, 0]
    left = count - int(mask.sum())
    if left < len(ties):
        words = philox(seed, (ties, ties >> 32, step, _TIES))[0]
        ties = ties[words.argsort(stable=True)[:left]]
    mask[ties] = True
    return mask.view(scores.shape)


def _redrawn(module: SparseModule, pruned: Tensor, step: int) -> Tensor:
    """The features of all groups (groups, fan_in), with random others in the place of the pruned:
    such as the group did not see."""
    grown = module.indices.clone()
    firsts = module.first + module.group * torch.arange(len(grown), device=grown.device)
    free = module.width - module.fan_in
    size = max(1, _PLACES // (8 * module.fan_in))
    for first in range(0, len(grown), size):
        here = slice(first, first + size)
        seen, mask = grown[here].long(), pruned[here]
        ranks = _ranks(mask, free, module.seed, step, _GROWN, firsts[here])
        # the r-th feature that is not seen comes after as many seen ones as have r before them
        before = seen - torch.arange(module.fan_in, device=seen.device)
        grown[here] = torch.where(mask, ranks + torch.searchsorted(before, ranks, right=True), seen)
    return grown


def _ranks(mask: Tensor, below: int, seed: int, step: int, stream: int, firsts: Tensor) -> Tensor:
    """Numbers from 0 to below - 1 where the mask (groups, places) is, no two of a group alike."""
    places = torch.arange(mask.shape[1], device=mask.device)
    ranks = (below + places).repeat(len(mask), 1)
    pending, turn = mask.clone(), 0
    rows = pending.any(1).nonzero()[:, 0]
    while len(rows):
        own = ranks[rows]
        counters = (firsts[rows, None].expand_as(own), places.expand_as(own))
        words = philox(seed, (*counters, step, stream + 4 * turn))[0]
        own = torch.where(pending[rows], (words * below) >> 32, own)
        ranks[rows] = own
        order = own.argsort(dim=1, stable=True)
        again = own.gather(1, order)
        again = torch.nn.functional.pad(again[:, 1:] == again[:, :-1], (1, 0))
        pending[rows] = torch.zeros_like(again).scatter_(1, order, again)
        rows, turn = rows[again.any(1)], turn + 1
    return ranks


def _steepest(module: SparseModule, pruned: Tensor, features: Tensor, targets: Targets) -> Tensor:
    """The features of all groups, with those in the place of the pruned by which the loss of
    some rows would fall most."""
    watching = _Steepest(module, features, pruned)
    with torch.autocast(features.device.type, enabled=False):
        plain_step(module, features, targets, update=False, valued=False, made=watching)
    return watching.grown


class _Steepest(SparsePass):
    """A pass that looks at the gradient by the weights of features that no group has."""

    def __init__(self, head: SparseModule, features: Tensor, pruned: Tensor) -> None:
        super().__init__(head, features)
        self.pruned = pruned
        self.grown = head.indices.clone()

    def chunks(self) -> list[tuple[int, int]]:
        # of few rows, less is gathered than there are gradients by all features
        return self.head.chunks(self.x.shape[1], least=self.head.group * self.head.width)

    def learn(self, first: int, last: int, by_score: Tensor, *, update: bool) -> None:
        group = self.head.group
        here = slice(first // group, last // group)
        mask, seen = self.pruned[here], self.grown[here].long()
        if not bool(mask.any()):
            return
        steep = product(by_score.T, self.x.T).abs_().view(-1, group, self.head.width).sum(1)
        steep.scatter_(1, seen, -1.0)
        best = steep.topk(int(mask.sum(1).max()), dim=1).indices
        turn = (mask.cumsum(1) - 1).clamp(min=0)
        self.grown[here] = torch.where(mask, best.gather(1, turn), seen).int()


def drawn(firsts: Tensor, fan_in: int, width: int, seed: int) -> Tensor:
    """The features that groups see at first, (groups, fan_in), sorted: a function of the seed and
    the numbers of their first labels."""
    few = min(fan_in, width - fan_in)  # of many, those that are left out
    mask = torch.ones((len(firsts), few), dtype=torch.bool, device=firsts.device)
    ranks = _ranks(mask, width, seed, 0, _INITIAL, firsts)
    if few == fan_in:
        return ranks.sort(1).values
    seen = torch.ones((len(firsts), width), dtype=torch.bool, device=firsts.device)
    return seen.scatter_(1, ranks, False).nonzero()[:, 1].view(-1, fan_in)
