"""Embedding: the vectors of an encoder, pre-trained or trained elsewhere, as features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from megalabel import store
from megalabel.base import clone, instance, integer, made_once, one_of, sequence_of
from megalabel.data.matrix import normalised_rows
from megalabel.errors import ParameterError, ShapeError
from megalabel.neural.classifier import encoded
from megalabel.neural.encoders import Encoder, EncoderModule, PretrainedEncoder
from megalabel.neural.export import encoder_of
from megalabel.neural.tokens import Tokenizer
from megalabel.neural.trainer import Trainer
from megalabel.parts import Featurizer


class Embedding(Featurizer):
    """What an encoder makes of a text: a vector of length one. The encoder is not trained.

    Parameters
    ----------
    source : str, optional
        A Hugging Face model by name or folder, or the folder of a tagger whose encoder was
        trained. None: the encoder given to `Embedding.of`.
    pooling : "auto", "first", "last", "mean" or "max"
        How the states of a text's tokens become its vector, for a Hugging Face model.
    layers : list of int
        The layers whose vectors are put side by side, for a Hugging Face model.
    max_length : int
        Longer texts are cut.
    device : str
        "auto", "cpu", "cuda", …

    Examples
    --------
    >>> from megalabel.features import Concat, Tfidf
    >>> both = Concat([Tfidf(), Embedding("sentence-transformers/all-MiniLM-L6-v2")])
    """

    PARAMETERS = {  # noqa: RUF012
        "source": instance(str) | one_of(None),
        "pooling": one_of("auto", "first", "last", "mean", "max"),
        "layers": sequence_of(integer()),
        "max_length": integer(2),
        "device": instance(str),
    }

    encoder_: Encoder
    tokenizer_: Tokenizer

    _module: EncoderModule | None = None

    def __init__(
        self,
        source: str | None = None,
        *,
        pooling: str = "auto",
        layers: Sequence[int] = (-1,),
        max_length: int = 128,
        device: str = "auto",
    ) -> None:
        self.source = source
        self.pooling = pooling
        self.layers = layers
        self.max_length = max_length
        self.device = device

    def check_machine(self) -> None:
        """Raise an error where the device is not there."""
        Trainer(device=self.device).check_machine()

    @classmethod
    def of(cls, encoder: Encoder, tokenizer: Tokenizer, *, device: str = "auto") -> Self:
        """The vectors of an encoder that was trained, by the tokens that it was trained with."""
        encoder.check_names(tokenizer.transform([]).names)
        made = cls(max_length=tokenizer.max_length, device=device)
        made.restore({"encoder_": encoder, "tokenizer_": tokenizer})
        return made

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Read the encoder from its source; nothing is learned from the inputs."""
        self.check_parts()
        if self.source is None:
            if not self.fitted:
                raise ParameterError("Embedding needs a source, or an encoder by Embedding.of")
            return self
        encoder: Encoder
        if store.is_model(self.source):
            encoder, tokenizer = encoder_of(self.source)
        else:
            tokenizer = Tokenizer(self.source, max_length=self.max_length).fit([])
            encoder = PretrainedEncoder(self.source, pooling=self.pooling, layers=self.layers)
            encoder.keep(encoder.begin(tokenizer.transform([]), seed=0))
        self.restore({"encoder_": encoder, "tokenizer_": tokenizer})
        return self

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, float32, of length one."""
        self.check_fitted()
        trainer = Trainer(device=self.device, precision="float32")
        module = self._encoding().to(trainer.answering_device)
        made = normalised_rows(encoded(module, self.tokenizer_.transform(inputs), trainer))
        assert isinstance(made, np.ndarray)
        return made

    @property
    def n_features(self) -> int:
        """The width of the vectors."""
        self.check_fitted()
        return int(self._encoding().width)

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take the encoder and its tokenizer back."""
        encoder, tokenizer = learned.get("encoder_"), learned.get("tokenizer_")
        if not isinstance(encoder, Encoder) or not isinstance(tokenizer, Tokenizer):
            raise ValueError("Embedding is an encoder and the tokenizer it was trained with")
        super().restore(learned)
        self._module = None

    def _encoding(self) -> EncoderModule:
        """The encoder as a module, made when it is first asked."""

        def make() -> EncoderModule:
            module: EncoderModule = self.encoder_.module()
            if self.tokenizer_.n_features > (known := module.table.num_embeddings):
                raise ShapeError(
                    f"the tokenizer has {self.tokenizer_.n_features} tokens, but the encoder "
                    f"knows {known}"
                )
            return module

        return made_once(self, "_module", make)

    def __sklearn_clone__(self) -> Self:
        if self.source is None and self.fitted:
            return self  # an encoder trained elsewhere: nothing that fit could make anew
        return type(self)(**{k: clone(v) for k, v in self.get_params(deep=False).items()})
