"""JSON lines: one object a line, with a text and its labels; and the label file beside it.

A text has `title`, `content` and/or `text`, an optional `uid` or `id`, and either `labels` (names)
or `target_ind` (numbers, which the label file explains) with an optional `target_rel`. The label
file has `uid`, `title` and `content` for each label; its line is the label's number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.corpus import Corpus
from megalabel.data.formats.columns import TEXT_FIELDS, columns, joined, one_array
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
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.data.strings import split_labels, split_labels_of_one
from megalabel.errors import DataError

_TYPES = {
    **dict.fromkeys(("uid", "id", *TEXT_FIELDS), pa.large_string()),
    "labels": pa.list_(pa.large_string()),
    "target_ind": pa.list_(pa.int64()),
    "target_rel": pa.list_(pa.float64()),
}
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
) -> Iterator[Rows]:
    """The rows of a JSONL file, some at a time."""
    done = 0
    block_bytes = BLOCK if batch_rows is None else BLOCK >> 3
    for table, lines, places, total in _parsed(path, problems, limits, block_bytes):
        yield gather(
            columns(table, path),
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
    parsed = list(_parsed(path, Problems(), limits, BLOCK))
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


def _parsed(path: Path, problems: Problems, limits: Limits, block_bytes: int) -> Iterator[Parsed]:
    """The rows of a file: of its lines, or of the one array that it is."""
    if looks_like_array(read_head(path)):
        yield from parse_array(path, problems, limits)
        return
    for block in read_blocks(path, block_bytes, limits):
        yield from parse(block, path, problems)


def parse(block: Block, path: Path, problems: Problems) -> Iterator[Parsed]:
    """The rows of a block, by Arrow's parser as far as it can, the rest line by line."""
    table = parse_fast(block)
    if table is not None:
        places = np.arange(table.num_rows)
        yield Parsed(table, places + block.first_line, places, len(places))
        return
    # a few bad lines must not slow down all the others
    smaller = [block] if len(block.data) < _SMALL else list(pieces(block, 16))
    if len(smaller) == 1:
        yield parse_carefully(block, path, problems)
    else:
        for piece in smaller:
            yield from parse(piece, path, problems)


def looks_like_array(head: bytes) -> bool:
    """Whether a file that begins so is one array of objects."""
    return _ARRAY.match(head) is not None


def parse_array(path: Path, problems: Problems, limits: Limits) -> Iterator[Parsed]:
    """The rows of a file that is one array of objects; a line is where an object begins."""
    data = b"".join(unpacked(path, limits))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            not_utf8(data, error.start), file=path, line=data.count(b"\n", 0, error.start) + 1
        ) from None
    del data
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    rows = _Fields()
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
            rows.add(_checked(value), line, place)
        except ValueError as error:
            problems.add(str(error), file=path, line=line)
        place += 1
        if place == _ROWS_AT_ONCE or end:
            yield rows.parsed(place)
            rows, place = _Fields(), 0


def parse_fast(block: Block) -> pa.Table | None:
    """Arrow's parser, or None where it may differ from `parse_carefully` or does not succeed.

    Arrow does not mind where lines end. If each line starts with { and ends with }, no object
    goes over a line end, as } is never followed by { within one; so as many objects as lines
    means one object a line. (It also crashes on a leading `null`, which this keeps from it.)
    """
    import pyarrow.json

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
                explicit_schema=_schema(data[: ends[0] if len(ends) else None]),
                unexpected_field_behavior="ignore",
            ),
        )
        table.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if table.num_rows != len(starts):
        return None
    if table.schema.field("labels").type == pa.large_string():  # strings, not lists
        lists = split_labels(one_array(table["labels"]))
        table = table.set_column(table.column_names.index("labels"), "labels", lists)
    return table.cast(pa.schema(_TYPES.items()))


def parse_carefully(block: Block, path: Path, problems: Problems) -> Parsed:
    """One line at a time: slower, but says what is wrong, and where, and can go on."""
    rows = _Fields()
    for place, number, text in split_lines(block, path, problems):
        try:
            fields = _checked(json.loads(text, object_pairs_hook=_object))
        except json.JSONDecodeError as error:
            problems.add(
                f"expected a JSON object: {error.msg}", file=path, line=number, column=error.colno
            )
        except (ValueError, RecursionError) as error:
            problems.add(str(error), file=path, line=number)
        else:
            rows.add(fields, number, place)
    return rows.parsed(count_lines(block))


class _Fields:
    """The fields of rows that are read one at a time."""

    def __init__(self) -> None:
        self._found: dict[str, list[Any]] = {name: [] for name in _TYPES}
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
        arrays = {name: pa.array(values, _TYPES[name]) for name, values in self._found.items()}
        lines, places = (np.array(values, np.int64) for values in (self._lines, self._places))
        return Parsed(pa.table(arrays), lines, places, total)


class _Repeated(dict[str, Any]):
    """An object with a known field given twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        if any(names.count(name) > 1 for name in _TYPES):
            return _Repeated(result)
    return result


def _checked(value: Any) -> dict[str, Any]:
    """The known fields of one line's object, or a ValueError that says what is wrong."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {_shown(value)}")
    if isinstance(value, _Repeated):
        raise ValueError("expected each field once, found one twice")
    fields = {name: value[name] for name in _TYPES if value.get(name) is not None}
    for name in ("uid", "id"):
        if type(fields.get(name)) is int:
            fields[name] = str(fields[name])
    if isinstance(labels := fields.get("labels"), str) and _is_text(labels):
        fields["labels"] = split_labels_of_one(labels)
    for name, found in fields.items():
        expected, good = _EXPECTED[name]
        if not good(found):
            raise ValueError(f"expected {name} to be {expected}, found {_shown(found)}")
    if "target_rel" in fields:
        fields["target_rel"] = [None if v is None else float(v) for v in fields["target_rel"]]
    return fields


def _is_text(value: Any) -> bool:
    # half of a surrogate pair can be written in JSON, but is no text
    return isinstance(value, str) and not (
        not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)
    )


def _list_of(good: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(v is None or good(v) for v in value)


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("uid", "id", *TEXT_FIELDS), ("a string", _is_text)),
    "labels": ("a list of strings", _list_of(_is_text)),
    "target_ind": (
        "a list of label numbers",
        _list_of(lambda v: type(v) is int and -(2**63) <= v < 2**63),
    ),
    "target_rel": (
        "a list of numbers",
        _list_of(lambda v: type(v) is float or (type(v) is int and abs(v) < 2**1023)),
    ),
}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _schema(first_line: bytes) -> pa.Schema:
    """Field types as the first line has them, where more than one is allowed."""
    types = dict(_TYPES)
    try:
        first = json.loads(first_line)
    except (ValueError, RecursionError):
        first = {}
    for name in ("uid", "id"):
        if type(first.get(name)) is int:
            types[name] = pa.int64()
    if isinstance(first.get("labels"), str):
        types["labels"] = pa.large_string()
    return pa.schema(types.items())


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
