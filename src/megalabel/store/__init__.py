"""The model folder: atomic, memory-mapped, checksummed, never pickle.

A folder holds `megalabel.json`, which says everything that is small, and one `.npy` file for each
array, mapped when the model is loaded. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from megalabel.kept import Folder, check_target
from megalabel.sealed import (
    Put,
    brought_about,
    budget_of,
    check_files,
    check_manifest,
    damaged,
    getter,
    read_manifest,
    reading,
    write_folder,
)
from megalabel.store.encoding import Deserialiser, Serialiser

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

    def describe(put: Put) -> dict[str, Any]:
        encoded = Serialiser(put).component(component, "")
        return {
            "format": FORMAT,
            "megalabel": __version__,
            "class": encoded["$component"],
            "parameters": encoded["parameters"],
            **(about or {}),
            "learned": encoded["learned"],
        }

    write_folder(Path(path), describe, MANIFEST)


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
    loaded = reading(path, lambda folder: _loaded(folder, part, budget_of(verify)))
    if isinstance(loaded, Component):
        loaded.origin = Path(path)
    return loaded


def about(path: str | Path) -> dict[str, Any]:
    """What `megalabel.json` of a model folder says, checked for being whole."""
    return reading(path, _manifest)


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
    reading(path, lambda folder: check_files(folder, _manifest(folder), None))


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
        if not meant and brought_about(error):
            raise damaged(self.origin, error) from error


def _loaded(folder: Folder, part: str | None, budget: int | None) -> Any:
    manifest = _manifest(folder)
    check_files(folder, manifest, budget)
    deserialiser = Deserialiser(getter(folder, manifest))
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
        if not brought_about(error):
            raise
        raise damaged(folder.path, error) from error


def _manifest(folder: Folder) -> dict[str, Any]:
    manifest, sound = read_manifest(folder)
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
    shape = {"class": str, "parameters": dict, "learned": dict, "files": dict}
    check_manifest(folder, manifest, sound, shape)
    return manifest
