"""Clock: how long something has taken, on a machine where others may be busy too."""

from __future__ import annotations

import time


class Clock:
    """Seconds from its making on.

    Those that the threads of this process have worked, where that is less: others may be busy
    too.

    Parameters
    ----------
    waits : bool
        The threads wait for something that works for them, such as a GPU: all seconds count.

    Examples
    --------
    >>> clock = Clock()
    >>> time.sleep(0.1)
    >>> clock.seconds() < 0.1
    True
    """

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self._started = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        """How many have passed."""
        passed = time.perf_counter() - self._started[0]
        return passed if self._waits else min(passed, time.process_time() - self._started[1])
