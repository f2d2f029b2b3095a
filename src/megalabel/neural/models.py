"""What a Trainer trains: a model, and modules in it that take part in every step by themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from megalabel.errors import MegalabelError
from megalabel.neural.encoders import EncoderModule

if TYPE_CHECKING:
    from megalabel.neural.trainer import Trainer


@dataclass(frozen=True)
class Group:
    """Modules that learn at one rate."""

    modules: Sequence[nn.Module]
    rate: str = "learning_rate"
    """The parameter of `Trainer` that says it."""
    factor: float = 1.0
    """What it is multiplied by."""


class Pass(NamedTuple):
    """What a GPU may record: a method by which an encoder reads a batch of tokens."""

    encoder: EncoderModule
    owner: nn.Module
    """Whose method it is: the encoder, or a module that pools its layers."""
    method: str


class Model(nn.Module, ABC):
    """A module that gives the mean loss of a batch.

    Its encoders may read any number of times in a step: the texts of a batch, their labels, what
    was mined for them.
    """

    @abstractmethod
    def forward(self, batch: Any) -> Tensor:
        """The mean loss of a batch, as the source of the training makes it."""

    def groups(self) -> Mapping[str, Group]:
        """What learns at which rate, by name: all that does is in one of them. A module in several,
        or a parameter of several modules, has the rate of the first."""
        return {"model": Group([self])}

    def passes(self) -> Sequence[Pass]:
        """Passes that may be recorded, one of an encoder at most.

        The first one of a step is replayed if its batch is one of those that were recorded. All
        others of the encoder, until the backward pass, run as ever.
        """
        return ()


class Stepped(nn.Module):
    """A module that is told of every step of its training."""

    shared_out: bool = False
    """Whether each process holds a part of it. Its loss is then that of the rows of all processes,
    and its parameters are those of no other."""

    def before_update(self, rate: float) -> None:
        """A step begins, at this rate: that of the module's group, as the schedule has it."""

    def after_update(self, step: int, total: int) -> None:
        """So many steps of all have been made."""


def rates_of(model: Model, trainer: Trainer) -> dict[nn.Module, float]:
    """The rate of each module, that of the first group that it is in.

    A MegalabelError where something that learns is in none of them.
    """
    rates: dict[nn.Module, float] = {}
    for group in model.groups().values():
        for part in group.modules:
            for module in part.modules():
                rates.setdefault(module, group.factor * getattr(trainer, group.rate))
    for name, module in model.named_modules():
        learns = [key for key, p in module.named_parameters(name, False) if p.requires_grad]
        if isinstance(module, Stepped):
            learns.append(name)
        if learns and module not in rates:
            raise MegalabelError(
                f"{learns[0]} of {type(model).__name__} learns, but is in none of its groups: "
                f"{', '.join(model.groups())}"
            )
    return rates
