"""The batches of a test set, kept for a second look without keeping them all in memory."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.lib.format import read_array, write_array

from megalabel._native import Ranked, Truth

IN_MEMORY = 1 << 29  # bytes; if there are more, all goes to a temporary file


class Batch(NamedTuple):
    """Some rows as the native core takes them: what was ranked, and what is true."""

    first_row: int
    ids: np.ndarray
    scores: np.ndarray
    labels: int
    indptr: np.ndarray
    indices: np.ndarray
    positive: np.ndarray

    @property
    def ranked(self) -> Ranked:
        """What was ranked."""
        return Ranked(ids=self.ids, scores=self.scores, labels=self.labels)

    @property
    def truth(self) -> Truth:
        """What is true."""
        return Truth(indptr=self.indptr, indices=self.indices, positive=self.positive)

    def top(self, k: int) -> Self:
        """The same with no more than the k best labels of each row."""
        return self._replace(ids=self.ids[:, :k], scores=self.scores[:, :k])


class Batches:
    """Copies of batches, in the order they came.

    Examples
    --------
    >>> kept, empty = Batches(), np.empty(0)
    >>> kept.add(Batch(0, np.array([[2, 1]]), np.empty((0, 0)), 3, empty, empty, empty))
    >>> [batch.ids.tolist() for batch in kept]
    [[[2, 1]]]
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115, closed below
        weakref.finalize(self, self._file.close)
        self._starts: list[int] = []
        self._end = 0

    def add(self, batch: Batch) -> None:
        """Keep a copy; one that cannot be kept leaves no trace."""
        self._file.seek(self._end)
        for value in batch:
            write_array(self._file, np.asarray(value), allow_pickle=False)
        self._starts.append(self._end)
        self._end = self._file.tell()

    def __iter__(self) -> Iterator[Batch]:
        for start in self._starts:
            self._file.seek(start)
            values = (read_array(self._file, allow_pickle=False) for _ in Batch._fields)
            found: list[Any] = [value if value.ndim else int(value) for value in values]
            yield Batch(*found)
