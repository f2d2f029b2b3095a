"""The memory of this machine: how much this process holds, and how much there is left for it; and
whether it has a GPU.

Linux tells by `/proc`. Elsewhere, as on macOS, what is known instead is the most that the process
has held, and all memory that the machine has.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path

import pyarrow as pa

from megalabel import _native

_PROCESSES = Path("/proc")
_DEVICES = Path("/dev")
_CONTAINER = Path("/sys/fs/cgroup")  # where a container finds its own limits


def memory_in_use() -> int:
    """Resident bytes of this process."""
    return _status("VmRSS")


def peak_memory() -> int:
    """The most resident bytes of this process, since `forget_peak` where that is possible."""
    return _status("VmHWM")


def forget_peak() -> None:
    """Let `peak_memory` count from now on; not everywhere is it allowed, or known, how."""
    with contextlib.suppress(OSError):
        (_PROCESSES / "self" / "clear_refs").write_text("5")


def give_back_memory() -> None:
    """Return memory to the system that was freed and kept for later, by Arrow and by native code.

    It takes milliseconds: for after a step that took much memory.
    """
    pa.default_memory_pool().release_unused()
    _native.give_back_memory()


def memory_available() -> int:
    """Bytes this process may grow to: what it has, and what machine and container have left."""
    used = memory_in_use()
    try:
        left = _fields(_PROCESSES / "meminfo")["MemAvailable"]
    except (OSError, KeyError):
        left = max(0, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") - used)
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        limit = int((_CONTAINER / "memory.max").read_text())
        held = int((_CONTAINER / "memory.current").read_text())
        counts = dict(map(str.split, (_CONTAINER / "memory.stat").read_text().splitlines()))
        held -= int(counts.get("inactive_file", 0))  # files read before, given up when needed
        left = min(left, max(0, limit - held))
    return used + left


def _status(field: str) -> int:
    try:
        return _fields(_PROCESSES / "self" / "status")[field]
    except (OSError, KeyError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _fields(file: Path) -> dict[str, int]:
    """The sizes in a file of lines like `VmRSS:  1024 kB`, in bytes."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[2:] == ["kB"]}


def has_gpu_device() -> bool:
    """Whether the system shows a GPU that torch may be able to use; torch itself is not asked."""
    return any(any(_DEVICES.glob(name)) for name in ("nvidia[0-9]*", "kfd", "dxg"))
