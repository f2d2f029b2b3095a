"""CSV and TSV with a header: fields separated by commas, tabs or semicolons."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.formats import guessing
from megalabel.data.formats.columns import (
    TEXT_FIELDS,
    Chosen,
    choose,
    columns,
    field_of,
    known_columns,
)
from megalabel.data.formats.guessing import SAMPLED, Sample
from megalabel.data.formats.lines import (
    BLOCK,
    Block,
    is_utf8,
    long_fields,
    not_utf8,
    open_input,
    read_blocks,
    read_head,
)
from megalabel.data.formats.rows import Rows, gather
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, Layout, weighted
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError

_DELIMITERS = ",\t;"


def delimiter_of(header: str, layout: Layout = USUAL_LAYOUT) -> str | None:
    """What separates the columns of a header, or None if it names no column of text."""
    for delimiter in _DELIMITERS:
        names = _names(header, delimiter)
        wanted: tuple[str, ...] = TEXT_FIELDS
        if layout.text is not None:
            wanted = tuple(field_of(weighted(column, names)[0]) for column in layout.text)
        if {field_of(name) for name in names} & set(wanted):
            return delimiter
    return None


def _likely_delimiter(lines: Sequence[str]) -> str:
    """What separates the columns of a table that begins with these lines: what gives most of them,
    as many in most rows as in the header."""

    def width(delimiter: str) -> tuple[bool, int]:
        counts = [len(_names(line, delimiter)) for line in lines]
        same = sum(count == counts[0] for count in counts)
        return 2 * same > len(counts), counts[0]

    return max(_DELIMITERS, key=width)


def of_equal_width(lines: Sequence[str], layout: Layout = USUAL_LAYOUT) -> list[bool]:
    """Whether each row of a table that begins with these lines has as many columns as its header.

    Examples
    --------
    >>> of_equal_width(["text, labels", '"a gown, in red", red', "blue jeans"])
    [True, False]
    """
    delimiter = delimiter_of(lines[0], layout) or ","
    try:
        with long_fields():
            header, *rows = csv.reader(lines, delimiter=delimiter)
    except csv.Error:
        return [False]
    return [len(row) == len(header) for row in rows]


def _names(header: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:  # such as a line end within the line
        return []


def read_csv(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The rows of a CSV or TSV file with a header, some at a time."""
    import pyarrow.csv

    head = _Head(path, layout)
    chosen, delimiter = head.chosen(), head.delimiter
    wanted = chosen.names
    lines = _Lines(path, delimiter, limits, layout.encoding)
    bad: list[int] = []  # rows with too few or too many columns

    def handle(row: Any) -> str:
        bad.append(row.number - 2)  # Arrow counts the header as row 1
        message = f"expected {row.expected_columns} columns, found {row.actual_columns}"
        if problems.skip:
            problems.add(message + lines.quote(bad[-1]), file=path, line=lines.of(bad[-1]))
            return "skip"
        failure.append(message)
        return "error"

    failure: list[str] = []
    done = 0
    block_bytes = BLOCK if batch_rows is None else BLOCK >> 3
    try:
        with _Marked(read_blocks(path, block_bytes, limits, layout.encoding)) as source:
            reader = pyarrow.csv.open_csv(
                source,
                # one thread, so that Arrow says which row has too many columns
                pyarrow.csv.ReadOptions(use_threads=False, block_size=block_bytes),
                pyarrow.csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, invalid_row_handler=handle
                ),
                pyarrow.csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(wanted, pa.large_string()),
                ),
            )
            for batch in reader:
                origin = np.arange(done, done + len(batch) + len(bad))
                origin = origin[~np.isin(origin, bad)][: len(batch)]
                done = int(origin[-1]) + 1 if len(origin) else done
                table, origin = _in_utf8(batch, source.marked, origin, lines, path, problems)
                yield gather(
                    columns(table, path, chosen, separator=layout.separator),
                    path,
                    problems,
                    labels,
                    origin=origin,
                    size=path.stat().st_size,
                    limits=limits,
                    line_of=lambda i, origin=origin: lines.of(int(origin[i])),  # type: ignore[misc]
                )
            if source.quotes % 2 and (row := lines.open_row()) is not None:
                # what follows the quote cannot be told apart, so there is nothing to go on with
                raise DataError(lines.quote(row)[2:], file=path, line=lines.of(row))
    except (pa.ArrowException, OSError) as error:
        if failure:
            message = failure[0] + lines.quote(bad[-1])
            raise DataError(message, file=path, line=lines.of(bad[-1])) from None
        raise DataError(f"the file is not a whole table: {error}", file=path) from None


class _Marked(io.RawIOBase):
    """The blocks of a file as a stream in UTF-8, with a mark before each byte that was not.

    Arrow does not say which row is not UTF-8, and cannot hand over such a row that is bad.
    """

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self._held = memoryview(b"")
        self.marked = False  # whether any byte has been so far
        self.quotes = 0  # marks so far

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Some bytes of the stream."""
        if not self._held:
            data = next(self._blocks, Block(b"", 0)).data
            self.quotes += data.count(b'"')
            if not is_utf8(data):
                data, self.marked = data.decode(errors="megalabel-mark").encode(), True
            self._held = memoryview(data)
        size = len(self._held) if size < 0 else size
        data, self._held = bytes(self._held[:size]), self._held[size:]
        return data


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(f"{_MARK}{chr(byte)}" for byte in wrong), error.end


_MARK = "\ufdd0"  # no character, so that texts do not hold it
codecs.register_error("megalabel-mark", _mark)


def _in_utf8(
    batch: pa.RecordBatch,
    marked: bool,
    origin: np.ndarray,
    lines: _Lines,
    path: Path,
    problems: Problems,
) -> tuple[pa.Table, np.ndarray]:
    """The rows of a batch without those that hold a mark, which are problems."""
    wrong: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True) if marked else ():
        for i in np.flatnonzero(pc.fill_null(pc.match_substring(column, _MARK), False)).tolist():
            _, _, rest = column[i].as_py().partition(_MARK)
            wrong.setdefault(i, f"column {name}: {not_utf8(bytes([ord(rest[0])]), 0)}")
    for i in sorted(wrong):
        problems.add(wrong[i], file=path, line=lines.of(int(origin[i])))
    good = np.ones(len(origin), bool)
    good[list(wrong)] = False
    return pa.table(batch).filter(pa.array(good)), origin[good]


class _Head:
    """The header of a CSV file, and what it says."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout
        # blank lines before the header are passed over, as Arrow does
        head = read_head(path, encoding=layout.encoding).lstrip(b"\r\n")
        self._text, self._line = head.decode(errors="replace"), re.split(b"[\r\n]", head)[0]
        lines = re.split("[\r\n]+", self._text)  # they may end with CR alone
        self.delimiter = delimiter_of(lines[0], layout) or _likely_delimiter(lines[:20])
        self.names = _names(lines[0], self.delimiter)

    def chosen(self) -> Chosen:
        """The columns to read."""
        try:
            self._line.decode()
        except UnicodeDecodeError as bad:
            said = not_utf8(self._line, bad.start)
            raise DataError(said, file=self.path, line=1) from None
        known = known_columns(self.names, self.path)
        if self.layout.text is None and not known.keys() & set(TEXT_FIELDS):
            error = guessing.no_header(self.sample(), self.path, self.delimiter)
            if error is not None:
                raise error
        return choose(self.names, self.layout, self.path, self.sample, known)

    def sample(self) -> Sample:
        """Some values of each column."""
        try:
            with long_fields():
                rows = csv.reader(io.StringIO(self._text, newline=""), delimiter=self.delimiter)
                found = [row for row in itertools.islice(rows, 1, SAMPLED + 2) if row]
        except csv.Error:
            found = []
        found = found[:-1] if len(found) > 1 else found  # the last one may be cut off
        return {
            name: [row[i] for row in found if i < len(row)] for i, name in enumerate(self.names)
        }


def sample_csv(path: Path, layout: Layout) -> Sample:
    """Some values of each column of a CSV file."""
    return _Head(path, layout).sample()


class _Lines:
    """On which line each row of a CSV file starts; looked up only when something is wrong."""

    def __init__(self, path: Path, delimiter: str, limits: Limits, encoding: str) -> None:
        self.path, self.delimiter, self.limits, self.encoding = path, delimiter, limits, encoding
        self._bounds: list[int] | None = None
        self._open = False

    def of(self, row: int) -> int | None:
        """The line of a row, counted from 0 after the header."""
        bounds = self._found()
        return bounds[row + 1] if row + 2 < len(bounds) else None

    def quote(self, row: int) -> str:
        """What to say of the quotes of a row that goes on over several lines, if it does."""
        bounds = self._found()
        never = self._open and row + 3 == len(bounds)
        if not never and (row + 2 >= len(bounds) or bounds[row + 2] - bounds[row + 1] < 2):
            return ""
        end = "never closed" if never else f"closed only on line {bounds[row + 2] - 1}"
        return f"; a quote is opened here and {end}: close it, or remove it"

    def open_row(self) -> int | None:
        """The last row, if a quote in it is never closed."""
        bounds = self._found()
        return len(bounds) - 3 if self._open else None

    def _found(self) -> list[int]:
        if self._bounds is None:
            self._bounds = self._find()
        return self._bounds

    def _find(self) -> list[int]:
        """Where rows start, the header among them, and behind them where the last one ends."""
        starts, last = [], 0
        end = ['"']  # a line more: part of the last row if a quote is open there
        try:
            with long_fields(), open_input(self.path, self.limits, self.encoding) as source:
                text = io.TextIOWrapper(source, "utf-8-sig", errors="replace", newline="")
                reader = csv.reader(itertools.chain(text, end), delimiter=self.delimiter)
                for fields in reader:
                    if fields:  # not a blank line
                        starts.append(last + 1)
                    last = reader.line_num
        except (OSError, csv.Error):  # what is wrong is said elsewhere
            return starts
        self._open = starts[-1] < last
        return [*starts, last] if self._open else starts
