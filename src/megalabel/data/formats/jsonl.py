"""JSON lines: one object a line, with a text and its labels; and the label file beside it.

A text has `title`, `content` and/or `text`, an optional `uid` or `id`, and either `labels` (names)
or `target_ind` (numbers, which the label file explains) with an optional `target_rel`; a layout
may name other fields. The label file has `uid`, `title` and `content` for each label; its line is
the label's number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.corpus import Corpus
from megalabel.data.formats.columns import columns, joined, one_array
from megalabel.data.formats.json_fields import (
    USUAL_FIELDS,
    Fields,
    checked_row,
    chosen_fields,
    object_of,
    schema_of,
)
from megalabel.data.formats.lines import (
    BLOCK,
    Block,
    count_lines,
    is_utf8,
    not_utf8,
    pieces,
    read_blocks,
    read_head,
    split_lines,
    unpacked,
)
from megalabel.data.formats.rows import Rows, gather
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, UTF8, Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.data.strings import split_labels
from megalabel.errors import DataError

# Blocks of fewer bytes than this are not cut further to find the lines that are bad.
_SMALL = 1 << 18
# How many rows are held as Python objects at a time.
_ROWS_AT_ONCE = 10_000
_ARRAY = re.compile(rb"\s*\[\s*\{")
_SPACE = re.compile(r"[ \t\r\n]*")


def read_rows(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The rows of a JSONL file, some at a time."""
    done = 0
    block_bytes = BLOCK if batch_rows is None else BLOCK >> 3
    chosen = chosen_fields(path, layout)
    fields = Fields.of(chosen, layout)
    for table, lines, places, total in _parsed(
        path, problems, limits, block_bytes, fields, layout.encoding
    ):
        yield gather(
            columns(table, path, chosen),
            path,
            problems,
            labels,
            origin=places + done,
            size=path.stat().st_size,
            limits=limits,
            line_of=lambda i, lines=lines: int(lines[i]),  # type: ignore[misc]
        )
        done += total


def read_labels(path: Path, limits: Limits = USUAL) -> LabelSet:
    """The label set of a label file (`lbl.jsonl`)."""
    parsed = list(_parsed(path, Problems(), limits, BLOCK, USUAL_FIELDS, UTF8))
    if not parsed:
        raise DataError("the label file is empty", file=path)
    lines = np.concatenate([part.lines for part in parsed])
    found = pa.concat_tables([part.table for part in parsed])
    column = {name: one_array(found[name]) for name in found.column_names}
    ids = pc.coalesce(column["uid"], column["id"])
    title, text = column["title"], column["text"]
    if ids.null_count == len(ids):
        ids = LabelSet.numbered(len(ids)).ids
    if ids.null_count:
        where = int(np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError("expected a uid, found none", file=path, line=int(lines[where]))
    if pc.count_distinct(ids).as_py() < len(ids):
        seen: dict[str, int] = {}
        for i, label in enumerate(ids.to_pylist()):
            if label in seen:
                raise DataError(
                    f"the label {label!r} is already on line {lines[seen[label]]}",
                    file=path,
                    line=int(lines[i]),
                )
            seen[label] = i
    names = pc.coalesce(title, ids)
    texts = None
    if text.null_count < len(text) or column["content"].null_count < len(text):
        texts = pc.coalesce(text, joined([names, column["content"]]))
    return LabelSet(ids, names if title.null_count < len(title) else None, texts)


class Parsed(NamedTuple):
    """The good rows of a block: their columns, lines and places among the lines not blank."""

    table: pa.Table
    lines: np.ndarray
    places: np.ndarray
    total: int  # of lines not blank, bad ones included


def _parsed(
    path: Path,
    problems: Problems,
    limits: Limits,
    block_bytes: int,
    fields: Fields,
    encoding: str,
) -> Iterator[Parsed]:
    """The rows of a file: of its lines, or of the one array that it is."""
    if looks_like_array(read_head(path, encoding=encoding)):
        yield from parse_array(path, problems, limits, fields, encoding)
        return
    for block in read_blocks(path, block_bytes, limits, encoding):
        yield from parse(block, path, problems, fields)


def parse(
    block: Block, path: Path, problems: Problems, fields: Fields = USUAL_FIELDS
) -> Iterator[Parsed]:
    """The rows of a block, by Arrow's parser as far as it can, the rest line by line."""
    table = parse_fast(block, fields)
    if table is not None:
        places = np.arange(table.num_rows)
        yield Parsed(table, places + block.first_line, places, len(places))
        return
    # a few bad lines must not slow down all the others
    smaller = [block] if len(block.data) < _SMALL else list(pieces(block, 16))
    if len(smaller) == 1:
        yield parse_carefully(block, path, problems, fields)
    else:
        for piece in smaller:
            yield from parse(piece, path, problems, fields)


def looks_like_array(head: bytes) -> bool:
    """Whether a file that begins so is one array of objects."""
    return _ARRAY.match(head) is not None


def parse_array(
    path: Path, problems: Problems, limits: Limits, fields: Fields, encoding: str
) -> Iterator[Parsed]:
    """The rows of a file that is one array of objects; a line is where an object begins."""
    data = b"".join(unpacked(path, limits, encoding))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            not_utf8(data, error.start), file=path, line=data.count(b"\n", 0, error.start) + 1
        ) from None
    del data
    decoder = json.JSONDecoder(object_pairs_hook=object_of(fields))
    rows = _Columns(fields)
    line, counted, place = 1, 0, 0
    position = text.index("[") + 1
    end = False
    while not end:
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        line += text.count("\n", counted, position)
        counted = position
        try:
            value, position = decoder.raw_decode(text, position)
            position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
            end = text[position : position + 1] == "]"
            if not end and text[position : position + 1] != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, position)
            position += 1
            if end and (rest := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr]
                raise json.JSONDecodeError("Extra data", text, rest)
        except json.JSONDecodeError as error:
            # what follows cannot be told apart, so there is nothing to go on with
            raise DataError(
                f"expected a JSON array of objects: {error.msg}",
                file=path,
                line=error.lineno,
                column=error.colno,
            ) from None
        except (ValueError, RecursionError) as error:
            raise DataError(str(error), file=path, line=line) from None
        try:
            rows.add(checked_row(value, fields), line, place)
        except ValueError as error:
            problems.add(str(error), file=path, line=line)
        place += 1
        if place == _ROWS_AT_ONCE or end:
            yield rows.parsed(place)
            rows, place = _Columns(fields), 0


def parse_fast(block: Block, fields: Fields = USUAL_FIELDS) -> pa.Table | None:
    """Arrow's parser, or None where it may differ from `parse_carefully` or does not succeed.

    Arrow does not mind where lines end. If each line starts with { and ends with }, no object
    goes over a line end, as } is never followed by { within one; so as many objects as lines
    means one object a line. (It also crashes on a leading `null`, which this keeps from it.)
    """
    import pyarrow.json

    if "marks" in fields.kinds.values():  # they are numbers or true and false
        return None
    data = block.data.rstrip(b"\r\n")
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == 10)
    before = characters[ends - 1]
    before = np.where(before == 13, characters[ends - 2], before)
    starts = np.concatenate([[0], ends + 1])
    if (
        not data.startswith(b"{")
        or not data.endswith(b"}")
        or (characters[starts] != 123).any()
        or (before != 125).any()
        or b"\0" in data
        or not is_utf8(data)
    ):
        return None
    longest = int(np.diff(starts, append=len(data)).max())
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            pyarrow.json.ReadOptions(block_size=max(1 << 22, 2 * longest)),
            pyarrow.json.ParseOptions(
                explicit_schema=schema_of(data[: ends[0] if len(ends) else None], fields),
                unexpected_field_behavior="ignore",
            ),
        )
        table.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if table.num_rows != len(starts):
        return None
    for at, (name, kind) in enumerate(fields.kinds.items()):
        if kind in ("labels", "names") and table[name].type == pa.large_string():  # not lists
            lists = split_labels(one_array(table[name]), separator=fields.separator)
            table = table.set_column(at, name, lists)
    return table.cast(fields.schema)


def parse_carefully(
    block: Block, path: Path, problems: Problems, fields: Fields = USUAL_FIELDS
) -> Parsed:
    """One line at a time: slower, but says what is wrong, and where, and can go on."""
    rows = _Columns(fields)
    hook = object_of(fields)
    for place, number, text in split_lines(block, path, problems):
        try:
            row = checked_row(json.loads(text, object_pairs_hook=hook), fields)
        except json.JSONDecodeError as error:
            problems.add(
                f"expected a JSON object: {error.msg}", file=path, line=number, column=error.colno
            )
        except (ValueError, RecursionError) as error:
            problems.add(str(error), file=path, line=number)
        else:
            rows.add(row, number, place)
    return rows.parsed(count_lines(block))


class _Columns:
    """The fields of rows that are read one at a time."""

    def __init__(self, fields: Fields) -> None:
        self._schema = fields.schema
        self._found: dict[str, list[Any]] = {name: [] for name in fields.kinds}
        self._lines: list[int] = []
        self._places: list[int] = []

    def add(self, fields: dict[str, Any], line: int, place: int) -> None:
        """Take a row."""
        for name, values in self._found.items():
            values.append(fields.get(name))
        self._lines.append(line)
        self._places.append(place)

    def parsed(self, total: int) -> Parsed:
        """All rows so far, of `total` in the file, bad ones included."""
        arrays = [pa.array(self._found[field.name], field.type) for field in self._schema]
        lines, places = (np.array(values, np.int64) for values in (self._lines, self._places))
        return Parsed(pa.table(arrays, self._schema), lines, places, total)


def write_rows(corpus: Corpus, sink: Any) -> None:
    """Write the texts of a corpus as JSON lines to a binary file; labels by number."""
    ids, targets = corpus.ids, corpus.targets
    with_relevance = bool((targets.data != 1).any())
    for start in range(0, len(corpus), _ROWS_AT_ONCE):
        rows = range(start, min(start + _ROWS_AT_ONCE, len(corpus)))
        low, high = targets.indptr[rows.start], targets.indptr[rows.stop]
        numbers, relevance = targets.indices[low:high].tolist(), targets.data[low:high].tolist()
        bounds = (targets.indptr[rows.start : rows.stop + 1] - low).tolist()
        uids = None if ids is None else ids[rows.start : rows.stop].to_pylist()
        lines = []
        for i, text in enumerate(corpus.texts[rows.start : rows.stop].to_pylist()):  # type: ignore[index]
            item: dict[str, Any] = {} if uids is None else {"uid": uids[i]}
            item["text"] = text
            if len(corpus.labels):
                item["target_ind"] = numbers[bounds[i] : bounds[i + 1]]
                if with_relevance:
                    item["target_rel"] = relevance[bounds[i] : bounds[i + 1]]
            lines.append(json.dumps(item, ensure_ascii=False))
        sink.write(("\n".join(lines) + "\n").encode())


def write_labels(labels: LabelSet, sink: Any) -> None:
    """Write a label file; its line is the label's number."""
    names = labels.names.to_pylist()
    texts = [None] * len(labels) if labels.texts is None else labels.texts.to_pylist()
    for uid, name, text in zip(labels.ids.to_pylist(), names, texts, strict=True):
        item = {"uid": uid} if labels.names is labels.ids else {"uid": uid, "title": name}
        if text is not None:
            # as others write it where that says the same: a content that follows the title
            content = text.removeprefix(name + " ")
            split = content and name and len(content) < len(text)
            item |= {"content": content} if split else {"text": text}
        sink.write((json.dumps(item, ensure_ascii=False) + "\n").encode())
