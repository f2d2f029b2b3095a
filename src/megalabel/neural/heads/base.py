"""What a head is: from a text's features to its labels, the loss included."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.base import Component
from megalabel.data import LabelSet
from megalabel.neural.losses.base import Loss
from megalabel.neural.models import Stepped
from megalabel.neural.targets import Targets
from megalabel.parts import Classifier


class Head(Component, ABC):
    """How to build a head: what scores labels by the vectors of texts, and learns to.

    A subclass in a file of this package, with a `name`, is all it takes to be one of those that
    `heads.create` knows.
    """

    name: ClassVar[str]
    """What `heads.create` knows it by."""
    ARRAYS: ClassVar[tuple[str, ...]]
    """The names of what `keep` gives."""

    @property
    def rate_per_text(self) -> bool:
        """Whether its rate is for each text of a batch, and not for a step."""
        return False

    def prepared(self, rows: Any, targets: csr_matrix, seed: int) -> Head:
        """The head for a training on these rows and their labels: itself, or one that knows more of
        the labels than how frequent they are."""
        return self

    @abstractmethod
    def build(
        self,
        width: int,
        counts: np.ndarray,
        rows: int,
        loss: Loss | None,
        *,
        device: torch.device,
        seed: int,
        shard: tuple[int, int] | None = None,
    ) -> HeadModule:
        """A module to be trained.

        Parameters
        ----------
        width
            Of the vectors that it will see.
        counts : array (labels,)
            How many of the `rows` have each label: where a module may start from.
        loss
            What it learns by.
        shard
            (first, last): hold these labels alone; see `heads.begin`.
        """

    def training_bytes(self, width: int, labels: int, rows: int) -> int | None:
        """The most bytes of a GPU that a module takes in a training by batches of so many rows;
        None: not known."""
        return None

    @abstractmethod
    def keep(self, module: HeadModule, counts: np.ndarray) -> dict[str, np.ndarray]:
        """What a trained module has learned; `counts` say which labels it has never seen."""

    @abstractmethod
    def ranker(self, arrays: Mapping[str, np.ndarray], labels: LabelSet) -> Classifier:
        """A fitted classifier without torch that ranks the labels of vectors, by what was kept."""


class HeadModule(Stepped, ABC):
    """Scores labels from features, and learns to.

    A module that updates its own weights does it at `learning_rate`, which is set before each
    step, while it computes the loss; another exposes parameters. Whoever trains need not know
    which.

    Parameters
    ----------
    width, labels
        Length of the features and number of labels.
    shard
        (first, last): the labels that it holds; None: all of them.
    """

    def __init__(self, width: int, labels: int, shard: tuple[int, int] | None = None) -> None:
        super().__init__()
        if width < 1 or labels < 1:
            raise ValueError(f"a head needs features and labels, not {width} and {labels}")
        self.width = width
        self.labels = labels
        self.first, self.last = shard or (0, labels)
        self.learning_rate = 0.05

    def before_update(self, rate: float) -> None:
        self.learning_rate = rate

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
        """The scores of the labels in each row of `shortlist` (rows, candidates); minus infinity
        for those that are not held."""

    def tensors(self) -> dict[str, Tensor]:
        """What is kept of it, by name; each with a row for every label that is held, where the
        head is to be shared out over processes."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def merge_normaliser(self, normaliser: Tensor) -> Tensor:
        """Each row's log-sum-exp over all labels from that over this head's; replaced in shards."""
        return normaliser

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


def best_of_chunks(chunks: Iterable[tuple[Tensor, int | Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """The k best of each row, where scores come in chunks of labels, each with its first label, or
    with all of them."""
    found: tuple[Tensor, Tensor] | None = None
    for scores, first in chunks:
        if isinstance(first, int):
            ids = torch.arange(first, first + scores.shape[1], device=scores.device)
        else:
            ids = first
        part = best(scores, ids.expand_as(scores), k)
        if found is not None:
            both = [torch.cat(pair, dim=1) for pair in zip(found, part, strict=True)]
            part = best(both[0], both[1], k)
        found = part
    if found is None:
        raise ValueError("there are no labels to rank")
    return found


class LearnedModule(HeadModule):
    """A head that moves its own weights while it computes the loss of all labels.

    The loss that it returns gives the features' gradient by autograd.
    """

    def forward(
        self, features: Tensor, targets: Targets, shortlist: Tensor | None = None
    ) -> Tensor:
        """The mean loss of the rows; in training mode, also a step."""
        self.check(features, targets)
        refuse(shortlist)
        features = self.drop(features)
        if not (self.training and torch.is_grad_enabled()):
            return self.learn(features.detach(), targets, update=False)[0]
        return _Learned.apply(features, self, targets)  # type: ignore[no-any-return, no-untyped-call]

    def drop(self, features: Tensor) -> Tensor:
        """The features as they are learned from."""
        return features

    @abstractmethod
    def learn(
        self, features: Tensor, targets: Targets, *, update: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The mean loss over rows and its gradient by the features; with `update`, a step."""


def refuse(shortlist: Tensor | None) -> None:
    """Raise a ValueError where a head that scores all labels is given a shortlist."""
    if shortlist is not None:
        raise ValueError("this head scores all labels; a shortlist is for ShortlistModule")


class _Learned(torch.autograd.Function):
    """A loss whose gradient by the features was found while the head's weights moved."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, head: LearnedModule, targets: Targets) -> Tensor:
        value, gradient = head.learn(features.detach(), targets)
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * outer[0].to(gradient.dtype), None, None
