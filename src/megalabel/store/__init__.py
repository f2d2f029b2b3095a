"""The model folder: atomic, memory-mapped, checksummed, never pickle.

A folder holds `megalabel.json`, which says everything that is small, and one `.npy` file for each
array, mapped when the model is loaded. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from megalabel import __version__
from megalabel.base import Component
from megalabel.errors import (
    DataError,
    MegalabelError,
    MissingExtraError,
    ShapeError,
    StoreError,
)
from megalabel.files import MANIFEST
from megalabel.store.encoding import Deserialiser, Serialiser
from megalabel.store.folder import (
    FILE_NAME,
    Folder,
    check_target,
    replacing,
    write_array,
    write_file,
)

__all__ = [
    "about",
    "blaming",
    "check_target",
    "described",
    "fingerprint",
    "folder_bytes",
    "is_model",
    "load",
    "save",
    "verify",
]

_Read = TypeVar("_Read")

FORMAT = 4  # the first that later versions go on reading: see docs/model-format.md
_TOLD = (
    "class",
    "system",
    "labels",
    "features",
    "megalabel",
    "format",
    "metrics",
    "reliability",
    "provenance",
    "parameters",
)
_MANIFEST_LIMIT = 64 << 20
_ATTEMPTS = 1000
_CHECKED_ON_LOAD = 32 << 20  # bytes; more than this and loading would not be instant


def save(component: Component, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
    """Write a component to a folder, in one step: a reader sees the old model or the new one.

    Parameters
    ----------
    component : Component
        With all that it has learned.
    path : path
        The folder; an older model there is replaced, anything else is left alone with an error.
    about : mapping, optional
        Facts for people and for `about`: counts, provenance, metrics.
    """
    with replacing(Path(path)) as folder:
        files: dict[str, Any] = {}

        def put(name: str, array: np.ndarray) -> str:
            file = f"{name}.npy"
            if not FILE_NAME.fullmatch(file) or file in files:
                raise StoreError(f"{name!r} cannot be the name of a file")
            files[file] = write_array(folder / file, array)
            return file

        encoded = Serialiser(put).component(component, "")
        manifest = {
            "format": FORMAT,
            "megalabel": __version__,
            "class": encoded["$component"],
            "parameters": encoded["parameters"],
            **(about or {}),
            "learned": encoded["learned"],
            "files": files,
        }
        manifest["sha256"] = _seal(manifest)
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        write_file(folder / MANIFEST, text.encode())


def load(path: str | Path, part: str | None = None, *, verify: bool | None = None) -> Any:
    """Read a model folder back. Nothing in it can run code; arrays are mapped, not read.

    Parameters
    ----------
    path : path
        A folder written by `save`.
    part : str, optional
        Only this learned part, such as `"features"` or `"classifier"`, without opening the rest.
    verify : bool, optional
        True: check every file against its checksum first. False: check sizes only. By default
        the small files are checked, so that opening takes the same time for a model of any size;
        `megalabel.store.verify` checks the rest.

    Examples
    --------
    >>> import megalabel
    >>> tagger = megalabel.load("model")                    # doctest: +SKIP
    >>> features = megalabel.load("model", part="features") # doctest: +SKIP
    """
    budget = {None: _CHECKED_ON_LOAD, True: None, False: 0}[verify]
    loaded = _reading(path, lambda folder: _loaded(folder, part, budget))
    if isinstance(loaded, Component):
        loaded.origin = Path(path)
    return loaded


def about(path: str | Path) -> dict[str, Any]:
    """What `megalabel.json` of a model folder says, checked for being whole."""
    return _reading(path, _manifest)


def described(path: str | Path, *, verified: bool = False) -> dict[str, Any]:
    """What people and programs are told of a model folder, ready for JSON; with `verified`, once
    every byte of it has been checked."""
    if verified:
        verify(path)
    whole = about(path)
    shown = {name: whole.get(name) for name in _TOLD}
    return shown | {"bytes": folder_bytes(path), "verified": verified}


def is_model(path: str | Path) -> bool:
    """Whether a path is a model folder."""
    return (Path(path) / MANIFEST).is_file()


def folder_bytes(path: str | Path) -> int:
    """The size of a model folder."""
    return sum(file.stat().st_size for file in Path(path).iterdir())


def verify(path: str | Path) -> None:
    """Check every byte of a model folder against its checksums; raises StoreError."""
    _reading(path, lambda folder: _check_files(folder, _manifest(folder), None))


def fingerprint(value: Any) -> str:
    """A checksum of a component, or of any value that one may hold: of all that a fit depends on.

    Arrays count in full; parameters that change no result (`Component.INCIDENTAL`) do not.

    Examples
    --------
    >>> from megalabel.linear import OneVsAll
    >>> fingerprint(OneVsAll(cost=1.0)) == fingerprint(OneVsAll(cost=2.0))
    False
    """
    digest = hashlib.sha256()

    def put(name: str, array: np.ndarray) -> str:
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
        return name

    serialiser = Serialiser(put, lambda kind: f"{kind.__module__}.{kind.__qualname__}")
    digest.update(json.dumps(serialiser.value(value, ""), sort_keys=True).encode())
    return digest.hexdigest()


class blaming:
    """Within, whatever the arrays of a component bring about is a StoreError that names the folder
    they were read from. Errors that are meant for people pass as they are, except those about
    data where the data are what the component made itself (`own_input`).

    A class, since a query enters several, and a generator takes longer.
    """

    def __init__(self, component: Component, *, own_input: bool = False) -> None:
        self.origin, self.own_input = component.origin, own_input

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or self.origin is None:
            return
        meant = isinstance(error, MegalabelError | MemoryError | OSError)
        if self.own_input and isinstance(error, DataError | ShapeError):
            meant = False
        if not meant and _brought_about(error):
            raise _damaged(self.origin, error) from error


def _reading(path: str | Path, read: Callable[[Folder], _Read]) -> _Read:
    """What is read of a folder; read again where another took its place meanwhile."""
    for _ in range(_ATTEMPTS):
        with Folder(path) as folder:
            try:
                return read(folder)
            except StoreError:
                if not folder.replaced():
                    raise
    raise StoreError(f"{path} is replaced faster than it can be read")


def _loaded(folder: Folder, part: str | None, budget: int | None) -> Any:
    manifest = _manifest(folder)
    _check_files(folder, manifest, budget)
    files = manifest["files"]

    def get(file: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if file not in files:
            raise StoreError(f"{folder.path / MANIFEST} uses {file!r} but does not list it")
        return folder.array(file, dtype, shape)

    deserialiser = Deserialiser(get)
    try:
        if part is None:
            return deserialiser.component(
                {
                    "$component": manifest["class"],
                    "parameters": manifest["parameters"],
                    "learned": manifest["learned"],
                }
            )
        learned = manifest["learned"]
        name = part if part in learned else f"{part}_"
        if name not in learned:
            parts = ", ".join(name.removesuffix("_") for name in learned)
            raise StoreError(f"{folder.path} has no part {part!r}; it has {parts}")
        return deserialiser.value(learned[name])
    except (StoreError, MissingExtraError):
        raise
    except BaseException as error:  # whatever a damaged folder brings about is one kind of error
        if not _brought_about(error):
            raise
        raise _damaged(folder.path, error) from error


def _brought_about(error: BaseException) -> bool:
    """Whether an error may come of what is in a folder: a panic in Rust is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _damaged(path: Path, error: BaseException) -> StoreError:
    """The error of a folder whose content brought about another one."""
    return StoreError(f"{path} is damaged: {str(error) or type(error).__name__}")


def _manifest(folder: Folder) -> dict[str, Any]:
    if not folder.has(MANIFEST):
        raise StoreError(f"{folder.path} is not a model folder: it has no {MANIFEST}")
    file = folder.path / MANIFEST
    with folder.open(MANIFEST) as opened:
        raw = opened.read(_MANIFEST_LIMIT + 1)
    if len(raw) > _MANIFEST_LIMIT:
        raise StoreError(f"{file} is larger than {_MANIFEST_LIMIT >> 20} MiB")
    try:
        manifest = json.loads(raw, parse_constant=_refuse_constant)
        seal = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
        sound = seal == _seal(manifest)  # may fail too: 1e999 can be read, but not written
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file} is damaged: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise StoreError(f"{file} is not a model's description")
    if manifest["format"] < FORMAT:
        raise StoreError(
            f"{folder.path} was made by an older megalabel ({manifest.get('megalabel')}) in a "
            f"format that {__version__} does not read; train it again"
        )
    if manifest["format"] > FORMAT:
        raise StoreError(
            f"{folder.path} was made by megalabel {manifest.get('megalabel')}, which is newer than "
            f"this {__version__}; upgrade to read it"
        )
    if not sound:
        raise StoreError(f"{file} is damaged: it does not match its own checksum")
    shape = {"class": str, "parameters": dict, "learned": dict, "files": dict}
    for key, kind in shape.items():
        if not isinstance(manifest.get(key), kind):
            raise StoreError(f"{file} has no {key!r}")
    return manifest


def _check_files(folder: Folder, manifest: Mapping[str, Any], budget: int | None) -> None:
    """Check every file's size, and checksums, smallest first, until `budget` bytes are read."""
    sizes = []
    for name, entry in manifest["files"].items():
        if not FILE_NAME.fullmatch(name) or not isinstance(entry, dict):
            raise StoreError(f"{folder.path / MANIFEST} lists a file {name!r}")
        size = len(folder.map(name))
        if size != entry.get("bytes"):
            raise StoreError(
                f"{folder.path / name} has {size} bytes, expected {entry.get('bytes')}"
            )
        sizes.append((size, name))
    for size, name in sorted(sizes):
        if budget is not None and (budget := budget - size) < 0:
            return
        if folder.checksum(name) != manifest["files"][name].get("sha256"):
            raise StoreError(f"{folder.path / name} is damaged: it does not match its checksum")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _seal(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
