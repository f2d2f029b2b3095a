"""Annif's folders: a text a file (`a.txt`), and beside it its labels (`a.key` or `a.tsv`).

A `.key` file has a label a line, a `.tsv` file a URI in angle brackets and a label.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from megalabel.data.formats.annif import looks_like_vocabulary
from megalabel.data.formats.columns import NAMES
from megalabel.data.formats.lines import not_utf8
from megalabel.data.formats.rows import Rows, gather
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.data.strings import strings

_AT_ONCE = 1024  # documents


def documents_in(folder: Path) -> list[Path]:
    """The texts of a folder, if any of them has its labels beside it; else none."""
    texts = sorted(path for path in folder.glob("*.txt") if path.is_file())
    return texts if any(_key(text) is not None for text in texts) else []


def is_part(path: Path) -> bool:
    """Whether a file is a text with labels beside it, or the labels of a text."""
    if path.suffix == ".txt":
        return _key(path) is not None
    text = path.with_suffix(".txt")
    return path.suffix in (".key", ".tsv") and text.is_file() and _key(text) == path


def read_rows(
    folder: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The texts of a folder, some at a time; their identifiers are the names of their files."""
    found, size = documents_in(folder), batch_rows or _AT_ONCE
    for done in range(0, len(found), size):
        paths = found[done : done + size]
        texts, names = [], []
        for path in paths:
            text = _decoded(path, layout.encoding, problems)
            key = _key(path)
            listed = "" if key is None else _decoded(key, layout.encoding, problems)
            texts.append(None if listed is None else text)
            names.append([_label(line) for line in (listed or "").splitlines() if line.strip()])
        whole = np.array([text is not None for text in texts])
        kept = np.flatnonzero(whole)
        files = [paths[i] for i in kept]
        yield gather(
            {
                "uid": strings([path.stem for path in files]),
                "text": pa.array([texts[i] for i in kept], pa.large_string()),
                "labels": pa.array([names[i] for i in kept], NAMES),
            },
            folder,
            problems,
            labels,
            origin=kept + done,
            size=0,  # no numbers are given
        )


def _key(text: Path) -> Path | None:
    """The file with the labels of a text."""
    if (key := text.with_suffix(".key")).is_file():
        return key
    return key if _lists_labels(key := text.with_suffix(".tsv")) else None


def _lists_labels(path: Path) -> bool:
    """Whether a table is of URIs and labels, and not a corpus itself."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return looks_like_vocabulary(file.readline().decode(errors="replace").strip("\r\n"))


def _label(line: str) -> str:
    return line.partition("\t")[0].strip().strip("<>")


def _decoded(path: Path, encoding: str, problems: Problems) -> str | None:
    """The text of a file; None if it cannot be read, which is a problem."""
    data = path.read_bytes()
    try:
        return data.decode(encoding).removeprefix("\ufeff").strip()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add(not_utf8(data, error.start), file=path, line=line)
        return None
