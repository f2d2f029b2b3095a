"""The fields of a JSON object: which are read, of which types, and what is wrong with one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from megalabel.data.formats import guessing
from megalabel.data.formats.columns import ID_FIELDS, TEXT_FIELDS, Chosen, choose
from megalabel.data.formats.guessing import SAMPLED, Sample
from megalabel.data.formats.lines import read_head
from megalabel.data.layout import Layout, weighted
from megalabel.data.strings import split_labels_of_one
from megalabel.errors import DataError

_KINDS = {
    **dict.fromkeys(ID_FIELDS, "id"),
    **dict.fromkeys(TEXT_FIELDS, "text"),
    "labels": "labels",
    "target_ind": "numbers",
    "target_rel": "relevances",
}
"""What the usual fields hold. A layout may add "names", which are labels as strings or numbers or
lists of either, and "marks", which are 0 and 1."""
_TYPES = {
    "id": pa.large_string(),
    "text": pa.large_string(),
    "labels": pa.list_(pa.large_string()),
    "names": pa.list_(pa.large_string()),
    "numbers": pa.list_(pa.int64()),
    "relevances": pa.list_(pa.float64()),
    "marks": pa.int64(),
}
_OBJECT = re.compile(r"(^|[\[,])[ \t]*\{", re.MULTILINE)
_TRIED = 10 * SAMPLED  # places where an object may begin
_DECODER = json.JSONDecoder()


class Fields(NamedTuple):
    """What the fields of an object hold, by name, and what separates labels in a string."""

    kinds: Mapping[str, str] = _KINDS
    separator: str | None = None

    @classmethod
    def of(cls, chosen: Chosen, layout: Layout) -> Fields:
        """Those that were chosen."""
        kinds = dict.fromkeys(chosen.ids, "id") | {name: "text" for name, _ in chosen.text}
        kinds |= dict.fromkeys(chosen.labels, "labels" if layout.labels is None else "names")
        kinds |= dict.fromkeys(chosen.indicators, "marks")
        for name, kind in ((chosen.numbers, "numbers"), (chosen.relevances, "relevances")):
            kinds |= {} if name is None else {name: kind}
        return cls(kinds, layout.separator)

    @property
    def schema(self) -> pa.Schema:
        """The fields with the types they are given in."""
        return pa.schema([(name, _TYPES[kind]) for name, kind in self.kinds.items()])


USUAL_FIELDS = Fields()


def chosen_fields(path: Path, layout: Layout) -> Chosen:
    """The fields to read. Any object may lack some, so a field that is named need not be among
    those of the first lines, but for one of text."""
    usual = {name: name for name in _KINDS}
    sample = sample_jsonl(path, layout)
    if layout.text is None:
        if sample and not sample.keys() & set(TEXT_FIELDS):
            raise guessing.no_text(sample, path, layout.labels is None and "labels" not in sample)
    elif sample and not {weighted(name, [*sample])[0] for name in layout.text} & sample.keys():
        raise DataError(
            f"no field {' or '.join(layout.text)}; there are {guessing.listed([*sample])}",
            file=path,
        )
    given = [weighted(name, [*sample])[0] for name in layout.text or ()]
    given += [name for name in layout.labels or () if not set("*?") & set(name)]
    given += [] if layout.ids is None else [layout.ids]
    names = list(dict.fromkeys((*usual, *sample, *given)))
    return choose(names, layout, path, lambda: sample, usual)


def sample_jsonl(path: Path, layout: Layout) -> Sample:
    """Some values of each field of the first objects."""
    text = read_head(path, encoding=layout.encoding).decode(errors="replace")
    objects: list[dict[str, Any]] = []
    end = 0
    for start in islice(_OBJECT.finditer(text), _TRIED):
        if start.end() - 1 < end or len(objects) == SAMPLED:  # within the one before
            continue
        try:
            value, end = _DECODER.raw_decode(text, start.end() - 1)
        except (ValueError, RecursionError):
            continue
        objects.append(value)
    names = dict.fromkeys(name for value in objects for name in value)
    return {name: [value.get(name) for value in objects] for name in names}


class _Repeated(dict[str, Any]):
    """An object with a known field given twice."""


def object_of(fields: Fields) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Makes an object of its pairs."""

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            names = [name for name, _ in pairs]
            if any(names.count(name) > 1 for name in fields.kinds):
                return _Repeated(result)
        return result

    return made


def checked_row(value: Any, fields: Fields) -> dict[str, Any]:
    """The known fields of one line's object, or a ValueError that says what is wrong."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {_shown(value)}")
    if isinstance(value, _Repeated):
        raise ValueError("expected each field once, found one twice")
    row = {name: value[name] for name in fields.kinds if value.get(name) is not None}
    for name, found in row.items():
        kind = fields.kinds[name]
        found = row[name] = _plain(found, kind, fields.separator)
        expected, good = _EXPECTED[kind]
        if not good(found):
            raise ValueError(f"expected {name} to be {expected}, found {_shown(value[name])}")
        if kind == "relevances":
            row[name] = [None if v is None else float(v) for v in found]
    return row


def _plain(value: Any, kind: str, separator: str | None) -> Any:
    """A value of what several forms are allowed of, in one of them."""
    if kind == "id" and type(value) is int:
        return str(value)
    if kind in ("labels", "names") and isinstance(value, str) and _is_text(value):
        return split_labels_of_one(value, separator)
    if kind == "names":
        values = value if isinstance(value, list) else [value]
        return [str(v) if type(v) is int else v for v in values]
    if kind == "marks" and isinstance(value, bool | float):
        return int(value) if value in (0, 1) else value
    return value


def _is_text(value: Any) -> bool:
    # half of a surrogate pair can be written in JSON, but is no text
    return isinstance(value, str) and not (
        not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)
    )


def _list_of(good: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(v is None or good(v) for v in value)


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("id", "text"), ("a string", _is_text)),
    **dict.fromkeys(("labels", "names"), ("a list of strings", _list_of(_is_text))),
    "marks": ("0 or 1", lambda v: type(v) is int and v in (0, 1)),
    "numbers": (
        "a list of label numbers",
        _list_of(lambda v: type(v) is int and -(2**63) <= v < 2**63),
    ),
    "relevances": (
        "a list of numbers",
        _list_of(lambda v: type(v) is float or (type(v) is int and abs(v) < 2**1023)),
    ),
}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def schema_of(first_line: bytes, fields: Fields) -> pa.Schema:
    """Field types as the first line has them, where more than one is allowed."""
    types = {name: _TYPES[kind] for name, kind in fields.kinds.items()}
    try:
        first = json.loads(first_line)
    except (ValueError, RecursionError):
        first = {}
    for name, kind in fields.kinds.items():
        if kind == "id" and type(first.get(name)) is int:
            types[name] = pa.int64()
        if kind in ("labels", "names") and isinstance(first.get(name), str):
            types[name] = pa.large_string()
    return pa.schema(types.items())
