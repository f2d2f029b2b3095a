"""What every encoder is: a component that builds a torch module, and keeps what it has learned."""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.base import Component, instance, value
from megalabel.errors import ParameterError, ShapeError
from megalabel.neural.encoders.vectors import put_vectors
from megalabel.neural.tokens import Tokenizer

if TYPE_CHECKING:
    from megalabel.checkpoints import Checkpoint
    from megalabel.neural.trainer import Trainer
    from megalabel.parts import Featurizer


class EncoderModule(nn.Module, ABC):
    """Texts of a batch to vectors."""

    width: int
    """Of the vectors."""
    depth: int
    """The number of layers that `hidden` gives beside the embeddings."""
    state_width: int
    """Of the states of a token that those layers give."""
    vocabulary: str | None = None
    """A digest of what the numbers of tokens stand for (`digest_of`); None: not known."""
    recordable: bool = False
    """Whether batches of one shape of tokens are the same work whatever they hold, so that a GPU
    can record it."""

    @property
    @abstractmethod
    def table(self) -> nn.Embedding | nn.EmbeddingBag:
        """The vectors of single tokens or words, which everything starts from."""

    @property
    def columns(self) -> int:
        """How many tokens, words or columns it knows."""
        return self.table.num_embeddings

    @abstractmethod
    def forward(self, inputs: Any) -> Tensor:
        """The vectors of a batch, (rows, width)."""

    @abstractmethod
    def hidden(self, inputs: Any) -> list[Tensor]:
        """The states of all tokens, (rows, length, state width), after the embeddings and each
        layer; the embeddings may have a width of their own."""

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

    vectors: str | None = None
    """Of those encoders that start from word vectors of a file: the file."""

    reads: ClassVar[str] = "tokens"
    """What rows are: "tokens" of a Tokenizer, "words", the columns of a sparse matrix, or
    "vectors", the rows of an array."""

    LEARNED = {  # noqa: RUF012
        "about_": value(instance(dict)),
        "weights_": value(instance(dict)),
    }

    weights_: dict[str, np.ndarray]
    about_: dict[str, Any]

    def begin(
        self,
        X: Any,
        seed: int,
        trainer: Trainer | None = None,
        checkpoint: Checkpoint | None = None,
        names: Sequence[str] | None = None,
    ) -> EncoderModule:
        """A module to be trained on rows like X; `names` are those of a matrix's columns.

        An encoder that has learned already starts from what it has learned; others from
        pre-trained weights or random ones, which the seed fixes. Some train on X before they are
        given: on the device of `trainer`, resumed from `checkpoint`.
        """
        module = self.start(X, seed, names)
        if not self.fitted:
            if self.vectors is not None:
                put_vectors(module.table.weight, self.vectors, getattr(X, "names", names))
            self.prepare(module, X, seed, trainer, checkpoint)
        return module

    def start(self, X: Any, seed: int, names: Sequence[str] | None = None) -> EncoderModule:
        """The module that `begin` gives, without any training on X."""
        self.check_parameters()
        names = getattr(X, "names", names)
        self.check_names(names)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.module() if self.fitted else self.new(X)
        if (known := module.columns) < X.shape[1]:
            raise ShapeError(
                f"{type(self).__name__} knows {known} tokens, but the rows have {X.shape[1]}: "
                "take the tokenizer that it was trained with"
            )
        module.vocabulary = module.vocabulary or digest_of(names)
        return module.train()

    def check_names(self, names: Sequence[str] | None) -> None:
        """Raise an error where tokens, or columns, are not those that it was trained on."""
        known = self.about_.get("vocabulary") if self.fitted else None
        given = digest_of(names)
        if known is not None and given is not None and known != given:
            raise ParameterError(
                f"{type(self).__name__} was trained with other features: the same numbers stand "
                f"for other {self.reads}. Give it those of its training; a tokenizer is kept by "
                "Tokenizer.write(folder) and read back by Tokenizer(folder)"
            )

    @abstractmethod
    def new(self, X: Any) -> EncoderModule:
        """A module for rows like X that has not been trained on anything here."""

    def prepare(
        self,
        module: EncoderModule,
        X: Any,
        seed: int,
        trainer: Trainer | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        """Train a new module on X without labels, where the encoder does that."""

    @abstractmethod
    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """An empty module as `describe` has described it."""

    @abstractmethod
    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """Plain data that `rebuild` makes the module from."""

    def keep(self, module: EncoderModule) -> Self:
        """Take the state of a trained module as learned."""
        self.about_ = self.describe(module)
        if module.vocabulary is not None:
            self.about_["vocabulary"] = module.vocabulary
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
        module.vocabulary = self.about_.get("vocabulary")
        # a copy: arrays may be mapped read-only
        state = {k: torch.from_numpy(np.array(v)) for k, v in self.weights_.items()}
        module.load_state_dict(state)
        return module.eval()

    def with_features(
        self, features: Featurizer, levels: Sequence[Mapping[str, Any]], **parameters: Any
    ) -> Featurizer:
        """What was trained, and the fitted features that it was trained on, as one: texts to
        vectors, as they are or as `levels` see them (`Levels`)."""
        from megalabel.neural.embedding import Embedding

        assert isinstance(features, Tokenizer)
        return Embedding.of(self, features, levels=levels, norm=None, **parameters)

    def __sklearn_clone__(self) -> Self:
        # what was learned before is where a training starts from: as much a choice as a parameter
        return copy.copy(self)

    def check_learned(self) -> None:
        """The weights must fit the module that `about_` describes."""
        layers, arrays = getattr(self, "layers", 0), len(self.weights_)
        if isinstance(layers, int) and layers > arrays:  # building so many would take long
            raise ValueError(f"{layers} layers, but {arrays} arrays of weights")
        with torch.device("meta"):
            wanted = self.rebuild(self.about_).state_dict()
        found = {k: tuple(v.shape) for k, v in self.weights_.items() if isinstance(v, np.ndarray)}
        if found != {k: tuple(v.shape) for k, v in wanted.items()}:
            raise ValueError(f"the weights of {type(self).__name__} do not fit its description")


def digest_of(names: Sequence[str] | None) -> str | None:
    """A digest of the names of tokens, or of columns, in order; None: they have none.

    Examples
    --------
    >>> digest_of(["red", "dress"]) == digest_of(["dress", "red"]), digest_of(None)
    (False, None)
    """
    if not names:
        return None
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]


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
