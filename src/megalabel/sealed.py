"""The description of a folder of arrays: one JSON file that lists all others, and is sealed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from megalabel.errors import StoreError
from megalabel.files import FOLDERS, MANIFEST
from megalabel.kept import FILE_NAME, Folder, replacing, write_array, write_file

_Read = TypeVar("_Read")
Put = Callable[[str, np.ndarray], str]
Get = Callable[[str, str, tuple[int, ...]], np.ndarray]

CHECKED_ON_OPENING = 32 << 20  # bytes; more than this and opening would not be instant
_LIMIT = 64 << 20
_ATTEMPTS = 1000


def write_folder(path: Path, describe: Callable[[Put], dict[str, Any]], name: str) -> None:
    """Write a folder in one step: the arrays that `describe` puts into it, and what it gives back,
    as the file `name`."""
    with replacing(path, name) as folder:
        files: dict[str, Any] = {}

        def put(array_name: str, array: np.ndarray) -> str:
            file = f"{array_name}.npy"
            if not FILE_NAME.fullmatch(file) or file in files:
                raise StoreError(f"{array_name!r} cannot be the name of a file")
            files[file] = write_array(folder / file, array)
            return file

        manifest = {**describe(put), "files": files}
        manifest["sha256"] = seal(manifest)
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        write_file(folder / name, text.encode())


def reading(path: str | Path, read: Callable[[Folder], _Read], name: str = MANIFEST) -> _Read:
    """What is read of a folder; read again where another took its place meanwhile."""
    for _ in range(_ATTEMPTS):
        with Folder(path, name) as folder:
            try:
                return read(folder)
            except StoreError:
                if not folder.replaced():
                    raise
    raise StoreError(f"{path} is replaced faster than it can be read")


def read_manifest(folder: Folder) -> tuple[dict[str, Any], bool]:
    """What the description of a folder says, and whether it matches its own seal."""
    if not folder.has(folder.manifest):
        kind = FOLDERS[folder.manifest]
        raise StoreError(f"{folder.path} is not a {kind} folder: it has no {folder.manifest}")
    file = folder.path / folder.manifest
    with folder.open(folder.manifest) as opened:
        raw = opened.read(_LIMIT + 1)
    if len(raw) > _LIMIT:
        raise StoreError(f"{file} is larger than {_LIMIT >> 20} MiB")
    try:
        manifest = json.loads(raw, parse_constant=_refuse_constant)
        own = manifest.pop("sha256", None) if isinstance(manifest, dict) else None
        sound = own == seal(manifest)  # may fail too: 1e999 can be read, but not written
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file} is damaged: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise StoreError(f"{file} is not a {FOLDERS[folder.manifest]}'s description")
    return manifest, sound


def check_manifest(
    folder: Folder, manifest: Mapping[str, Any], sound: bool, shape: Mapping[str, type]
) -> None:
    """Raise a StoreError unless a description is whole, with keys of these types."""
    file = folder.path / folder.manifest
    if not sound:
        raise StoreError(f"{file} is damaged: it does not match its own checksum")
    for key, kind in shape.items():
        if not isinstance(manifest.get(key), kind):
            raise StoreError(f"{file} has no {key!r}")


def check_files(folder: Folder, manifest: Mapping[str, Any], budget: int | None) -> None:
    """Check every file's size, and checksums, smallest first, until `budget` bytes are read."""
    sizes = []
    for name, entry in manifest["files"].items():
        if not FILE_NAME.fullmatch(name) or not isinstance(entry, dict):
            raise StoreError(f"{folder.path / folder.manifest} lists a file {name!r}")
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


def getter(folder: Folder, manifest: Mapping[str, Any]) -> Get:
    """What gives an array of a folder by file name, type and shape."""

    def get(file: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if file not in manifest["files"]:
            place = folder.path / folder.manifest
            raise StoreError(f"{place} uses {file!r} but does not list it")
        return folder.array(file, dtype, shape)

    return get


def budget_of(verify: bool | None) -> int | None:
    """How many bytes are held against their checksums: of small files only, by default."""
    return {None: CHECKED_ON_OPENING, True: None, False: 0}[verify]


def brought_about(error: BaseException) -> bool:
    """Whether an error may come of what is in a folder: a panic in Rust is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def damaged(path: Path, error: BaseException) -> StoreError:
    """The error of a folder whose content brought about another one."""
    return StoreError(f"{path} is damaged: {str(error) or type(error).__name__}")


def seal(manifest: Mapping[str, Any]) -> str:
    """The checksum of a description: of it as JSON with sorted keys."""
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
