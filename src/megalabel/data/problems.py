"""What is wrong in a file: raised at once, or skipped, counted and said."""

from __future__ import annotations

from pathlib import Path

from megalabel.errors import DataError


class Problems:
    """Takes note of bad input for a reader.

    Parameters
    ----------
    skip : bool
        False: the first problem is raised. True: problems are counted and the bad lines left out.
    keep : int
        How many problems are kept in full for the report; all are counted.

    Examples
    --------
    >>> problems = Problems(skip=True)
    >>> problems.add("expected an object, found '['", file="a.jsonl", line=3)
    >>> problems.count, str(problems.kept[0])
    (1, "a.jsonl, line 3: expected an object, found '['")
    """

    def __init__(self, skip: bool = False, keep: int = 100) -> None:
        self.skip, self.keep = skip, keep
        self.count = 0
        self.kept: list[DataError] = []
        self.notes: list[DataError] = []  # of what was read, but likely not as it was meant

    def add(
        self, message: str, *, file: str | Path, line: int | None = None, column: int | None = None
    ) -> None:
        """Raise the problem as a DataError, or note it if problems are to be skipped."""
        if not self.full:
            error = DataError(message, file=file, line=line, column=column)
            if not self.skip:
                raise error
            self.kept.append(error)
        self.count += 1

    @property
    def full(self) -> bool:
        """True if problems are now only counted."""
        return self.skip and len(self.kept) >= self.keep
