"""Tables of concepts as Annif writes them: TSV of one language, CSV of several."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from megalabel.data.concepts import PREFERRED, Builder
from megalabel.data.formats.lines import long_fields, read_blocks, split_lines
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError

URI, NOTATION, LABEL = "uri", "notation", "label_"
_LANGUAGE = re.compile(r"[-_.]([a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?)$")


def language_of(path: Path) -> str:
    """The language that the name of a file ends with, such as that of yso-fi.tsv.gz; else "".

    Examples
    --------
    >>> language_of(Path("yso-fi.tsv.gz")), language_of(Path("lcsh.tsv"))
    ('fi', '')
    """
    found = _LANGUAGE.search(path.name.partition(".tsv")[0])
    return found[1].lower() if found and len(found[1]) != 3 else ""


def read_tsv(path: Path, builder: Builder, language: str | None, limits: Limits = USUAL) -> None:
    """Take the concepts of a file of lines: an identifier, a tab, a name, and maybe a notation."""
    number_of, spoken = builder.numbers, None
    language = language_of(path) if language is None else language
    for block in read_blocks(path, limits=limits):
        for _, line_number, line in split_lines(block, path, Problems()):
            id_, *cells = line.split("\t")
            id_ = _identifier(id_, path, line_number)
            if len(cells) > 2:
                raise DataError(
                    "expected an identifier, a name and maybe a notation, separated by tabs; "
                    f"found {len(cells) + 1} cells",
                    file=path,
                    line=line_number,
                )
            number = number_of[id_]
            builder.is_concept[number] = None
            if cells and cells[0].strip():
                spoken = builder.language(language) if spoken is None else spoken
                builder.names.add(number, cells[0], spoken, PREFERRED)
            if len(cells) > 1 and cells[1].strip():
                builder.notations.add(number, cells[1])


def read_csv(path: Path, builder: Builder, limits: Limits = USUAL) -> None:
    """Take the concepts of a CSV file with the columns uri, label_LANGUAGE and maybe notation."""
    with long_fields():
        rows = csv.reader(_lines(path, limits), strict=True)
        try:
            header = [name.strip() for name in next(rows, [])]
            _check_header(header, path)
            for row in rows:
                if row:
                    _take_row(row, header, builder, path, rows.line_num)
        except csv.Error as error:
            raise DataError(f"expected CSV, found {error}", file=path, line=rows.line_num) from None


def _take_row(row: list[str], header: list[str], builder: Builder, path: Path, line: int) -> None:
    if len(row) != len(header):
        raise DataError(
            f"expected {len(header)} cells, as in the header, found {len(row)}",
            file=path,
            line=line,
        )
    number = -1
    cells = sorted(zip(header, row, strict=True), key=lambda cell: cell[0] != URI)
    for name, text in cells:  # that of the identifier first
        if name == URI:
            number = builder.numbers[_identifier(text, path, line)]
            builder.is_concept[number] = None
        elif not text.strip():
            continue
        elif name == NOTATION:
            builder.notations.add(number, text)
        elif name.startswith(LABEL):
            tag = name.removeprefix(LABEL).replace("_", "-")
            builder.names.add(number, text, builder.language(tag), PREFERRED)


def _check_header(header: list[str], path: Path) -> None:
    labels = [name for name in header if name.startswith(LABEL)]
    if URI not in header or not labels or len(set(header)) < len(header):
        found = ", ".join(header[:8]) or "an empty line"
        raise DataError(
            "expected a header with the columns uri, label_LANGUAGE (such as label_en) for each "
            f"language, and maybe notation, each once; found {found}",
            file=path,
            line=1,
        )


def _lines(path: Path, limits: Limits) -> Iterator[str]:
    for block in read_blocks(path, limits=limits):
        # checked as other lines are, for an error that names the line
        for _ in split_lines(block, path, Problems()):
            pass
        yield from io.StringIO(block.data.decode(), newline="")


def _identifier(text: str, path: Path, line: int) -> str:
    """An identifier without its brackets."""
    id_ = text.strip()
    if id_.startswith("<") and id_.endswith(">"):
        id_ = id_[1:-1]
    if not id_ or any(letter in id_ for letter in "<>\t"):
        raise DataError(
            f"expected an identifier such as <http://www.yso.fi/onto/yso/p10>, found {text!r:.80}",
            file=path,
            line=line,
            column=1,
        )
    return id_


def deprecate_nameless(builder: Builder) -> None:
    """Mark concepts without any name as deprecated, which is what that means in a table."""
    named = set(builder.names.owners)
    builder.deprecated |= set(builder.is_concept) - named
