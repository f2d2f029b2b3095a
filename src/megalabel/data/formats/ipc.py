"""What an Arrow file unpacks to, known before it is: buffers may be compressed, each by itself.

Arrow gives no way to ask, and some files whose lengths are wrong end the process when it checks
them. So the few fields that tell are read here (Arrow's `File.fbs` and `Message.fbs`, in the
encoding of FlatBuffers).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

_CONTINUES = -1  # stands before the length of a message
_DICTIONARIES, _BATCHES = 2, 3  # fields of a footer
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # types of messages
_NO_CODEC = -1


class _Message(NamedTuple):
    start: int  # of its table
    body: int
    body_length: int


def unpacked_bytes(data: memoryview, is_file: bool) -> int:
    """How many bytes the buffers of all batches have once they are unpacked.

    Raises struct.error if the data is damaged.
    """
    total = 0
    for message in _in_file(data) if is_file else _in_stream(data):
        kind_at, batch = _field(data, message.start, 1), _reference(data, message.start, 2)
        kind = 0 if kind_at is None else _read("<B", data, kind_at)[0]
        if kind == _DICTIONARY_BATCH and batch is not None:
            batch = _reference(data, batch, 1)
        elif kind != _RECORD_BATCH:
            continue
        if batch is not None:
            total += _batch_bytes(data, batch, message)
    return total


def _batch_bytes(data: memoryview, batch: int, message: _Message) -> int:
    compressed = _reference(data, batch, 3) is not None
    total = longest = 0
    for at in _vector(data, batch, 1, 16):
        length, nulls = _read("<qq", data, at)
        if not 0 <= nulls <= length:
            raise struct.error("an array has fewer items than nulls")
        longest = max(longest, length)
    for at in _vector(data, batch, 2, 16):
        offset, length = _read("<qq", data, at)
        if not 0 <= offset <= offset + length <= message.body_length:  # Arrow would read there
            raise struct.error("a buffer lies outside its batch")
        if compressed and length >= 8:
            (unpacked,) = _read("<q", data, message.body + offset)
            length = length if unpacked == _NO_CODEC else max(0, unpacked)
        total += length
    return max(total, longest)  # nulls take no bytes


def _in_file(data: memoryview) -> Iterator[_Message]:
    end = len(data) - 10  # behind it a length and the magic bytes
    (length,) = _read("<i", data, end)
    footer = end - length
    footer += _read("<I", data, footer)[0]
    for field in (_DICTIONARIES, _BATCHES):
        for at in _vector(data, footer, field, 24):
            offset, metadata, _ = _read("<qi4xq", data, at)
            yield _message(data, offset, offset + metadata)


def _in_stream(data: memoryview) -> Iterator[_Message]:
    position = 0
    while position + 8 <= len(data):
        start, length = _prefix(data, position)
        if length <= 0:
            return
        message = _message(data, position, start + length)
        yield message
        position = message.body + message.body_length


def _message(data: memoryview, position: int, body: int) -> _Message:
    start, _ = _prefix(data, position)
    table = start + _read("<I", data, start)[0]
    at = _field(data, table, 3)
    body_length = 0 if at is None else _read("<q", data, at)[0]
    if not 0 <= body <= body + body_length <= len(data):
        raise struct.error("a batch goes over the end of the file")
    return _Message(table, body, body_length)


def _prefix(data: memoryview, position: int) -> tuple[int, int]:
    """Where a message starts, and its length."""
    first, second = _read("<ii", data, position)
    return (position + 8, second) if first == _CONTINUES else (position + 4, first)


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table is, if it has it."""
    fields = table - _read("<i", data, table)[0]
    if 4 + 2 * number >= _read("<H", data, fields)[0]:
        return None
    offset = _read("<H", data, fields + 4 + 2 * number)[0]
    return table + offset if offset else None


def _reference(data: memoryview, table: int, number: int) -> int | None:
    """What a field of a table points to."""
    at = _field(data, table, number)
    return None if at is None else at + int(_read("<I", data, at)[0])


def _vector(data: memoryview, table: int, number: int, size: int) -> range:
    """Where the items of a vector of structs are."""
    at = _reference(data, table, number)
    if at is None:
        return range(0)
    (count,) = _read("<I", data, at)
    if at + 4 + count * size > len(data):
        raise struct.error("a list goes over the end of the file")
    return range(at + 4, at + 4 + count * size, size)


def _read(kind: str, data: memoryview, position: int) -> tuple[Any, ...]:
    if position < 0:
        raise struct.error("a position before the start of the file")
    return struct.unpack_from(kind, data, position)
