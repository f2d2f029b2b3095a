"""Reads hostile files in child processes, and says which of them crash, hang or fill the memory.

A trial is a name and a function that writes a file or folder into an empty folder and returns its
path. Reading it must succeed or raise an allowed error, in time and within a bound of memory.
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

MIB = 1 << 20
# What a child may take before its allocations fail: a machine must survive what a test finds.
_MOST = 4 << 30


class Trial(NamedTuple):
    """A hostile file or folder; its name says how to make it again."""

    name: str
    make: Callable[[Path], Path]


class Failure(NamedTuple):
    """A trial that did what it must not, and what it did."""

    name: str
    reason: str


def size_on_disk(path: Path) -> int:
    """The bytes of a file, or of all files below a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())


def run(
    trials: Iterable[Trial],
    read: Callable[[Path], Any],
    allowed_errors: tuple[type[BaseException], ...],
    seconds: float = 5,
    extra_bytes: int = 64 * MIB,
    *,
    size: Callable[[Path], int] = size_on_disk,
    batch: int = 200,
) -> list[Failure]:
    """The trials that fail: `read` raised another error, crashed, took too long or too much memory.

    Parameters
    ----------
    trials : iterable of Trial
    read : function of a path
    allowed_errors : types of errors that `read` may raise
    seconds : float
        How long one call of `read` may take.
    extra_bytes : int
        What `read` may take beyond four times `size`.
    size : function of a path
        How many bytes there are to read, once unpacked.
    batch : int
        How many trials one child process runs.
    """
    failures: list[Failure] = []
    left = iter(trials)
    while group := list(itertools.islice(left, batch)):
        while group:
            done = 0
            for line in _child(group, read, allowed_errors, seconds, extra_bytes, size):
                done += 1
                if line is not None:
                    failures.append(Failure(group[done - 1].name, line))
            group = group[done:]
    return failures


def _child(
    group: list[Trial],
    read: Callable[[Path], Any],
    allowed: tuple[type[BaseException], ...],
    seconds: float,
    extra_bytes: int,
    size: Callable[[Path], int],
) -> Iterator[str | None]:
    """What became of each trial, None if all is well; ends early with one that ends the child."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        source, sink = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(source)
            status = 1
            try:
                with os.fdopen(sink, "w", encoding="utf-8") as out:
                    for trial in group:
                        reason = _attempt(
                            trial, Path(folder), read, allowed, seconds, extra_bytes, size
                        )
                        out.write((reason or "").replace("\n", "\0") + "\n")
                        out.flush()
                status = 0
            finally:
                os._exit(status)
        os.close(sink)
        done = 0
        with os.fdopen(source, encoding="utf-8") as results:
            for line in results:
                done += 1
                yield line.rstrip("\n").replace("\0", "\n") or None
        _, status = os.waitpid(process, 0)
        if done < len(group):
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGALRM:
                yield f"took more than {seconds:g} s"
            else:
                yield f"ended the process with {signal.Signals(-code).name if code < 0 else code}"


def _attempt(
    trial: Trial,
    folder: Path,
    read: Callable[[Path], Any],
    allowed: tuple[type[BaseException], ...],
    seconds: float,
    extra_bytes: int,
    size: Callable[[Path], int],
) -> str | None:
    place = folder / "trial"
    place.mkdir()
    try:
        path = trial.make(place)
        most = extra_bytes + 4 * size(path)
        for _ in range(2):  # the first time pages of code may come in as well
            reason, taken = _measured(lambda: read(path), allowed, seconds)
            if reason is not None:
                return reason
            if taken <= most:
                return None
        return f"took {taken / MIB:.0f} MiB of memory, expected at most {most / MIB:.0f} MiB"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _measured(
    call: Callable[[], Any], allowed: tuple[type[BaseException], ...], seconds: float
) -> tuple[str | None, int]:
    """What went wrong, and by how many bytes resident memory grew at its highest."""
    # the default action ends the process, which no code, native code included, can hold up
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + _MOST, resource.RLIM_INFINITY))
    reason = None
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
    except allowed:
        pass
    except BaseException:
        reason = traceback.format_exc(limit=-6)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return reason, _status("VmHWM") - before


def _status(name: str) -> int:
    for line in (
        Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    ):
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status does not say {name}")
