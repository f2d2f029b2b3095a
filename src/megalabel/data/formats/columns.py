"""Columns of text and labels as files and frames give them, brought to one set of types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.limits import USUAL, Limits
from megalabel.data.strings import split_labels
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
    size: int | None = None,
    limits: Limits = USUAL,
) -> dict[str, pa.Array]:
    """The known columns of a table under the names text, labels, target_ind, target_rel and uid.

    Texts are joined by a space. Labels are lists of strings, or one string (see `split_labels`),
    or lists of integers. Columns are found by their usual names unless named. `size` is that of
    a table in bytes that is no file.
    """
    names = table.column_names
    for wanted in [*(text or ()), *filter(None, (labels, ids))]:
        if names.count(wanted) != 1:
            fault = "several columns are named" if wanted in names else "no column"
            raise DataError(f"{fault} {wanted!r}; there are {_listed(names)}", file=file)
    known = known_columns(names, file)
    used = {*known.values(), *(text or ()), *filter(None, (labels, ids))}
    if shared := sum(_shared_bytes(chunk) for name in used for chunk in table[name].chunks):
        limits.check_unpacked(shared, file, size)
    text = text_columns(known, names, file) if text is None else text
    found = {"text": joined([_strings(table[name], name, file) for name in text])}
    for name in (ids,) if ids is not None else [known[f] for f in ID_FIELDS if f in known]:
        values = _strings(table[name], name, file, integers=True)
        if "uid" in found:  # uid where there is one, else id
            values = pc.if_else(pc.equal(pc.fill_null(found["uid"], ""), ""), values, found["uid"])
        found["uid"] = values
    if labels is not None:
        known = {f: name for f, name in known.items() if f not in ("labels", "target_ind")}
        known["target_ind" if field_of(labels) == "target_ind" else "labels"] = labels
    for field in ("labels", "target_ind", "target_rel"):
        if field in known:
            lists = _lists(one_array(table[known[field]]), field, known[field], file)
            # labels may be given by number as well
            numbered = field == "labels" and not _is_string(lists.type.value_type)
            found["target_ind" if numbered else field] = lists
    return found


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


def text_columns(known: Mapping[str, str], names: Sequence[str], file: str | Path) -> list[str]:
    """Those of the known columns that hold text; there must be one."""
    found = [known[field] for field in TEXT_FIELDS if field in known]
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


def _strings(
    column: pa.ChunkedArray, name: str, file: str | Path, integers: bool = False
) -> pa.Array:
    array = _decoded(one_array(column))
    if not (_is_string(array.type) or (integers and pa.types.is_integer(array.type))):
        raise DataError(f"column {name}: expected strings, found {array.type}", file=file)
    return _cast(array, pa.large_string(), name, file)


def _lists(array: pa.Array, field: str, name: str, file: str | Path) -> pa.Array:
    """Label or relevance lists, one large list a row, of strings or numbers."""
    by_number = field != "labels"
    array = _decoded(array)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), NAMES)
    if _is_string(kind):
        return split_labels(array.cast(pa.large_string()), by_number)
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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "none"
