"""Columns of text and labels as files and frames give them, brought to one set of types."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.errors import DataError

TEXT_FIELDS = ("title", "content", "text")
ID_FIELDS = ("uid", "id")
FIELDS = (*ID_FIELDS, *TEXT_FIELDS, "labels", "target_ind", "target_rel")

NAMES = pa.large_list(pa.large_string())
_INTEGERS = pa.large_list(pa.int64())
_FLOATS = pa.large_list(pa.float64())


def columns(
    table: pa.Table,
    file: str | Path,
    *,
    text: Sequence[str] | None = None,
    labels: str | None = None,
    ids: str | None = None,
) -> dict[str, pa.Array]:
    """The known columns of a table under the names text, labels, target_ind, target_rel and uid.

    Texts are joined by a space. Labels are lists of strings, or one string that `;` or `|`
    separates, or lists of integers. Columns are found by their usual names unless named.
    """
    names = table.column_names
    for wanted in [*(text or ()), *filter(None, (labels, ids))]:
        if wanted not in names:
            raise DataError(f"no column {wanted!r}; there are {_listed(names)}", file=file)
    text = text_columns(names, file) if text is None else text
    found = {"text": joined([_strings(table[name], name, file) for name in text])}
    for name in (ids,) if ids is not None else ID_FIELDS:
        if name in names and "uid" not in found:
            found["uid"] = _strings(table[name], name, file, integers=True)
        elif name in names:  # uid where there is one, else id
            found["uid"] = pc.coalesce(found["uid"], _strings(table[name], name, file, True))
    for name in (labels,) if labels is not None else ("labels", "target_ind"):
        if name in names:
            lists = _lists(one_array(table[name]), name, file, by_number=name == "target_ind")
            by_name = _is_string(lists.type.value_type) and name != "target_ind"
            found["labels" if by_name else "target_ind"] = lists
    if "target_rel" in names:
        found["target_rel"] = _lists(one_array(table["target_rel"]), "target_rel", file, True)
    return found


def text_columns(names: Sequence[str], file: str | Path) -> list[str]:
    """Those columns that hold text; there must be one."""
    found = [name for name in TEXT_FIELDS if name in names]
    if not found:
        raise DataError(
            f"expected a column title, content or text; there are {_listed(names)}", file=file
        )
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


def _split(texts: pa.Array, pattern: str) -> pa.Array:
    """Strings split into lists; blanks around the pieces and empty pieces are dropped."""
    lists = pc.split_pattern_regex(pc.fill_null(texts, ""), pattern=pattern)
    counts = list_lengths(lists)
    names = pc.utf8_trim_whitespace(lists.flatten())
    kept = np.asarray(pc.not_equal(names, ""))
    counts = np.bincount(row_of(counts)[kept], minlength=len(texts))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, names.filter(pa.array(kept)))


def _strings(
    column: pa.ChunkedArray, name: str, file: str | Path, integers: bool = False
) -> pa.Array:
    array = _decoded(one_array(column))
    if not (_is_string(array.type) or (integers and pa.types.is_integer(array.type))):
        raise DataError(f"column {name}: expected strings, found {array.type}", file=file)
    return _cast(array, pa.large_string(), name, file)


def _lists(array: pa.Array, name: str, file: str | Path, by_number: bool) -> pa.Array:
    """Label or relevance lists, one large list a row, of strings or numbers."""
    array = _decoded(array)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), NAMES)
    if _is_string(kind):
        return _split(array.cast(pa.large_string()), "[;|, ]" if by_number else "[;|]")
    if pa.types.is_integer(kind):  # one label a row
        counts = np.asarray(array.is_valid()).astype(np.int64)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]))
        return pa.LargeListArray.from_arrays(offsets, array.drop_null().cast(pa.int64()))
    inner = kind.value_type if _is_list(kind) else None
    if inner is not None:
        if _is_string(inner) or pa.types.is_dictionary(inner):
            return _cast(array, NAMES, name, file)
        if pa.types.is_integer(inner) and name != "target_rel":
            return _cast(array, _INTEGERS, name, file)
        if name == "target_rel" and (pa.types.is_floating(inner) or pa.types.is_integer(inner)):
            return _cast(array, _FLOATS, name, file)
    expected = "lists of numbers" if by_number else "lists of strings or of label numbers"
    raise DataError(f"column {name}: expected {expected}, found {kind}", file=file)


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
    checks = [pa.types.is_string, pa.types.is_large_string, pa.types.is_null]
    checks += [getattr(pa.types, "is_string_view", pa.types.is_string)]
    return any(check(kind) for check in checks)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "none"


def list_lengths(lists: pa.Array) -> np.ndarray:
    """How many items each list has."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def row_of(counts: np.ndarray) -> np.ndarray:
    """The row of each item, given how many items each row has."""
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)
