"""Bytes and seconds for people."""

from __future__ import annotations


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
