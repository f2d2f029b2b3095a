"""Columns of a folder that are checked when they are first used; rows of different lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from megalabel.data.strings import from_arrays, row_of
from megalabel.errors import StoreError


def starts_of(owners: np.ndarray, n: int) -> np.ndarray:
    """Where the items of each of n owners start, given the owners of all items in order.

    Examples
    --------
    >>> starts_of(np.array([0, 2, 2]), 3).tolist()
    [0, 1, 1, 3]
    """
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=n))]).astype(np.int64)


def spans(starts: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number, among those asked for, of the owner of each item, and the items of some owners.

    Examples
    --------
    >>> [part.tolist() for part in spans(np.array([0, 1, 1, 3]), np.array([2, 0]))]
    [[0, 0, 1], [1, 2, 0]]
    """
    first = starts[owners]
    counts = starts[owners + 1] - first
    owner = row_of(counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, np.repeat(first, counts) + within


class Columns:
    """Arrays by name, which may be mapped and of a stranger: checked when they are first used, so
    that opening takes no time.

    Examples
    --------
    >>> columns = Columns({"links.starts": np.array([0, 1, 1, 3]), "links.ends": np.arange(3)})
    >>> [array.tolist() for array in columns.ragged("links", "ends", 3, 3, np.int64)]
    [[0, 1, 1, 3], [0, 1, 2]]
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = dict(arrays)
        self._checked: dict[str, Any] = {}

    def plain(self, name: str, dtype: type, n: int | None = None) -> np.ndarray:
        """An array of a type and, where it is given, a length."""
        found = self.arrays.get(name)
        if found is None:
            raise StoreError(f"the vocabulary is damaged: it has no {name}")
        if found.dtype != dtype or found.ndim != 1 or (n is not None and len(found) != n):
            expected = f"{np.dtype(dtype)} of {'any length' if n is None else f'length {n}'}"
            raise StoreError(
                f"the vocabulary is damaged: {name} is {found.dtype} {found.shape}, not {expected}"
            )
        return found

    def numbers(
        self, name: str, n: int | None, most: int, dtype: type = np.int32, lowest: int = 0
    ) -> np.ndarray:
        """An array of numbers from `lowest` to below `most`."""
        if name not in self._checked:
            found = self.plain(name, dtype, n)
            if len(found) and (found.min() < lowest or found.max() >= most):
                raise StoreError(f"the vocabulary is damaged: {name} names what is not there")
            self._checked[name] = found
        checked: np.ndarray = self._checked[name]
        return checked

    def starts(self, name: str, owners: int, items: int) -> np.ndarray:
        """Where the items of each owner start."""
        key = f"{name}.starts"
        if key not in self._checked:
            starts = self.plain(key, np.int64, owners + 1)
            if starts[0] != 0 or starts[-1] != items or (starts[1:] < starts[:-1]).any():
                raise StoreError(f"the vocabulary is damaged: {key} does not rise to {items}")
            self._checked[key] = starts
        checked: np.ndarray = self._checked[key]
        return checked

    def ragged(
        self, name: str, values: str, owners: int, most: int, dtype: type = np.int32
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where the items of each owner start, and the items: numbers below `most`."""
        items = self.numbers(f"{name}.{values}", None, most, dtype)
        return self.starts(name, owners, len(items)), items

    def texts(self, name: str, n: int | None = None) -> pa.LargeStringArray:
        """A column of texts."""
        if name not in self._checked:
            offsets = self.plain(f"{name}.offsets", np.int64, None if n is None else n + 1)
            data = self.plain(f"{name}.bytes", np.uint8)
            sound = len(offsets) and offsets[0] == 0 and offsets[-1] == len(data)
            if not sound or (offsets[1:] < offsets[:-1]).any():
                raise StoreError(f"the vocabulary is damaged: {name} does not fit its bytes")
            column = from_arrays(offsets, data)
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise StoreError(f"the vocabulary is damaged: {name}: {error}") from None
            self._checked[name] = column
        return self._checked[name]
