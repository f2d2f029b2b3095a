"""Text files as blocks of whole lines: decompressed, without a byte order mark, lines counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from megalabel.data.problems import Problems
from megalabel.errors import DataError

BLOCK = 1 << 26
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Block(NamedTuple):
    """Some whole lines of a file, and the number of the first of them."""

    data: bytes
    first_line: int


def open_input(path: Path) -> pa.NativeFile:
    """Open a file, decompressing it if its first bytes say that it is compressed."""
    raw = pa.OSFile(str(path), "rb")
    start = raw.read(4)
    raw.seek(0)
    for magic, name in _COMPRESSIONS.items():
        if start.startswith(magic):
            return pa.CompressedInputStream(raw, name)
    return raw


def read_blocks(path: Path, size: int = BLOCK) -> Iterator[Block]:
    """The file in blocks of about `size` bytes that end where a line ends."""
    with open_input(path) as source:
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
        if rest := b"".join(held):
            yield Block(rest, line)


def read_head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of the file after decompression."""
    with open_input(path) as source:
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
    place = -1
    for number, raw in enumerate(block.data.split(b"\n"), block.first_line):
        if not raw or raw.isspace():
            continue
        place += 1
        try:
            yield Line(place, number, raw.decode().removesuffix("\r"))
        except UnicodeDecodeError as error:
            problems.add(
                f"expected UTF-8 text, found the byte 0x{raw[error.start]:02x}",
                file=path,
                line=number,
                column=error.start + 1,
            )


def count_lines(block: Block) -> int:
    """How many lines of a block are not blank."""
    return sum(1 for raw in block.data.split(b"\n") if raw and not raw.isspace())


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
        raise DataError("expected UTF-8 text, found UTF-16; save the file as UTF-8", file=path)
    return data.removeprefix(_BOM)
