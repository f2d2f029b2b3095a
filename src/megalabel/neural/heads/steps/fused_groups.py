"""A sparse head's step and search made of Triton kernels, on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.neural.heads.steps.fused import KernelForm, at_positives, form_of
from megalabel.neural.heads.steps.optimisers import Sgd
from megalabel.neural.kernels.forms import SOFTMAX
from megalabel.neural.kernels.group_pairs import pair_scores
from megalabel.neural.kernels.group_search import top_groups
from megalabel.neural.kernels.group_step import Positives, train_groups
from megalabel.neural.kernels.groups import Groups
from megalabel.neural.kernels.replay import Replay
from megalabel.neural.kernels.tuning import GroupTuning
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.heads.sparse import SparseModule

FEW = 64
"""Rows of a search that is recorded: of so few, launching takes longer than the work."""


def step_for(head: SparseModule) -> FusedGroupStep | None:
    """The fused step of a head, or None where only the plain one can do what it asks for: a
    softmax over labels, or Adam."""
    if head.loss is None or head.held == 0 or type(head.optimiser) is not Sgd:
        return None
    held = torch.arange(head.first, head.last, device=head.weights.device)
    form = form_of(head.loss, head.labels, held)
    if form is None or form.kind == SOFTMAX.value:
        return None
    return FusedGroupStep(form, head)


class FusedGroupStep:
    """What `plain_step` does, by a kernel that goes through all groups once."""

    def __init__(self, form: KernelForm, head: SparseModule) -> None:
        self.form = form
        self.scale: Tensor | None = None
        if form.scale is not None:
            self.scale = form.scale.new_zeros(head.weights.shape[0] * head.group)
            self.scale[: head.held] = form.scale
        self.groups = Groups(head.indices, head.weights, labels_of(head), head.bias)

    def __call__(
        self, head: SparseModule, features: Tensor, targets: Targets, *, update: bool, valued: bool
    ) -> tuple[Tensor, Tensor]:
        rows = len(features)
        row, label, entries = targets.rows, targets.indices - head.first, targets.values
        if head.held < head.labels:
            here = (label >= 0) & (label < head.held)
            row, label, entries = row[here], label[here], entries[here]
        if self.groups.weights is not head.weights:
            self.groups = Groups(head.indices, head.weights, self.groups.labels, head.bias)
        x = features.to(head.weights.dtype).contiguous()
        scores = pair_scores(x, self.groups, row, label)
        gradient, value = at_positives(head, scores, label, entries, valued)
        share, kept = head.optimiser.rates()
        rates = (head.rate, share / rows, head.optimiser.weight_decay, kept, 1 / rows)
        cuda = features.is_cuda
        settings = torch.tensor(rates, pin_memory=cuda).to(features.device, non_blocking=True)
        sums = "fixed" if torch.are_deterministic_algorithms_enabled() else "float32"
        by_features, rest = train_groups(
            x,
            self.groups,
            Positives(row, label, scores, gradient),
            form=self.form.kind,
            gamma=self.form.number,
            scale=self.scale,
            settings=settings,
            counter=head.steps,
            seed=head.seed,
            first_label=head.first,
            velocity=head.optimiser.moment,
            update=update,
            value=valued,
            tuning=head.tuning or GroupTuning(sums=sums),
        )
        if rest is not None:
            value = value + rest.sum()
        return value / rows, by_features / rows


def labels_of(head: SparseModule, order: Tensor | None = None) -> Tensor:
    """(places,) int32: the label of each place, counted from the head's first; -1 for none.

    With `order`, the label of each place of a whole layer, it is what that says.
    """
    count = head.weights.shape[0] * head.group
    labels = torch.full((count,), -1, dtype=torch.int32, device=head.weights.device)
    if order is None:
        labels[: head.held] = torch.arange(head.held, dtype=torch.int32, device=labels.device)
    else:
        labels[: head.held] = order[head.first : head.last].int()
    return labels


@torch.no_grad()
def best_labels(
    head: SparseModule, features: Tensor, k: int, order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scores and labels of each row's k best, best first, ties to the lower label.

    The number of a label is that in `order`, where there is one.
    """
    kept = head.searched
    if kept is None or kept.order is not order or kept.groups.weights is not head.weights:
        kept = head.searched = Searched(head, order)
    scores, ids = kept.best(features, min(k, head.held))
    return scores, ids if order is not None else ids + head.first


class Searched:
    """What is searched of a head: which labels are where takes longer to find out than a search."""

    def __init__(self, head: SparseModule, order: Tensor | None) -> None:
        self.order = order
        self.groups = Groups(head.indices, head.weights, labels_of(head, order), head.bias)
        self.tuning = head.tuning or GroupTuning()
        self._replays: dict[int, Replay] = {}

    def best(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and labels; for few rows, recorded."""
        if len(features) > FEW:
            return top_groups(features, self.groups, k, self.tuning)
        if k not in self._replays:
            self._replays = {k: Replay(lambda x: top_groups(x, self.groups, k, self.tuning))}
        scores, ids = self._replays[k](features)
        return scores, ids
