"""How much memory a file may ask for: one rule for all formats.

A few bytes can speak of label 99,999,999, or unpack to gigabytes. Such sizes are held against the
size of the file before memory is taken; `max_bytes` of `read`, and `--max-bytes` on the command
line, allow more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from megalabel.errors import DataError

# Labels that any file may number: the largest of the public corpora has fewer.
FEW_LABELS = 3_000_000
# Bytes that any file may unpack to.
FEW_BYTES = 16 << 20
# Text and sparse matrices pack to a tenth or so, long runs of one byte to a thousandth.
_RATIO = 100
# What a label takes that is known by its number alone.
_LABEL_BYTES = 16
_MOST_LABELS = 2**31 - 1  # label numbers are int32


@dataclass(frozen=True)
class Limits:
    """What a file may ask for.

    Parameters
    ----------
    max_bytes : int, optional
        Memory that a file may take even if it is too small to be expected to.

    Examples
    --------
    >>> Limits().labels(13), Limits(max_bytes=10**9).labels(13)
    (3000000, 62500000)
    """

    max_bytes: int | None = None

    def labels(self, size: int) -> int:
        """How many labels a file of `size` bytes may number."""
        more = (self.max_bytes or 0) // _LABEL_BYTES
        return min(_MOST_LABELS, max(FEW_LABELS, size // 8, more))

    def unpacked(self, size: int) -> int:
        """How many bytes a file of `size` bytes may unpack to."""
        return max(FEW_BYTES, size * _RATIO, self.max_bytes or 0)

    def advice(self, labels: int, size: int) -> str:
        """How to read a file of `size` bytes that numbers this many labels, more than it may."""
        return (
            f"a file of {size:,} bytes is expected to number at most {self.labels(size):,} labels; "
            f"if it is right, give max_bytes={labels * _LABEL_BYTES} (--max-bytes)"
        )

    def check_unpacked(self, found: int, path: str | Path, size: int | None = None) -> None:
        """Raise a DataError if a file, or a table of `size` bytes, unpacks to more than it may."""
        size = os.path.getsize(path) if size is None else size
        if found > (most := self.unpacked(size)):
            raise DataError(
                f"its {size:,} bytes unpack to more than {most:,}; if it is right, give max_bytes "
                "(--max-bytes): the bytes it may unpack to",
                file=path,
            )


USUAL = Limits()
