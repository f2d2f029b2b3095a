"""Slopes of functions written for NumPy: exact by dual numbers, else by small differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_SLOPES: dict[np.ufunc, Callable[..., Any]] = {  # of (result, values, slopes)
    np.add: lambda r, x, y, dx, dy: dx + dy,
    np.subtract: lambda r, x, y, dx, dy: dx - dy,
    np.multiply: lambda r, x, y, dx, dy: dx * y + x * dy,
    np.divide: lambda r, x, y, dx, dy: (dx - r * dy) / y,
    np.power: lambda r, x, y, dx, dy: _power_slope(r, x, y, dx, dy),
    np.maximum: lambda r, x, y, dx, dy: np.where(x >= y, dx, dy),
    np.minimum: lambda r, x, y, dx, dy: np.where(x <= y, dx, dy),
    np.negative: lambda r, x, dx: -dx,
    np.positive: lambda r, x, dx: dx,
    np.absolute: lambda r, x, dx: np.sign(x) * dx,
    np.square: lambda r, x, dx: 2 * x * dx,
    # the slope of a root at 0 is infinite; no step can follow it, so it counts as none
    np.sqrt: lambda r, x, dx: np.where(r > 0, dx / np.where(r > 0, 2 * r, 1), 0),
    np.exp: lambda r, x, dx: r * dx,
    np.log: lambda r, x, dx: dx / x,
    np.log1p: lambda r, x, dx: dx / (1 + x),
    np.reciprocal: lambda r, x, dx: -r * r * dx,
}
_COMPARISONS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)


class Dual(NDArrayOperatorsMixin):
    """An array of numbers and how fast each changes in some direction."""

    def __init__(self, value: np.ndarray, slope: np.ndarray) -> None:
        self.value = value
        self.slope = slope

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        return self.value.shape

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        values = [_value(x) for x in inputs]
        if ufunc in _COMPARISONS:
            return ufunc(*values)
        if ufunc not in _SLOPES:
            return NotImplemented
        result = ufunc(*values)
        return Dual(result, _SLOPES[ufunc](result, *values, *map(_slope, inputs)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.where or len(args) != 3 or kwargs:
            return NotImplemented
        where, *branches = args
        return Dual(
            np.where(where, *map(_value, branches)), np.where(where, *map(_slope, branches))
        )


def slope(function: Callable[..., Any], at: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """How fast a function of several arrays changes element by element in a direction.

    Parameters
    ----------
    function : callable
        Takes as many arrays as `at` has rows and gives an array of their length. Dual numbers go
        through arithmetic, comparisons, `np.where`, `np.sqrt`, `np.exp`, `np.log` and the like;
        for a function that does anything else, small differences are taken.
    at, direction : float64 arrays (arguments, n)
        Where, and which way.

    Examples
    --------
    >>> slope(lambda x, y: x * y, np.array([[2.0], [3.0]]), np.array([[1.0], [0.0]]))
    array([3.])
    """
    try:
        result = function(*(Dual(x, d) for x, d in zip(at, direction, strict=True)))
    except (TypeError, AttributeError):  # beyond what dual numbers can do
        step = 1e-5 * np.where(np.abs(at) > 1e-9, np.abs(at), 1e-4).min(axis=0)
        above, below = at + step * direction, at - step * direction
        return np.asarray((function(*above) - function(*below)) / (2 * step), np.float64)
    found = _slope(result)
    return np.ascontiguousarray(np.broadcast_to(found, at.shape[1:]), np.float64)


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Dual) else x


def _slope(x: Any) -> Any:
    return x.slope if isinstance(x, Dual) else 0.0


def _power_slope(r: Any, x: Any, y: Any, dx: Any, dy: Any) -> Any:
    found = y * np.power(x, np.subtract(y, 1.0)) * dx
    return found if np.ndim(dy) == 0 and dy == 0 else found + r * np.log(x) * dy
