"""Progress for whatever may take over two seconds: seen on a terminal, silent elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 2.0  # seconds that a job may take before a bar is worth showing


class Progress:
    """A bar that appears once a job has run for two seconds, if anyone is `watching`."""

    def __init__(self, description: str, total: int, watching: bool) -> None:
        self.description, self.total, self.done = description, total, 0
        self._watching = watching
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def advance(self, steps: int = 1) -> None:
        """Say that so many more of the total are done."""
        self.done += steps
        if not self._watching:
            return
        if self._bar is None and time.monotonic() - self._started > PATIENCE:
            self._bar = _bar()
            self._task = self._bar.add_task(self.description, total=self.total)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Any:
    # rich is imported only when a bar is shown
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)


@contextmanager
def progress(description: str, total: int) -> Iterator[Progress]:
    """A Progress that is closed at the end.

    Examples
    --------
    >>> with progress("tagging", total=3) as bar:
    ...     for _ in range(3):
    ...         bar.advance()
    """
    # a process without a console has no stderr at all
    bar = Progress(description, total, watching=sys.stderr is not None and sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.close()
