"""How likely a label that applies is to have been annotated, from how often it was."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from megalabel.errors import ParameterError

JPV_CONSTANTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "wikipedia": (0.5, 0.4),
        "amazon": (0.6, 2.6),
        "default": (0.55, 1.5),
    }
)
"""The published (a, b) of `jpv` by family of corpora; "default" is the mean of the other two."""


def jpv(
    counts: ArrayLike,
    n: int,
    a: float = JPV_CONSTANTS["default"][0],
    b: float = JPV_CONSTANTS["default"][1],
) -> np.ndarray:
    """The propensity model of Jain, Prabhu and Varma (2016).

    p_j = 1 / (1 + C (n_j + b)^-a) with C = (ln n - 1) (b + 1)^a.

    Parameters
    ----------
    counts : array of int
        n_j, how many training rows carry each label. A label never seen has the lowest propensity.
    n : int
        The number of training rows. Up to n = e the model would pass 1; there all propensities
        are 1.
    a, b : float
        The model's constants; published ones are in `JPV_CONSTANTS`.

    Returns
    -------
    float64 array
        A propensity in (0, 1] for each label, rising with its count.

    Examples
    --------
    >>> jpv([1, 25], n=50).round(4)
    array([0.2556, 0.5572])
    >>> jpv([0, 1, 100], 490_449, *JPV_CONSTANTS["amazon"]).round(4)
    array([0.0636, 0.0763, 0.3814])
    """
    counts = np.asarray(counts, dtype=np.float64)
    if n < 1:
        raise ParameterError(f"n must be a number of training rows of at least 1, not {n!r}")
    if not (a >= 0 and b > 0 and np.isfinite([a, b]).all()):
        raise ParameterError(f"a must be at least 0 and b above 0, not {a!r} and {b!r}")
    if counts.ndim != 1 or not ((counts >= 0) & (counts <= n)).all():
        raise ParameterError(f"counts must be one number from 0 to n = {n} for each label")
    scale = max(0.0, np.log(n) - 1) * (b + 1) ** a
    return np.asarray(1 / (1 + scale * (counts + b) ** -a))
