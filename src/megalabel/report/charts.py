"""Small charts as SVG: drawn in the page's colours, readable at the width of a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any, NamedTuple

WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 348, 26, 206
COLOURS = 4
CHARACTER = 6.2  # how wide one is


class Axis(NamedTuple):
    """What an axis shows, and from where to where."""

    name: str
    low: float
    high: float

    def ticks(self) -> list[float]:
        """Four to ten round numbers within the axis.

        Examples
        --------
        >>> Axis("%", 0, 50).ticks()
        [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
        """
        step = 10.0 ** floor(log10((self.high - self.low) / 4))
        step *= max(m for m in (1, 2, 5) if m * step <= (self.high - self.low) / 4 or m == 1)
        first = ceil(self.low / step - 1e-9)
        last = floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


def axis(name: str, values: Sequence[float], *, zero: bool = False, room: float = 0.06) -> Axis:
    """An axis around all values with some room; from zero if asked for, and never empty."""
    low = 0.0 if zero else min(values, default=0.0)
    high = max(values, default=0.0)
    more = (high - low) * room if high - low > 1e-3 else 0.5
    return Axis(name, low if zero else low - more, high + more)


def bar_chart(
    description: str,
    name: str,
    bars: Mapping[str, Sequence[float]],
    groups: Sequence[str],
    x_name: str = "",
) -> str:
    """Bars side by side, one group after another.

    Parameters
    ----------
    description : str
        What the chart shows, for those who cannot see it.
    name : str
        What the height of a bar is.
    bars : mapping
        Heights by series, one a group.
    groups : sequence of str
        What stands under each group.
    x_name : str
        What all of that is.
    """
    y = axis(name, [value for values in bars.values() for value in values], zero=True)
    slot = (RIGHT - LEFT) / max(len(groups), 1)
    width = slot * 0.8 / max(len(bars), 1)
    marks = [_horizontal_grid(y)]
    for number, (series, values) in enumerate(bars.items()):
        for group, value in enumerate(values):
            left, top = LEFT + slot * (group + 0.1) + width * number, _up(y, value)
            marks.append(
                f'<rect class="{_fill(number)}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{max(width - 1, 0.5):.1f}" height="{BOTTOM - top:.1f}">'
                f"<title>{escape(f'{series}, {groups[group]}: {value:.4g}')}</title></rect>"
            )
    every = ceil(len(groups) / 8)
    named = [(group, text) for group, text in enumerate(groups) if group % every == 0]
    # names that do not fit beside each other take turns on two lines
    lines = 2 if any(len(text) * CHARACTER > slot * every for _, text in named) else 1
    for place, (group, text) in enumerate(named):
        down = BOTTOM + 15 + 11 * (place % lines)
        marks.append(_text(LEFT + slot * (group + 0.5), down, text, "middle"))
    legend = list(bars) if len(bars) > 1 else []
    return _svg(description, marks, y.name, x_name, legend)


def reliability_diagram(
    description: str, rows: Sequence[Mapping[str, Any]], x: Axis, *, even: bool = True
) -> str:
    """Hit rates with their intervals against confidence, from a table of `reliability`.

    `x` spans the confidences 0 to 1, whatever they stand for; with `even` there is the diagonal
    on which probabilities mean what they say.
    """
    y = Axis("of these right, %", 0, 100)
    marks = [_horizontal_grid(y), *_vertical_grid(x)]
    if even:
        marks.append(f'<line class="axis even" x1="{LEFT}" y1="{BOTTOM}" x2="{RIGHT}" y2="{TOP}"/>')
    filled = [row for row in rows if row["count"]]
    most = max((row["count"] for row in filled), default=1)
    points = []
    for row in filled:
        across = LEFT + (RIGHT - LEFT) * row["confidence"]
        top, bottom = (_up(y, 100 * row[f"hit_rate_{end}"]) for end in ("high", "low"))
        points.append((across, _up(y, 100 * row["hit_rate"])))
        radius = 1.5 + 4 * (row["count"] / most) ** 0.5
        marks += [
            f'<line class="line line1" x1="{across:.1f}" y1="{top:.1f}" x2="{across:.1f}" '
            f'y2="{bottom:.1f}"/>',
            f'<circle class="fill1" cx="{across:.1f}" cy="{points[-1][1]:.1f}" r="{radius:.1f}">'
            f"<title>{row['count']:,} answers, {100 * row['hit_rate']:.1f} % right</title>"
            "</circle>",
        ]
    return _svg(description, [*marks, _line(points)], y.name, x.name)


def curve_chart(
    description: str, points: Sequence[tuple[float, float, str]], x_name: str, y_name: str
) -> str:
    """A line through points (x, y, what to call it), in their order."""
    x = axis(x_name, [point[0] for point in points], room=0.12)
    y = axis(y_name, [point[1] for point in points])
    places = [(_across(x, a), _up(y, b)) for a, b, _ in points]
    marks = [_horizontal_grid(y), *_vertical_grid(x), _line(places)]
    for (across, up), (a, b, name) in zip(places, points, strict=True):
        title = escape(f"{name}: {x_name} {a:.2f}, {y_name} {b:.2f}")
        marks.append(
            f'<circle class="fill1" cx="{across:.1f}" cy="{up:.1f}" r="4">'
            f"<title>{title}</title></circle>"
        )
    # names only where they do not cover each other
    last = (-1e9, -1e9)
    for (across, up), (_, _, name) in zip(places, points, strict=True):
        if abs(across - last[0]) + abs(up - last[1]) > 22:
            marks.append(_text(across + 7, up - 5, name))
            last = (across, up)
    return _svg(description, marks, y_name, x_name)


def _svg(
    description: str, marks: Sequence[str], y_name: str, x_name: str, legend: Sequence[str] = ()
) -> str:
    parts = [*marks, f'<line class="axis" x1="{LEFT}" y1="{BOTTOM}" x2="{RIGHT}" y2="{BOTTOM}"/>']
    parts.append(_text(4, 14, y_name))
    if x_name:
        parts.append(_text(RIGHT, BOTTOM + 40, x_name, "end"))
    right = float(RIGHT)
    for number, name in reversed(list(enumerate(legend))):
        right -= 7 * len(name) + 4
        parts.append(_text(right, 14, name))
        parts.append(
            f'<rect class="{_fill(number)}" x="{right - 13:.1f}" y="5" width="9" height="9"/>'
        )
        right -= 24
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(description)}">'
        f"{''.join(parts)}</svg>"
    )


def _horizontal_grid(y: Axis) -> str:
    return "".join(
        f'<line class="grid" x1="{LEFT}" y1="{_up(y, t):.1f}" x2="{RIGHT}" y2="{_up(y, t):.1f}"/>'
        + _text(LEFT - 5, _up(y, t) + 4, f"{t:.6g}", "end")
        for t in y.ticks()
    )


def _vertical_grid(x: Axis) -> list[str]:
    return [
        f'<line class="grid" x1="{_across(x, t):.1f}" y1="{TOP}" x2="{_across(x, t):.1f}" '
        f'y2="{BOTTOM}"/>' + _text(_across(x, t), BOTTOM + 16, f"{t:.6g}", "middle")
        for t in x.ticks()
    ]


def _line(points: Sequence[tuple[float, float]]) -> str:
    segments = (f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for (a, b), (c, d) in pairwise(points))
    return f'<path class="line line1" d="{"".join(segments)}"/>'


def _text(x: float, y: float, text: str, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{where}>{escape(text)}</text>'


def _fill(number: int) -> str:
    return f"fill{number % COLOURS + 1}"


def _across(x: Axis, value: float) -> float:
    return LEFT + (RIGHT - LEFT) * (value - x.low) / (x.high - x.low)


def _up(y: Axis, value: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * (value - y.low) / (y.high - y.low)
