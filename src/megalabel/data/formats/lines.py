"""Text files as blocks of whole lines: decompressed, without a byte order mark, lines counted."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from megalabel.data.layout import UTF8
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError

BLOCK = 1 << 26
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_LINE = re.compile(rb"[^\n]+")
_BOM = b"\xef\xbb\xbf"
_LIMIT = threading.RLock()
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Block(NamedTuple):
    """Some whole lines of a file, and the number of the first of them."""

    data: bytes
    first_line: int


def open_input(path: Path, limits: Limits = USUAL, encoding: str = UTF8) -> pa.NativeFile:
    """Open a file, decompressing it if its first bytes say that it is compressed; text of another
    encoding is given as UTF-8."""
    source = pa.OSFile(str(path), "rb")
    codec = compression_of(path)
    if codec is not None:
        unpacked = _Unpacked(pa.CompressedInputStream(source, codec), path, limits)
        source = pa.PythonFile(unpacked, "r")
    return source if encoding == UTF8 else pa.PythonFile(_Recoded(source, path, encoding), "r")


def compression_of(path: Path) -> str | None:
    """How a file is compressed, by its first bytes."""
    with open(path, "rb") as file:
        start = file.read(4)
    return next((codec for magic, codec in _COMPRESSIONS.items() if start.startswith(magic)), None)


class _Unpacked(io.RawIOBase):
    """A stream that is read no further than it may be."""

    def __init__(self, source: pa.NativeFile, path: Path, limits: Limits) -> None:
        self._source, self._path, self._limits = source, path, limits
        self._done = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Some bytes, or a DataError if the file unpacks to too many."""
        most = self._limits.unpacked(self._path.stat().st_size) + 1 - self._done
        data = bytes(self._source.read(most if size < 0 else min(size, most)))
        self._done += len(data)
        self._limits.check_unpacked(self._done, self._path)
        return data

    def close(self) -> None:
        """Close the stream that is read."""
        self._source.close()
        super().close()


class _Recoded(io.RawIOBase):
    """A stream of text in some encoding as UTF-8."""

    def __init__(self, source: pa.NativeFile, path: Path, encoding: str) -> None:
        self._source, self._path, self._encoding = source, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._held = b""
        self._done = 0  # line ends so far
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Some bytes of UTF-8, or a DataError if the file is not in its encoding."""
        while not self._ended and (size < 0 or len(self._held) < size):
            data = bytes(self._source.read(BLOCK if size < 0 else min(size, BLOCK)))
            self._ended = not data
            try:
                text = self._decoder.decode(data, final=self._ended)
            except UnicodeError as error:
                raise DataError(
                    f"the file is not in the encoding {self._encoding}, near line "
                    f"{self._done + 1}: {error}",
                    file=self._path,
                ) from None
            self._done += text.count("\n")
            self._held += text.encode(errors="replace")
        data, self._held = (self._held, b"") if size < 0 else (self._held[:size], self._held[size:])
        return data

    def close(self) -> None:
        """Close the stream that is read."""
        self._source.close()
        super().close()


def read_blocks(
    path: Path, size: int = BLOCK, limits: Limits = USUAL, encoding: str = UTF8
) -> Iterator[Block]:
    """The file in blocks of about `size` bytes that end where a line ends."""
    with open_input(path, limits, encoding) as source:
        held: list[bytes] = []
        line, done = 1, 0
        while data := _read(source, size, path, done):
            if done == 0:
                data = _without_mark(data, path)
            done += len(data)
            cut = data.rfind(b"\n") + 1
            if not cut:  # a line longer than the block: go on until it ends
                held.append(data)
                continue
            block = b"".join([*held, data[:cut]])
            held = [data[cut:]]
            yield Block(block, line)
            line += block.count(b"\n")
        rest = held[0] if len(held) == 1 else b"".join(held)
        held.clear()
        if rest:
            yield Block(rest, line)


def unpacked(path: Path, limits: Limits = USUAL, encoding: str = UTF8) -> Iterator[bytes]:
    """The bytes of a file, decompressed, some at a time."""
    done = 0
    with open_input(path, limits, encoding) as source:
        while data := _read(source, BLOCK, path, done):
            done += len(data)
            yield data


def read_head(path: Path, size: int = 1 << 16, encoding: str = UTF8) -> bytes:
    """The first bytes of the file after decompression."""
    with open_input(path, encoding=encoding) as source:
        return _without_mark(_read(source, size, path, 0), path)


def pieces(block: Block, count: int) -> Iterator[Block]:
    """The block in about `count` blocks of whole lines."""
    start, line = 0, block.first_line
    while start < len(block.data):
        end = block.data.find(b"\n", start + len(block.data) // count) + 1 or len(block.data)
        yield Block(block.data[start:end], line)
        line += block.data.count(b"\n", start, end)
        start = end


class Line(NamedTuple):
    """A line that is not blank: its place among such lines, its number in the file, its text."""

    place: int
    number: int
    text: str


def split_lines(block: Block, path: Path, problems: Problems) -> Iterator[Line]:
    """The lines of a block; one that is not UTF-8 is a problem, but takes a place."""
    for place, (number, raw) in enumerate(_lines(block)):
        try:
            yield Line(place, number, raw.decode().removesuffix("\r"))
        except UnicodeDecodeError as error:
            problems.add(
                not_utf8(raw, error.start),
                file=path,
                line=number,
                column=error.start + 1,
            )


@contextlib.contextmanager
def long_fields() -> Iterator[None]:
    """Let Python's CSV reader take fields of any length; the limit is one for all threads."""
    with _LIMIT:
        limit = csv.field_size_limit(sys.maxsize)
        try:
            yield
        finally:
            csv.field_size_limit(limit)


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8, without decoding them."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    whole = pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data))
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def not_utf8(data: bytes, position: int) -> str:
    """What to say of bytes that are not UTF-8, with a guess at what they are.

    Examples
    --------
    >>> print(not_utf8(b"caf\\xe9", 3).partition(";")[0])
    expected UTF-8 text, found the byte 0xe9, which is 'é' in Windows-1252
    """
    found = f"expected UTF-8 text, found the byte 0x{data[position]:02x}"
    if b"\0" in data:
        return f"{found}; the file may be UTF-16 or no text at all: {_advice('utf-16')}"
    try:
        letter = f", which is {data[position : position + 1].decode('cp1252')!r} in Windows-1252"
    except UnicodeDecodeError:
        letter = ""
    return (
        f"{found}{letter}; if the file is in Windows-1252 or Latin-1, {_advice('cp1252')}, or "
        "convert it: iconv -f WINDOWS-1252 -t UTF-8"
    )


def _advice(encoding: str) -> str:
    return f"give encoding={encoding!r} (--encoding {encoding})"


def count_lines(block: Block) -> int:
    """How many lines of a block are not blank."""
    return sum(1 for _ in _lines(block))


def _lines(block: Block) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of the lines that are not blank, one at a time."""
    number, done = block.first_line, 0
    for found in _LINE.finditer(block.data):
        number += block.data.count(b"\n", done, found.start())
        done = found.start()
        raw = found[0]
        if not raw.isspace():
            yield number, raw


def _read(source: pa.NativeFile, size: int, path: Path, done: int) -> bytes:
    try:
        return bytes(source.read(size))
    except OSError as error:
        if "truncated" in str(error).lower():
            raise DataError(
                f"the compressed file is truncated: it ends early, {done:,} bytes or more into its "
                "content; copy or download it again",
                file=path,
            ) from None
        raise DataError(f"the compressed file is damaged: {error}", file=path) from None


def _without_mark(data: bytes, path: Path) -> bytes:
    if data.startswith(_UTF16):
        raise DataError(
            f"expected UTF-8 text, found UTF-16: {_advice('utf-16')}, or save it as UTF-8",
            file=path,
        )
    return data.removeprefix(_BOM)
