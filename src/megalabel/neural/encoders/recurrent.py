"""RecurrentEncoder: word vectors and recurrent layers that read both ways (AttentionXML)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from megalabel.base import instance, integer, number, one_of
from megalabel.neural.encoders.base import Encoder, EncoderModule, pooled
from megalabel.neural.tokens import TokenBatch

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentEncoder(Encoder):
    """The vectors of tokens, read forwards and backwards by recurrent layers.

    `hidden` gives the states of all tokens, for heads that attend to them label by label.

    Parameters
    ----------
    token_width : int
        Of the vectors of tokens.
    size : int
        States of each direction; the vectors are twice as wide.
    layers : int
    cell : "lstm" or "gru"
    dropout : float
        Of the states of layers.
    token_dropout : float
        Of the vectors of tokens.
    pooling : "mean", "max", "first" or "last"
    vectors : str, optional
        A file of word vectors to start from (`read_vectors`); None: random ones.

    Examples
    --------
    >>> from megalabel.neural.tokens import Tokenizer
    >>> tokens = Tokenizer().fit_transform(["red dress", "blue jeans"])
    >>> RecurrentEncoder(size=32).begin(tokens, seed=0).width
    64
    """

    PARAMETERS = {  # noqa: RUF012
        "token_width": integer(1),
        "size": integer(1),
        "layers": integer(1),
        "cell": one_of(*CELLS),
        "dropout": number(0, 1),
        "token_dropout": number(0, 1),
        "pooling": one_of("mean", "max", "first", "last"),
        "vectors": instance(str) | one_of(None),
    }

    def __init__(
        self,
        *,
        token_width: int = 300,
        size: int = 256,
        layers: int = 1,
        cell: str = "lstm",
        dropout: float = 0.5,
        token_dropout: float = 0.2,
        pooling: str = "mean",
        vectors: str | None = None,
    ) -> None:
        self.token_width = token_width
        self.size = size
        self.layers = layers
        self.cell = cell
        self.dropout = dropout
        self.token_dropout = token_dropout
        self.pooling = pooling
        self.vectors = vectors

    def new(self, X: Any) -> EncoderModule:
        """Random weights."""
        return self.rebuild({"tokens": int(X.shape[1])})

    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """The number of tokens."""
        return {"tokens": module.table.num_embeddings}

    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """A module for so many tokens."""
        if not isinstance(about.get("tokens"), int) or about["tokens"] < 1:
            raise ValueError("about_ of RecurrentEncoder must hold the number of tokens")
        return _Recurrent(self, about["tokens"])


class _Recurrent(EncoderModule):
    def __init__(self, chosen: RecurrentEncoder, tokens: int) -> None:
        super().__init__()
        self.width = self.state_width = 2 * chosen.size
        self.depth, self.pooling = chosen.layers, chosen.pooling
        self.words = nn.Embedding(tokens, chosen.token_width)
        nn.init.normal_(self.words.weight, std=chosen.token_width**-0.5)
        widths = [chosen.token_width] + [self.width] * (chosen.layers - 1)
        self.layers = nn.ModuleList(BothWays(chosen.cell, w, chosen.size) for w in widths)
        self.token_dropout = nn.Dropout(chosen.token_dropout)
        self.dropout = nn.Dropout(chosen.dropout)

    @property
    def table(self) -> nn.Embedding:
        return self.words

    def forward(self, inputs: TokenBatch) -> Tensor:
        return pooled(self.hidden(inputs)[-1], inputs.mask, self.pooling)

    def hidden(self, inputs: TokenBatch) -> list[Tensor]:
        states = [self.token_dropout(self.words(inputs.ids))]
        for layer in self.layers:
            states.append(self.dropout(layer(states[-1], inputs.mask)))
        return states


class BothWays(nn.Module):
    """A recurrent layer that reads each text from its first token and from its last one.

    Texts are turned round within their own length, so padding is never read before a token; that
    is the same as packed sequences, in operations that can be exported.
    """

    def __init__(self, cell: str, width: int, size: int) -> None:
        super().__init__()
        self.forwards = CELLS[cell](width, size, batch_first=True)
        self.backwards = CELLS[cell](width, size, batch_first=True)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (rows, length, width) to (rows, length, 2 size)."""
        lengths = mask.sum(1, keepdim=True)
        place = torch.arange(mask.shape[1], device=mask.device)[None]
        turned = torch.where(place < lengths, lengths - 1 - place, place)[..., None]
        around = states.gather(1, turned.expand(-1, -1, states.shape[2]))
        # cuDNN's autocast is float16 whatever was asked for, where small gradients vanish
        with torch.autocast(states.device.type, enabled=False):
            ahead, _ = self.forwards(states.float())
            back, _ = self.backwards(around.float())
        back = back.gather(1, turned.expand(-1, -1, back.shape[2]))
        return torch.cat([ahead, back], 2)
