"""Layout: which columns of a file mean what, and how its text is written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from megalabel.errors import ParameterError

UTF8 = "utf-8"
_WEIGHTED = re.compile(r"(.+):([0-9]{1,3})")


@dataclass(frozen=True)
class Layout:
    """What a user says about a file that looking does not tell; None: what is usual.

    Made by `layout_of`.
    """

    text: tuple[str, ...] | None = None
    """Columns of text, each with `:3` behind its name if its words count three times."""
    labels: tuple[str, ...] | None = None
    """Columns of labels, or patterns of their names."""
    ids: str | None = None
    """The column of identifiers."""
    separator: str | None = None
    """What separates labels in a string."""
    encoding: str = UTF8
    """How the bytes of a text file are to be read."""
    sheet: str | None = None
    """Which sheet of a workbook."""

    @property
    def names_columns(self) -> bool:
        """True if something is said that makes sense for columns alone."""
        given = (self.text, self.labels, self.ids, self.separator)
        return any(value is not None for value in given)


USUAL_LAYOUT = Layout()


def layout_of(
    text_column: str | Sequence[str] | Mapping[str, int] | None = None,
    label_column: str | Sequence[str] | None = None,
    label_separator: str | None = None,
    encoding: str | None = None,
    id_column: str | None = None,
) -> Layout:
    """The layout that keywords of `read` describe.

    Examples
    --------
    >>> layout_of({"title": 3, "abstract": 1}, "subjects").text
    ('title:3', 'abstract:1')
    """
    if isinstance(text_column, Mapping):
        text_column = [f"{name}:{weight}" for name, weight in text_column.items()]
    if label_separator is not None:
        label_separator = label_separator.replace("\\t", "\t")  # as it is typed in a shell
        if not label_separator:
            raise ParameterError("label_separator must not be empty (--label-separator)")
    try:
        known = codecs.lookup(encoding or UTF8).name
    except LookupError:
        raise ParameterError(
            f"there is no encoding {encoding!r}; common ones are utf-8, cp1252 (Windows), latin-1 "
            "and utf-16"
        ) from None
    return Layout(
        _several(text_column),
        _several(label_column),
        id_column,
        label_separator,
        UTF8 if known == "utf-8-sig" else known,  # a byte order mark is dropped anyway
    )


def weighted(column: str, names: Sequence[str]) -> tuple[str, int]:
    """The name and the weight of a column of text that is given as `name` or `name:weight`."""
    match = _WEIGHTED.fullmatch(column)
    if column in names or match is None:
        return column, 1
    if match[2].strip("0") == "":
        raise ParameterError(f"the weight of a column must be at least 1, not {column!r}")
    return match[1], int(match[2])


def _several(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None or not len(columns):
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)
