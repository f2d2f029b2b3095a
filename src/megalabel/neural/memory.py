"""MemoryWatch: how much memory something takes, on the machine and on its GPU; and its end."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")


class MemoryWatch:
    """Peak memory from its making on.

    Examples
    --------
    >>> watch = MemoryWatch()
    >>> held = bytearray(1 << 26)
    >>> watch.peak > 1 << 25
    True
    """

    def __init__(self) -> None:
        with contextlib.suppress(OSError):  # not allowed everywhere: then older peaks count too
            Path("/proc/self/clear_refs").write_text("5")
        self._held = _bytes_of("VmRSS")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # what was reserved before is none of it
            torch.cuda.reset_peak_memory_stats()

    @property
    def peak(self) -> int:
        """The most bytes of the process above what it had at first."""
        return max(0, _bytes_of("VmHWM") - self._held)

    @property
    def device_peak(self) -> int | None:
        """The most bytes on the GPU; None: there is none."""
        return int(torch.cuda.max_memory_reserved()) if torch.cuda.is_available() else None

    @property
    def device_total(self) -> int | None:
        """The bytes that the GPU has."""
        if not torch.cuda.is_available():
            return None
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out: torch has no type for that of the machine.

    Examples
    --------
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not fit"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and (
        "DefaultCPUAllocator" in said or "not enough memory" in said
    )


def _bytes_of(field: str) -> int:
    lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines() if ":" in line)
    return int(lines[field].split()[0]) * 1024
