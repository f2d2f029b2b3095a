"""OnnxEmbedding: the vectors of an exported encoder, by onnxruntime alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from megalabel import _native
from megalabel.base import Featurizer, check_array, instance
from megalabel.data.strings import from_arrays
from megalabel.errors import DataError, MissingExtraError
from megalabel.features.inputs import text_batches
from megalabel.features.rows import normalised_rows

MODEL, ABOUT, TOKENIZER = "model.onnx", "config.json", "tokenizer.json"  # of an exported folder
_AT_ONCE = 32  # texts encoded together


class OnnxEmbedding(Featurizer):
    """What an encoder that `megalabel.neural.export_onnx` wrote makes of a text, on a CPU.

    Neither torch nor transformers is needed.

    Parameters
    ----------
    folder : str
        Where the encoder was written to.

    Examples
    --------
    >>> features = OnnxEmbedding("encoder")
    >>> vectors = features.fit_transform(["red dress"])  # doctest: +SKIP
    """

    PARAMETERS = {"folder": instance(str)}  # noqa: RUF012

    model_: np.ndarray
    tokenizer_: str
    about_: dict[str, Any]

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def fit(self, inputs: Any = None, y: Any = None) -> Self:
        """Read the folder; nothing is learned from the inputs."""
        self.check_parameters()
        where = Path(self.folder)
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
        """One row a text, float32, of length one."""
        made = normalised_rows(self.encode(inputs))
        assert isinstance(made, np.ndarray)
        return made

    def encode(self, inputs: Any) -> np.ndarray:
        """The vectors as the encoder gives them, of any length."""
        self.check_fitted()
        rows: list[list[int]] = []
        for arrays in text_batches(inputs):
            texts = from_arrays(*arrays).to_pylist()
            rows += [made.ids for made in self._tokenizer.encode_batch_fast(texts)]
        return self.of_tokens(rows)

    def of_tokens(self, rows: list[list[int]]) -> np.ndarray:
        """The vectors of rows of token numbers."""
        vectors = np.zeros((len(rows), self.n_features), np.float32)
        lengths = np.array([len(row) for row in rows], np.int64)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(rows), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            mask = np.arange(max(1, lengths[some].max())) < lengths[some][:, None]
            ids = np.full(mask.shape, self.about_["pad"], np.int64)
            ids[mask] = [number for row in some for number in rows[row]]
            mask[:, 0] = True  # a text without tokens has one of padding
            inputs = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
            vectors[some] = self._session.run(None, inputs)[0]
        return vectors

    @property
    def n_features(self) -> int:
        """The width of the vectors."""
        self.check_fitted()
        return int(self.about_["width"])

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take the encoder back and open it."""
        check_array("OnnxEmbedding", "model_", learned.get("model_"), np.uint8, (None,))
        about, tokenizer = learned.get("about_"), learned.get("tokenizer_")
        numbers = about if isinstance(about, dict) else {}
        if not all(isinstance(numbers.get(name), int) for name in ("width", "pad")):
            raise ValueError("about_ of OnnxEmbedding must hold the width and the padding token")
        runtime, backend = optional("onnxruntime"), optional("tokenizers").Tokenizer
        options = runtime.SessionOptions()
        options.intra_op_num_threads = _native.get_threads()
        options.log_severity_level = 3
        try:
            self._tokenizer = backend.from_str(tokenizer)
            self._session = runtime.InferenceSession(
                learned["model_"].tobytes(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # neither library raises anything more specific
            raise ValueError(f"the exported encoder cannot be opened: {error}") from None
        self._tokenizer.no_padding()
        super().restore(learned)


def optional(module: str) -> Any:
    """A module of the extra `onnx`."""
    import importlib

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or module, "onnx") from error
