"""OnnxEmbedding: the vectors of an exported encoder, by onnxruntime alone; OnnxTokens: tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from megalabel import _native, store
from megalabel.base import array, instance, made_once, one_of, value
from megalabel.data.matrix import normalised_rows
from megalabel.data.strings import from_arrays
from megalabel.errors import DataError, MissingExtraError, ParameterError
from megalabel.features.inputs import text_batches
from megalabel.features.kept import kept_vectors
from megalabel.features.onnx_graph import check_graph
from megalabel.files import finish
from megalabel.parts import Featurizer

MODEL, ABOUT, TOKENIZER = "model.onnx", "config.json", "tokenizer.json"  # of an exported folder
AT_ONCE = 32  # texts encoded together


class OnnxEmbedding(Featurizer):
    """What an encoder that `megalabel.neural.export_onnx` wrote makes of a text, on a CPU.

    Neither torch nor transformers is needed.

    Parameters
    ----------
    folder : str, optional
        Where the encoder was written to; None: it is held already (`exporting.without_torch`).
    norm : "l2" or None
        None: vectors stay as the encoder gives them; else they are scaled to length one.
    cache : str, optional
        A folder that keeps the vectors of texts, so that none is encoded twice; None: the folder
        of checkpoints (`checkpoints.kept_in`), where there is one.

    Examples
    --------
    >>> features = OnnxEmbedding("encoder")
    >>> vectors = features.fit_transform(["red dress"])  # doctest: +SKIP
    """

    PARAMETERS = {  # noqa: RUF012
        "folder": instance(str) | one_of(None),
        "norm": one_of("l2", None),
        "cache": instance(str) | one_of(None),
    }
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"cache"})

    LEARNED = {  # noqa: RUF012
        "model_": array(np.uint8, "bytes"),
        "tokenizer_": value(instance(str)),
        "about_": value(instance(dict)),
    }

    model_: np.ndarray
    tokenizer_: str
    about_: dict[str, Any]

    _print: str | None = None

    def __init__(
        self, folder: str | None = None, *, norm: str | None = "l2", cache: str | None = None
    ) -> None:
        self.folder = folder
        self.norm = norm
        self.cache = cache

    def fit(self, inputs: Any = None, y: Any = None) -> Self:
        """Read the folder; nothing is learned from the inputs."""
        self.check_parameters()
        if self.folder is None:
            raise ParameterError("OnnxEmbedding needs the folder of an exported encoder")
        where = Path(self.folder)
        if where.is_dir():
            finish(where)
        for name in (MODEL, ABOUT, TOKENIZER):
            if not (where / name).is_file():
                raise DataError(f"{where} is not an exported encoder: it has no {name}")
        try:
            about = json.loads((where / ABOUT).read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"cannot be read: {error}", file=where / ABOUT) from None
        self.restore(
            {
                "model_": np.fromfile(where / MODEL, np.uint8),
                "tokenizer_": (where / TOKENIZER).read_text(encoding="utf-8"),
                "about_": about,
            }
        )
        return self

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, float32."""
        self.check_fitted()
        vectors = kept_vectors(inputs, self.cache, self._fingerprint, self._encoded)
        return vectors if self.norm is None else np.asarray(normalised_rows(vectors))

    def _encoded(self, inputs: Any) -> np.ndarray:
        return self.of_tokens(token_rows(self._tokenizer, inputs))

    def _fingerprint(self) -> str:
        """Of all that a vector depends on, before it is scaled."""
        return made_once(
            self, "_print", lambda: store.fingerprint([self.model_, self.tokenizer_, self.about_])
        )

    def of_tokens(self, rows: list[list[int]]) -> np.ndarray:
        """The vectors of rows of token numbers, as the encoder gives them."""
        vectors = np.zeros((len(rows), self.n_features), np.float32)
        lengths = np.array([len(row) for row in rows], np.int64)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(rows), AT_ONCE):
            some = order[start : start + AT_ONCE]
            mask = np.arange(max(1, lengths[some].max())) < lengths[some][:, None]
            ids = np.full(mask.shape, self.about_["pad"], np.int64)
            ids[mask] = [number for row in some for number in rows[row]]
            mask[:, 0] = True  # a text without tokens has one of padding
            inputs = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
            vectors[some] = self._session.run(None, inputs)[0]
        return vectors

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which texts hold a known token."""
        return known_texts(self._tokenizer, inputs)

    @property
    def n_features(self) -> int:
        """The width of the vectors."""
        self.check_fitted()
        return int(self.about_["width"])

    def check_learned(self) -> None:
        """Open the encoder; it must give vectors of the width it says."""
        if not all(isinstance(self.about_.get(name), int) for name in ("width", "pad")):
            raise ValueError("about_ of OnnxEmbedding must hold the width and the padding token")
        self._tokenizer = opened_tokenizer("OnnxEmbedding", self.tokenizer_)
        self._session, self._print = opened_graph("OnnxEmbedding", self.model_), None
        width = self._session.get_outputs()[0].shape[-1:]
        if width != [self.about_["width"]]:
            raise ValueError(f"the graph gives vectors of {width}, expected {self.about_['width']}")


class OnnxTokens(Featurizer):
    """The numbers of a text's tokens, for `rankers.AttentionTree`; needs `tokenizers` alone.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself.
    """

    LEARNED = {"tokenizer_": value(instance(str))}  # noqa: RUF012

    tokenizer_: str

    def fit(self, inputs: Any = None, y: Any = None) -> Self:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError(
            "OnnxTokens is a part of a trained tagger: fit the system that made it"
        )

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, int32; -1 after its last token."""
        self.check_fitted()
        rows = token_rows(self._tokenizer, inputs)
        numbers = np.full((len(rows), max([1, *map(len, rows)])), -1, np.int32)
        for places, row in zip(numbers, rows, strict=True):
            places[: len(row)] = row
        return numbers

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which texts hold a known token."""
        return known_texts(self._tokenizer, inputs)

    @property
    def n_features(self) -> int:
        """The number of different tokens."""
        self.check_fitted()
        return int(self._tokenizer.get_vocab_size())

    def check_learned(self) -> None:
        """Open the tokenizer."""
        self._tokenizer = opened_tokenizer("OnnxTokens", self.tokenizer_)


def opened_graph(owner: str, model: np.ndarray) -> Any:
    """A session of onnxruntime over the bytes of a graph."""
    check_graph(model.data)
    runtime = optional("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = _native.get_threads()
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(
            model.tobytes(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # it raises nothing more specific
        raise ValueError(f"the exported encoder of {owner} cannot be opened: {error}") from None


def opened_tokenizer(owner: str, text: Any) -> Any:
    backend = optional("tokenizers").Tokenizer
    try:
        made = backend.from_str(text)
    except Exception as error:  # it raises nothing more specific
        raise ValueError(f"the tokenizer of {owner} cannot be opened: {error}") from None
    made.no_padding()
    return made


def token_rows(tokenizer: Any, inputs: Any) -> list[list[int]]:
    rows: list[list[int]] = []
    for arrays in text_batches(inputs):
        texts = from_arrays(*arrays).to_pylist()
        rows += [made.ids for made in tokenizer.encode_batch_fast(texts)]
    return rows


def known_texts(tokenizer: Any, inputs: Any) -> np.ndarray:
    """Which texts hold a token besides those that begin and end a text and the unknown one, by a
    tokenizer of `tokenizers`. One that reads pieces of words knows some of nearly any text."""
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "[UNK]")
    known: list[bool] = []
    for arrays in text_batches(inputs):
        texts = from_arrays(*arrays).to_pylist()
        made = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        known += [any(number != unknown for number in one.ids) for one in made]
    return np.array(known, bool)


def optional(module: str) -> Any:
    """A module of the extra `onnx`."""
    import importlib

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or module, "onnx") from error
