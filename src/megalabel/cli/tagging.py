"""tag: labels for texts from the command line, a file or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from megalabel import data
from megalabel.cli import output
from megalabel.cli.models import Json, MaxBytes, SkipBad, Threads, read, use_threads
from megalabel.data.formats.columns import ID_FIELDS, TEXT_FIELDS
from megalabel.data.formats.detect import detect, ending
from megalabel.data.formats.lines import not_utf8, read_blocks
from megalabel.data.limits import Limits
from megalabel.errors import DataError, ParameterError
from megalabel.tagger import Tagger

_AT_ONCE = 1024  # texts that are tagged together
_NEVER_PLAIN = (".tsv", ".json", ".npz", ".npy")  # names that promise more than a text a line


def tag(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts; without any, one a line from stdin.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Tag a file: a corpus in any format, or plain text, one text a line."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="At most so many labels a text.")] = 5,
    threads: Threads = None,
    skip_bad: SkipBad = False,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Tag texts with label names and probabilities; JSON lines when piped.

    [dim]megalabel tag model "a text" -k 5[/]
    [dim]megalabel tag model --file texts.csv[/]
    """
    use_threads(threads)
    if text and file is not None:
        raise ParameterError("give either texts or --file, not both")
    tagger = Tagger.load(model)
    as_json = as_json or not sys.stdout.isatty()
    number = 0
    for batch in [data.Corpus(text)] if text else _batches(file, skip_bad, max_bytes):
        ids = [""] * len(batch) if batch.ids is None else batch.ids.to_pylist()
        texts = [None] * len(batch) if batch.texts is None else batch.texts.to_pylist()
        for uid, words, tags in zip(ids, texts, tagger.tag(batch, k=k), strict=True):
            number += 1
            labels = [{"label": t.label, "probability": t.probability} for t in tags]
            if as_json:
                output.show_json(({"uid": uid} if uid else {}) | {"text": words, "labels": labels})
                continue
            title = f"[bold]{escape(f'row {number}' if words is None else words)}[/]"
            shown = f"[cyan]{escape(uid)}[/] {title}" if uid else title
            output.console.print(shown, soft_wrap=True)
            for tag in tags:
                output.console.print(f"  {tag.probability:6.1%}  {escape(tag.label)}")
        sys.stdout.flush()
    if file is not None and not number:
        raise DataError("the file is empty: expected at least one text", file=file)


def _batches(file: Path | None, skip_bad: bool, max_bytes: int | None) -> Iterator[data.Corpus]:
    """The texts of a file, or of standard input, some at a time."""
    if file is not None and (file.is_dir() or not file.exists()):
        raise DataError("is a folder" if file.is_dir() else "no such file", file=file)
    form = detect(file) if file is not None and file.is_file() else None
    if file is None or (form is None and ending(file)[1] not in _NEVER_PLAIN):
        yield from _lines(file, Limits(max_bytes))
    elif form in ("xc", "svmlight"):  # vectors, which are read whole
        yield read(file, None, skip_bad, max_bytes)
    else:
        # the texts alone count: labels that they carry may be unknown to a file beside it
        yield from data.stream(
            file, batch_rows=_AT_ONCE, skip_bad=skip_bad, label_file=False, max_bytes=max_bytes
        )


def _lines(file: Path | None, limits: Limits) -> Iterator[data.Corpus]:
    """A text a line, some at a time; a line may be a JSON object."""
    if file is None and sys.stdin.isatty():
        output.note("one text a line; end with Ctrl-D")
    name = "stdin" if file is None else file
    lines = enumerate(sys.stdin.buffer if file is None else _plain(file, limits), 1)
    size = 16  # a first small batch, so that an answer comes at once
    while batch := [_item(line, name, number) for number, line in islice(lines, size)]:
        uids, texts = zip(*batch, strict=True)
        yield data.Corpus(texts, ids=uids if any(uids) else None)
        size = _AT_ONCE


def _plain(file: Path, limits: Limits) -> Iterator[bytes]:
    """The lines of a file, decompressed, or of a pipe."""
    if not file.is_file():
        with file.open("rb") as opened:
            yield from opened
        return
    for block in read_blocks(file, limits=limits):
        yield from block.data.removesuffix(b"\n").split(b"\n")


def _item(line: bytes, file: str | Path, number: int) -> tuple[str, str]:
    """The identifier, if any, and the text of a line: as it is, or the fields of a JSON object."""
    try:
        text = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        message = not_utf8(line, error.start)
        raise DataError(message, file=file, line=number, column=error.start + 1) from None
    if not text.startswith("{"):
        return "", text
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return "", text  # a text may well begin with a brace
    parts = [fields[key] for key in TEXT_FIELDS if fields.get(key)]
    if not parts or not all(isinstance(p, str) for p in parts):
        raise DataError("expected a title, content or text", file=file, line=number)
    uid = next((fields[key] for key in ID_FIELDS if fields.get(key) is not None), "")
    return str(uid), " ".join(parts)
