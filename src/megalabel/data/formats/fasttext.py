"""fastText's lines: `__label__a __label__b the text`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from megalabel.data.formats.lines import Block, split_lines
from megalabel.data.formats.rows import Rows, rows_of_lines
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems

PREFIX = "__label__"
_LABEL = re.compile(rf"(?<!\S){PREFIX}(\S*)\s*")


def looks_like_corpus(head: bytes) -> bool:
    """Whether a line among a file's first bytes begins with a label."""
    return any(line.startswith(PREFIX.encode()) for line in head.split(b"\n"))


def read_rows(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The rows of a fastText file, some at a time. Labels may stand anywhere in the line."""

    def parse(block: Block) -> Iterator[tuple[int, int, str, list[str]]]:
        for place, number, line in split_lines(block, path, problems):
            first = _LABEL.match(line)
            if first and line.count(PREFIX) == 1:  # the common case, quickly
                names, text = [first[1]], line[first.end() :].strip()
            else:
                names, text = _LABEL.findall(line), _LABEL.sub("", line).strip()
            if "" in names:
                found = next(m for m in _LABEL.finditer(line) if not m[1])
                problems.add(
                    f"expected a name after {PREFIX}",
                    file=path,
                    line=number,
                    column=found.start() + 1,
                )
                continue
            yield place, number, text, names

    return rows_of_lines(path, parse, labels, problems, batch_rows, limits, layout)
