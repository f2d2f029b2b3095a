"""`stream_texts`: texts to tag, from a corpus in any format or from plain text, one text a line."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from megalabel.data.corpus import Corpus
from megalabel.data.formats import excel, jsonl, separated
from megalabel.data.formats.columns import ID_FIELDS, TEXT_FIELDS
from megalabel.data.formats.detect import FORMATS, detect, ending
from megalabel.data.formats.lines import not_utf8, read_blocks, read_head
from megalabel.data.layout import UTF8, Layout, layout_of, weighted
from megalabel.data.limits import Limits
from megalabel.data.problems import Problems
from megalabel.data.reading import Stream, nothing_read, read, say_skipped, stream
from megalabel.errors import DataError, ParameterError

PLAIN = "plain"  # a text a line; a line may be a JSON object
_VECTORS = ("xc", "svmlight")  # formats without texts, which are read whole
_VAGUE = ("", ".txt")  # endings of plain text as well as of a corpus
_NEVER_PLAIN = (".tsv", ".json", ".npz", ".npy")  # endings that promise more than a text a line
_FIRST = 16  # texts of the first batch of lines, so that an answer comes at once
_PIECE = 1 << 16  # bytes taken of what has come in


def stream_texts(
    source: str | os.PathLike[str] | io.BufferedIOBase | Iterable[bytes],
    *,
    text_column: str | Sequence[str] | Mapping[str, int] | None = None,
    id_column: str | None = None,
    encoding: str | None = None,
    format: str | None = None,
    batch_rows: int = 1024,
    skip_bad: bool = False,
    max_bytes: int | None = None,
) -> Iterator[Corpus]:
    """The texts of a file or of lines, some at a time, with their identifiers where there are any.

    Labels that the texts carry, and a label file beside them, are not looked at.

    Parameters
    ----------
    source : path, open binary file, or lines as bytes
        A corpus that `read` reads, or plain text: a text a line. A line that is a JSON object has
        its text in `title`, `content` or `text`, and its identifier in `uid` or `id`. What is no
        file, such as a pipe or standard input, and lines that are given are plain text; of what
        can be read as it comes, all lines that are there are given at once, without waiting for
        more.
    text_column, id_column, encoding
        As for `read`; of lines that are JSON objects too.
    format : str, optional
        "plain", or a format of `read`. By default a file is read as what it looks like; one whose
        name does not tell (`.txt`) is a corpus only if most of its first lines look like one.
    batch_rows : int
        At most so many texts at a time. A corpus of vectors comes whole.
    skip_bad : bool
        Leave out bad lines, which are counted and logged, instead of raising.
    max_bytes : int, optional
        As for `read`.

    Examples
    --------
    >>> [batch] = stream_texts([b"a red dress", b'{"id": 7, "text": "blue jeans"}'])
    >>> batch.texts.to_pylist(), batch.ids.to_pylist()
    (['a red dress', 'blue jeans'], ['', '7'])
    """
    if format not in (None, PLAIN, *FORMATS):
        known = ", ".join((PLAIN, *FORMATS))
        raise ParameterError(f"format must be one of {known}, not {format!r}")
    layout = layout_of(text_column, encoding=encoding, id_column=id_column)
    noted = Problems(skip=skip_bad)
    if not isinstance(source, str | os.PathLike):
        parts = _arriving(source) if hasattr(source, "read1") else _some(source, batch_rows)
        yield from _plain(parts, "stdin", noted, batch_rows, layout)
        return
    path, limits = excel.sheet_in(Path(source))[0], Limits(max_bytes)
    if path.is_dir() or not path.exists():
        raise DataError("is a folder" if path.is_dir() else "no such file", file=path)
    form = format or _format_of(path, layout)
    if form in _VECTORS:
        yield read(path, format=form, skip_bad=skip_bad, max_bytes=max_bytes)
        return
    batches: Iterable[Corpus]
    if form == PLAIN and path.is_file():
        lines = _some(_lines(path, limits, layout.encoding), batch_rows)
        batches = _plain(lines, path, noted, batch_rows, replace(layout, encoding=UTF8))
    elif form == PLAIN:
        batches = _plain(_piped(path), path, noted, batch_rows, layout)
    else:
        options: dict[str, Any] = {
            "text_column": text_column,
            "id_column": id_column,
            "encoding": encoding,
            "skip_bad": skip_bad,
            "label_file": False,
            "max_bytes": max_bytes,
        }
        batches = stream(source, batch_rows=batch_rows, format=form, **options)
    rows = 0
    for batch in batches:
        rows += len(batch)
        yield batch
    if not rows:
        problems = batches.problems if isinstance(batches, Stream) else noted
        raise nothing_read(path, problems, problems.count)


def _format_of(path: Path, layout: Layout) -> str | None:
    """The format a file is read in; None: of no known one, and no plain text by its name."""
    if not path.is_file():
        return PLAIN
    form, last = detect(path, layout), ending(path)[1]
    if form is None:
        return None if last in _NEVER_PLAIN else PLAIN
    if last not in _VAGUE:
        return form
    head = read_head(path, encoding=layout.encoding)
    lines = [line for line in head.decode(errors="replace").split("\n") if line.strip()]
    likely = [True]
    if form == "csv":
        likely = separated.of_equal_width(lines, layout) or likely
    elif form == "jsonl" and not jsonl.looks_like_array(head):
        likely = [line.lstrip().startswith("{") for line in lines]
    elif form in _VECTORS:
        from megalabel.data.formats.sparse_text import looks_like_row

        rows = lines[1:] if form == "xc" else lines
        likely = [looks_like_row(line) for line in rows] or likely
    return form if 2 * sum(likely) > len(likely) else PLAIN


def _plain(
    parts: Iterable[list[bytes]],
    name: str | Path,
    problems: Problems,
    batch_rows: int,
    layout: Layout,
) -> Iterator[Corpus]:
    number = 1
    source = {"path": Path(name).name, "format": PLAIN, "split": None}
    for part in parts:
        for start in range(0, len(part), batch_rows):
            batch = part[start : start + batch_rows]
            items = [_item(line, name, n, problems, layout) for n, line in enumerate(batch, number)]
            number += len(batch)
            kept = [item for item in items if item is not None]
            if kept:
                ids, texts = zip(*kept, strict=True)
                yield Corpus(texts, ids=ids if any(ids) else None, source=source)
    say_skipped(str(name), problems)


def _some(lines: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Lines, some at a time; few at first, so that an answer comes at once."""
    rest = iter(lines)
    some = list(islice(rest, min(_FIRST, size)))
    while some:
        yield some
        some = list(islice(rest, size))


def _arriving(source: Any) -> Iterator[list[bytes]]:
    """Lines as they come: all that are there, as soon as there are any."""
    held: list[bytes] = []
    while data := source.read1(_PIECE):
        *lines, rest = data.split(b"\n")
        if lines:
            yield [b"".join([*held, lines[0]]), *lines[1:]]
            held = []
        held.append(rest)
    if last := b"".join(held):
        yield [last]


def _piped(path: Path) -> Iterator[list[bytes]]:
    with path.open("rb") as opened:
        yield from _arriving(opened)


def _lines(file: Path, limits: Limits, encoding: str) -> Iterator[bytes]:
    """The lines of a file, decompressed, in UTF-8."""
    for block in read_blocks(file, limits=limits, encoding=encoding):
        yield from block.data.removesuffix(b"\n").split(b"\n")


def _item(
    line: bytes, file: str | Path, number: int, problems: Problems, layout: Layout
) -> tuple[str, str] | None:
    """The identifier, if any, and the text of a line: as it is, or the fields of a JSON object.
    None: it is a problem that is skipped."""
    try:
        line = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"")
        text = line.decode(layout.encoding).rstrip("\r\n")
    except UnicodeDecodeError as error:
        message = not_utf8(line, error.start)
        problems.add(message, file=file, line=number, column=error.start + 1)
        return None
    if not text.startswith("{"):
        return "", text
    try:
        fields: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return "", text  # a text may well begin with a brace
    names = [weighted(column, [*fields]) for column in layout.text or TEXT_FIELDS]
    parts = [fields[name] for name, weight in names if fields.get(name) for _ in range(weight)]
    if not parts or not all(isinstance(part, str) for part in parts):
        expected = "a title, content or text" if layout.text is None else " or ".join(layout.text)
        problems.add(f"expected {expected}", file=file, line=number)
        return None
    known = ID_FIELDS if layout.ids is None else (layout.ids,)
    identity = next((fields[key] for key in known if fields.get(key) is not None), "")
    return str(identity), " ".join(parts)
