"""How likely a label that applies is to have been annotated: its propensity.

Models give it from how often a label was annotated; `direct_propensities` measures it where a
sample was annotated twice; any array of your own does as well. Whatever takes propensities takes
all of these, by `label_propensities`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from megalabel.base import Check, Component, Learned, number
from megalabel.errors import DataError, ParameterError, ShapeError

JPV_CONSTANTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "wikipedia": (0.5, 0.4),
        "amazon": (0.6, 2.6),
        "default": (0.55, 1.5),
    }
)
"""The published (a, b) of `jpv` by family of corpora; "default" is the mean of the other two."""

_SMALLEST, _LARGEST = 1e-6, 1e6  # of the positive constants of a curve


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
    counts = _counts(counts, n)
    if not (a >= 0 and b > 0 and np.isfinite([a, b]).all()):
        raise ParameterError(f"a must be at least 0 and b above 0, not {a!r} and {b!r}")
    scale = max(0.0, np.log(n) - 1) * (b + 1) ** a
    return np.asarray(1 / (1 + scale * (counts + b) ** -a))


class PropensityModel(Component, ABC):
    """A curve from the count of a label to its propensity. Its constants are its parameters."""

    LEARNED: ClassVar[Mapping[str, Learned]] = {}

    @abstractmethod
    def propensities(self, counts: ArrayLike, n: int) -> np.ndarray:
        """The propensity, in (0, 1], of labels that `counts` of n training rows carry."""

    @classmethod
    @abstractmethod
    def fit_to(
        cls, counts: ArrayLike, n: int, propensities: ArrayLike, weights: ArrayLike | None = None
    ) -> Self:
        """The model nearest to known propensities of some labels, by least squares.

        Parameters
        ----------
        counts : array of int (labels,)
            How many training rows carry each of these labels.
        n : int
            The number of training rows.
        propensities : array (labels,)
            What is known, such as `direct_propensities` with `smoothing=0`.
        weights : array (labels,), optional
            How much each is relied on, such as the number of rows it was measured on. Labels of
            weight 0, and those whose propensity is NaN, are left out.
        """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PropensityModel) or type(self) is not type(other):
            return False
        return self.get_params() == other.get_params()

    def __hash__(self) -> int:
        return hash((type(self), *self.get_params().values()))


class Jpv(PropensityModel):
    """The curve of `jpv`, with published constants or fitted ones.

    Parameters
    ----------
    a, b : float
        See `jpv` and `JPV_CONSTANTS`.

    Examples
    --------
    >>> Jpv(*JPV_CONSTANTS["amazon"]).propensities([0, 1, 100], n=490_449).round(4)
    array([0.0636, 0.0763, 0.3814])
    >>> Jpv.fit_to([1, 25], 50, propensities=[0.2, 0.6]).propensities([1, 25], 50).round(2)
    array([0.26, 0.6 ])
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "a": number(0, 100),
        "b": number(_SMALLEST, _LARGEST),
    }

    def __init__(
        self,
        a: float = JPV_CONSTANTS["default"][0],
        b: float = JPV_CONSTANTS["default"][1],
    ) -> None:
        self.a = a
        self.b = b

    def propensities(self, counts: ArrayLike, n: int) -> np.ndarray:
        """The propensity of labels that `counts` of n training rows carry."""
        self.check_parameters()
        return jpv(counts, n, self.a, self.b)

    @classmethod
    def fit_to(
        cls, counts: ArrayLike, n: int, propensities: ArrayLike, weights: ArrayLike | None = None
    ) -> Self:
        """The model nearest to known propensities of some labels, by least squares."""
        if n < 3:
            raise ParameterError(f"the model has no meaning below 3 training rows: n is {n}")
        found = _least_squares(
            lambda constants, seen: jpv(seen, n, *constants),
            _known(counts, n, propensities, weights),
            starts=[(a, b) for a in (0.1, 0.5, 1.5) for b in (0.5, 5.0, 50.0)],
            # a lower b would have labels never seen, of which nothing is known, weigh without end
            smallest=(_SMALLEST, 0.1),
            largest=(100, _LARGEST),
        )
        return cls(*found)


class Richards(PropensityModel):
    """The generalised logistic curve of Richards over the logarithm of the count.

    p_j = lower + (upper - lower) / (1 + scale (n_j + shift)^-growth)^(1/nu).

    The curve of Jain, Prabhu and Varma is the case `nu=1`, `lower=0`, `upper=1`, where the scale
    follows from the number of rows; here it is free, and so is the asymmetry `nu`.

    Parameters
    ----------
    scale, growth, nu : float
        Fitted by `fit_to`.
    lower, upper : float
        What the curve tends to.
    shift : float
        Added to counts, so that labels never seen have a propensity too.

    Examples
    --------
    >>> Richards(scale=4.0, growth=0.5).propensities([0, 3, 99], n=1000).round(4)
    array([0.2   , 0.3333, 0.7143])
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **dict.fromkeys(("scale", "growth", "nu", "shift"), number(_SMALLEST, _LARGEST)),
        **dict.fromkeys(("lower", "upper"), number(0, 1)),
    }

    def __init__(
        self,
        scale: float = 1.0,
        growth: float = 0.5,
        nu: float = 1.0,
        *,
        lower: float = 0.0,
        upper: float = 1.0,
        shift: float = 1.0,
    ) -> None:
        self.scale = scale
        self.growth = growth
        self.nu = nu
        self.lower = lower
        self.upper = upper
        self.shift = shift

    def propensities(self, counts: ArrayLike, n: int) -> np.ndarray:
        """The propensity of labels that `counts` rows carry; n is only checked."""
        self.check_parameters()
        if self.lower >= self.upper:
            raise ParameterError(f"lower={self.lower} must be below upper={self.upper}")
        curve = _richards((self.scale, self.growth, self.nu), _counts(counts, n) + self.shift)
        # steep curves underflow
        return np.maximum(self.lower + (self.upper - self.lower) * curve, _SMALLEST)

    @classmethod
    def fit_to(
        cls, counts: ArrayLike, n: int, propensities: ArrayLike, weights: ArrayLike | None = None
    ) -> Self:
        """The model nearest to known propensities of some labels, by least squares.

        `scale`, `growth` and `nu` are fitted; the others have their defaults.
        """
        scale, growth, nu = _least_squares(
            lambda constants, seen: _richards(constants, seen + 1.0),
            _known(counts, n, propensities, weights),
            starts=[(s, g, nu) for s in (1.0, 10.0) for g in (0.3, 1.0) for nu in (0.5, 1.0, 3.0)],
            smallest=(_SMALLEST, _SMALLEST, 0.01),
            largest=(_LARGEST, 100, 100),
        )
        return cls(scale, growth, nu)


PROPENSITIES: Mapping[str, PropensityModel] = MappingProxyType(
    {
        "jpv": Jpv(),
        "jpv-amazon": Jpv(*JPV_CONSTANTS["amazon"]),
        "jpv-wikipedia": Jpv(*JPV_CONSTANTS["wikipedia"]),
    }
)
"""Models that have a name."""

Propensities: TypeAlias = str | PropensityModel | ArrayLike | None


def label_propensities(given: Propensities, counts: ArrayLike, n: int) -> np.ndarray:
    """The propensity of each label, by whatever is given for it.

    Parameters
    ----------
    given : str, PropensityModel, array (labels,) or None
        A name (`PROPENSITIES`), a model, or the propensities themselves. None: "jpv".
    counts : array of int (labels,)
        How many training rows carry each label.
    n : int
        The number of training rows.

    Examples
    --------
    >>> counts = [1, 25]
    >>> label_propensities("jpv-amazon", counts, n=50).round(4)
    array([0.2556, 0.5382])
    >>> label_propensities([0.5, 1], counts, n=50)
    array([0.5, 1. ])
    """
    counts = _counts(counts, n)
    if given is None or isinstance(given, str):
        name = given or "jpv"
        if name not in PROPENSITIES:
            raise ParameterError(
                f"propensities must be an array, a model or one of {', '.join(PROPENSITIES)}, "
                f"not {given!r}"
            )
        given = PROPENSITIES[name]
    if isinstance(given, PropensityModel):
        return given.propensities(counts, n)
    values = check_propensities(given)
    if values.shape != counts.shape:
        raise ShapeError(f"propensities are of {len(values)} labels, but there are {len(counts)}")
    return values


def check_propensities(given: Any) -> np.ndarray:
    """An array of propensities in float64, each above 0 and at most 1."""
    values = np.asarray(given)
    if values.ndim != 1 or (values.dtype.kind not in "iuf" and values.size):
        raise ParameterError(f"propensities must be one number a label, not {given!r}")
    values = values.astype(np.float64)
    wrong = np.flatnonzero(~((values > 0) & (values <= 1)))
    if len(wrong):
        raise ParameterError(
            f"propensities must be above 0 and at most 1: label {wrong[0]} has {values[wrong[0]]}"
        )
    return values


def direct_propensities(
    observed: csr_matrix,
    complete: csr_matrix,
    *,
    same_rows: bool = True,
    smoothing: float = 1.0,
    prior: ArrayLike | None = None,
) -> np.ndarray:
    """Propensities measured on a sample that was annotated completely.

    The share of a label's rows in `complete` where it was `observed` too. Labels that were
    observed against the complete annotation do not count.

    Parameters
    ----------
    observed : CSR matrix (n, labels)
        The ordinary annotation, as that of the training rows.
    complete : CSR matrix (n, labels)
        The complete one, where every label was asked for.
    same_rows : bool
        Whether the two are of the same rows. If not, rows of each are taken for a sample of the
        same texts, and the propensity is the ratio of the label's rates, at most 1.
    smoothing : float
        How many rows the prior is worth. 0: the bare ratio, NaN for labels that no row carries.
    prior : array (labels,), optional
        What labels that are not in the sample have, such as a model's propensities. By default
        the propensity of all labels together.

    Examples
    --------
    >>> complete = csr_matrix([[1, 1], [1, 0], [1, 0], [1, 0]])
    >>> observed = csr_matrix([[1, 0], [1, 0], [1, 0], [0, 0]])
    >>> direct_propensities(observed, complete, smoothing=0)
    array([0.75, 0.  ])
    >>> direct_propensities(observed, complete)
    array([0.72, 0.3 ])
    """
    seen, whole = (csr_matrix(matrix) > 0 for matrix in (observed, complete))
    if seen.shape[1] != whole.shape[1] or (same_rows and seen.shape[0] != whole.shape[0]):
        raise ShapeError(f"observed is {seen.shape} but complete is {whole.shape}")
    if not (smoothing >= 0 and np.isfinite(smoothing)):
        raise ParameterError(f"smoothing must be a number of at least 0, not {smoothing!r}")
    relevant = _column_counts(whole)
    if same_rows:
        found = _column_counts(seen.multiply(whole))
    else:
        found = _column_counts(seen) * (whole.shape[0] / max(1, seen.shape[0]))
    if not found.sum():
        raise DataError("no label of the complete annotation was observed in the ordinary one")
    if prior is None:
        expected = np.full(len(relevant), min(1.0, found.sum() / max(1.0, relevant.sum())))
    else:
        expected = check_propensities(prior)
        if expected.shape != relevant.shape:
            raise ShapeError(f"prior is of {len(expected)} labels, but there are {len(relevant)}")
    rows = relevant + smoothing
    ratio = np.full(len(rows), np.nan)
    np.divide(found + smoothing * expected, rows, out=ratio, where=rows > 0)
    return np.asarray(np.minimum(ratio, 1.0))


# ---------------------------------------------------------------- fitting
_Known: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


def _known(counts: ArrayLike, n: int, propensities: ArrayLike, weights: ArrayLike | None) -> _Known:
    """Counts, propensities and weights of the labels that can be fitted to."""
    seen = _counts(counts, n)
    known = np.asarray(propensities, np.float64)
    weighed = np.ones(len(seen)) if weights is None else np.asarray(weights, np.float64)
    if known.shape != seen.shape or weighed.shape != seen.shape:
        raise ShapeError(
            f"counts are {seen.shape}, propensities {known.shape} and weights {weighed.shape}"
        )
    if not ((weighed >= 0) & np.isfinite(weighed)).all():
        raise ParameterError("weights must be numbers of at least 0")
    kept = (weighed > 0) & ~np.isnan(known)
    seen, known, weighed = seen[kept], known[kept], weighed[kept]
    if not ((known >= 0) & (known <= 1)).all():
        raise ParameterError("known propensities must be from 0 to 1, or NaN")
    if len(np.unique(seen)) < 2:
        raise DataError("a curve needs known propensities of labels of at least two frequencies")
    return seen, known, weighed


def _least_squares(
    curve: Callable[[Any, np.ndarray], np.ndarray],
    labels: _Known,
    starts: list[tuple[float, ...]],
    smallest: tuple[float, ...],
    largest: tuple[float, ...],
) -> tuple[float, ...]:
    """The positive constants of a curve, over their logarithms and from several starts."""
    from scipy.optimize import least_squares  # a tenth of a second that few need

    seen, known, weights = labels
    # labels of the same count are one point, whose error beyond their mean no curve can change
    points, where = np.unique(seen, return_inverse=True)
    total = np.bincount(where, weights)
    mean = np.bincount(where, weights * known) / total
    share = np.sqrt(total / total.sum())
    runs = (
        least_squares(
            lambda logs: share * (curve(np.exp(logs), points) - mean),
            np.log(start),
            bounds=(np.log(smallest), np.log(largest)),
        )
        for start in starts
    )
    best = min(runs, key=lambda run: run.cost)
    return tuple(float(x) for x in np.clip(np.exp(best.x), smallest, largest))


def _richards(constants: tuple[float, ...], counts: np.ndarray) -> np.ndarray:
    scale, growth, nu = constants
    return np.asarray(np.exp(-np.logaddexp(0, np.log(scale) - growth * np.log(counts)) / nu))


def _counts(counts: ArrayLike, n: int) -> np.ndarray:
    """Counts of labels in float64, checked against the number of rows."""
    values = np.asarray(counts, dtype=np.float64)
    if n < 1:
        raise ParameterError(f"n must be a number of training rows of at least 1, not {n!r}")
    if values.ndim != 1 or not ((values >= 0) & (values <= n)).all():
        raise ParameterError(f"counts must be one number from 0 to n = {n} for each label")
    return values


def _column_counts(matrix: csr_matrix) -> np.ndarray:
    return np.asarray(matrix.sum(axis=0), np.float64).ravel()
