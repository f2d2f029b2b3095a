"""Folders of static word vectors, as model2vec and sentence-transformers write them.

A folder is read as data: JSON and safetensors. Nothing in it is run, and no file outside of it is
opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from megalabel.errors import DataError
from megalabel.features.onnx import optional

_TABLES = ("embeddings", "embedding.weight")  # of model2vec, of sentence-transformers
_TYPES = ("F64", "F32", "F16", "I8")
_WHOLE = ("I64", "I32")
_PADDING = ("[PAD]", "<pad>", "<|pad|>")
_GAP = 1 << 20  # numbers that no token has
_LARGEST = 1 << 28  # bytes of a JSON file


@dataclass(frozen=True)
class StaticWords:
    """The tokenizer of a folder."""

    tokenizer: str
    """As `tokenizer.json` has it: nothing is put before or after a text, and none is cut."""
    special: dict[str, int]
    """The numbers of the padding token and, where there is one, the unknown one."""
    count: int
    """One more than the highest number of a token."""
    known: int
    """Likewise, of those that the folder has: it may have none for padding."""


@dataclass(frozen=True)
class StaticVectors:
    """What a folder holds."""

    words: StaticWords
    table: np.ndarray
    """float32 (tokens, width): the vectors of tokens, times their weights."""
    silent: np.ndarray
    """bool (tokens,): which tokens are left out of the mean."""
    normalised: bool
    """Whether the folder says that vectors are scaled to length one."""


def is_static(source: str | os.PathLike[str]) -> bool:
    """Whether it is a folder of static word vectors."""
    folder = Path(source)
    if not folder.is_dir():
        return False
    return _is_model2vec(folder) or _kinds(folder)[:1] == ["StaticEmbedding"]


def read_words(source: str | os.PathLike[str]) -> StaticWords:
    """The tokenizer of a folder of static word vectors."""
    return _words(_places(Path(source))[0] / "tokenizer.json")


def read_static(source: str | os.PathLike[str]) -> StaticVectors:
    """The vectors of a folder, and the tokens that they belong to.

    Vectors that several tokens share (`mapping` of model2vec) are there once a token.
    """
    folder, normalised = _places(Path(source))
    words, file = _words(folder / "tokenizer.json"), folder / "model.safetensors"
    if not file.is_file():
        raise DataError("there are no vectors (model.safetensors)", file=file)
    try:
        with safe_open(file, "numpy") as opened:
            arrays = {name: _checked(opened, name, file) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(f"cannot be read: {error}", file=file) from None
    table = next((arrays[name] for name in _TABLES if name in arrays), None)
    if table is None:
        held = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(f"expected {' or '.join(_TABLES)}, found {held}", file=file)
    rows = arrays.get("mapping", np.arange(len(table)))
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(table):
        raise DataError(f"mapping names a row outside of the {len(table)} vectors", file=file)
    known, weights = words.known, arrays.get("weights", np.ones(words.known, np.float32))
    for name, length in (("vectors", len(rows)), ("weights", len(weights))):
        if length < known:
            raise DataError(f"{known} tokens but {length} {name}", file=file)
    made = np.zeros((words.count, table.shape[1]), np.float32)
    made[:known] = table[rows[:known]]
    made[:known] *= weights[:known, None].astype(np.float32)
    if not np.isfinite(made).all():
        raise DataError("a vector has numbers that are not finite", file=file)
    silent = np.zeros(len(made), bool)
    silent[words.special["pad"]] = True
    if _is_model2vec(folder) and "unk" in words.special:  # others give unknown words a vector
        silent[words.special["unk"]] = True
    made[silent] = 0
    return StaticVectors(words, made, silent, normalised)


def _places(folder: Path) -> tuple[Path, bool]:
    """Where the tokenizer and the vectors are, and whether vectors are scaled to length one."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder of static word vectors")
    if _is_model2vec(folder):
        return folder, _config(folder).get("normalize") is True
    kinds = _kinds(folder)
    if kinds[:1] != ["StaticEmbedding"]:
        found = " and ".join(kinds) or "neither a config.json of model2vec nor a modules.json"
        raise DataError(f"{folder} holds no static word vectors, but {found}")
    if kinds[1:] not in ([], ["Normalize"]):
        raise DataError(
            f"{folder} has more after its static vectors than scaling them: {', '.join(kinds[1:])}"
        )
    inner = Path(str(_modules(folder)[0].get("path", "")))
    if inner.is_absolute() or ".." in inner.parts:
        raise DataError(f"modules.json of {folder} names a place outside of the folder: {inner}")
    return folder / inner, kinds[1:] == ["Normalize"]


def _is_model2vec(folder: Path) -> bool:
    return (folder / "config.json").is_file() and _config(folder).get("model_type") == "model2vec"


def _config(folder: Path) -> Mapping[str, Any]:
    file = folder / "config.json"
    said = _json(file)
    if not isinstance(said, dict):
        raise DataError("expected settings by name", file=file)
    return said


def _kinds(folder: Path) -> list[str]:
    """The classes that `modules.json` of sentence-transformers names, without where they are."""
    return [str(module.get("type")).rpartition(".")[2] for module in _modules(folder)]


def _modules(folder: Path) -> Sequence[Mapping[str, Any]]:
    file = folder / "modules.json"
    said = _json(file) if file.is_file() else []
    if not isinstance(said, list) or not all(isinstance(module, dict) for module in said):
        raise DataError("expected a list of modules", file=file)
    return said


def _json(file: Path) -> Any:
    if not file.is_file():
        raise DataError("there is no such file", file=file)
    if file.stat().st_size > _LARGEST:
        raise DataError(f"larger than {_LARGEST >> 20} MiB", file=file)
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"cannot be read: {error}", file=file) from None


def _words(file: Path) -> StaticWords:
    said, backend = _json(file), optional("tokenizers").Tokenizer
    if not isinstance(said, dict) or not isinstance(said.get("model"), dict):
        raise DataError("this is not a tokenizer", file=file)
    padding = said.get("padding")
    own = padding.get("pad_token") if isinstance(padding, dict) else None
    plain = said | {"post_processor": None, "truncation": None, "padding": None}
    try:
        made = backend.from_str(json.dumps(plain))
    except Exception as error:  # the library raises nothing more specific
        raise DataError(f"the tokenizer cannot be read: {error}", file=file) from None
    pads = (made.token_to_id(name) for name in (own, *_PADDING) if isinstance(name, str))
    pad = next((number for number in pads if number is not None), None)
    pieces = made.get_vocab()
    known = 1 + max(pieces.values(), default=-1)
    if known > 16 * len(pieces) + _GAP:  # what goes through all numbers would take long
        raise DataError(f"token {known - 1} is far beyond the {len(pieces)} tokens", file=file)
    if pad is None:
        made.add_special_tokens([_PADDING[0]])
        pad = made.token_to_id(_PADDING[0])
        if pad < known:
            raise DataError("there is no padding token, and numbers have gaps", file=file)
    special, model = {"pad": int(pad)}, said["model"]
    if isinstance(model.get("unk_token"), str):
        unknown = made.token_to_id(model["unk_token"])
    else:
        unknown = model.get("unk_id")
    if type(unknown) is int and 0 <= unknown < known:
        special["unk"] = unknown
    return StaticWords(made.to_str(), special, max(known, pad + 1), known)


def _checked(opened: Any, name: str, file: Path) -> np.ndarray:
    """An array of a file, if its type and its axes are those of its name."""
    axes = {**dict.fromkeys(_TABLES, 2), "weights": 1, "mapping": 1}.get(name)
    part = opened.get_slice(name)
    shape, kind = part.get_shape(), part.get_dtype()
    if axes is not None and len(shape) != axes:
        raise DataError(f"{name} has the shape {shape}, expected {axes} axes", file=file)
    wanted = _WHOLE if name == "mapping" else _TYPES
    if kind not in wanted:
        raise DataError(f"{name} has the type {kind}, expected {', '.join(wanted)}", file=file)
    return np.asarray(opened.get_tensor(name))
