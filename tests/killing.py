"""Writers in child processes that are killed, at a step that is chosen or at any moment."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

# what changes a folder, or makes sure that it has changed
CALLS = ("fsync", "mkdir", "rename", "replace", "rmdir", "unlink")


def in_child(write: Callable[[], Any], step: int | None = None) -> int:
    """The number of a process that writes; it kills itself before its call of that number."""
    process = os.fork()
    if process == 0:
        try:
            if step is not None:
                _kill_before(step)
            write()
        finally:
            os._exit(0)
    return process


def _kill_before(step: int) -> None:
    calls = itertools.count()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if next(calls) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **more)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
