"""Workbooks of Excel and OpenOffice: the first sheet, or one by name, with a header.

A sheet is named behind the file: `texts.xlsx#Sheet2`.
"""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from megalabel.data.formats import guessing
from megalabel.data.formats.columns import TEXT_FIELDS, choose, columns, known_columns
from megalabel.data.formats.guessing import SAMPLED, Sample
from megalabel.data.formats.rows import Rows, gather
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.data.strings import strings
from megalabel.errors import DataError, MissingExtraError

# What Python raises for an archive that is damaged.
_DAMAGED = (zipfile.BadZipFile, NotImplementedError, OSError)
ENDINGS = (".xlsx", ".xlsm", ".xls", ".ods")


def sheet_in(path: Path) -> tuple[Path, str | None]:
    """The file and the sheet that `file.xlsx#sheet` means; other paths are as they are."""
    file, mark, sheet = path.name.partition("#")
    if mark and Path(file).suffix.lower() in ENDINGS and not path.exists():
        return path.with_name(file), sheet or None
    return path, None


def read_rows(
    path: Path,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None = None,
    limits: Limits = USUAL,
    layout: Layout = USUAL_LAYOUT,
) -> Iterator[Rows]:
    """The rows of a sheet, all at once: a sheet has at most about a million."""
    first, header, cells = _cells(path, layout, limits)
    known = known_columns(header, path)
    sample = _sample(header, cells)
    if layout.text is None and not known.keys() & set(TEXT_FIELDS):
        error = guessing.no_header(sample, path, ",")
        if error is not None:
            raise error
    chosen = choose(header, layout, path, lambda: sample, known)
    filled = [i for i, row in enumerate(cells) if any(row)]
    table = pa.table(
        {name: strings([cells[i][header.index(name)] for i in filled]) for name in chosen.names}
    )
    yield gather(
        columns(table, path, chosen, separator=layout.separator),
        path,
        problems,
        labels,
        origin=np.arange(len(filled)),
        size=path.stat().st_size,
        limits=limits,
        line_of=lambda i: first + 1 + filled[i],
    )


def sample_excel(path: Path, layout: Layout, limits: Limits) -> Sample:
    """Some values of each column of a sheet."""
    _, header, cells = _cells(path, layout, limits)
    return _sample(header, cells)


def _sample(header: list[str], cells: list[list[str]]) -> Sample:
    return {name: [row[i] for row in cells[:SAMPLED]] for i, name in enumerate(header)}


def _cells(path: Path, layout: Layout, limits: Limits) -> tuple[int, list[str], list[list[str]]]:
    """The line of the header, the header, and the cells below it, all as text."""
    try:
        import python_calamine
    except ImportError:
        raise MissingExtraError("python-calamine", "excel") from None
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as parts:
                limits.check_unpacked(sum(part.file_size for part in parts.infolist()), path)
        with python_calamine.CalamineWorkbook.from_path(str(path)) as book:
            sheet = layout.sheet or next(iter(book.sheet_names), "")
            if sheet not in book.sheet_names:
                listed = ", ".join(book.sheet_names) or "none"
                raise DataError(f"there is no sheet {sheet!r}; there are {listed}", file=path)
            rows = book.get_sheet_by_name(sheet).to_python(skip_empty_area=False)
    except (python_calamine.CalamineError, *_DAMAGED) as error:
        raise DataError(f"the workbook cannot be read: {error}", file=path) from None
    texts = [[_text(value) for value in row] for row in rows]
    first = next((i for i, row in enumerate(texts) if any(row)), None)
    if first is None:
        raise DataError(f"the sheet {sheet} is empty", file=path)
    used = [i for i, name in enumerate(texts[first]) if name.strip()]
    header = [texts[first][i] for i in used]
    return first + 1, header, [[row[i] for i in used] for row in texts[first + 1 :]]


def _text(value: Any) -> str:
    """A cell as text, as a sheet shows it: whole numbers without a point."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
