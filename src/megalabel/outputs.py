"""Files that are written whole or not at all, and errors that name them as they were given."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from megalabel.errors import OutputError
from megalabel.files import replacing

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than the system allows",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "there is no permission to write there",
    errno.EPERM: "there is no permission to write there",
    errno.ENOENT: "the folder to put it in does not exist",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EEXIST: "a file of that name is there",
    errno.EISDIR: "it is a folder, and a file was expected",
}


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError into an OutputError that names `path`, whatever file beside it failed."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise _error(path, error) from error


@contextlib.contextmanager
def replacing_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new file to write, then put it in the place of `path` in one step.

    Whatever goes wrong before that step, the file that was there stays, and nothing is left of the
    new one. A device or a pipe is written as it is.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "labels.txt"
    >>> with replacing_file(file) as fresh:
    ...     _ = fresh.write_text("dress")
    >>> file.read_text(), len(list(file.parent.iterdir()))
    ('dress', 1)
    """
    with naming(path):
        check_file(path)
        if os.path.exists(path) and not os.path.isfile(path):
            yield Path(path)
            return
        place = Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
        with replacing(place.parent) as new:
            yield (fresh := new.aside / place.name)
            if place.exists():
                fresh.chmod(place.stat().st_mode)


@contextlib.contextmanager
def filling_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new folder to fill, then put its files into the folder `path`, all in one step."""
    with naming(path), replacing(Path(path)) as new:
        yield new.aside


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise an OutputError, before any work is done, if no file can be written there."""
    place = Path(os.path.realpath(path))
    if place.is_dir():
        raise _error(path, OSError(errno.EISDIR, ""))
    if place.exists():
        _check_access(path, place)
    if not place.exists() or place.is_file():
        _check_folder(path, place.parent)


def check_folder(path: str | os.PathLike[str], *, replaced: bool = False) -> None:
    """Raise an OutputError, before any work is done, if no folder can be made or filled there.

    With `replaced`, the folder is one that will be swapped for a new one, not filled.
    """
    place = Path(os.path.realpath(path))
    if replaced:
        place = place.parent
    while not place.exists():
        place = place.parent
    _check_folder(path, place)


def _check_folder(path: str | os.PathLike[str], folder: Path) -> None:
    if not folder.is_dir():
        raise _error(path, OSError(errno.ENOTDIR if folder.exists() else errno.ENOENT, ""))
    _check_access(path, folder)


def _check_access(path: str | os.PathLike[str], place: Path) -> None:
    if not os.access(place, os.W_OK):
        read_only = os.statvfs(place).f_flag & os.ST_RDONLY
        raise _error(path, OSError(errno.EROFS if read_only else errno.EACCES, ""))


def reason_of(error: OSError) -> str:
    """Why a file could not be written, in words."""
    return _REASONS.get(error.errno or 0) or error.strerror or str(error)


def _error(path: str | os.PathLike[str], error: OSError) -> OutputError:
    return OutputError(error.errno, f"{os.fspath(path)} was not written: {reason_of(error)}")
