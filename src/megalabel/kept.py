"""A folder of arrays that is written whole or not at all, and read with distrust."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import io
import math
import mmap
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from megalabel.errors import OutputError, StoreError
from megalabel.files import FOLDERS, MANIFEST, folder_aside, sync
from megalabel.outputs import check_folder, reason_of

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.npy")
_EXCHANGE = 2  # renameat2's RENAME_EXCHANGE
_AT_FDCWD = -100
_HEADER_LIMIT = 4096  # bytes of a .npy file
_HASHED_AT_ONCE = 1 << 22
_PATIENCE = 100  # hundredths of a second


class _NotWrittenError(OutputError, StoreError):
    """A folder that could not be written."""


@contextlib.contextmanager
def replacing(path: Path, manifest: str = MANIFEST) -> Iterator[Path]:
    """Give a new folder to fill, then put it in the place of `path` in one step.

    Until that step the old folder is untouched; whatever goes wrong, it stays. Folders left by
    processes that were killed are cleared away.
    """
    given, path = path, Path(os.path.realpath(path))
    try:
        check_target(path, manifest)
        path.parent.mkdir(parents=True, exist_ok=True)
        with folder_aside(path.parent, f".{path.name}.saving-") as fresh:
            yield fresh
            sync(fresh)
            if path.exists():
                _exchange(fresh, path)
            else:
                fresh.rename(path)
            sync(path.parent)
    except OSError as error:
        message = f"{given} was not written: {reason_of(error)}"
        raise _NotWrittenError(error.errno, message) from error


def check_target(path: Path, manifest: str = MANIFEST) -> None:
    """Raise an error, before any work is done, if a folder of a kind cannot be written there: an
    OutputError, or a StoreError if something else would be lost."""
    check_folder(path, replaced=True)
    if not path.exists():
        return
    kind = FOLDERS[manifest]
    if path.is_file() or (any(path.iterdir()) and not (path / manifest).is_file()):
        raise StoreError(f"{path} exists and is not a {kind} folder; nothing was written")
    for file in path.iterdir():
        if file.name != manifest and not FILE_NAME.fullmatch(file.name):
            raise StoreError(f"{path} holds {file.name}, which is no part of a {kind}")


def _exchange(fresh: Path, path: Path) -> None:
    """Swap two folders atomically where the system can; else by two renames."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
        if swap(_AT_FDCWD, os.fsencode(fresh), _AT_FDCWD, os.fsencode(path), _EXCHANGE) == 0:
            return
    except (AttributeError, OSError):
        pass
    # by a name that no later save clears away: should this be killed, it is the only model
    aside = path.with_name(f".{path.name}.replaced-{secrets.token_hex(4)}")
    path.rename(aside)
    try:
        fresh.rename(path)
    except OSError:
        aside.rename(path)
        raise
    aside.rename(fresh)


def write_file(path: Path, *parts: bytes | memoryview) -> dict[str, object]:
    """Write bytes through to the disk; gives the size and checksum for the manifest."""
    digest = hashlib.sha256()
    with open(path, "xb") as file:
        for part in parts:
            digest.update(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return {"bytes": size, "sha256": digest.hexdigest()}


def write_array(path: Path, array: np.ndarray) -> dict[str, object]:
    """Write an array as .npy."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    return write_file(path, header.getvalue(), array.reshape(-1).view(np.uint8).data)


class Folder:
    """A folder opened once: all that is read is of this folder, also when another takes its place.

    Each file is opened once as well, so that what was checked is what is mapped.

    Examples
    --------
    >>> with Folder("model") as folder:                     # doctest: +SKIP
    ...     weights = folder.array("weights_.npy", "<f4", (3,))
    """

    def __init__(self, path: str | Path, manifest: str = MANIFEST) -> None:
        self.path, self.manifest = Path(path), manifest
        kind = FOLDERS[manifest]
        self._maps: dict[str, mmap.mmap] = {}
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        for _ in range(_PATIENCE):
            try:
                self._handle = os.open(self.path, flags)
                return
            except (FileNotFoundError, NotADirectoryError):
                if not _between_renames(self.path):
                    raise StoreError(f"there is no {kind} folder {self.path}") from None
                time.sleep(0.01)
            except OSError as error:
                raise StoreError(f"{self.path} cannot be read: {error.strerror}") from None
        raise StoreError(f"there is no {kind} folder {self.path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)  # what is mapped stays

    def replaced(self) -> bool:
        """Whether another folder has taken the place of this one, or none is there any more."""
        mine = os.fstat(self._handle)
        try:
            there = os.stat(self.path)
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def has(self, name: str) -> bool:
        """Whether there is a file, or anything else, of this name."""
        try:
            os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return False
        return True

    def open(self, name: str) -> io.BufferedReader:
        """Open a plain file for reading; refuses links, pipes and devices."""
        file = self.path / name
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(name, flags, dir_fd=self._handle)
        except FileNotFoundError:
            raise StoreError(f"{file} is missing") from None
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StoreError(f"{file} is not a plain file")
        return os.fdopen(handle, "rb")

    def map(self, name: str) -> mmap.mmap:
        """The bytes of a file, which come in on use."""
        if name not in self._maps:
            with self.open(name) as file:
                try:
                    self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                except (OSError, ValueError) as error:  # ValueError: it is empty
                    raise StoreError(f"{self.path / name} cannot be read: {error}") from None
        return self._maps[name]

    def checksum(self, name: str) -> str:
        """SHA-256 of a file, in pieces: Ctrl-C is heard between two."""
        digest, content = hashlib.sha256(), self.map(name)
        for start in range(0, len(content), _HASHED_AT_ONCE):
            digest.update(content[start : start + _HASHED_AT_ONCE])
        return digest.hexdigest()

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Map a .npy file that must hold exactly this dtype and shape."""
        path, kind = self.path / name, np.dtype(dtype)
        if kind.kind not in "biuf" or not kind.isnative:
            raise StoreError(f"{path} claims to hold {dtype!r}, which is not a plain number")
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in shape)
        if not whole or len(shape) > 8:
            raise StoreError(f"{path} claims the shape {shape}")
        mapped = self.map(name)
        header = io.BytesIO(mapped[:_HEADER_LIMIT])
        try:
            if np.lib.format.read_magic(header) != (1, 0):
                raise ValueError("unknown version")
            stored_shape, fortran, stored = np.lib.format.read_array_header_1_0(
                header, max_header_size=_HEADER_LIMIT
            )
        except Exception as error:
            raise StoreError(f"{path} is not a .npy file: {error}") from None
        if stored_shape != shape or stored != kind or (fortran and len(shape) > 1):
            raise StoreError(
                f"{path} holds {stored} {stored_shape}, the manifest says {dtype} {shape}"
            )
        count = math.prod(shape)
        if len(mapped) != header.tell() + count * kind.itemsize:
            raise StoreError(f"{path} is cut short or too long")
        if count == 0:
            return np.zeros(shape, kind)
        return np.frombuffer(mapped, kind, count, header.tell()).reshape(shape)


def _between_renames(path: Path) -> bool:
    """Whether a save that could not exchange two folders in one step is under way at a path."""
    return any(path.parent.glob(f".{glob.escape(path.name)}.replaced-*"))
