"""Embedding: an encoder, pre-trained or trained elsewhere, with its tokenizer, as features."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch

from megalabel import store
from megalabel.base import (
    Component,
    clone,
    instance,
    integer,
    list_of,
    made_once,
    one_of,
    part,
    sequence_of,
    value,
    with_learned,
)
from megalabel.data.matrix import normalised_rows
from megalabel.errors import ParameterError, ShapeError
from megalabel.features import Mapped, OnnxEmbedding
from megalabel.features.kept import kept_vectors
from megalabel.neural.encoders import Encoder, PretrainedEncoder
from megalabel.neural.encoders.levels import Levels, check_levels
from megalabel.neural.encoding import computes_in_bf16, encoded
from megalabel.neural.onnx_graphs import written
from megalabel.neural.tokens import Tokenizer
from megalabel.neural.trainer import Trainer
from megalabel.parts import Featurizer

if TYPE_CHECKING:
    from megalabel.tagger import Tagger


class Embedding(Featurizer):
    """What an encoder makes of a text: a vector. The encoder is not trained.

    An encoder and the tokenizer that it was trained with are kept together here: in a trained
    neural tagger (`Classifier.parts`) as well as where one is taken as it is.

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
    norm : "l2" or None
        None: vectors stay as the encoder gives them; else they are scaled to length one.
    device : str
        "auto", "cpu", "cuda", …
    precision : "auto", "bf16", "float32" or "fastest"
        "auto": bf16 where there is a GPU; "fastest": and where the processor computes in it.
    cache : str, optional
        A folder that keeps the vectors of texts, so that none is encoded twice; None: the folder
        of checkpoints (`checkpoints.kept_in`), where there is one.

    Attributes
    ----------
    encoder_ : Encoder
    tokenizer_ : Tokenizer
    levels_ : list of dict
        What the levels of a network see of the encoder (`neural.encoders.levels.Levels`), side by
        side; none: the encoder's own vector.

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
        "norm": one_of("l2", None),
        "device": instance(str),
        "precision": one_of("auto", "bf16", "float32", "fastest"),
        "cache": instance(str) | one_of(None),
    }
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"cache"})

    LEARNED = {  # noqa: RUF012
        "encoder_": part(Encoder),
        "tokenizer_": part(Tokenizer),
        "levels_": list_of(value(instance(dict))),
    }

    encoder_: Encoder
    tokenizer_: Tokenizer
    levels_: list[dict[str, Any]]

    _module: Any = None
    _print: str | None = None

    def __init__(
        self,
        source: str | None = None,
        *,
        pooling: str = "auto",
        layers: Sequence[int] = (-1,),
        max_length: int = 128,
        norm: str | None = "l2",
        device: str = "auto",
        precision: str = "float32",
        cache: str | None = None,
    ) -> None:
        self.source = source
        self.pooling = pooling
        self.layers = layers
        self.max_length = max_length
        self.norm = norm
        self.device = device
        self.precision = precision
        self.cache = cache

    def check_machine(self) -> None:
        """Raise an error where the device is not there."""
        Trainer(device=self.device).check_machine()

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        tokenizer: Tokenizer,
        *,
        levels: Sequence[Mapping[str, Any]] = (),
        **parameters: Any,
    ) -> Self:
        """The vectors of an encoder that was trained, by the tokens that it was trained with."""
        encoder.check_names(tokenizer.transform([]).names)
        made = cls(max_length=tokenizer.max_length, **parameters)
        return with_learned(
            made, encoder_=encoder, tokenizer_=tokenizer, levels_=[dict(x) for x in levels]
        )

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
        return with_learned(self, encoder_=encoder, tokenizer_=tokenizer, levels_=[])

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, float32."""
        self.check_fitted()
        vectors = kept_vectors(inputs, self.cache, self._fingerprint, self._encoded)
        return vectors if self.norm is None else np.asarray(normalised_rows(vectors))

    def _encoded(self, inputs: Any) -> np.ndarray:
        device, precision = Trainer(device=self.device).answering_device, self.precision
        if precision == "fastest":
            precision = "bf16" if computes_in_bf16(device) else "float32"
        trainer = Trainer(device=str(device), precision=precision)
        return encoded(self._encoding().to(device), self.tokenizer_.transform(inputs), trainer)

    def _fingerprint(self) -> str:
        """Of all that a vector depends on, before it is scaled."""

        def made() -> str:
            parts = [self.encoder_, self.tokenizer_, self.levels_]
            return store.fingerprint([*parts, self.pooling, self.max_length, self.precision])

        return made_once(self, "_print", made)

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which texts hold a known token."""
        return self.tokenizer_.known(inputs, vectors)

    @property
    def n_features(self) -> int:
        """The width of the vectors."""
        self.check_fitted()
        return int(self._encoding().width)

    def onnx_twin(self, int8: bool) -> OnnxEmbedding:
        """The same vectors by onnxruntime."""
        self.check_fitted()
        name, module = type(self.encoder_).__name__, self._built()
        with tempfile.TemporaryDirectory() as folder:
            written(module, self.tokenizer_, Path(folder), name, int8, None)
            twin = OnnxEmbedding(folder, norm=self.norm).fit()
        twin.folder = None
        return twin

    def check_learned(self) -> None:
        """Levels must be such as the encoder can have."""
        if self.levels_:
            with torch.device("meta"):
                module = self.encoder_.rebuild(self.encoder_.about_)
            check_levels("Embedding", module, self.levels_)
        self._module = self._print = None

    def _encoding(self) -> Any:
        """The encoder as a module, made when it is first asked."""
        return made_once(self, "_module", self._built)

    def _built(self) -> Any:
        """The encoder as a module of its own."""
        module = self.encoder_.module()
        if self.tokenizer_.n_features > (known := module.columns):
            raise ShapeError(
                f"the tokenizer has {self.tokenizer_.n_features} tokens, but the encoder "
                f"knows {known}"
            )
        return Levels(module, self.levels_, self.pooling).eval() if self.levels_ else module

    def __sklearn_clone__(self) -> Self:
        if self.source is None and self.fitted:
            return self  # an encoder trained elsewhere: nothing that fit could make anew
        return type(self)(**{k: clone(v) for k, v in self.get_params(deep=False).items()})


def encoder_of(tagger: Tagger | str | Path) -> tuple[Encoder, Tokenizer]:
    """The trained encoder of a tagger, and the tokenizer that it was trained with."""
    fitted = store.load(tagger) if isinstance(tagger, str | Path) else tagger
    fitted.check_fitted()
    features = fitted.features_
    units = list(_embeddings(features))
    if len(units) != 1:
        number = "no encoder" if not units else f"{len(units)} encoders"
        raise ParameterError(
            f"{type(features).__name__} has {number} of tokens, expected one; a tagger as a whole "
            "is exported by exporting.without_torch (megalabel export --whole)"
        )
    return units[0].encoder_, units[0].tokenizer_


def _embeddings(learned: Any) -> Iterator[Embedding]:
    """Those among the fitted parts of features."""
    if isinstance(learned, Embedding):
        yield learned
    elif isinstance(learned, Component) and not isinstance(learned, Mapped):
        yield from _embeddings(list(learned.learned().values()))
    elif isinstance(learned, list):
        for inner in learned:
            yield from _embeddings(inner)
