"""Tables in columns: Parquet, and Arrow's file and stream formats; and how tables are written.

The columns are those of JSON lines: title, content and/or text; uid or id; labels as a list of
names or one string, or target_ind, with target_rel; or others that a layout names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.corpus import Corpus
from megalabel.data.formats.columns import choose, columns
from megalabel.data.formats.guessing import SAMPLED, Sample
from megalabel.data.formats.ipc import unpacked_bytes
from megalabel.data.formats.rows import Rows, gather
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError

_PARQUET_ROWS = 1 << 13  # unpacked at a time, then counted
# What Arrow raises for a damaged file; names of columns need not be UTF-8 either.
_DAMAGED = (pa.ArrowException, OSError, UnicodeDecodeError, struct.error, OverflowError)


def read_parquet(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The rows of a Parquet file, all at once or `batch_rows` at a time."""
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            schema = file.schema_arrow
            wanted = choose(schema.names, layout, path, lambda: sample_parquet(path)).names
            names = [name for name in schema.names if name in wanted]
            limits.check_unpacked(8 * file.metadata.num_rows, path)
            batches = _counted(file, names, batch_rows or _PARQUET_ROWS, path, limits)
            chosen = pa.schema([field for field in schema if field.name in names])
            tables = (
                [pa.Table.from_batches(batches, chosen)]
                if batch_rows is None
                else map(pa.table, batches)
            )
            yield from _rows_of_tables(
                tables, path, problems, labels, limits, layout, lambda: sample_parquet(path)
            )
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


def sample_parquet(path: Path) -> Sample:
    """Some values of each column of a Parquet file."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
        for batch in file.iter_batches(SAMPLED):
            return sample_of(pa.table(batch))
        return {name: [] for name in file.schema_arrow.names}


def sample_arrow(path: Path, limits: Limits = USUAL) -> Sample:
    """Some values of each column of an Arrow file."""
    for table in _mapped(path, SAMPLED, limits):
        return sample_of(table)
    return {}


def sample_of(table: pa.Table) -> Sample:
    """Some values of each column of a table."""
    return {
        name: column.slice(0, SAMPLED).to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def read_arrow(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The rows of an Arrow file, mapped from disk: one record batch of texts is never copied."""
    try:
        tables = _mapped(path, batch_rows, limits)
        yield from _rows_of_tables(
            tables, path, problems, labels, limits, layout, lambda: sample_arrow(path, limits)
        )
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
    tables: Any,
    path: Path,
    problems: Problems,
    labels: LabelSet | None,
    limits: Limits,
    layout: Layout,
    sample: Callable[[], Sample],
) -> Iterator[Rows]:
    done = 0
    for table in tables:
        chosen = choose(table.column_names, layout, path, sample)
        known = table.select(chosen.names)
        limits.check_unpacked(8 * table.num_rows, path)  # columns of nulls take none in the file
        known.validate(full=True)
        origin = np.arange(done, done + table.num_rows)
        done += table.num_rows
        yield gather(
            columns(known, path, chosen, separator=layout.separator, limits=limits),
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


def write_csv(corpus: Corpus, sink: Any) -> None:
    """Write the texts of a corpus as CSV: uid, text, and the identifiers of labels with `;` between
    them; labels by number where an identifier holds what separates them."""
    table = to_table(corpus)
    ids = corpus.labels.ids
    unfit = pc.or_(pc.match_substring_regex(ids, "[;|]"), pc.equal(ids, ""))
    unfit = pc.or_(unfit, pc.not_equal(pc.utf8_trim_whitespace(ids), ids))
    if "target_ind" in table.column_names and not pc.any(unfit).as_py():
        numbers = table["target_ind"].combine_chunks()
        names = pa.LargeListArray.from_arrays(numbers.offsets, ids.take(numbers.flatten()))
        at = table.column_names.index("target_ind")
        table = table.set_column(at, "labels", names)
    for at, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_large_list(column.type):
            strings = column.cast(pa.list_(pa.large_string()))
            mark = pa.scalar(";", pa.large_string())
            table = table.set_column(at, name, pc.binary_join(strings, mark))
    _write_csv(table, sink)


def _write_csv(table: pa.Table, path: Any) -> None:
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
