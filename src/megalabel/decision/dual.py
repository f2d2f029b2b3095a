"""What is done to numbers on the way through a function written for NumPy: 0/0 is 0 (`Ratios`);
slopes, exact by dual numbers, else by small differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


def no_ratio(x: Any, y: Any) -> Any:
    """Where a ratio is 0/0, which counts as 0."""
    return np.equal(x, 0) & np.equal(y, 0)


class Ratios(np.ndarray):
    """An array of numbers of which 0/0 is 0; so are arrays that are made of it.

    A function of single numbers (`np.vectorize`) sees NumPy's, whose 0/0 is not a number.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        inputs = _plain(inputs)
        if "out" in kwargs:
            kwargs["out"] = _plain(kwargs["out"])
        if "where" in kwargs:
            kwargs["where"] = np.asarray(kwargs["where"])
        if any(np.asarray(x).dtype.hasobject for x in inputs):
            return getattr(ufunc, method)(*map(_single_numbers, inputs), **kwargs)
        none: Any = False
        if ufunc is np.divide and method == "__call__":
            none = no_ratio(*inputs) & kwargs.get("where", True)
        result = getattr(ufunc, method)(*inputs, **kwargs)
        if np.any(none):
            result = np.asarray(result)
            np.copyto(result, 0, where=none)
        return result.view(Ratios) if isinstance(result, np.ndarray) else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(function, types, args, kwargs)
        return result.view(Ratios) if type(result) is np.ndarray else result


def _plain(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.asarray(x) if isinstance(x, Ratios) else x for x in arrays)


def _single_numbers(objects: Any) -> Any:
    """Python's numbers in an array of objects as NumPy's, which may be divided by 0."""
    found = np.empty(np.size(objects), object)
    found[:] = [np.float64(x) if isinstance(x, float) else x for x in np.ravel(objects)]
    return found.reshape(np.shape(objects))


_SLOPES: dict[np.ufunc, Callable[..., Any]] = {  # of (result, values, slopes)
    np.add: lambda r, x, y, dx, dy: dx + dy,
    np.subtract: lambda r, x, y, dx, dy: dx - dy,
    np.multiply: lambda r, x, y, dx, dy: dx * y + x * dy,
    np.divide: lambda r, x, y, dx, dy: np.where(no_ratio(x, y), 0, (dx - r * dy) / y),
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
    """An array of numbers and how fast each changes in some direction; 0/0 is 0 and stays so."""

    def __init__(self, value: np.ndarray, slope: np.ndarray) -> None:
        self.value = value
        self.slope = slope

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("an array would lose the slopes")

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
        if ufunc is np.divide:
            result = np.where(no_ratio(*values), 0, result)
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
        ends = [np.asarray(function(*end), np.float64) for end in (above, below)]
        return np.asarray((ends[0] - ends[1]) / (2 * step))
    found = _slope(result)
    return np.ascontiguousarray(np.broadcast_to(found, at.shape[1:]), np.float64)


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Dual) else x


def _slope(x: Any) -> Any:
    return x.slope if isinstance(x, Dual) else 0.0


def _power_slope(r: Any, x: Any, y: Any, dx: Any, dy: Any) -> Any:
    found = y * np.power(x, np.subtract(y, 1.0)) * dx
    return found if np.ndim(dy) == 0 and dy == 0 else found + r * np.log(x) * dy
