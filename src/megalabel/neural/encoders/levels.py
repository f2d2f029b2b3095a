"""Levels: what the levels of a network see of its encoder, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.base import check_array
from megalabel.neural.encoders.base import EncoderModule, pooled


class Levels(nn.Module):
    """An encoder whose vectors are those that levels of a network see, one after another.

    Parameters
    ----------
    encoder : EncoderModule
    levels : list of dict
        Of each, `layers`: those whose pooled states it sees, side by side; none: the encoder's own
        vector. And `weight` and `bias`, arrays or None, of the linear map that follows.
    pooling : str
        How the states of a layer become a vector.
    """

    def __init__(
        self, encoder: EncoderModule, levels: Sequence[Mapping[str, Any]], pooling: str
    ) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.layers = [list(level["layers"]) for level in levels]
        self.maps = nn.ModuleList(map(_linear, levels))
        widths = zip(levels, self.layers, strict=True)
        self.width = sum(
            _wide(encoder, layers) if level["weight"] is None else len(level["weight"])
            for level, layers in widths
        )

    def forward(self, inputs: Any) -> Tensor:
        """What all levels see of each text: (rows, width)."""
        wanted = {layer for layers in self.layers for layer in layers}
        states = self.encoder.hidden(inputs) if wanted else []
        made = {layer: pooled(states[layer], inputs.mask, self.pooling) for layer in wanted}
        own = [] if all(self.layers) else [self.encoder(inputs)]
        seen = [torch.cat([made[i] for i in layers] or own, 1) for layers in self.layers]
        return torch.cat([narrow(x) for narrow, x in zip(self.maps, seen, strict=True)], 1)


def check_levels(owner: str, encoder: EncoderModule, levels: list[dict[str, Any]]) -> None:
    """Raise a ValueError unless `levels` are such as an encoder can have."""
    for level in levels:
        if level.keys() != {"layers", "weight", "bias"}:
            raise ValueError(f"levels_ of {owner} must hold layers, weight and bias")
        layers, weight = level["layers"], level["weight"]
        known = range(encoder.depth + 1)
        if not isinstance(layers, list) or not all(type(i) is int and i in known for i in layers):
            raise ValueError(f"levels_ of {owner} must see layers 0 to {encoder.depth}")
        if weight is not None:
            wide = _wide(encoder, layers)
            check_array(owner, "levels_ (weight)", weight, np.float32, (None, wide))
        if level["bias"] is not None:
            narrow = 0 if weight is None else len(weight)
            check_array(owner, "levels_ (bias)", level["bias"], np.float32, (narrow,))


def _wide(encoder: EncoderModule, layers: Sequence[int]) -> int:
    """The width of what a level sees before it is narrowed."""
    return len(layers) * encoder.state_width or encoder.width


def _linear(level: Mapping[str, Any]) -> nn.Module:
    weight, bias = level["weight"], level["bias"]
    if weight is None:
        return nn.Identity()
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    state = {"weight": weight} | ({} if bias is None else {"bias": bias})
    made.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
    return made
