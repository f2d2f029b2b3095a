"""A vocabulary as a folder: mapped columns and the indexes of all lookups, checksummed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import StoreError
from megalabel.files import VOCABULARY
from megalabel.kept import Folder
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

FORMAT = 1
_LISTS = {"languages": str, "types": list, "collections": list}


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a vocabulary."""
    return (Path(path) / VOCABULARY).is_file()


def save(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> None:
    """Write a vocabulary to a folder, in one step; an older one there is replaced.

    Examples
    --------
    >>> import tempfile
    >>> from megalabel.data import Concept
    >>> folder = Path(tempfile.mkdtemp()) / "animals"
    >>> save(Vocabulary.of([Concept("Q144", {"en": "dog"})]), folder)
    >>> load(folder).find("dog")
    0
    """
    from megalabel import __version__

    def describe(put: Put) -> dict[str, Any]:
        arrays = sorted(vocabulary.indexed().arrays.items())
        return {
            "format": FORMAT,
            "megalabel": __version__,
            "concepts": len(vocabulary),
            "facts": vocabulary.facts,
            "arrays": {
                name: {
                    "$array": put(name, np.ascontiguousarray(array)),
                    "dtype": array.dtype.str,
                    "shape": list(array.shape),
                }
                for name, array in arrays
            },
        }

    write_folder(Path(path), describe, VOCABULARY)


def load(path: str | os.PathLike[str], *, verify: bool | None = None) -> Vocabulary:
    """Open the folder of a vocabulary. Nothing in it can run code; columns are mapped, not read.

    Parameters
    ----------
    path : path
        A folder written by `save`.
    verify : bool, optional
        True: check every file against its checksum first. False: check sizes only. By default the
        small files are checked.
    """
    return reading(Path(path), lambda folder: _loaded(folder, budget_of(verify)), VOCABULARY)


def opened(arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of columns and facts that may be a stranger's: facts are checked here,
    columns when they are first used."""
    if not isinstance(facts, Mapping) or not all(_listed(facts, *of) for of in _LISTS.items()):
        raise StoreError("the vocabulary is damaged: its languages, types or collections")
    for group in (*facts.get("types", ()), *facts.get("collections", ())):
        if not (_pair(group) and isinstance(group[0], str) and _strings(group[1])):
            raise StoreError(f"the vocabulary is damaged: {group!r:.80} is no type or collection")
    notes, source = facts.get("notes", {}), facts.get("source", {})
    if not isinstance(source, Mapping) or not isinstance(notes, Mapping):
        raise StoreError("the vocabulary is damaged: its notes or its source")
    for note in notes.values():
        if not (_pair(note) and type(note[0]) is int and _strings(note[1])):
            raise StoreError(f"the vocabulary is damaged: {note!r:.80} is no note")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise StoreError(f"the vocabulary is damaged: {name} is no array")
    return Vocabulary(arrays, facts)


def _loaded(folder: Folder, budget: int | None) -> Vocabulary:
    manifest, sound = read_manifest(folder)
    if manifest["format"] != FORMAT:
        raise StoreError(
            f"{folder.path} is a vocabulary of format {manifest['format']}, made by megalabel "
            f"{manifest.get('megalabel')}; this one reads format {FORMAT}: convert it again"
        )
    check_manifest(folder, manifest, sound, {"facts": dict, "arrays": dict, "files": dict})
    check_files(folder, manifest, budget)
    get = getter(folder, manifest)
    try:
        arrays = {
            name: get(kept["$array"], kept["dtype"], tuple(kept["shape"]))
            for name, kept in manifest["arrays"].items()
        }
        return opened(arrays, manifest["facts"])
    except StoreError:
        raise
    except BaseException as error:  # whatever a damaged folder brings about is one kind of error
        if not brought_about(error):
            raise
        raise damaged(folder.path, error) from error


def _listed(facts: Mapping[str, Any], name: str, kind: type) -> bool:
    found = facts.get(name, [])
    return isinstance(found, list) and all(isinstance(item, kind) for item in found)


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2
