"""MemoryWatch: how much memory something takes, on the machine and on its GPU; and its end."""

from __future__ import annotations

import torch

from megalabel.machine import forget_peak, memory_in_use, peak_memory


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
        forget_peak()
        self._held = memory_in_use()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # what was reserved before is none of it
            torch.cuda.reset_peak_memory_stats()

    @property
    def peak(self) -> int:
        """The most bytes of the process above what it had at first."""
        return max(0, peak_memory() - self._held)

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
