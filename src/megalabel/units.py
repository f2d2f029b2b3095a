"""Bytes and seconds for people."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(n: float) -> str:
    """A number of bytes as people read it, in units of 1024: KiB, MiB, GiB, TiB.

    Examples
    --------
    >>> size(800), size(1536), size(3 << 30)
    ('800 B', '1.5 KiB', '3.0 GiB')
    """
    if n < 1024:
        return f"{n:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        n /= 1024
        if round(n, 1) < 1024:
            return f"{n:.1f} {unit}"
    return f"{n / 1024:,.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds for people.

    Examples
    --------
    >>> duration(0.25), duration(75), duration(7300)
    ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def seconds_of(text: str) -> float:
    """The seconds that people mean by a number with s, m or h, or several in a row.

    Raises ValueError.

    Examples
    --------
    >>> seconds_of("90s"), seconds_of("1h30m"), seconds_of("45")
    (90.0, 5400.0, 45.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return float(sum(float(number) * _SECONDS[unit] for number, unit in parts))
    return float(text)


def bytes_of(text: str) -> int:
    """The bytes that people mean by a number with K, M, G or T, in units of 1024.

    Raises ValueError.

    Examples
    --------
    >>> bytes_of("512M") == bytes_of("512 MiB") == 512 << 20, bytes_of("800")
    (True, 800)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])i?)?B?", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no number of bytes")
    return int(float(found[1]) * _BYTES[found[2] or ""])
