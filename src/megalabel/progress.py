"""Progress for whatever may take over two seconds: seen on a terminal, silent elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 2.0  # seconds that a job may take before a bar is worth showing


class Progress:
    """A bar that appears once a job has run for two seconds, if anyone is `watching`.

    It appears by itself, also while a native call keeps the caller waiting.
    """

    def __init__(self, description: str, total: int | None, watching: bool) -> None:
        self.description, self.total, self.done = description, total, 0
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        if watching:
            self._timer = threading.Timer(PATIENCE, self._show)
            self._timer.daemon = True
            self._timer.start()

    def advance(self, count: int = 1) -> None:
        """Say that so many more of the total are done."""
        with self._lock:
            self.done += count
            if self._bar is not None:
                self._bar.update(self._task, completed=self.done)

    def close(self) -> None:
        """Take the bar away."""
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._timer = None  # a bar that is due only now stays away
            if self._bar is not None:
                self._bar.stop()

    def _show(self) -> None:
        bar = _bar(self.total is not None)
        with self._lock:
            if self._timer is None:
                return
            self._task = bar.add_task(self.description, total=self.total, completed=self.done)
            bar.start()
            self._bar = bar


def _bar(counted: bool) -> Any:
    # rich is imported only when a bar is shown
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
    columns += [MofNCompleteColumn(), TimeRemainingColumn()] if counted else [TimeElapsedColumn()]
    return Bar(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Progress]:
    """A Progress that is closed at the end; without a total it only shows that work goes on.

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
