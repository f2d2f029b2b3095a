"""Propensities against frequency, drawn as SVG without any library."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from megalabel.errors import ParameterError
from megalabel.labels.propensity import Propensities, PropensityModel, label_propensities
from megalabel.outputs import replacing_file

_WIDTH, _HEIGHT = 640, 400
_LEFT, _END, _TOP, _BOTTOM = 56, _WIDTH - 16, 16, 48
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito
_STYLE = (
    "svg{color:#222;background:#fff;font:13px system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd;background:#181818}}"
    "text{fill:currentColor}.axis{stroke:currentColor;stroke-opacity:.2}"
    ".curve{fill:none;stroke-width:2}"
)


def propensity_plot(
    curves: Mapping[str, Propensities],
    counts: ArrayLike,
    n: int,
    file: str | Path | None = None,
) -> str:
    """Draw propensities of labels against how often they occur: an SVG image.

    Models are lines; arrays, such as direct estimates, are a point for each label.

    Parameters
    ----------
    curves : mapping of titles to what `label_propensities` takes
    counts : array of int (labels,)
        How many training rows carry each label.
    n : int
        The number of training rows.
    file : path, optional
        Where to write the image too.

    Examples
    --------
    >>> from megalabel.labels import Jpv
    >>> image = propensity_plot({"published": Jpv(), "mine": [0.2, 0.9]}, counts=[1, 80], n=100)
    >>> image.startswith("<svg"), image.count("<polyline")
    (True, 1)
    """
    seen = np.asarray(counts, np.float64)
    if not curves or not len(seen):
        raise ParameterError("there is nothing to draw: give curves, and counts of labels")
    right = max(1.0, float(seen.max()))
    drawn = _axes(right)
    for number, (title, given) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        if given is None or isinstance(given, str | PropensityModel):
            grid = np.expm1(np.linspace(0, np.log1p(right), 200)).clip(0, right)
            x, y = _x(grid, right), _y(label_propensities(given, grid, n))
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
            drawn.append(f'<polyline class="curve" stroke="{colour}" points="{path}"/>')
        else:
            x, y = _x(seen, right), _y(label_propensities(given, seen, n))
            # labels that lie upon each other are one point
            points = np.unique(np.column_stack([x, y]).round(), axis=0)
            dots = (f'<circle cx="{a:.0f}" cy="{b:.0f}" r="2.5"/>' for a, b in points)
            drawn.append(f'<g fill="{colour}" fill-opacity=".5">{"".join(dots)}</g>')
        line = _HEIGHT - _BOTTOM - 18 * (len(curves) - number) + 4
        drawn.append(f'<circle cx="{_END - 13}" cy="{line - 5}" r="5" fill="{colour}"/>')
        drawn.append(_text(_END - 24, line, title, "end"))
    image = "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'role="img" aria-label="propensities of labels against their frequency">',
            f"<style>{_STYLE}</style>",
            *drawn,
            "</svg>\n",
        ]
    )
    if file is not None:
        with replacing_file(file) as fresh:
            fresh.write_text(image, encoding="utf-8")
    return image


def _x(counts: np.ndarray, right: float) -> np.ndarray:
    """By the logarithm of one more, as some labels have a count of 0."""
    return np.asarray(_LEFT + np.log1p(counts) / np.log1p(right) * (_END - _LEFT))


def _y(propensities: np.ndarray) -> np.ndarray:
    return np.asarray(_HEIGHT - _BOTTOM - propensities * (_HEIGHT - _BOTTOM - _TOP))


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _axes(right: float) -> list[str]:
    counts = np.array([0.0, *(10.0**i for i in range(int(np.log10(right)) + 1))])
    shares = np.linspace(0, 1, 6)
    bottom, middle = _HEIGHT - _BOTTOM, (_TOP + _HEIGHT - _BOTTOM) / 2
    drawn = []
    for count, x in zip(counts, _x(counts, right), strict=True):
        drawn.append(f'<path class="axis" d="M{x:.1f} {_TOP}V{bottom}"/>')
        drawn.append(_text(x, bottom + 18, f"{count:,.0f}"))
    for share, y in zip(shares, _y(shares), strict=True):
        drawn.append(f'<path class="axis" d="M{_LEFT} {y:.1f}H{_END}"/>')
        drawn.append(_text(_LEFT - 8, y + 4, f"{share:.1f}", "end"))
    drawn.append(_text((_LEFT + _END) / 2, _HEIGHT - 8, "training texts with the label"))
    turned = f' transform="rotate(-90 16 {middle})"'
    drawn.append(_text(16, middle, "propensity", more=turned))
    return drawn
