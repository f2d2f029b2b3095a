"""BagEncoder: the weighted words of a text added up, and a residual block (Astec, DECAF)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from megalabel.base import boolean, instance, integer, number, one_of, unfitted, with_learned
from megalabel.errors import ParameterError
from megalabel.features import BagEmbedding
from megalabel.neural.batches import BagBatch
from megalabel.neural.encoders.base import Encoder, EncoderModule
from megalabel.parts import Featurizer


class BagEncoder(Encoder):
    """The vectors of a text's words, weighted by tf-idf, added up; then a residual block.

    The order of words does not matter, and a text without words is a vector of zeros as long as
    the block has not been trained.

    Parameters
    ----------
    width : int
        Of the vectors.
    dropout : float
    residual : "sum", "gated" or None
        What becomes of x, the sum of words: x + f(x) (Astec), sigmoid(a) f(x) + sigmoid(b) x with
        a and b learned from 0 (DECAF), or x itself; f is a spectrally normalised linear map,
        the identity at first, and a ReLU.
    sparse : bool
        Update the vectors of a batch's words alone: far quicker with many words.
    vectors : str, optional
        A file of word vectors to start from (`read_vectors`); None: random ones.

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> module = BagEncoder(width=4, residual=None).begin(csr_matrix((1, 9)), seed=0)
    >>> module.width, module.table.num_embeddings
    (4, 9)
    """

    reads = "words"

    PARAMETERS = {  # noqa: RUF012
        "width": integer(1),
        "dropout": number(0, 1),
        "residual": one_of("sum", "gated", None),
        "sparse": boolean(),
        "vectors": instance(str) | one_of(None),
    }

    def __init__(
        self,
        *,
        width: int = 300,
        dropout: float = 0.5,
        residual: str | None = "sum",
        sparse: bool = True,
        vectors: str | None = None,
    ) -> None:
        self.width = width
        self.dropout = dropout
        self.residual = residual
        self.sparse = sparse
        self.vectors = vectors

    def new(self, X: Any) -> EncoderModule:
        """Random words, and a block that starts at the identity."""
        return self.rebuild({"words": int(X.shape[1])})

    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """The number of words."""
        return {"words": module.table.num_embeddings}

    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """A module for so many words."""
        if not isinstance(about.get("words"), int) or about["words"] < 1:
            raise ValueError("about_ of BagEncoder must hold the number of words")
        return _Bag(about["words"], self.width, self.dropout, self.residual, self.sparse)

    def with_features(
        self, features: Featurizer, levels: Sequence[Mapping[str, Any]], **parameters: Any
    ) -> Featurizer:
        """The words and their vectors, which NumPy adds up as well; projected for one level."""
        block = getattr(self.module(), "residual", None)
        return with_learned(
            BagEmbedding(unfitted(features)),
            words_=features,
            table_=self.weights_["words.weight"],
            block_={} if block is None else block.arrays(),
            projection_=levels[0]["weight"] if levels else None,
        )


class _Bag(EncoderModule):
    depth = 0

    def __init__(
        self, words: int, width: int, dropout: float, residual: str | None, sparse: bool
    ) -> None:
        super().__init__()
        self.width = self.state_width = width
        self.words = nn.EmbeddingBag(words, width, mode="sum", sparse=sparse)
        nn.init.normal_(self.words.weight, std=width**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.residual = None if residual is None else ResidualBlock(width, dropout, residual)

    @property
    def table(self) -> nn.EmbeddingBag:
        return self.words

    def forward(self, inputs: BagBatch) -> Tensor:
        weights = inputs.weights.to(self.words.weight.dtype)
        added = self.words(inputs.indices, inputs.offsets, weights)
        made: Tensor = self.dropout(added.relu())
        return made if self.residual is None else self.residual(made)

    def hidden(self, inputs: BagBatch) -> list[Tensor]:
        raise ParameterError(
            "BagEncoder has no states of single tokens: take an encoder that reads tokens"
        )


class ResidualBlock(nn.Module):
    """A vector and what a linear map with ReLU makes of it, added; at first the map is the
    identity."""

    def __init__(self, width: int, dropout: float, kind: str) -> None:
        super().__init__()
        linear = nn.Linear(width, width)
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.linear = spectral_norm(linear)
        self.dropout = nn.Dropout(dropout)
        self.gates = nn.Parameter(torch.zeros(2)) if kind == "gated" else None

    @torch.no_grad()
    def arrays(self) -> dict[str, np.ndarray]:
        """The block as `features.bag.residual` takes it."""
        gates = torch.ones(2) if self.gates is None else self.gates.sigmoid()
        linear: Any = self.eval().linear
        parts = {"weight": linear.weight, "bias": linear.bias, "gates": gates}
        return {name: part.detach().cpu().numpy().copy() for name, part in parts.items()}

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.dropout(self.linear(x).relu())
        if self.gates is None:
            return x + made
        a, b = self.gates.sigmoid()
        gated: Tensor = a * made + b * x
        return gated
