"""Columns of text and labels as files and frames give them, brought to one set of types."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.formats import guessing
from megalabel.data.formats.cells import split_cells
from megalabel.data.formats.guessing import Sample, listed
from megalabel.data.layout import Layout, weighted
from megalabel.data.limits import USUAL, Limits
from megalabel.data.strings import list_lengths, row_of, split_labels, strings
from megalabel.errors import DataError

TEXT_FIELDS = ("title", "content", "text")
ID_FIELDS = ("uid", "id")
URIS = "subject_uris"  # Annif's name for labels, which are URIs with blanks between them
FIELDS = (*ID_FIELDS, *TEXT_FIELDS, "labels", URIS, "target_ind", "target_rel")

NAMES = pa.large_list(pa.large_string())
_INTEGERS = pa.large_list(pa.int64())
_FLOATS = pa.large_list(pa.float64())


class Chosen(NamedTuple):
    """Which columns of a table are read, by what they hold."""

    text: tuple[tuple[str, int], ...]
    """Names, each with how often its text counts."""
    ids: tuple[str, ...]
    """The first that is not empty holds."""
    labels: tuple[str, ...] = ()
    indicators: tuple[str, ...] = ()
    """Columns of 0 and 1, each of the label of its name."""
    numbers: str | None = None
    relevances: str | None = None

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        text = (name for name, _ in self.text)
        others = filter(None, (self.numbers, self.relevances))
        return list(dict.fromkeys((*text, *self.ids, *self.labels, *self.indicators, *others)))


def choose(
    names: Sequence[str],
    layout: Layout,
    file: str | Path,
    sample: Callable[[], Sample],
    known: Mapping[str, str] | None = None,
) -> Chosen:
    """The columns that a layout means, else those of the usual names.

    `sample` gives some values of each column, to say what is likely where a name is not known;
    `known` the columns of usual names, where they are not to be looked for.
    """
    known = known_columns(names, file) if known is None else known
    if layout.text is None:
        text = tuple((known[field], 1) for field in TEXT_FIELDS if field in known)
    else:
        pairs = (weighted(column, names) for column in layout.text)
        text = tuple((_column(name, names, file), weight) for name, weight in pairs)
    if not text:
        raise guessing.no_text(sample(), file, labels=layout.labels is None and not _labels(known))
    if layout.ids is None:
        ids = tuple(known[field] for field in ID_FIELDS if field in known)
    else:
        ids = (_column(layout.ids, names, file),)
    chosen = Chosen(text, ids, relevances=known.get("target_rel"))
    if layout.labels is None:
        numbers = known.get("target_ind")
        return chosen._replace(labels=_labels(known), numbers=numbers)
    if len(layout.labels) == 1 and not _is_pattern(layout.labels[0], names):
        label = _column(layout.labels[0], names, file)
        by_number = field_of(label) == "target_ind"
        return chosen._replace(**{"numbers": label} if by_number else {"labels": (label,)})
    others = [name for name in names if name not in chosen.names]
    indicators = guessing.indicators(sample())
    labels: list[str] = []
    for wanted in layout.labels:
        if wanted == "*":
            labels += [name for name in others if name in indicators]
        elif _is_pattern(wanted, names):
            labels += fnmatch.filter(others, wanted)
        else:
            labels.append(_column(wanted, names, file))
    if not labels:
        holding = " of 0 and 1" if "*" in layout.labels else ""
        raise DataError(
            f"no column{holding} is named {' or '.join(layout.labels)}; there are {listed(names)}",
            file=file,
        )
    return chosen._replace(
        labels=tuple(dict.fromkeys(name for name in labels if name not in indicators)),
        indicators=tuple(dict.fromkeys(name for name in labels if name in indicators)),
    )


def _labels(known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(known[field] for field in ("labels", URIS) if field in known)[:1]


def _is_pattern(column: str, names: Sequence[str]) -> bool:
    return column not in names and any(mark in column for mark in "*?")


def _column(wanted: str, names: Sequence[str], file: str | Path) -> str:
    """The one column of a name; neither case nor blanks around it count if none has just it."""
    found = [name for name in names if name == wanted]
    found = found or [name for name in names if field_of(name) == field_of(wanted)]
    if len(found) != 1:
        fault = "several columns are named" if found else "no column"
        raise DataError(f"{fault} {wanted!r}; there are {listed(names)}", file=file)
    return found[0]


def columns(
    table: pa.Table,
    file: str | Path,
    chosen: Chosen,
    *,
    separator: str | None = None,
    size: int | None = None,
    limits: Limits = USUAL,
) -> dict[str, pa.Array]:
    """The chosen columns of a table under the names text, labels, target_ind, target_rel and uid.

    Texts are joined by a space. Labels are lists of strings, or one string (see `split_labels`),
    or lists of integers. `size` is that of a table in bytes that is no file.
    """
    shared = sum(_shared_bytes(chunk) for name in chosen.names for chunk in table[name].chunks)
    if shared:
        limits.check_unpacked(shared, file, size)
    texts = []
    for name, weight in chosen.text:
        texts += [_strings(table[name], name, file)] * weight
    found = {"text": joined(texts)}
    for name in chosen.ids:
        values = _strings(table[name], name, file, integers=True)
        if "uid" in found:  # uid where there is one, else id
            values = pc.if_else(pc.equal(pc.fill_null(found["uid"], ""), ""), values, found["uid"])
        found["uid"] = values
    if chosen.indicators or len(chosen.labels) > 1:
        found["labels"] = _united(table, chosen, file, separator)
        return found
    one = [*chosen.labels, None][0]
    by_field = {"labels": one, "target_ind": chosen.numbers, "target_rel": chosen.relevances}
    for field, column in by_field.items():
        if column is not None:
            lists = _lists(one_array(table[column]), field, column, file, separator)
            # labels may be given by number as well
            numbered = field == "labels" and not _is_string(lists.type.value_type)
            found["target_ind" if numbered else field] = lists
    return found


def _united(
    table: pa.Table, chosen: Chosen, file: str | Path, separator: str | None
) -> pa.LargeListArray:
    """The labels of several columns, in the order of the columns."""
    rows, names = [], []
    for name in chosen.labels:
        array = one_array(table[name])
        if pa.types.is_integer(array.type):
            array = array.cast(pa.large_string())
        lists = _lists(array, "labels", name, file, separator)
        if not _is_string(lists.type.value_type):
            raise DataError(f"column {name}: expected names of labels, found numbers", file=file)
        rows.append(row_of(list_lengths(lists)))
        names.append(lists.flatten().cast(pa.large_string()))
    for name in chosen.indicators:
        marked = np.flatnonzero(_marked(one_array(table[name]), name, file))
        rows.append(marked)
        names.append(strings([name.strip()] * len(marked)))
    row = np.concatenate(rows)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=table.num_rows))])
    order = pa.array(np.argsort(row, kind="stable"))
    values = pa.concat_arrays(names).take(order)
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _marked(array: pa.Array, name: str, file: str | Path) -> np.ndarray:
    """Where a column of 0 and 1 has 1."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(_decoded(array).cast(pa.large_string())))
    text = pc.fill_null(text, "")
    yes, no = (pc.is_in(text, value_set=strings(values)) for values in (guessing.YES, guessing.NO))
    other = pc.invert(pc.or_(yes, no))
    if pc.any(other).as_py():
        value = array.filter(other)[0].as_py()
        raise DataError(f"column {name}: expected 0 or 1, found {value!r}", file=file)
    return np.asarray(yes)


def field_of(name: str) -> str:
    """The field that the name of a column means: neither case nor blanks around it count.

    Examples
    --------
    >>> field_of(" Title")
    'title'
    """
    return name.strip().lower()


def known_columns(names: Sequence[str], file: str | Path) -> dict[str, str]:
    """The names of the columns that are known, by field."""
    found: dict[str, str] = {}
    for name in names:
        field = field_of(name)
        if field not in FIELDS:
            continue
        if field in found:
            raise DataError(
                f"expected one column {field}, found {found[field]!r} and {name!r}", file=file
            )
        found[field] = name
    return found


def joined(texts: Sequence[pa.Array]) -> pa.Array:
    """Texts of one row joined by a space, empty ones left out; null where all are null."""
    present = [column for column in texts if column.null_count < len(column)]
    if len(present) <= 1:
        return present[0] if present else texts[0]
    result = present[0]
    for column in present[1:]:
        known = pc.or_(pc.is_valid(result), pc.is_valid(column))
        # no nulls go in: Arrow's join drops rows where everything is null
        left, right = pc.fill_null(result, ""), pc.fill_null(column, "")
        between = pc.and_(pc.not_equal(left, ""), pc.not_equal(right, ""))
        space = pc.if_else(between, *(pa.scalar(s, pa.large_string()) for s in (" ", "")))
        whole = pc.binary_join_element_wise(left, space, right, pa.scalar("", pa.large_string()))
        result = pc.if_else(known, whole, pa.scalar(None, pa.large_string()))
    return result


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array; not copied if it is one already, so that it may stay on disk."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return pa.concat_arrays(column.chunks)


def _strings(
    column: pa.ChunkedArray, name: str, file: str | Path, integers: bool = False
) -> pa.Array:
    array = _decoded(one_array(column))
    if not (_is_string(array.type) or (integers and pa.types.is_integer(array.type))):
        raise DataError(f"column {name}: expected strings, found {array.type}", file=file)
    return _cast(array, pa.large_string(), name, file)


def _lists(
    array: pa.Array, field: str, name: str, file: str | Path, separator: str | None
) -> pa.Array:
    """Label or relevance lists, one large list a row, of strings or numbers."""
    by_number = field != "labels"
    array = _decoded(array)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), NAMES)
    if _is_string(kind):
        texts = array.cast(pa.large_string())
        if by_number:
            return split_labels(texts, True, separator)
        return split_cells(texts, separator, uris=field_of(name) == URIS)
    if pa.types.is_integer(kind):  # one label a row
        counts = np.asarray(array.is_valid()).astype(np.int64)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]))
        return pa.LargeListArray.from_arrays(offsets, array.drop_null().cast(pa.int64()))
    inner = kind.value_type if _is_list(kind) else None
    if inner is not None:
        if _is_string(inner) or pa.types.is_dictionary(inner):
            return _cast(array, NAMES, name, file)
        if pa.types.is_integer(inner) and field != "target_rel":
            return _cast(array, _INTEGERS, name, file)
        if field == "target_rel" and (pa.types.is_floating(inner) or pa.types.is_integer(inner)):
            return _cast(array, _FLOATS, name, file)
    expected = "lists of numbers" if by_number else "lists of strings or of label numbers"
    raise DataError(f"column {name}: expected {expected}, found {kind}", file=file)


def _shared_bytes(array: pa.Array) -> int:
    """The bytes of strings that rows may share, once each row has its own."""
    if _is_list(array.type):
        return _shared_bytes(array.flatten())
    if pa.types.is_dictionary(array.type) and _is_string(array.dictionary.type):
        lengths = pc.binary_length(array.dictionary.cast(pa.large_string()))
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if _is_view(array.type) and len(array):
        views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)  # a length comes first
        return int(views[array.offset : array.offset + len(array), 0].sum(dtype=np.int64))
    return 0


def _decoded(array: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(array.type):
        return array
    values = array.dictionary
    # of string views, which frames may give, Arrow cannot take
    values = values.cast(pa.large_string()) if _is_string(values.type) else values
    return values.take(array.indices)


def _cast(array: pa.Array, kind: pa.DataType, name: str, file: str | Path) -> pa.Array:
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(f"column {name}: expected {kind}: {error}", file=file) from None


def _is_string(kind: pa.DataType) -> bool:
    checks = [pa.types.is_string, pa.types.is_large_string, pa.types.is_null, _is_view]
    return any(check(kind) for check in checks)


def _is_view(kind: pa.DataType) -> bool:
    check = getattr(pa.types, "is_string_view", None)  # since pyarrow 16
    return check is not None and bool(check(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
