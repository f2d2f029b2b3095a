"""Random numbers that are a function of a key and a counter, in integers alone.

NumPy's generators may change their streams between versions, and libm's last bits differ between
machines. These numbers do neither: row 7 of a corpus is the same on every machine, whatever batch
it is drawn in.
"""

from __future__ import annotations

import numpy as np

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key(*parts: int | str) -> int:
    """A 64-bit key from integers and words (splitmix64 chained over the parts)."""
    state = 0
    for part in parts:
        number = int.from_bytes(part.encode(), "little") if isinstance(part, str) else part
        while True:  # 64 bits at a time, so that long words and seeds count in full
            state = _mixed_int((state ^ (number & _MASK)) + _STEP & _MASK)
            number >>= 64
            if number in (0, -1):
                break
    return state


def _mixed_int(x: int) -> int:
    x = (x ^ (x >> 30)) * _FIRST & _MASK
    x = (x ^ (x >> 27)) * _SECOND & _MASK
    return x ^ (x >> 31)


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, in place (Steele, Lea, Flood 2014)."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(31)
    return x


def bits(key: int, *counters: np.ndarray) -> np.ndarray:
    """64 random bits for each tuple of counters (arrays of integers that broadcast)."""
    state: np.ndarray | np.uint64 = np.uint64(key)
    for counter in counters:
        state = _mixed(np.asarray(counter).astype(np.uint64) * np.uint64(_STEP) + state)
    return np.asarray(state)


def below(n: int, key: int, *counters: np.ndarray) -> np.ndarray:
    """Integers from 0 to n - 1, for n up to 2^32."""
    scaled = (bits(key, *counters) >> np.uint64(32)) * np.uint64(n)
    return (scaled >> np.uint64(32)).astype(np.int64)


def uniform(key: int, *counters: np.ndarray) -> np.ndarray:
    """Multiples of 2^-53 in [0, 1)."""
    return (bits(key, *counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shuffled(n: int, key: int) -> np.ndarray:
    """A permutation of 0 … n - 1."""
    return np.argsort(bits(key, np.arange(n)), kind="stable")
