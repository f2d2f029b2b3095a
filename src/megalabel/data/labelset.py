"""LabelSet: the labels, by number inside and by name outside."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.base import made_once
from megalabel.data.strings import from_arrays, strings, to_arrays
from megalabel.errors import ShapeError, UnknownLabelError

_AT_ONCE = 1 << 16  # numbers turned into strings


class LabelSet:
    """Labels with an id and a name each, and optionally a text.

    Parameters
    ----------
    ids : sequence of str
        The labels' own identifiers (a code, a URI, a key); unique.
    names : sequence of str, optional
        What people read; the ids where not given. Two labels may share a name.
    texts : sequence of str, optional
        A longer description of each label, for methods that read labels.

    Examples
    --------
    >>> labels = LabelSet(["Q144", "Q146"], names=["dog", "cat"])
    >>> labels.index("cat"), labels.names[0].as_py()
    (1, 'dog')
    """

    def __init__(
        self,
        ids: Sequence[str] | pa.Array,
        names: Sequence[str] | pa.Array | None = None,
        texts: Sequence[str] | pa.Array | None = None,
    ) -> None:
        self.ids = strings(ids)
        self.names = self.ids if names is None else strings(names)
        if self.names.equals(self.ids):
            self.names = self.ids
        self.texts = None if texts is None else strings(texts)
        for kind, column in (("names", self.names), ("texts", self.texts)):
            if column is not None and len(column) != len(self.ids):
                raise ShapeError(f"{len(self.ids)} label ids but {len(column)} label {kind}")
        self._lookup: dict[str, int] | None = None

    @classmethod
    def numbered(cls, n: int) -> LabelSet:
        """Labels known by number alone: named "0", "1", …"""
        # some at a time: Arrow takes several times the memory of the result
        size = n + sum(max(0, n - 10**digits) for digits in range(1, len(str(n))))
        offsets, data = np.zeros(n + 1, np.int64), np.empty(size, np.uint8)
        for start in range(0, n, _AT_ONCE):
            stop = min(n, start + _AT_ONCE)
            ends, digits = to_arrays(pa.array(np.arange(start, stop)).cast(pa.large_string()))
            done = offsets[start]
            offsets[start + 1 : stop + 1] = ends[1:] + done
            data[done : done + ends[-1]] = digits[: ends[-1]]
        return cls(from_arrays(offsets, data))

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSet) and (self is other or self.ids.equals(other.ids))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names[:3].to_pylist()))
        return f"LabelSet({len(self)} labels: {shown}{', …' if len(self) > 3 else ''})"

    @property
    def identified(self) -> bool:
        """True if labels have identifiers besides their names."""
        return self.names is not self.ids

    def name(self, number: int) -> str:
        """The name of one label."""
        return str(self.names[int(number)].as_py())

    def index(self, label: str) -> int:
        """The number of a label given by id, or by name where no id matches."""
        lookup = made_once(self, "_lookup", self._numbers)
        found = lookup.get(label)
        if found is None:
            raise UnknownLabelError(label, difflib.get_close_matches(str(label), lookup, n=3))
        return found

    def _numbers(self) -> dict[str, int]:
        """The numbers of all labels: ids win over names, and among equal names the lower number."""
        numbers: dict[str, int] = {}
        for column in (self.ids, self.names):
            for number, value in enumerate(column.to_pylist()):
                numbers.setdefault(value, number)
        return numbers

    def indices(self, labels: Iterable[str]) -> np.ndarray:
        """The numbers of several labels; -1 for those that are unknown."""
        wanted = strings(
            list(labels) if not isinstance(labels, pa.Array | pa.ChunkedArray) else labels
        )
        found = pc.index_in(wanted, value_set=self.ids)
        if found.null_count and self.names is not self.ids:
            found = pc.coalesce(found, pc.index_in(wanted, value_set=self.names))
        return np.asarray(pc.fill_null(found, -1), dtype=np.int64)

    def take(self, numbers: Sequence[int] | np.ndarray) -> LabelSet:
        """The label set of some of the labels, in the given order."""
        where = pa.array(np.asarray(numbers, dtype=np.int64))
        return LabelSet(
            self.ids.take(where),
            None if self.names is self.ids else self.names.take(where),
            None if self.texts is None else self.texts.take(where),
        )

    def extended(self, other: LabelSet) -> LabelSet:
        """These labels, followed by those of `other` that are not among them."""
        new = np.flatnonzero(self.indices(other.ids) < 0)
        if not len(new):
            return self
        more = other.take(new)
        texts = None
        if self.texts is not None:
            texts = pa.concat_arrays([self.texts, more.names if more.texts is None else more.texts])
        return LabelSet(
            pa.concat_arrays([self.ids, more.ids]),
            pa.concat_arrays([self.names, more.names]),
            texts,
        )
