"""Checkpoints of long fits: finished parts are kept, and a fit that starts again takes them up.

    with checkpoints.kept_in("work"):
        tagger.fit(corpus)

A fit made of units of work keeps the part that each gives (`work.execute`); others ask for each of
theirs by `Checkpoint.done`. Parts belong to one fit: they carry a fingerprint of its data and
parameters, and those of another are not taken.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import __version__, store
from megalabel.outputs import replacing_file

if TYPE_CHECKING:
    from megalabel.base import Component

_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextmanager
def kept_in(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Fits within keep their finished parts in a folder; None: they do not."""
    token = _FOLDER.set(None if folder is None else Path(folder))
    try:
        yield
    finally:
        _FOLDER.reset(token)


def folder_in_use() -> Path | None:
    """The folder that fits keep their finished parts in; None: they do not."""
    return _FOLDER.get()


class Checkpoint:
    """What is kept of one fit.

    Parameters
    ----------
    owner : Component
        Whose fit it is; its parameters are part of the fingerprint.
    *data : CSR matrices and arrays
        What it is fitted on.

    Examples
    --------
    >>> from megalabel.linear import OneVsAll
    >>> X = csr_matrix([[1.0, 2.0]])
    >>> import tempfile
    >>> with kept_in(tempfile.mkdtemp()):
    ...     checkpoint = Checkpoint(OneVsAll(), X)
    ...     _ = checkpoint.done("first", lambda: 2 * X)
    ...     checkpoint.done("first", lambda: 3 * X).toarray()  # taken up, not made anew
    array([[2., 4.]])
    """

    def __init__(self, owner: Component, *data: csr_matrix | np.ndarray) -> None:
        self._folder: Path | None = None
        if (folder := _FOLDER.get()) is None:
            return
        # another version may solve otherwise
        digest = hashlib.sha256(f"{__version__} {store.fingerprint(owner)}".encode())
        for part in data:
            digest.update(repr(part.shape).encode())
            arrays = (
                [part] if isinstance(part, np.ndarray) else [part.indptr, part.indices, part.data]
            )
            for array in arrays:
                digest.update(np.ascontiguousarray(array).data)
        self._folder = folder / digest.hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True)

    def file(self, name: str) -> Path | None:
        """Where a file of another kind may be kept; None: nothing is."""
        return None if self._folder is None else self._folder / name

    def done(self, name: str, make: Callable[[], csr_matrix]) -> csr_matrix:
        """The matrix of a part: as kept, or made now and kept."""
        matrix = self.kept(name)
        if matrix is None:
            matrix = make()
            self.keep(name, matrix)
        return matrix

    def keeps(self, name: str) -> bool:
        """Whether a part was finished before; it may be damaged."""
        file = self.file(f"{name}.npz")
        return file is not None and file.exists()

    def kept(self, name: str) -> csr_matrix | None:
        """The matrix of a part that was finished before; None: it was not, or it is damaged."""
        file = self.file(f"{name}.npz")
        if file is None or not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as arrays:
                parts = (arrays["data"], arrays["indices"], arrays["indptr"])
                matrix = csr_matrix(parts, shape=tuple(arrays["shape"]))
            matrix.check_format(full_check=True)
            return matrix
        except (OSError, EOFError, ValueError, KeyError, BadZipFile):
            return None

    def keep(self, name: str, matrix: csr_matrix) -> None:
        """Keep the matrix of a finished part, where parts are kept."""
        file = self.file(f"{name}.npz")
        if file is None:
            return
        with replacing_file(file) as fresh:
            np.savez(
                fresh,
                data=matrix.data,
                indices=matrix.indices,
                indptr=matrix.indptr,
                shape=np.array(matrix.shape),
            )
