"""Files of a folder that are replaced together: whatever kills the writer, all are old or all new.

New files are written to a folder aside, `.writing-…`. Renaming that folder to `.written-…` is the
step that makes them count. They are then moved to their places; if that is cut short, the next
reader or writer of the folder goes on with it (`finish`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

MANIFEST = "megalabel.json"  # what makes a folder a model folder
VOCABULARY = "vocabulary.json"  # what makes a folder that of a vocabulary
FOLDERS = {MANIFEST: "model", VOCABULARY: "vocabulary"}
_WRITING, _WRITTEN = ".writing-", ".written-"
# Among the new files, the names of those that are to be removed, one a line.
_REMOVED = ".removed"


class Replacement:
    """New files of a folder, and the names of those that are to go.

    `aside` is where the new files are written, under the names that they are to have.
    """

    def __init__(self, aside: Path) -> None:
        self.aside = aside
        self.removed: set[str] = set()


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Replacement]:
    """Give a place for new files, then put them into `folder` in one step.

    Until that step nothing changes; after an error nothing has. What killed writers left behind
    is cleared away, or finished if it had come to that step.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder) as new:
    ...     for name in ("a", "b"):
    ...         _ = (new.aside / name).write_text("new")
    >>> sorted(path.name for path in folder.iterdir())
    ['a', 'b']
    """
    folder = Path(os.path.realpath(folder))
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _finish(folder)
    with folder_aside(folder, _WRITING) as aside:
        new = Replacement(aside)
        yield new
        names = [path.name for path in aside.iterdir()]
        new.removed -= set(names)
        for name in names:
            sync(aside / name)
        with _locked(folder):
            _finish(folder)  # of one killed since: it was earlier, and must not come later
            if len(names) == 1 and not new.removed:  # one step as it is
                os.replace(aside / names[0], folder / names[0])
            elif names or new.removed:
                names_removed = "".join(f"{name}\n" for name in sorted(new.removed))
                (aside / _REMOVED).write_text(names_removed, errors="surrogateescape")
                sync(aside / _REMOVED)
                sync(aside)
                os.rename(aside, folder / aside.name.replace(_WRITING, _WRITTEN))
                sync(folder)
                _finish(folder)
            sync(folder)


@contextlib.contextmanager
def folder_aside(folder: Path, prefix: str) -> Iterator[Path]:
    """A new folder within another, of a name that begins so; what is there at the end is removed.

    Those of the same prefix that killed writers left behind are cleared away first.
    """
    with _locked(folder):
        _clear(folder, prefix)
        aside = folder / f"{prefix}{secrets.token_hex(8)}"
        aside.mkdir()
        # held as long as this process lives: by it others know that the folder is in use
        handle = os.open(aside, os.O_RDONLY)
        _lock(handle, wait=False)
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(handle)


def finish(folder: Path) -> None:
    """Put the files in place that a writer had written in full before it was killed.

    Raises OSError or ValueError if that cannot be done.
    """
    if _left(folder, _WRITTEN):
        with _locked(folder):
            _finish(folder)


def _finish(folder: Path) -> None:
    for written in _left(folder, _WRITTEN):
        removed = written / _REMOVED
        for path in list(written.iterdir()):
            if path != removed:
                os.replace(path, folder / path.name)
        if removed.exists():  # the last to go, so not there if only the folder is left
            for name in removed.read_text(errors="surrogateescape").splitlines():
                if os.path.basename(name) != name:  # the folder may be a stranger's
                    raise ValueError(f"{removed} names a file outside its folder: {name!r}")
                (folder / name).unlink(missing_ok=True)
            sync(folder)
            removed.unlink()
        written.rmdir()


def _clear(folder: Path, prefix: str) -> None:
    """Remove what dead writers left behind; called by who holds the folder's lock."""
    for left in _left(folder, prefix):
        try:
            handle = os.open(left, os.O_RDONLY)
        except FileNotFoundError:  # its writer has just done so
            continue
        try:
            if _lock(handle, wait=False):
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(handle)


def _left(folder: Path, prefix: str) -> list[Path]:
    """What writers of this user left: in a shared folder, others may not act through us."""
    with os.scandir(folder) as entries:
        return sorted(
            folder / entry.name
            for entry in entries
            if entry.name.startswith(prefix)
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other writers from a folder; the system lets go of the lock when a process ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Lock an open folder; False if another holds it, or if the file system knows no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def sync(path: Path) -> None:
    """Wait until what was written to a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
