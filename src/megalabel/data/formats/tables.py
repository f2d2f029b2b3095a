"""Tables: CSV and TSV with a header, Parquet, and Arrow's file and stream formats.

The columns are those of JSON lines: title, content and/or text; uid or id; labels as a list of
names or one string, or target_ind, with target_rel.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.corpus import Corpus
from megalabel.data.formats.columns import (
    TEXT_FIELDS,
    columns,
    field_of,
    known_columns,
    text_columns,
)
from megalabel.data.formats.ipc import unpacked_bytes
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
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError

_DELIMITERS = ",\t;"
_PARQUET_ROWS = 1 << 13  # unpacked at a time, then counted
# What Arrow raises for a damaged file; names of columns need not be UTF-8 either.
_DAMAGED = (pa.ArrowException, OSError, UnicodeDecodeError, struct.error, OverflowError)


def delimiter_of(header: str) -> str | None:
    """What separates the columns of a header, or None if it names no column of text."""
    for delimiter in _DELIMITERS:
        if {field_of(name) for name in _names(header, delimiter)} & set(TEXT_FIELDS):
            return delimiter
    return None


def of_equal_width(lines: Sequence[str]) -> list[bool]:
    """Whether each row of a table that begins with these lines has as many columns as its header.

    Examples
    --------
    >>> of_equal_width(["text, labels", '"a gown, in red", red', "blue jeans"])
    [True, False]
    """
    delimiter = delimiter_of(lines[0]) or ","
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
) -> Iterator[Rows]:
    """The rows of a CSV or TSV file with a header, some at a time."""
    import pyarrow.csv

    # lines may end with CR alone, and blank ones before the header are passed over, as Arrow does
    header = re.split(rb"[\r\n]", read_head(path).lstrip(b"\r\n"), maxsplit=1)[0].decode(
        errors="replace"
    )
    delimiter = delimiter_of(header)
    if delimiter is None:
        raise DataError(
            f"expected a header with title, content or text, found {header.strip()[:60]!r}",
            file=path,
            line=1,
        )
    wanted = list(known_columns(_names(header, delimiter), path).values())
    lines = _Lines(path, delimiter, limits)
    bad: list[int] = []  # rows with too few or too many columns

    def handle(row: Any) -> str:
        bad.append(row.number - 2)  # Arrow counts the header as row 1
        message = f"expected {row.expected_columns} columns, found {row.actual_columns}"
        if problems.skip:
            problems.add(message, file=path, line=lines.of(bad[-1]))
            return "skip"
        failure.append(message)
        return "error"

    failure: list[str] = []
    done = 0
    block_bytes = BLOCK if batch_rows is None else BLOCK >> 3
    try:
        with _Marked(read_blocks(path, block_bytes, limits)) as source:
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
                yield _checked_rows(
                    batch, source.marked, origin, lines, path, problems, labels, limits
                )
    except (pa.ArrowException, OSError) as error:
        if failure:
            raise DataError(failure[0], file=path, line=lines.of(bad[-1])) from None
        raise DataError(f"the file is not a whole table: {error}", file=path) from None


class _Marked(io.RawIOBase):
    """The blocks of a file as a stream in UTF-8, with a mark before each byte that was not.

    Arrow does not say which row is not UTF-8, and cannot hand over such a row that is bad.
    """

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self._held = memoryview(b"")
        self.marked = False  # whether any byte has been so far

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Some bytes of the stream."""
        if not self._held:
            data = next(self._blocks, Block(b"", 0)).data
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


def _checked_rows(
    batch: pa.RecordBatch,
    marked: bool,
    origin: np.ndarray,
    lines: _Lines,
    path: Path,
    problems: Problems,
    labels: LabelSet | None,
    limits: Limits,
) -> Rows:
    wrong: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True) if marked else ():
        for i in np.flatnonzero(pc.fill_null(pc.match_substring(column, _MARK), False)).tolist():
            _, _, rest = column[i].as_py().partition(_MARK)
            wrong.setdefault(i, f"column {name}: {not_utf8(bytes([ord(rest[0])]), 0)}")
    for i in sorted(wrong):
        problems.add(wrong[i], file=path, line=lines.of(int(origin[i])))
    good = np.ones(len(origin), bool)
    good[list(wrong)] = False
    table = pa.table(batch).filter(pa.array(good))
    origin = origin[good]
    return gather(
        columns(table, path),
        path,
        problems,
        labels,
        origin=origin,
        size=path.stat().st_size,
        limits=limits,
        line_of=lambda i: lines.of(int(origin[i])),
    )


class _Lines:
    """On which line each row of a CSV file starts; looked up only when something is wrong."""

    def __init__(self, path: Path, delimiter: str, limits: Limits) -> None:
        self.path, self.delimiter, self.limits = path, delimiter, limits
        self._starts: list[int] | None = None

    def of(self, row: int) -> int | None:
        """The line of a row, counted from 0 after the header."""
        if self._starts is None:
            self._starts = self._find()
        return self._starts[row + 1] if row + 1 < len(self._starts) else None

    def _find(self) -> list[int]:
        starts, last = [], 0
        try:
            with long_fields(), open_input(self.path, self.limits) as source:
                text = io.TextIOWrapper(source, "utf-8-sig", errors="replace", newline="")
                reader = csv.reader(text, delimiter=self.delimiter)
                for fields in reader:
                    if fields:  # not a blank line
                        starts.append(last + 1)
                    last = reader.line_num
        except (OSError, csv.Error):  # what is wrong is said elsewhere
            pass
        return starts


def read_parquet(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
) -> Iterator[Rows]:
    """The rows of a Parquet file, all at once or `batch_rows` at a time."""
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            known = known_columns(file.schema_arrow.names, path)
            text_columns(known, file.schema_arrow.names, path)
            limits.check_unpacked(8 * file.metadata.num_rows, path)
            batches = _counted(
                file, list(known.values()), batch_rows or _PARQUET_ROWS, path, limits
            )
            tables = (
                [pa.Table.from_batches(batches, _selected(file.schema_arrow, known))]
                if batch_rows is None
                else map(pa.table, batches)
            )
            yield from _rows_of_tables(tables, path, problems, labels, limits)
    except _DAMAGED as error:
        raise DataError(f"the Parquet file is damaged: {error}", file=path) from None


def _counted(
    file: Any, names: list[str], batch_rows: int, path: Path, limits: Limits
) -> Iterator[pa.RecordBatch]:
    """The batches of a Parquet file, as long as it unpacks to no more bytes than it may."""
    done = 0
    for batch in file.iter_batches(batch_rows, columns=names):
        done += max(batch.nbytes, 8 * batch.num_rows)  # columns of nulls have no bytes here
        limits.check_unpacked(done, path)
        yield batch


def _selected(schema: pa.Schema, known: Mapping[str, str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in known.values()])


def read_arrow(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
) -> Iterator[Rows]:
    """The rows of an Arrow file, mapped from disk: one record batch of texts is never copied."""
    try:
        tables = _mapped(path, batch_rows, limits)
        yield from _rows_of_tables(tables, path, problems, labels, limits)
    except _DAMAGED as error:
        raise DataError(f"the Arrow file is damaged: {error}", file=path) from None


def _mapped(path: Path, batch_rows: int | None, limits: Limits) -> Iterator[pa.Table]:
    source = pa.memory_map(str(path))
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    limits.check_unpacked(unpacked_bytes(memoryview(source.read_buffer()), is_file), path)
    source.seek(0)
    if is_file:
        reader = pa.ipc.open_file(source)
        batches = map(reader.get_batch, range(reader.num_record_batches))
    else:
        reader = batches = pa.ipc.open_stream(source)
    text_columns(known_columns(reader.schema.names, path), reader.schema.names, path)
    if batch_rows is None:
        yield pa.Table.from_batches(batches, reader.schema)
        return
    done = 0
    for batch in batches:
        done += batch.num_rows
        limits.check_unpacked(8 * done, path)
        for start in range(0, batch.num_rows, batch_rows):
            yield pa.table(batch.slice(start, batch_rows))


def _rows_of_tables(
    tables: Any, path: Path, problems: Problems, labels: LabelSet | None, limits: Limits
) -> Iterator[Rows]:
    done = 0
    for table in tables:
        known = table.select(list(known_columns(table.column_names, path).values()))
        limits.check_unpacked(8 * table.num_rows, path)  # columns of nulls take none in the file
        known.validate(full=True)
        origin = np.arange(done, done + table.num_rows)
        done += table.num_rows
        yield gather(
            columns(known, path, limits=limits),
            path,
            problems,
            labels,
            origin=origin,
            size=path.stat().st_size,
            limits=limits,
        )


def to_table(corpus: Corpus) -> pa.Table:
    """The texts of a corpus as a table: uid, text, and labels by number."""
    targets = corpus.targets
    found = {} if corpus.ids is None else {"uid": corpus.ids}
    found["text"] = corpus.texts
    if len(corpus.labels):
        offsets = pa.array(targets.indptr, pa.int64())
        numbers = pa.array(targets.indices, pa.int32())
        found["target_ind"] = pa.LargeListArray.from_arrays(offsets, numbers)
        if (targets.data != 1).any():
            relevance = pa.array(targets.data, pa.float32())
            found["target_rel"] = pa.LargeListArray.from_arrays(offsets, relevance)
    return pa.table(found)


def write_parquet(corpus: Corpus, path: Path) -> None:
    """Write the texts of a corpus as a Parquet file."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(to_table(corpus), path, compression="zstd")


def write_arrow(corpus: Corpus, path: Path) -> None:
    """Write the texts of a corpus as an Arrow file: one batch, so that it can be mapped whole."""
    table = to_table(corpus)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _write_csv(table: pa.Table, path: Path) -> None:
    from pyarrow import csv

    csv.write_csv(table, path)


def _write_parquet(table: pa.Table, path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(table, path)


def _write_json_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for batch in table.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_json_lines,
}
"""How any table is written, by the ending of the file's name."""
