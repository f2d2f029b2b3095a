"""Annif's corpora: a text, a tab, and subjects as `<uri> <uri>`; the vocabulary is beside it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from megalabel.data.formats.columns import TEXT_FIELDS, field_of
from megalabel.data.formats.lines import Block, long_fields, read_blocks, split_lines
from megalabel.data.formats.rows import Rows, rows_of_lines
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError

_CORPUS = re.compile(r"[^\t]*\t\s*<[^<>\s]+>(\s+<[^<>\s]+>)*\s*")
_VOCABULARY = re.compile(r"<[^<>\s]+>\t[^\t<]+(\t[^\t]*)?")


def looks_like_corpus(first_line: str) -> bool:
    """Whether a line is a text, a tab, and URIs in angle brackets."""
    return _CORPUS.fullmatch(first_line) is not None


def looks_like_vocabulary(first_line: str) -> bool:
    """Whether a line is a URI and its label, or the header of a table of these."""
    header = {field_of(name) for name in first_line.split(",")}
    table = "uri" in header and any(name.startswith("label") for name in header)
    table = table and not header & set(TEXT_FIELDS)
    return table or _VOCABULARY.fullmatch(first_line) is not None


def read_rows(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The rows of an Annif TSV file, some at a time; labels are URIs without their brackets."""

    def parse(block: Block) -> Iterator[tuple[int, int, str, list[str]]]:
        for place, number, line in split_lines(block, path, problems):
            text, tab, subjects = line.partition("\t")
            if not tab:
                problems.add(
                    "expected a text, a tab, and subjects as <uri> <uri>; found no tab",
                    file=path,
                    line=number,
                    column=len(line) + 1,
                )
                continue
            yield place, number, text, [uri.strip("<>") for uri in subjects.split()]

    return rows_of_lines(path, parse, labels, problems, batch_rows, limits, layout)


def read_vocabulary(path: Path, limits: Limits = USUAL) -> LabelSet:
    """The labels of a vocabulary: TSV of `<uri>` and label, or CSV with `uri` and `label_en`."""
    problems = Problems()
    blocks = read_blocks(path, limits=limits)
    lines = [line for block in blocks for line in split_lines(block, path, problems)]
    if not lines:
        raise DataError("the vocabulary is empty", file=path)
    places: dict[str, int] = {}
    names = []
    for number, uri, name in _entries(path, [(line.number, line.text) for line in lines]):
        if uri in places:
            raise DataError(
                f"the label {uri!r} is already on line {places[uri]}", file=path, line=number
            )
        places[uri] = number
        names.append(name)
    return LabelSet(list(places), names)


def _entries(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Line, URI and name of each label."""
    if "\t" in lines[0][1]:
        for number, line in lines:
            fields = line.split("\t")
            if len(fields) < 2:
                raise DataError("expected <uri>, a tab and a label", file=path, line=number)
            yield number, fields[0].strip().strip("<>"), fields[1].strip()
        return
    rows = []
    with long_fields():
        table = csv.reader(io.StringIO("\n".join(text for _, text in lines)))
        try:
            for fields in table:
                rows.append((lines[table.line_num - 1][0], fields))
        except csv.Error as error:
            number = lines[min(table.line_num, len(lines)) - 1][0]
            raise DataError(f"expected a table: {error}", file=path, line=number) from None
    header = [field_of(name) for name in rows[0][1]]
    named = [name for name in header if name.startswith("label")]
    if "uri" not in header or not named:
        raise DataError(
            f"expected columns uri and label_en, found {', '.join(header)}", file=path, line=1
        )
    uri, label = header.index("uri"), header.index("label_en" if "label_en" in named else named[0])
    for number, fields in rows[1:]:
        if len(fields) <= max(uri, label):
            raise DataError(
                f"expected {len(header)} columns, found {len(fields)}", file=path, line=number
            )
        yield number, fields[uri].strip().strip("<>"), fields[label].strip()
