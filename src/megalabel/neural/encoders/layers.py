"""The layers that assembled encoders are made of: states (rows, length, width) to the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from megalabel.neural.encoders.recurrent import BothWays

EMBEDDINGS = ("word", "position", "sinusoidal", "segment")
ENCODERS = ("transformer", "bi-lstm", "bi-gru", "gated-cnn")


class TransformerLayer(nn.Module):
    """Attention and a feed-forward map, each added to what it was given."""

    def __init__(
        self, width: int, heads: int, inner: int, norm: str, rotary: bool, dropout: float
    ) -> None:
        super().__init__()
        self.heads, self.rotary, self.first = heads, rotary, norm == "pre"
        self.projections = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """The states after this layer."""
        if self.first:
            states = states + self.dropout(self._attended(self.attention_norm(states), mask))
            made: Tensor = states + self.dropout(self.feed(self.feed_norm(states)))
        else:
            states = self.attention_norm(states + self.dropout(self._attended(states, mask)))
            made = self.feed_norm(states + self.dropout(self.feed(states)))
        return made

    def _attended(self, states: Tensor, mask: Tensor) -> Tensor:
        rows, length, width = states.shape
        apart = self.projections(states).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = apart.permute(2, 0, 3, 1, 4)
        if self.rotary:
            query, key = rotated(query), rotated(key)
        chance = self.dropout.p if self.training else 0.0
        seen = F.scaled_dot_product_attention(query, key, value, mask[:, None, None], chance)
        made: Tensor = self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return made


class GatedConvolutions(nn.Module):
    """A convolution over neighbouring tokens with a gate, added to what it was given."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.convolution = nn.Conv1d(width, 2 * width, kernel, padding=kernel // 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """The states after this layer; padding is zeros, as is what lies beyond a text."""
        inside = mask[..., None].to(states.dtype)
        seen = self.convolution((self.norm(states) * inside).transpose(1, 2)).transpose(1, 2)
        made: Tensor = states + self.dropout(F.glu(seen, 2))
        return made


class ReadBothWays(nn.Module):
    """A recurrent layer that reads both ways, half of the width each, added to what it was
    given."""

    def __init__(self, cell: str, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.both = BothWays(cell, width, width // 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """The states after this layer."""
        made: Tensor = states + self.dropout(self.both(self.norm(states), mask))
        return made


def rotated(states: Tensor) -> Tensor:
    """States (…, length, width) turned by their positions, pair by pair (Su et al. 2021, eq. 34):
    products of two depend on how far apart they are."""
    half = states.shape[-1] // 2
    places = torch.arange(states.shape[-2], device=states.device)
    rates = 10_000 ** (-torch.arange(half, device=states.device) / half)
    angles = places[:, None] * rates
    cos, sin = angles.cos().to(states.dtype), angles.sin().to(states.dtype)
    a, b = states[..., :half], states[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
