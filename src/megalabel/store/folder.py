"""A folder that is written whole or not at all, and read with distrust."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from megalabel.errors import StoreError

MANIFEST = "megalabel.json"
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.npy")
_EXCHANGE = 2  # renameat2's RENAME_EXCHANGE
_AT_FDCWD = -100


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a new folder to fill, then put it in the place of `path` in one step.

    Until that step the old folder is untouched; whatever goes wrong, it stays. Folders left by
    processes that were killed are cleared away.
    """
    path = Path(os.path.realpath(path))
    check_target(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(path)
    fresh = path.parent / f".{path.name}.saving-{os.getpid()}-{secrets.token_hex(4)}"
    fresh.mkdir()
    try:
        yield fresh
        _sync(fresh)
        if path.exists():
            _exchange(fresh, path)
        else:
            fresh.rename(path)
        _sync(path.parent)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreError(f"the disk is full: {path} was not written") from error
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def check_target(path: Path) -> None:
    """Raise a StoreError if a model cannot be written there without losing something else."""
    if not path.exists():
        return
    if path.is_file() or (any(path.iterdir()) and not (path / MANIFEST).is_file()):
        raise StoreError(f"{path} exists and is not a model folder; nothing was written")
    for file in path.iterdir():
        if file.name != MANIFEST and not FILE_NAME.fullmatch(file.name):
            raise StoreError(f"{path} holds {file.name}, which is no part of a model")


def _clear_leftovers(path: Path) -> None:
    for left in path.parent.glob(f".{path.name}.saving-*"):
        owner = left.name.rsplit("-", 2)[1]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def open_regular(path: Path) -> io.BufferedReader:
    """Open a plain file for reading; refuses links, pipes and devices."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise StoreError(f"{path} is not a plain file")
    return os.fdopen(handle, "rb")


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def map_array(path: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Map a .npy file that must hold exactly this dtype and shape; pages come in on use."""
    kind = np.dtype(dtype)
    if kind.kind not in "biuf" or not kind.isnative:
        raise StoreError(f"{path} claims to hold {dtype!r}, which is not a plain number")
    if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in shape) or len(shape) > 8:
        raise StoreError(f"{path} claims the shape {shape}")
    with open_regular(path) as file:
        try:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("unknown version")
            stored_shape, fortran, stored = np.lib.format.read_array_header_1_0(
                file, max_header_size=4096
            )
        except Exception as error:
            raise StoreError(f"{path} is not a .npy file: {error}") from None
        if stored_shape != shape or stored != kind or (fortran and len(shape) > 1):
            raise StoreError(
                f"{path} holds {stored} {stored_shape}, the manifest says {dtype} {shape}"
            )
        offset = file.tell()
        count = 1
        for n in shape:
            count *= n
        if os.fstat(file.fileno()).st_size != offset + count * kind.itemsize:
            raise StoreError(f"{path} is cut short or too long")
        if count == 0:
            return np.zeros(shape, kind)
        return np.asarray(np.memmap(file, kind, "r", offset, shape))
