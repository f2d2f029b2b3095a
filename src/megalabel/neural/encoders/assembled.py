"""AssembledEncoder: embeddings and an encoder chosen by name, pre-trained on one's own texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from megalabel.base import boolean, integer, number, one_of, sequence_of
from megalabel.errors import DataError, ParameterError
from megalabel.neural.encoders.base import Encoder, EncoderModule, pooled
from megalabel.neural.encoders.layers import (
    EMBEDDINGS,
    ENCODERS,
    GatedConvolutions,
    ReadBothWays,
    TransformerLayer,
)
from megalabel.neural.tokens import TokenBatch

if TYPE_CHECKING:
    from megalabel.checkpoints import Checkpoint
    from megalabel.neural.trainer import Trainer


class AssembledEncoder(Encoder):
    """An encoder put together from parts, which first learns the language of the corpus.

    For a machine without pre-trained models: before it is trained on labels it is trained to
    guess masked words of the same texts.

    Parameters
    ----------
    embedding : list of str
        What is added up for each token: "word", "position" (learned), "sinusoidal", "segment"
        (first or second text, told by the separator).
    encoder : "transformer", "bi-lstm", "bi-gru" or "gated-cnn"
    width : int
        Of the vectors.
    layers : int
    heads : int
        Of a transformer's attention.
    feed_forward : int, optional
        The inner width of a transformer's layers; None: four times the width.
    norm : "pre" or "post"
        Where a transformer's layers normalise.
    rotary : bool
        A transformer sees positions by rotated queries and keys.
    kernel : int
        How many tokens a convolution sees at once; an odd number.
    token_width : int, optional
        Of the vectors of tokens; None: the width.
    max_length : int
        How many positions are learned.
    dropout : float
    pooling : "mean", "first", "last" or "max"
    pretrain_epochs : float
        How often the texts are gone through before labels are learned; 0: not at all.
    pretrain_learning_rate : float
    targets : list of str
        What is guessed then: "mlm", the masked words, and "frequency", how often a word occurs.
    tied : bool
        Masked words are guessed by the vectors of the embedding. Those of rare words then become
        alike, as every guess pushes them the same way.

    Examples
    --------
    >>> from megalabel.neural.tokens import Tokenizer
    >>> tokens = Tokenizer().fit_transform(["red dress", "blue jeans"])
    >>> encoder = AssembledEncoder(encoder="gated-cnn", width=32, layers=2, pretrain_epochs=1)
    >>> encoder.begin(tokens, seed=0).width
    32
    """

    PARAMETERS = {  # noqa: RUF012
        "embedding": sequence_of(one_of(*EMBEDDINGS)),
        "encoder": one_of(*ENCODERS),
        "width": integer(1),
        "layers": integer(1),
        "heads": integer(1),
        "feed_forward": integer(1) | one_of(None),
        "norm": one_of("pre", "post"),
        "rotary": boolean(),
        "kernel": integer(1),
        "token_width": integer(1) | one_of(None),
        "max_length": integer(1),
        "dropout": number(0, 1),
        "pooling": one_of("mean", "first", "last", "max"),
        "pretrain_epochs": number(0),
        "pretrain_learning_rate": number(0),
        "targets": sequence_of(one_of("mlm", "frequency")),
        "tied": boolean(),
    }

    def __init__(
        self,
        *,
        embedding: Sequence[str] = ("word", "position"),
        encoder: str = "transformer",
        width: int = 256,
        layers: int = 4,
        heads: int = 4,
        feed_forward: int | None = None,
        norm: str = "pre",
        rotary: bool = False,
        kernel: int = 3,
        token_width: int | None = None,
        max_length: int = 512,
        dropout: float = 0.1,
        pooling: str = "mean",
        pretrain_epochs: float = 5,
        pretrain_learning_rate: float = 2e-3,
        targets: Sequence[str] = ("mlm",),
        tied: bool = False,
    ) -> None:
        self.embedding = embedding
        self.encoder = encoder
        self.width = width
        self.layers = layers
        self.heads = heads
        self.feed_forward = feed_forward
        self.norm = norm
        self.rotary = rotary
        self.kernel = kernel
        self.token_width = token_width
        self.max_length = max_length
        self.dropout = dropout
        self.pooling = pooling
        self.pretrain_epochs = pretrain_epochs
        self.pretrain_learning_rate = pretrain_learning_rate
        self.targets = targets
        self.tied = tied

    def new(self, X: Any) -> EncoderModule:
        """Random weights."""
        separator = X.special.get("sep", -1)
        if "segment" in self.embedding and separator < 0:
            raise ParameterError("a segment embedding needs a tokenizer with a separator")
        return self.rebuild({"tokens": int(X.shape[1]), "separator": separator})

    def prepare(
        self,
        module: EncoderModule,
        X: Any,
        seed: int,
        trainer: Trainer | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        """Learn to guess the masked words of X."""
        if not self.pretrain_epochs:
            return
        from megalabel.neural.pretraining import like, train_on_tokens

        how = like(trainer, self.pretrain_epochs, self.pretrain_learning_rate, seed)
        train_on_tokens(module, X, how, targets=self.targets, tied=self.tied, checkpoint=checkpoint)

    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """The number of tokens, and which one ends a segment; -1: none does."""
        assert isinstance(module, _Assembled)
        return {"tokens": module.table.num_embeddings, "separator": module.embedding.separator}

    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """A module for so many tokens."""
        tokens, separator = about.get("tokens"), about.get("separator")
        if not isinstance(tokens, int) or tokens < 1 or not isinstance(separator, int):
            raise ValueError("about_ of AssembledEncoder must hold tokens and the separator")
        self.check_pairs()
        return _Assembled(self, tokens, separator)

    def check_pairs(self) -> None:
        """Raise an error where two choices do not go together."""
        wrong = {
            "embedding must have 'word', for the tokens themselves": "word" not in self.embedding,
            "embedding must not name the same part twice": len(set(self.embedding))
            < len(self.embedding),
            f"rotary is of a transformer, not of {self.encoder}": self.rotary
            and self.encoder != "transformer",
            f"width ({self.width}) must be a multiple of heads ({self.heads})": self.encoder
            == "transformer"
            and self.width % self.heads > 0,
            f"rotary needs heads of an even width, not {self.width // self.heads}": self.rotary
            and self.width // self.heads % 2 > 0,
            f"width must be even for {self.encoder}, half each way, not {self.width}": self.encoder
            in ("bi-lstm", "bi-gru")
            and self.width % 2 > 0,
            f"kernel must be odd, not {self.kernel}": self.kernel % 2 == 0,
            "tied needs vectors of tokens as wide as the states: leave token_width out, or take "
            "tied=False": self.tied
            and "mlm" in self.targets
            and self.token_width not in (None, self.width),
            "targets must name something to pre-train on": self.pretrain_epochs > 0
            and not self.targets,
        }
        for message, holds in wrong.items():
            if holds:
                raise ParameterError(f"AssembledEncoder: {message}")


class _Assembled(EncoderModule):
    def __init__(self, chosen: AssembledEncoder, tokens: int, separator: int) -> None:
        super().__init__()
        self.width = self.state_width = width = chosen.width
        self.depth, self.pooling = chosen.layers, chosen.pooling
        self.embedding = _Embedding(chosen, tokens, separator)
        self.layers = nn.ModuleList(_layer(chosen) for _ in range(chosen.layers))
        normalised_first = chosen.encoder == "transformer" and chosen.norm == "pre"
        self.norm = nn.LayerNorm(width) if normalised_first else nn.Identity()
        self._again = False
        self.recordable = chosen.encoder == "transformer"

    @property
    def table(self) -> nn.Embedding:
        return self.embedding.word

    def forward(self, inputs: TokenBatch) -> Tensor:
        return pooled(self.hidden(inputs)[-1], inputs.mask, self.pooling)

    def hidden(self, inputs: TokenBatch) -> list[Tensor]:
        states = [self.embedding(inputs.ids)]
        for layer in self.layers:
            if self._again and self.training:
                states.append(checkpoint(layer, states[-1], inputs.mask, use_reentrant=False))
            else:
                states.append(layer(states[-1], inputs.mask))
        states[-1] = self.norm(states[-1])
        return states

    def checkpoint_gradients(self) -> None:
        self._again = True


class _Embedding(nn.Module):
    """The vectors of a token's word, position and segment, added up."""

    def __init__(self, chosen: AssembledEncoder, tokens: int, separator: int) -> None:
        super().__init__()
        width = chosen.token_width or chosen.width
        self.separator, self.sinusoidal = separator, "sinusoidal" in chosen.embedding
        self.word = nn.Embedding(tokens, width)
        self.position = self.segment = None
        if "position" in chosen.embedding:
            self.position = nn.Embedding(chosen.max_length, width)
        if "segment" in chosen.embedding:
            self.segment = nn.Embedding(2, width)
        for table in (self.word, self.position, self.segment):
            if table is not None:
                nn.init.normal_(table.weight, std=0.02)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(chosen.dropout)
        same = width == chosen.width
        self.widen = nn.Identity() if same else nn.Linear(width, chosen.width)

    def forward(self, ids: Tensor) -> Tensor:
        """Token numbers (rows, length) to states."""
        added = self.word(ids)
        places = torch.arange(ids.shape[1], device=ids.device)
        if self.position is not None:
            if ids.shape[1] > self.position.num_embeddings:
                raise DataError(
                    f"texts have up to {ids.shape[1]} tokens, but only "
                    f"{self.position.num_embeddings} positions are learned: raise max_length of "
                    "the encoder or lower that of the tokenizer"
                )
            added = added + self.position(places)
        if self.sinusoidal:
            added = added + sinusoids(places, added.shape[2]).to(added.dtype)
        if self.segment is not None:
            ended = ids.eq(self.separator).long()
            added = added + self.segment((ended.cumsum(1) - ended).clamp(max=1))
        made: Tensor = self.widen(self.dropout(self.norm(added)))
        return made


def _layer(chosen: AssembledEncoder) -> nn.Module:
    """One layer of the chosen kind."""
    width, dropout = chosen.width, chosen.dropout
    if chosen.encoder == "transformer":
        inner = chosen.feed_forward or 4 * width
        return TransformerLayer(width, chosen.heads, inner, chosen.norm, chosen.rotary, dropout)
    if chosen.encoder == "gated-cnn":
        return GatedConvolutions(width, chosen.kernel, dropout)
    return ReadBothWays(chosen.encoder.removeprefix("bi-"), width, dropout)


def sinusoids(places: Tensor, width: int) -> Tensor:
    """Sines and cosines of positions, in rising wave lengths (Vaswani et al. 2017, 3.5)."""
    halves = -(-width // 2)
    rates = 10_000 ** (-torch.arange(halves, device=places.device) / halves)
    angles = places[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]
