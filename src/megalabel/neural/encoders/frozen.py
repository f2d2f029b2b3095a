"""FrozenEncoder: a map that is trained over the vectors of a model that is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.base import boolean, instance, integer, number, one_of, unfitted, with_learned
from megalabel.errors import ParameterError, ShapeError
from megalabel.features import Mapped, OnnxEmbedding, Precomputed, StaticEmbedding
from megalabel.features.mapped import ACTIVATIONS
from megalabel.features.onnx import MODEL
from megalabel.features.static_folder import is_static
from megalabel.neural.encoders.base import Encoder, EncoderModule
from megalabel.parts import Featurizer


class FrozenEncoder(Encoder):
    """A map that is trained over the vectors of a model that stays as it is.

    Each text is encoded once, not once an epoch: so a processor can train over a transformer. What
    the encoder reads are vectors, which `features` makes of texts. The map is
    B a(A x + c) + b, of vectors x that are all made as long as sqrt(width); with `residual`, S x is
    added, and that is what the map begins as: x itself where the width stays, else a projection.

    Parameters
    ----------
    source : str, optional
        The model: of the hub by name or folder, a tagger with an encoder, an encoder as ONNX
        (`export_onnx`), or static word vectors. None: vectors come with the corpus.
    width : int, optional
        Of the vectors that labels see; None: as wide as the model's.
    hidden : int, optional
        Of a(A x + c); None: twice the model's width.
    activation : "relu", "gelu", "tanh" or None
        None: the map is B x + b.
    residual : bool
    dropout : float
        Of x, in training.
    cache : str, optional
        A folder that keeps the vectors of texts, so that no text is ever encoded twice by a model;
        None: the folder of checkpoints (`checkpoints.kept_in`), where there is one.

    Examples
    --------
    >>> module = FrozenEncoder("a-model", width=4).begin(np.eye(3, 8, dtype=np.float32), seed=0)
    >>> module(torch.eye(3, 8)).shape
    torch.Size([3, 4])
    """

    reads = "vectors"

    PARAMETERS = {  # noqa: RUF012
        "source": instance(str) | one_of(None),
        "width": integer(1) | one_of(None),
        "hidden": integer(1) | one_of(None),
        "activation": one_of(None, *ACTIVATIONS),
        "residual": boolean(),
        "dropout": number(0, 1),
        "cache": instance(str) | one_of(None),
    }
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"cache"})

    def __init__(
        self,
        source: str | None = None,
        *,
        width: int | None = None,
        hidden: int | None = None,
        activation: str | None = "gelu",
        residual: bool = True,
        dropout: float = 0.1,
        cache: str | None = None,
    ) -> None:
        self.source = source
        self.width = width
        self.hidden = hidden
        self.activation = activation
        self.residual = residual
        self.dropout = dropout
        self.cache = cache

    def features(self, max_length: int = 128) -> Featurizer:
        """What makes the vectors that it reads: longer texts are cut."""
        from megalabel.neural.embedding import Embedding

        if self.source is None:
            return Precomputed()
        folder = Path(self.source)
        if is_static(folder):
            return StaticEmbedding(self.source, norm="l2", max_length=max_length)
        if (folder / MODEL).is_file():
            return OnnxEmbedding(self.source, cache=self.cache)
        return Embedding(self.source, max_length=max_length, precision="fastest", cache=self.cache)

    def start(self, X: Any, seed: int, names: Sequence[str] | None = None) -> EncoderModule:
        """The module that `begin` gives."""
        if self.fitted and X.shape[1] != (known := self.about_["columns"]):
            raise ShapeError(f"FrozenEncoder was trained on vectors of {known}, not {X.shape[1]}")
        return super().start(X, seed, names)

    def new(self, X: Any) -> EncoderModule:
        """A map that begins as the model's vectors where it is residual."""
        return self.rebuild({"columns": int(X.shape[1])})

    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """The width of the model's vectors."""
        return {"columns": module.columns}

    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """A map of vectors so wide."""
        if not isinstance(about.get("columns"), int) or about["columns"] < 1:
            raise ValueError("about_ of FrozenEncoder must hold the number of columns")
        return _Map(about["columns"], self)

    def with_features(
        self, features: Featurizer, levels: Sequence[Mapping[str, Any]], **parameters: Any
    ) -> Featurizer:
        """The model and the map, by NumPy; projected for one level."""
        if len(levels) > 1 or any(x["layers"] or x["bias"] is not None for x in levels):
            raise ParameterError("FrozenEncoder gives one vector a text, and no layers of a model")
        module = self.module()
        assert isinstance(module, _Map)
        return with_learned(
            Mapped(unfitted(features), activation=self.activation),
            vectors_=features,
            map_=module.arrays(),
            projection_=levels[0]["weight"] if levels else None,
        )


class _Map(EncoderModule):
    depth = 0

    def __init__(self, columns: int, chosen: FrozenEncoder) -> None:
        super().__init__()
        self.width = self.state_width = width = chosen.width or columns
        self.wide, hidden = columns, chosen.hidden or 2 * columns
        self.activation = chosen.activation
        self.dropout = nn.Dropout(chosen.dropout)
        self.inner = None if self.activation is None else nn.Linear(columns, hidden)
        self.outer = nn.Linear(columns if self.inner is None else hidden, width)
        self.skip = None
        if chosen.residual:
            self.skip = nn.Linear(columns, width, bias=False)
            nn.init.zeros_(self.outer.weight)
            nn.init.zeros_(self.outer.bias)
            if width == columns:
                nn.init.eye_(self.skip.weight)
            else:
                nn.init.orthogonal_(self.skip.weight)

    @property
    def table(self) -> nn.Embedding:
        raise ParameterError("FrozenEncoder has no vectors of single tokens")

    @property
    def columns(self) -> int:
        return self.wide

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.dropout(nn.functional.normalize(inputs, dim=1) * self.wide**0.5)
        seen = x
        if self.inner is not None:
            assert self.activation is not None
            seen = getattr(torch, self.activation, nn.functional.gelu)(self.inner(x))
        made: Tensor = self.outer(seen)
        return made if self.skip is None else made + self.skip(x)

    def hidden(self, inputs: Tensor) -> list[Tensor]:
        raise ParameterError(
            "FrozenEncoder has no states of single tokens: take an encoder that reads tokens"
        )

    @torch.no_grad()
    def arrays(self) -> dict[str, np.ndarray]:
        """The map as `features.mapped` takes it."""
        found = {"outer": self.outer.weight, "bias": self.outer.bias}
        if self.inner is not None:
            found |= {"inner": self.inner.weight, "inner_bias": self.inner.bias}
        if self.skip is not None:
            found["skip"] = self.skip.weight
        return {name: tensor.float().cpu().numpy().copy() for name, tensor in found.items()}
