"""Labels in a cell of a table, in the notations that people and programs write them in."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.strings import split_labels

_IN_BRACKETS = r"^\s*(<[^<>\s]+>\s*)*$"
_AS_LIST = r"^\s*(\[.*\]\s*)?$"
_ITEM = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(-?\d+))\s*,?""")
_ESCAPED = re.compile(r"""\\(['"\\])""")


def split_cells(texts: pa.Array, separator: str | None = None, uris: bool = False) -> pa.Array:
    """The labels of each cell, as lists.

    Where all cells are identifiers in angle brackets, as Annif has them, they are split at blanks
    and lose their brackets; `uris` says that they are split there in any case. Where all are lists
    as Python and JSON write them, such as what pandas makes of a column of lists, they are those
    lists. Others are split by `split_labels`.

    Examples
    --------
    >>> split_cells(pa.array(["['dress', 'hats; caps']", "[]"], pa.large_string())).to_pylist()
    [['dress', 'hats; caps'], []]
    >>> split_cells(pa.array(["<u:1> <u:2>"], pa.large_string())).to_pylist()
    [['u:1', 'u:2']]
    """
    if separator is None:
        first = next((cell for v in texts if (cell := (v.as_py() or "").strip())), "")
        if uris or (first.startswith("<") and _all_match(texts, _IN_BRACKETS)):
            return split_labels(pc.replace_substring_regex(texts, r"[<>\s]+", " "), separator=" ")
        if first.startswith("[") and _all_match(texts, _AS_LIST):
            lists = [_items(cell or "") for cell in texts.to_pylist()]
            if None not in lists:
                return pa.array(lists, pa.large_list(pa.large_string()))
    return split_labels(texts, separator=separator)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _items(cell: str) -> list[str] | None:
    """The items of a list of strings and numbers; None if it is none."""
    inside = cell.strip().removeprefix("[").removesuffix("]").strip()
    items, position = [], 0
    while position < len(inside):
        match = _ITEM.match(inside, position)
        if match is None:
            return None
        found = next(group for group in match.groups() if group is not None)
        items.append(_ESCAPED.sub(r"\1", found))
        position = match.end()
    return items
