"""Columns of text as Arrow arrays: one buffer of UTF-8 and one of offsets, no Python objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel import _native
from megalabel.errors import DataError


def strings(values: Any) -> pa.LargeStringArray:
    """Any sequence of strings as one Arrow array with 64-bit offsets and no nulls.

    Examples
    --------
    >>> strings(["a", "b"]).to_pylist()
    ['a', 'b']
    """
    if len(shape := getattr(values, "shape", (0,))) != 1:  # a frame, or an array of columns
        raise DataError(f"expected a sequence of strings, found a {type(values).__name__} {shape}")
    if isinstance(values, str | bytes | Mapping):
        raise DataError(f"expected several strings in a list, found {values!r:.80}")
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list | tuple):
        return from_arrays(*encoded(values))
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # no chunks at all
            return from_arrays(*encoded([]))
    if not isinstance(values, pa.Array):
        try:
            values = pa.array(values, pa.large_string())
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise DataError(f"expected a sequence of strings: {error}") from None
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type != pa.large_string():
        values = values.cast(pa.large_string())
    if values.null_count:
        where = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"expected a string at position {where}, found nothing")
    return values


def encoded(values: list[str] | tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and UTF-8 bytes of a list of strings.

    Examples
    --------
    >>> offsets, data = encoded(["a", "bc"])
    >>> offsets.tolist(), data.tobytes()
    ([0, 1, 3], b'abc')
    """
    # not by pa.array, whose first call imports pandas where that is installed
    try:
        offsets, data = _native.encode_texts(values)
    except UnicodeEncodeError as error:
        where = next(i for i, value in enumerate(values) if value == error.object)
        raise DataError(
            f"the text at position {where} holds a lone surrogate, "
            f"{error.object[error.start]!r}, which has no UTF-8 form"
        ) from None
    except TypeError:
        where = next(i for i, value in enumerate(values) if not isinstance(value, str))
        found = "nothing" if values[where] is None else repr(values[where])[:80]
        raise DataError(f"expected a string at position {where}, found {found}") from None
    return offsets, data


def split_labels(
    texts: pa.Array, numbers: bool = False, separator: str | None = None
) -> pa.LargeListArray:
    """Strings of labels as lists: `;` and `|` separate them, blanks around them do not count.

    This is what a string means wherever labels are given: in a cell, in JSON, in Python. What
    stands in a list is never split. Numbers may also be separated by commas or blanks. A separator
    that is given takes the place of these.

    Examples
    --------
    >>> split_labels(strings(["dress; red", "hats, caps|blue", ""])).to_pylist()
    [['dress', 'red'], ['hats, caps', 'blue'], []]
    >>> split_labels(strings(["hats, caps|blue"]), separator=", ").to_pylist()
    [['hats', 'caps|blue']]
    """
    pattern = separator_pattern(separator, numbers)
    lists = pc.split_pattern_regex(pc.fill_null(texts, ""), pattern=pattern)
    names = pc.utf8_trim_whitespace(lists.flatten())
    kept = np.asarray(pc.not_equal(names, ""))
    counts = np.bincount(row_of(list_lengths(lists))[kept], minlength=len(texts))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int64())
    return pa.LargeListArray.from_arrays(
        offsets, names.filter(pa.array(kept)), mask=texts.is_null()
    )


def split_labels_of_one(text: str, separator: str | None = None) -> list[str]:
    """The same for a single string, without the cost of an array."""
    parts = re.split(separator_pattern(separator), text)
    return [name for part in parts if (name := part.strip())]


def separator_pattern(separator: str | None, numbers: bool = False) -> str:
    """What separates labels in a string, as a regular expression."""
    if separator is None:
        return "[;|, ]" if numbers else "[;|]"
    return re.escape(separator)


def beginnings(texts: pa.LargeStringArray, length: int = 80) -> pa.LargeStringArray:
    """The beginning of each text: at most so many characters.

    Examples
    --------
    >>> beginnings(strings(["red dress", "an evening dress"]), 12).to_pylist()
    ['red dress', 'an evening …']
    """
    more, nothing = (pa.scalar(text, pa.large_string()) for text in ("…", ""))
    cut = pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, length - 1), more, nothing)
    return strings(pc.if_else(pc.greater(pc.utf8_length(texts), length), cut, texts))


def list_lengths(lists: pa.Array) -> np.ndarray:
    """How many items each list has."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def row_of(counts: np.ndarray) -> np.ndarray:
    """The row of each item, given how many items each row has."""
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def positions(rows: np.ndarray) -> pa.Int64Array:
    """Row numbers as Arrow has them; unlike `pa.array`, it never imports pandas."""
    rows = np.ascontiguousarray(rows, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])


def flags(answers: pa.BooleanArray) -> np.ndarray:
    """Answers of Arrow, all known, as NumPy has them; it never imports pandas either.

    Examples
    --------
    >>> flags(pc.equal(strings(["a", "b", "a"]), "a")).tolist()
    [True, False, True]
    """
    if not len(answers):
        return np.zeros(0, bool)
    bits = np.frombuffer(answers.buffers()[1], np.uint8)
    first, last = answers.offset, answers.offset + len(answers)
    return np.unpackbits(bits, count=last, bitorder="little")[first:].astype(bool)


def to_arrays(column: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and UTF-8 bytes, without a copy; the first offset need not be 0."""
    _, offsets, data = column.buffers()
    if offsets is None or len(column) == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return bounds, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def from_arrays(offsets: np.ndarray, data: np.ndarray) -> pa.LargeStringArray:
    """The column over offsets and UTF-8 bytes, without a copy and without checks."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
