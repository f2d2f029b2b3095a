"""Losses that see through missing labels, in plain NumPy: values and gradients in float64.

A label that applies is observed with its propensity p, independently; one that does not apply is
never observed. An estimator here is *unbiased* where its mean over what goes missing is the loss of
the complete labels. These are the reference: slow, obvious, for estimating and for tests; training
needs those that are bounded from below (`weighted`, `pick_all_labels`, also normalised).

Every loss takes scores (rows, labels) and labels of the same shape (dense or sparse, above 0 where
a label applies), and gives values with their gradients by the scores: a value for each label where
the loss is of one label at a time, else for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels.propensity import check_propensities

Loss: TypeAlias = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Scores and labels (rows, labels) to values, (rows, labels) or (rows,), and gradients."""

MOST_EXACT = 20  # labels of a row whose sub-labelings may all be gone through
_AT_ONCE = 1024  # sub-labelings that a loss is asked for in one call


# ---------------------------------------------------------------- of one label at a time
def logistic(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ln(1 + exp(-t s)), where t is 1 or -1: binary cross entropy of the sigmoid."""
    values = np.logaddexp(0, scores) - scores * labels
    return values, np.exp(-np.logaddexp(0, -scores)) - labels


def hinge(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """max(0, 1 - t s)."""
    sign = 2 * labels - 1
    margin = np.maximum(0, 1 - sign * scores)
    return margin, -sign * (margin > 0)


def squared_hinge(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """max(0, 1 - t s)²."""
    margin, slope = hinge(scores, labels)
    return margin**2, 2 * margin * slope


def squared_error(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(s - y)²."""
    return (scores - labels) ** 2, 2 * (scores - labels)


def zero_one(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 where the sign of the score is wrong, 0 where it is right; its gradient is 0."""
    return ((scores > 0) != (labels > 0)).astype(np.float64), np.zeros(np.shape(scores))


BINARY_LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        "logistic": logistic,
        "hinge": hinge,
        "squared-hinge": squared_hinge,
        "squared-error": squared_error,
        "zero-one": zero_one,
    }
)
"""Losses of one label at a time that have a name."""


def unbiased(
    loss: str | Loss, scores: ArrayLike, observed: Any, propensities: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """The unbiased estimator of a one-versus-all loss: l(s, 0) + y/p (l(s, 1) - l(s, 0)).

    Positives of low propensity count for those that were missed, and what the others cost as
    negatives is taken back. That can be below 0, without end for most losses: it is for
    estimating what a model loses, not for training it.

    Parameters
    ----------
    loss : str or callable
        A name (`BINARY_LOSSES`), or any function of that form.
    scores : array (rows, labels)
    observed : array or CSR matrix (rows, labels)
    propensities : array (labels,)

    Returns
    -------
    values, gradients : float64 arrays (rows, labels)

    Examples
    --------
    >>> values, _ = unbiased("zero-one", [[-1.0, -1.0]], [[1, 0]], propensities=[0.25, 0.25])
    >>> values  # one of four is observed: when it is, it counts for all of them
    array([[4., 0.]])
    """
    base = _binary(loss)
    s, y, p = _checked(scores, observed, propensities)
    (ones, up), (zeros, down) = (base(s, np.full(s.shape, target)) for target in (1.0, 0.0))
    return zeros + y / p * (ones - zeros), down + y / p * (up - down)


def weighted(
    loss: str | Loss,
    scores: ArrayLike,
    observed: Any,
    positive_costs: ArrayLike,
    negative_costs: ArrayLike,
) -> tuple[np.ndarray, np.ndarray]:
    """A one-versus-all loss times what errors cost: `labels.label_costs` gives the costs.

    With those of "propensity", 2/p - 1 and 1, it is the convex surrogate: where the loss is at
    least the zero-one loss, this one is at least the unbiased estimator of the zero-one loss (plus
    1/p - 1 for positives, which no score changes), and it is convex where the loss is.

    Returns
    -------
    values, gradients : float64 arrays (rows, labels)

    Examples
    --------
    >>> values, _ = weighted("squared-hinge", [[0.5, -1.0]], [[1, 0]], [3.0, 3.0], [1.0, 1.0])
    >>> values
    array([[0.75, 0.  ]])
    """
    base = _binary(loss)
    s, y, _ = _checked(scores, observed, None)
    costs = [np.asarray(given, np.float64) for given in (positive_costs, negative_costs)]
    for given in costs:
        if given.shape != s.shape[1:]:
            raise ShapeError(f"costs are {given.shape} but the scores are {s.shape}")
    cost = np.where(y > 0, *costs)
    values, gradients = base(s, y)
    return cost * values, cost * gradients


# ---------------------------------------------------------------- of a row's labels together
def pick_all_weights(
    observed: Any, propensities: ArrayLike | None = None, *, normalised: bool = False
) -> np.ndarray:
    """What the loss of each label weighs in `pick_all_labels`: (rows, labels).

    y/p; normalised, (y/p) / (1 + the sum of y/p over the row's other labels). Without
    propensities nothing is missing: y, and y / the number of the row's labels.

    Use them with any losses of labels that are not below 0; the same theorem holds. With 1 for a
    label outside the top k and 0 for one within, the normalised sum is one minus recall at k.
    """
    y, p = _labels(observed), 1.0 if propensities is None else check_propensities(propensities)
    if np.shape(p) not in ((), y.shape[1:]):
        raise ShapeError(f"propensities are {np.shape(p)} but the labels are {y.shape}")
    weights = np.asarray(y / p)
    if normalised:
        weights = weights / (1 + weights.sum(axis=1, keepdims=True) - weights)
    return weights


def pick_all_labels(
    scores: ArrayLike,
    observed: Any,
    propensities: ArrayLike | None = None,
    *,
    normalised: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the softmax cross entropies of a row's labels, weighed against missing ones.

    Unbiased, never below 0, convex. `normalised`, it is an upper bound: its mean over what goes
    missing is at least the *mean* of the cross entropies of the complete labels.

    Parameters
    ----------
    scores : array (rows, labels)
    observed : array or CSR matrix (rows, labels)
    propensities : array (labels,), optional
        None: nothing is missing.
    normalised : bool

    Returns
    -------
    values : float64 array (rows,)
    gradients : float64 array (rows, labels)

    Examples
    --------
    >>> scores, labels = [[3.0, 2.0, 1.0]], [[1, 0, 1]]
    >>> pick_all_labels(scores, labels, normalised=True)[0].round(5)
    array([1.40761])
    >>> pick_all_labels(scores, labels, [0.9, 0.7, 0.6], normalised=True)[0].round(5)
    array([2.07058])
    """
    s, y, _ = _checked(scores, observed, None)
    weights = pick_all_weights(y, propensities, normalised=normalised)
    logs = s - np.logaddexp.reduce(s, axis=1, keepdims=True)
    values = -(weights * logs).sum(axis=1)
    return values, weights.sum(axis=1, keepdims=True) * np.exp(logs) - weights


def sub_labelings(
    loss: Loss,
    scores: ArrayLike,
    observed: Any,
    propensities: ArrayLike,
    *,
    exact: int = 10,
    samples: int | None = 32,
    clip: float | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The unbiased estimator of any loss of a row, over all subsets of its observed labels.

    Σ over T ⊆ S of l(s, T) Π over T of 1/p Π over S∖T of (1 - 1/p), where S is what was observed.
    It takes 2^|S| losses. Rows of more than `exact` labels take `samples` subsets instead, drawn
    with chances in proportion to the size of their weights, which then all have the size
    Π(2/p - 1): still unbiased, and of less variance than subsets drawn with fair coins. Either
    grows with every label of low propensity.

    Parameters
    ----------
    loss : callable
        Scores and labels (rows, labels) to values (rows,) and gradients (rows, labels).
    scores : array (rows, labels)
    observed : array or CSR matrix (rows, labels)
    propensities : array (labels,)
    exact : int from 0 to 20
    samples : int, optional
        None: rows of more labels are refused.
    clip : float, optional
        Sampled weights are cut at this size, which lessens variance at the price of bias.
    seed : int
        Fixes the subsets that are drawn, for each row by itself.

    Returns
    -------
    values : float64 array (rows,)
    gradients : float64 array (rows, labels)

    Examples
    --------
    >>> scores, labels = [[3.0, 2.0, 1.0]], [[1, 0, 1]]
    >>> sub_labelings(pick_all_labels, scores, labels, [0.9, 0.7, 0.6])[0].round(4)
    array([4.4656])
    >>> pick_all_labels(scores, labels, [0.9, 0.7, 0.6])[0].round(4)  # for this loss, the same
    array([4.4656])
    """
    s, y, p = _checked(scores, observed, propensities)
    if not 0 <= exact <= MOST_EXACT:
        raise ParameterError(f"exact must be from 0 to {MOST_EXACT}, not {exact!r}")
    if samples is not None and samples < 1:
        raise ParameterError(f"samples must be at least 1 or None, not {samples!r}")
    if clip is not None and not clip > 0:
        raise ParameterError(f"clip must be above 0 or None, not {clip!r}")
    values, gradients = np.empty(len(s)), np.empty(s.shape)
    for row in range(len(s)):
        found = np.flatnonzero(y[row])
        if len(found) <= exact:
            numbers = np.arange(2 ** len(found))[:, None]
            subsets = (numbers >> np.arange(len(found))) & 1 > 0
            weights = np.where(subsets, 1 / p[found], 1 - 1 / p[found]).prod(axis=1)
        elif samples is None:
            raise DataError(
                f"row {row} has {len(found)} labels, so 2^{len(found)} sub-labelings: more than "
                f"exact={exact} allows; give samples"
            )
        else:
            luck = np.random.default_rng((seed, row)).random((samples, len(found)))
            subsets = luck < 1 / (2 - p[found])
            sizes = (2 / p[found] - 1).prod() / samples
            weights = np.where((~subsets).sum(axis=1) % 2, -sizes, sizes)
            if clip is not None:
                weights = np.clip(weights, -clip / samples, clip / samples)
        values[row], gradients[row] = _combined(loss, s[row], found, subsets, weights)
    return values, gradients


def _combined(
    loss: Loss, scores: np.ndarray, found: np.ndarray, subsets: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """The weighted sum of a row's losses by subsets of the labels found."""
    value, gradient = 0.0, np.zeros(len(scores))
    for start in range(0, len(subsets), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        labels = np.zeros((len(subsets[part]), len(scores)))
        labels[:, found] = subsets[part]
        values, gradients = loss(np.broadcast_to(scores, labels.shape), labels)
        value += float(weights[part] @ values)
        gradient += weights[part] @ gradients
    return value, gradient


# ---------------------------------------------------------------- checks
def _binary(loss: str | Loss) -> Loss:
    if callable(loss):
        return loss
    if loss not in BINARY_LOSSES:
        raise ParameterError(
            f"loss must be a function or one of {', '.join(BINARY_LOSSES)}, not {loss!r}"
        )
    return BINARY_LOSSES[loss]


def _labels(observed: Any) -> np.ndarray:
    """Labels as a dense array of 0 and 1."""
    dense = np.asarray(observed.toarray() if issparse(observed) else observed)
    if dense.ndim != 2:
        raise ShapeError(f"labels must be an array (rows, labels), not {dense.shape}")
    return (dense > 0).astype(np.float64)


def _checked(
    scores: ArrayLike, observed: Any, propensities: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and propensities in float64, of shapes that fit; p is 1 where not given."""
    s, y = np.asarray(scores, np.float64), _labels(observed)
    p = np.ones(y.shape[1]) if propensities is None else check_propensities(propensities)
    if s.shape != y.shape or p.shape != y.shape[1:]:
        raise ShapeError(f"scores are {s.shape}, labels {y.shape} and propensities {p.shape}")
    return s, y, p
