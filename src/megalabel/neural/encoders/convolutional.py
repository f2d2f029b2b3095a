"""ConvolutionalEncoder: attention and strided convolutions over a short text (InceptionXML)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from megalabel.base import instance, integer, number, one_of
from megalabel.errors import ParameterError
from megalabel.neural.encoders.base import Encoder, EncoderModule
from megalabel.neural.tokens import TokenBatch

_KERNELS = (4, 8, 16)  # of the parallel convolutions
_STRIDE = 4
_LAST = 16  # channels of the last convolution


class ConvolutionalEncoder(Encoder):
    """The first tokens of a text as a picture: tokens by dimensions (InceptionXML).

    Attention over the tokens and over the dimensions (gates at 0 leave both out at first), a mix
    of the tokens, three strided convolutions along the dimensions side by side, one more, and a
    linear map. Light, and good for titles and queries.

    Parameters
    ----------
    width : int
        Of the vectors.
    length : int
        How many tokens of a text are read; what comes after them is not looked at.
    token_width : int
        Of the vectors of tokens.
    filters : int
        Mixes of the tokens, and channels of each of the parallel convolutions.
    dropout : float
    vectors : str, optional
        A file of word vectors to start from (`read_vectors`); None: random ones.

    Examples
    --------
    >>> from megalabel.neural.tokens import Tokenizer
    >>> tokens = Tokenizer().fit_transform(["red dress", "blue jeans"])
    >>> ConvolutionalEncoder(width=64).begin(tokens, seed=0).width
    64
    """

    PARAMETERS = {  # noqa: RUF012
        "width": integer(1),
        "length": integer(1),
        "token_width": integer(1),
        "filters": integer(1),
        "dropout": number(0, 1),
        "vectors": instance(str) | one_of(None),
    }

    def __init__(
        self,
        *,
        width: int = 512,
        length: int = 32,
        token_width: int = 300,
        filters: int = 32,
        dropout: float = 0.25,
        vectors: str | None = None,
    ) -> None:
        self.width = width
        self.length = length
        self.token_width = token_width
        self.filters = filters
        self.dropout = dropout
        self.vectors = vectors

    def new(self, X: Any) -> EncoderModule:
        """Random weights, with the attentions' gates at 0."""
        return self.rebuild({"tokens": int(X.shape[1])})

    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """The number of tokens."""
        return {"tokens": module.table.num_embeddings}

    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """A module for so many tokens."""
        if not isinstance(about.get("tokens"), int) or about["tokens"] < 1:
            raise ValueError("about_ of ConvolutionalEncoder must hold the number of tokens")
        smallest = max(_KERNELS)
        if self.token_width < smallest:
            raise ParameterError(
                f"token_width of ConvolutionalEncoder must be at least {smallest}, the widest "
                f"convolution, not {self.token_width}"
            )
        return _Convolutions(self, about["tokens"])


class _Convolutions(EncoderModule):
    depth = 1

    def __init__(self, chosen: ConvolutionalEncoder, tokens: int) -> None:
        super().__init__()
        self.width, self.state_width = chosen.width, chosen.token_width
        self.length, filters = chosen.length, chosen.filters
        self.words = nn.Embedding(tokens, self.state_width)
        nn.init.normal_(self.words.weight, std=self.state_width**-0.5)
        self.over_tokens = GatedAttention(self.state_width)
        self.over_dimensions = GatedAttention(self.length)
        self.mix = nn.Conv1d(self.length, filters, 1)
        self.mix_norm = _BatchNorm(filters)
        self.parallel = nn.ModuleList(_Strided(filters, filters, kernel) for kernel in _KERNELS)
        self.parallel_norm = _BatchNorm(filters * len(_KERNELS))
        self.last = _Strided(filters * len(_KERNELS), _LAST, _STRIDE)
        self.last_norm = _BatchNorm(_LAST)
        self.dropout = nn.Dropout(chosen.dropout)
        left = math.ceil(math.ceil(self.state_width / _STRIDE) / _STRIDE)
        self.out = nn.Linear(_LAST * left, self.width)
        self.refine = nn.Linear(self.width, self.width)

    @property
    def table(self) -> nn.Embedding:
        return self.words

    def forward(self, inputs: TokenBatch) -> Tensor:
        states = self.hidden(inputs)[-1]
        states = F.pad(states, (0, 0, 0, self.length - states.shape[1]))
        states = self.over_dimensions(states.transpose(1, 2)).transpose(1, 2)
        mixed = self.mix_norm(F.gelu(self.mix(states)))
        side_by_side = torch.cat([strided(mixed) for strided in self.parallel], 1)
        seen = self.dropout(self.parallel_norm(F.gelu(side_by_side)))
        seen = self.last_norm(F.gelu(self.last(seen)))
        made: Tensor = self.dropout(self.out(seen.flatten(1)))
        return made + F.gelu(self.refine(made))

    def hidden(self, inputs: TokenBatch) -> list[Tensor]:
        mask = inputs.mask[:, : self.length]
        embedded = self.words(inputs.ids[:, : self.length]) * mask[..., None]
        return [embedded, self.over_tokens(embedded, mask)]


class GatedAttention(nn.Module):
    """Self-attention of one head that is added by a gate; the gate starts at 0: the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = max(1, width // 8)
        # a convolution of width one is a linear map of each position
        self.query, self.key, self.value = (
            spectral_norm(nn.Linear(width, size, bias=False)) for size in (inner, inner, width)
        )
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """States (rows, positions, width); what is not in the mask stays as it is."""
        scores = self.query(states) @ self.key(states).transpose(1, 2)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        found = scores.softmax(2) @ self.value(states)
        if mask is not None:
            found = found * mask[..., None]
        made: Tensor = states + self.gate * found
        return made


class _Strided(nn.Module):
    """A convolution every few places that goes round the end to the beginning."""

    def __init__(self, channels: int, filters: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.convolution = nn.Conv1d(channels, filters, kernel, _STRIDE)

    def forward(self, x: Tensor) -> Tensor:
        places = math.ceil(x.shape[2] / _STRIDE)
        more = max(0, (places - 1) * _STRIDE + self.kernel - x.shape[2])
        # in rounds: more may be needed than there is
        rounds = torch.cat([x] * (1 + math.ceil(more / x.shape[2])), 2)
        made: Tensor = self.convolution(rounds[:, :, : x.shape[2] + more])
        return made


class _BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that has an answer for a single value, as of a batch of one row."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.shape[0] * input.shape[2] == 1:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)
