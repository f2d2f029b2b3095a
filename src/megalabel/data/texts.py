"""`stream_texts`: texts to tag, from a corpus in any format or from plain text, one text a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from megalabel.data.corpus import Corpus
from megalabel.data.formats import jsonl, tables
from megalabel.data.formats.columns import ID_FIELDS, TEXT_FIELDS
from megalabel.data.formats.detect import FORMATS, detect, ending
from megalabel.data.formats.lines import not_utf8, read_blocks, read_head
from megalabel.data.limits import Limits
from megalabel.data.problems import Problems
from megalabel.data.reading import Stream, nothing_read, read, say_skipped, stream
from megalabel.errors import DataError, ParameterError

PLAIN = "plain"  # a text a line; a line may be a JSON object
_VECTORS = ("xc", "svmlight")  # formats without texts, which are read whole
_VAGUE = ("", ".txt")  # endings of plain text as well as of a corpus
_NEVER_PLAIN = (".tsv", ".json", ".npz", ".npy")  # endings that promise more than a text a line
_FIRST = 16  # texts of the first batch of lines, so that an answer comes at once


def stream_texts(
    source: str | os.PathLike[str] | Iterable[bytes],
    *,
    format: str | None = None,
    batch_rows: int = 1024,
    skip_bad: bool = False,
    max_bytes: int | None = None,
) -> Iterator[Corpus]:
    """The texts of a file or of lines, some at a time, with their identifiers where there are any.

    Labels that the texts carry, and a label file beside them, are not looked at.

    Parameters
    ----------
    source : path, or lines as bytes
        A corpus that `read` reads, or plain text: a text a line. A line that is a JSON object has
        its text in `title`, `content` or `text`, and its identifier in `uid` or `id`. What is no
        file, such as a pipe, and lines that are given are plain text.
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
    if not isinstance(source, str | os.PathLike):
        yield from _plain(source, "stdin", Problems(skip=skip_bad), batch_rows)
        return
    path, limits = Path(source), Limits(max_bytes)
    if path.is_dir() or not path.exists():
        raise DataError("is a folder" if path.is_dir() else "no such file", file=path)
    form = format or _format_of(path)
    if form in _VECTORS:
        yield read(path, format=form, skip_bad=skip_bad, max_bytes=max_bytes)
        return
    noted = Problems(skip=skip_bad)
    batches: Iterable[Corpus]
    if form == PLAIN:
        batches = _plain(_lines(path, limits), path, noted, batch_rows)
    else:
        options: dict[str, Any] = {
            "skip_bad": skip_bad,
            "label_file": False,
            "max_bytes": max_bytes,
        }
        batches = stream(path, batch_rows=batch_rows, format=form, **options)
    rows = 0
    for batch in batches:
        rows += len(batch)
        yield batch
    if not rows:
        problems = batches.problems if isinstance(batches, Stream) else noted
        raise nothing_read(path, problems, problems.count)


def _format_of(path: Path) -> str | None:
    """The format a file is read in; None: of no known one, and no plain text by its name."""
    if not path.is_file():
        return PLAIN
    form, last = detect(path), ending(path)[1]
    if form is None:
        return None if last in _NEVER_PLAIN else PLAIN
    if last not in _VAGUE:
        return form
    head = read_head(path)
    lines = [line for line in head.decode(errors="replace").split("\n") if line.strip()]
    likely = [True]
    if form == "csv":
        likely = tables.of_equal_width(lines) or likely
    elif form == "jsonl" and not jsonl.looks_like_array(head):
        likely = [line.lstrip().startswith("{") for line in lines]
    elif form in _VECTORS:
        from megalabel.data.formats.sparse_text import looks_like_row

        rows = lines[1:] if form == "xc" else lines
        likely = [looks_like_row(line) for line in rows] or likely
    return form if 2 * sum(likely) > len(likely) else PLAIN


def _plain(
    lines: Iterable[bytes], name: str | Path, problems: Problems, batch_rows: int
) -> Iterator[Corpus]:
    numbered = enumerate(lines, 1)
    source = {"path": Path(name).name, "format": PLAIN, "split": None}
    size = min(_FIRST, batch_rows)
    while batch := list(islice(numbered, size)):
        items = [_item(line, name, number, problems) for number, line in batch]
        kept = [item for item in items if item is not None]
        if kept:
            ids, texts = zip(*kept, strict=True)
            yield Corpus(texts, ids=ids if any(ids) else None, source=source)
        size = batch_rows
    say_skipped(str(name), problems)


def _lines(file: Path, limits: Limits) -> Iterator[bytes]:
    """The lines of a file, decompressed, or of a pipe."""
    if not file.is_file():
        with file.open("rb") as opened:
            yield from opened
        return
    for block in read_blocks(file, limits=limits):
        yield from block.data.removesuffix(b"\n").split(b"\n")


def _item(line: bytes, file: str | Path, number: int, problems: Problems) -> tuple[str, str] | None:
    """The identifier, if any, and the text of a line: as it is, or the fields of a JSON object.
    None: it is a problem that is skipped."""
    try:
        text = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").decode().rstrip("\r\n")
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
    parts = [fields[key] for key in TEXT_FIELDS if fields.get(key)]
    if not parts or not all(isinstance(part, str) for part in parts):
        problems.add("expected a title, content or text", file=file, line=number)
        return None
    identity = next((fields[key] for key in ID_FIELDS if fields.get(key) is not None), "")
    return str(identity), " ".join(parts)
