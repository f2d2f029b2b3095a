"""StaticEncoder: the mean of a text's word vectors, which others have trained (model2vec)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from megalabel.base import boolean, instance, one_of, with_learned
from megalabel.errors import ParameterError
from megalabel.features import StaticEmbedding
from megalabel.features.static_folder import read_static
from megalabel.neural.encoders.base import Encoder, EncoderModule
from megalabel.neural.tokens import TokenBatch, Tokenizer
from megalabel.parts import Featurizer

_LEAST = 1e-12


class StaticEncoder(Encoder):
    """The vectors of a text's tokens, looked up in a table and averaged.

    The table starts as a folder has it, times a number that makes its entries about 1, and is
    trained on. Order does not matter, and a text
    without a known token is a vector of zeros.

    Parameters
    ----------
    source : str
        A folder of model2vec, or of sentence-transformers with a StaticEmbedding in it.
    norm : "l2" or None
        "l2": vectors of texts are scaled to the length sqrt(width), so that their entries are
        about 1, as the rates of heads are meant for.
    sparse : bool
        Update the vectors of a batch's tokens alone: far quicker with many tokens.
    """

    PARAMETERS = {  # noqa: RUF012
        "source": instance(str),
        "norm": one_of("l2", None),
        "sparse": boolean(),
    }

    def __init__(self, source: str, *, norm: str | None = "l2", sparse: bool = True) -> None:
        self.source = source
        self.norm = norm
        self.sparse = sparse

    def new(self, X: Any) -> EncoderModule:
        """The table of the folder."""
        known = read_static(self.source)
        names = getattr(X, "names", None)
        own = Tokenizer(self.source).fit([]).transform([]).names
        if names and list(names) != own:
            raise ParameterError(
                f"{self.source} has another tokenizer: take Tokenizer({self.source!r})"
            )
        tokens, width = known.table.shape
        module = _Static(tokens, width, self.norm is not None, self.sparse)
        # rates are meant for numbers of about this size
        table = torch.from_numpy(known.table / max(float(known.table.std()), _LEAST))
        module.load_state_dict({"words.weight": table, "silent": torch.from_numpy(known.silent)})
        return module

    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """The size of the table, and whether vectors are scaled to length one."""
        assert isinstance(module, _Static)
        tokens = module.words.num_embeddings
        return {"tokens": tokens, "width": module.width, "normalised": module.normalised}

    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """A module of that size."""
        tokens, width, normalised = (about.get(k) for k in ("tokens", "width", "normalised"))
        if not (isinstance(tokens, int) and isinstance(width, int) and min(tokens, width) >= 1):
            raise ValueError("about_ of StaticEncoder must hold the tokens and the width")
        if not isinstance(normalised, bool):
            raise ValueError("about_ of StaticEncoder must say whether vectors are normalised")
        return _Static(tokens, width, normalised, self.sparse)

    def with_features(
        self, features: Featurizer, levels: Sequence[Mapping[str, Any]], **parameters: Any
    ) -> Featurizer:
        """The tokens and their vectors, which NumPy averages as well; projected for one level."""
        plain = [level for level in levels if not level["layers"] and level["bias"] is None]
        if len(levels) > 1 or len(plain) < len(levels):
            return super().with_features(features, levels, **parameters)
        assert isinstance(features, Tokenizer)
        return with_learned(
            StaticEmbedding(max_length=features.max_length),
            tokenizer_=features.definition_,
            table_=self.weights_["words.weight"],
            silent_=self.weights_["silent"],
            length_=self.about_["width"] ** 0.5 if self.about_["normalised"] else None,
            projection_=plain[0]["weight"] if plain else None,
        )


class _Static(EncoderModule):
    depth = 0
    silent: Tensor

    def __init__(self, tokens: int, width: int, normalised: bool, sparse: bool) -> None:
        super().__init__()
        self.width = self.state_width = width
        self.normalised = normalised
        self.words = nn.Embedding(tokens, width, sparse=sparse)
        self.register_buffer("silent", torch.zeros(tokens, dtype=torch.bool))

    @property
    def table(self) -> nn.Embedding:
        return self.words

    def forward(self, inputs: TokenBatch) -> Tensor:
        spoken = (inputs.mask & ~self.silent[inputs.ids]).to(self.words.weight.dtype)
        shares = spoken / spoken.sum(1, keepdim=True).clamp(min=1)
        made: Tensor = torch.bmm(shares[:, None], self.words(inputs.ids))[:, 0]
        if self.normalised:
            made = nn.functional.normalize(made, dim=1) * self.width**0.5
        return made

    def hidden(self, inputs: TokenBatch) -> list[Tensor]:
        return [self.words(inputs.ids)]
