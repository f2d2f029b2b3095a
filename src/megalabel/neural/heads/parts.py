"""Labels in an order of a head's own, shared out over modules that each learn some of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.base import clone
from megalabel.neural.heads.base import LearnedModule, best_of_chunks
from megalabel.neural.heads.learning import LearningModule
from megalabel.neural.losses.base import Loss
from megalabel.neural.targets import Targets


class PartsModule(LearnedModule):
    """Several modules, each of a run of labels in an order that is the head's own.

    Whoever trains sees labels by their numbers; the parts see their places in the order. The loss
    is the sum of the parts' losses, whose gradients by the features are added up; the denominators
    of a softmax are those of all parts.

    Parameters
    ----------
    parts
        Modules of `len(order)` labels by name, of which each holds some.
    order : array (labels,)
        The label of each place.
    """

    order: Tensor
    places: Tensor

    def __init__(self, parts: Mapping[str, LearningModule], order: np.ndarray) -> None:
        some = next(iter(parts.values()))
        super().__init__(some.width, len(order))
        self.parts = nn.ModuleDict(parts)
        device = some.value.device
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        # they follow from the data, and are no part of a checkpoint
        self.register_buffer("order", torch.tensor(order, dtype=torch.int64, device=device), False)
        self.register_buffer("places", torch.from_numpy(places).to(device), False)

    @torch.no_grad()
    def learn(
        self, features: Tensor, targets: Targets, *, update: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The mean loss over rows and its gradient by the features; with `update`, a step."""
        targets = targets.grouped(self.places, self.labels)
        parts = self._parts()
        if getattr(parts[0].loss, "normalised", False) and len(features):
            own = torch.stack([part.own_normaliser(features) for part in parts]).logsumexp(0)
            whole = self.merge_normaliser(own)
            for part in parts:
                part.merge_normaliser = lambda _: whole
        learned = [part.learn(features, targets, update=update) for part in parts]
        value, gradient = learned[0]
        for more, other in learned[1:]:
            value, gradient = value + more, gradient + other
        return value, gradient

    @torch.no_grad()
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids of each row's k best labels, best first, ties to the lower id."""
        self.check(features)
        if all(part.first == part.last for part in self._parts()):
            # there may be fewer groups than processes, and then one holds nothing
            none = features.new_zeros((len(features), 0), dtype=torch.float32)
            return none, none.long()
        return best_of_chunks(self._chunk_scores(features, k), k)

    def _chunk_scores(self, features: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        for part in self._parts():
            by_kernels = getattr(part, "best_by_kernels", None)
            found = None if by_kernels is None else by_kernels(features, k, self.order)
            if found is not None:
                yield found
                continue
            for scores, first in part.chunk_scores(features):
                yield scores, self.order[first : first + scores.shape[1]]

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist`; minus infinity where not held."""
        self.check(features)
        known = (shortlist >= 0) & (shortlist < self.labels)
        places = self.places[shortlist.where(known, 0)].where(known, -1)
        made = torch.full(shortlist.shape, -math.inf, device=features.device)
        for part in self._parts():
            if part.last > part.first:
                made = torch.maximum(made, part.scores(features, places))
        return made

    def tensors(self) -> dict[str, Tensor]:
        """What is kept of the parts, after each one's name; and the labels of the places that it
        holds, in rows as its weights are."""
        made: dict[str, Tensor] = {}
        for part, module in self.parts.items():
            tensors = cast(LearningModule, module).tensors()
            made |= {f"{part}_{name}": tensor for name, tensor in tensors.items()}
            made[f"{part}_labels"] = self._labels_of(module)
        return made

    def _parts(self) -> list[Any]:
        return list(self.parts.values())

    def _labels_of(self, part: Any) -> Tensor:
        labels = self.order[part.first : part.last]
        group = getattr(part, "group", None)
        if group is None:
            return labels
        return nn.functional.pad(labels, (0, -len(labels) % group), value=-1).view(-1, group)


def in_order(loss: Loss | None, order: np.ndarray) -> Loss | None:
    """A loss whose weights of labels, if it has some, are those of the places in an order."""
    given = numbers_of_labels(loss, len(order))
    if loss is None or not given:
        return loss
    made: Loss = clone(loss)
    return made.set_params(**{name: numbers[order] for name, numbers in given.items()})


def numbers_of_labels(loss: Loss | None, labels: int) -> dict[str, np.ndarray]:
    """The parameters of a loss that have a number for each of so many labels, by name."""
    if not isinstance(loss, Loss):
        return {}
    values = loss.get_params(deep=False).items()
    return {
        name: np.asarray(value)
        for name, value in values
        if value is not None and np.shape(value) == (labels,)
    }
