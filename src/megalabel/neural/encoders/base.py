"""What every encoder is: a component that builds a torch module, and keeps what it has learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.base import Component


class EncoderModule(nn.Module, ABC):
    """Texts of a batch to vectors."""

    width: int
    """Of the vectors."""
    depth: int
    """The number of layers that `hidden` gives beside the embeddings."""

    @abstractmethod
    def forward(self, inputs: Any) -> Tensor:
        """The vectors of a batch, (rows, width)."""

    @abstractmethod
    def hidden(self, inputs: Any) -> list[Tensor]:
        """The states of all tokens, (rows, length, width), after the embeddings and each layer."""

    def checkpoint_gradients(self) -> None:
        """Compute layers again in the backward pass rather than keep them, where that is known."""


class Encoder(Component, ABC):
    """How to build an encoder; after training, its weights too.

    Attributes
    ----------
    weights_ : dict of arrays
        The module's state, by name.
    about_ : dict
        What it takes to build the module again.
    """

    reads: ClassVar[str] = "tokens"
    """What rows are: "tokens" of a Tokenizer, or "words", the columns of a sparse matrix."""

    weights_: dict[str, np.ndarray]
    about_: dict[str, Any]

    @abstractmethod
    def begin(self, X: Any, seed: int) -> EncoderModule:
        """A new module for rows like X, with pre-trained weights or random ones."""

    @abstractmethod
    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """An empty module as `describe` has described it."""

    @abstractmethod
    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """Plain data that `rebuild` makes the module from."""

    def keep(self, module: EncoderModule) -> Self:
        """Take the state of a trained module as learned."""
        self.about_ = self.describe(module)
        self.weights_ = {
            name: value.detach().float().cpu().numpy().copy()
            if value.is_floating_point()
            else value.cpu().numpy().copy()
            for name, value in module.state_dict().items()
        }
        return self

    def module(self) -> EncoderModule:
        """The module as learned."""
        self.check_fitted()
        module = self.rebuild(self.about_)
        # a copy: arrays may be mapped read-only
        state = {k: torch.from_numpy(np.array(v)) for k, v in self.weights_.items()}
        module.load_state_dict(state)
        return module.eval()

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take the weights back; they must fit the module that `about_` describes."""
        about, weights = learned.get("about_"), learned.get("weights_")
        if not isinstance(about, dict) or not isinstance(weights, dict):
            raise ValueError(f"{type(self).__name__} is its weights and what they are about")
        with torch.device("meta"):
            wanted = self.rebuild(about).state_dict()
        found = {k: tuple(v.shape) for k, v in weights.items() if isinstance(v, np.ndarray)}
        if found != {k: tuple(v.shape) for k, v in wanted.items()}:
            raise ValueError(f"the weights of {type(self).__name__} do not fit its description")
        super().restore(learned)


def pooled(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """The states of a text's tokens as one vector: the "first", the "last", the "max" or "mean"."""
    if how == "first":
        return states[:, 0]
    if how == "last":
        at = mask.shape[1] - 1 - mask.flip(1).to(torch.int8).argmax(1)
        return states[torch.arange(len(states), device=states.device), at]
    if how == "max":
        return states.masked_fill(~mask[..., None], -torch.inf).amax(1)
    weights = mask[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)
