"""Files of labels: a name a line, or an identifier and a name."""

from __future__ import annotations

import gzip
from pathlib import Path

from megalabel.errors import DataError


def read_label_file(path: str | Path) -> list[str | tuple[str, str]]:
    """The labels of a text file (UTF-8, also gzipped): names, or pairs of identifier and name.

    A line holds a name, or an identifier, a tab and a name; an identifier may stand in <angle
    brackets>, as Annif writes it. Empty lines, and those that begin with #, are left out.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("there is no such file", file=path)
    data: bytes = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        text: str = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data[: error.start].count(b"\n") + 1
        raise DataError("expected UTF-8", file=path, line=at) from None
    labels: list[str | tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) > 1 and not (cells[0] and cells[1]):
            raise DataError(
                f"expected an identifier, a tab and a name, found {line!r}", file=path, line=number
            )
        if len(cells) > 1:
            labels.append((cells[0].removeprefix("<").removesuffix(">"), cells[1]))
        else:
            labels.append(cells[0].removeprefix("<").removesuffix(">"))
    return labels
