"""Metrics that are averages over labels of a function of the confusion entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from megalabel._native import MacroMetric
from megalabel.base import Check
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.data.truth import check_truth, label_matrix
from megalabel.decision.dual import Ratios, slope
from megalabel.errors import ParameterError

Function: TypeAlias = Callable[..., Any]

_LABELS = 1 << 13  # at a time: fits the cache


class Metric:
    """A macro metric: the mean over labels of a function of (tp, fp, fn, tn).

    Parameters
    ----------
    function : callable
        Takes four float64 arrays, one number a label, in parts of the rows (they sum to 1), and
        gives an array: the value of each label. 0/0 is 0 in NumPy's arithmetic with these arrays;
        a function that takes them apart may give a NaN for 0/0, which counts as 0 too. Any other
        value that is not finite is an error.
    gradient : callable, optional
        Takes the same and gives four arrays, the slopes of `function` in each entry. Without one
        slopes are found by dual numbers, or by small differences where those cannot go. A slope
        that is not finite counts as 0: no step can follow it.
    name : str
        What it is called in tables.

    Examples
    --------
    >>> critical_success = Metric(lambda tp, fp, fn, tn: tp / (tp + fp + fn), name="CSI")
    >>> entries = np.array([[0.25], [0.25], [0.0], [0.5]])
    >>> critical_success(*entries)
    array([0.5])
    >>> [float(part[0]) for part in critical_success.gradient(*entries)]
    [1.0, -1.0, -1.0, 0.0]
    """

    def __init__(
        self, function: Function, gradient: Function | None = None, name: str = "custom"
    ) -> None:
        self.function = function
        self.name = name
        self.twin: MacroMetric | None = None  # that the native core has
        self.beta = 1.0
        self._gradient = gradient

    def __repr__(self) -> str:
        return f"Metric({self.name!r})"

    def __call__(
        self,
        tp: np.ndarray,
        fp: np.ndarray,
        fn: np.ndarray,
        tn: np.ndarray,
        name: Callable[[int], object] = int,
    ) -> np.ndarray:
        """The value of each label; `name` says what an error calls the label at a place."""
        found = self._apply(tp, fp, fn, tn)
        values = np.asarray(found, dtype=np.float64)
        if values.shape not in ((), np.shape(tp)):
            raise ParameterError(
                f"the metric {self.name} gave {values.shape} values for {np.shape(tp)} labels"
            )
        if not isinstance(found, Ratios):
            values = np.where(np.isnan(values), 0.0, values)
        values = np.ascontiguousarray(np.broadcast_to(values, np.shape(tp)))
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            sides = zip(("tp", "fp", "fn", "tn"), (tp, fp, fn, tn), strict=True)
            told = ", ".join(f"{side} = {np.ravel(e)[at]:.6g}" for side, e in sides)
            raise ParameterError(
                f"the metric {self.name} is {values.flat[at]} for the label {name(at)!r} at {told};"
                " it must be a finite number, or 0/0, which counts as 0"
            )
        return values

    def total(
        self,
        hits: np.ndarray,
        given: np.ndarray,
        positives: np.ndarray,
        rows: float,
        labels: LabelSet,
    ) -> float:
        """The sum of all labels' values, from sums over rows as `entries` takes them."""
        return sum(
            float(
                self(
                    *entries(np.array([hits[p], given[p]]), positives[p], rows),
                    name=lambda at, first=p.start: labels.name(first + at),  # type: ignore[misc]
                ).sum()
            )
            for p in label_blocks(len(positives))
        )

    def gradient(
        self, tp: np.ndarray, fp: np.ndarray, fn: np.ndarray, tn: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """The slopes of each label's value in its four entries."""
        at = np.array([tp, fp, fn, tn], dtype=np.float64)
        if self._gradient is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                given = self._gradient(*at.view(Ratios))
            return tuple(_finite(np.broadcast_to(g, at.shape[1:])) for g in given)
        ways = np.eye(4)
        return tuple(
            _finite(slope(self._apply, at, np.broadcast_to(way[:, None], at.shape))) for way in ways
        )

    def slopes(self, at: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """How fast values change when the entries (4, labels) move in a direction."""
        if self._gradient is None:
            return _finite(slope(self._apply, at, direction))
        parts = zip(self.gradient(*at), direction, strict=True)
        return np.ascontiguousarray(sum(g * d for g, d in parts), np.float64)

    def _apply(self, *entries: Any) -> Any:
        """What the function gives. Those with a native twin know 0/0 themselves."""
        if self.twin is not None:
            return self.function(*entries)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.function(
                *(e.view(Ratios) if isinstance(e, np.ndarray) else e for e in entries)
            )


def _finite(slopes: Any) -> np.ndarray:
    found = np.asarray(slopes, np.float64)
    return np.where(np.isfinite(found), found, 0.0)


def _ratio(a: Any, b: Any) -> Any:
    some = b > 0
    return a / np.where(some, b, 1.0) * some


def _f_beta(beta: float) -> Function:
    square = beta * beta
    return lambda tp, fp, fn, tn: _ratio((1 + square) * tp, (1 + square) * tp + fp + square * fn)


def _h_mean(tp: Any, fp: Any, fn: Any, tn: Any) -> Any:
    sensitivity, specificity = _ratio(tp, tp + fn), _ratio(tn, tn + fp)
    return _ratio(2 * sensitivity * specificity, sensitivity + specificity)


_FUNCTIONS: dict[str, Function] = {
    "macro-precision": lambda tp, fp, fn, tn: _ratio(tp, tp + fp),
    "macro-recall": lambda tp, fp, fn, tn: _ratio(tp, tp + fn),
    "macro-f1": _f_beta(1.0),
    "macro-jaccard": lambda tp, fp, fn, tn: _ratio(tp, tp + fp + fn),
    "macro-balanced-accuracy": lambda tp, fp, fn, tn: (
        0.5 * (_ratio(tp, tp + fn) + _ratio(tn, tn + fp))
    ),
    "macro-g-mean": lambda tp, fp, fn, tn: np.sqrt(_ratio(tp, tp + fn) * _ratio(tn, tn + fp)),
    "macro-h-mean": _h_mean,
    "macro-fowlkes-mallows": lambda tp, fp, fn, tn: np.sqrt(
        _ratio(tp, tp + fp) * _ratio(tp, tp + fn)
    ),
    "coverage": lambda tp, fp, fn, tn: np.where(tp > 0, 1.0, 0.0),
}
_TWINS = {
    "macro-precision": MacroMetric.precision,
    "macro-recall": MacroMetric.recall,
    "macro-f1": MacroMetric.f_beta,
    "macro-jaccard": MacroMetric.jaccard,
    "macro-balanced-accuracy": MacroMetric.balanced_accuracy,
    "macro-g-mean": MacroMetric.g_mean,
    "macro-h-mean": MacroMetric.h_mean,
    "macro-fowlkes-mallows": MacroMetric.fowlkes_mallows,
    "coverage": MacroMetric.coverage,
}
METRICS = tuple(_FUNCTIONS)
"""The names that stand for a metric; `macro-f2` and the like weigh recall by another beta."""


def metric_of(metric: str | Metric | Function) -> Metric:
    """The metric of a name or a function of (tp, fp, fn, tn).

    Examples
    --------
    >>> metric_of("macro-f0.5").beta
    0.5
    """
    if isinstance(metric, Metric):
        return metric
    if callable(metric):
        return Metric(metric, name=getattr(metric, "__name__", "custom"))
    found = re.fullmatch(r"macro-f(\d+(?:\.\d+)?)", str(metric))
    if found and float(found[1]) > 0:
        known = Metric(_f_beta(float(found[1])), name=metric)
        known.twin, known.beta = MacroMetric.f_beta, float(found[1])
        return known
    if metric not in _FUNCTIONS:
        raise ParameterError(f"metric must be {METRIC.expected}, not {metric!r}")
    known = Metric(_FUNCTIONS[metric], name=metric)
    known.twin = _TWINS[metric]
    return known


def _is_metric(value: Any) -> bool:
    try:
        metric_of(value)
    except ParameterError:
        return False
    return True


METRIC = Check(
    _is_metric,
    f"one of {', '.join(METRICS)}, macro-f with a beta, or a function of (tp, fp, fn, tn)",
)


def is_coverage(metric: Metric) -> bool:
    """Whether it is coverage, whose expectation is no function of expected entries."""
    return metric.twin == MacroMetric.coverage


def label_blocks(labels: int) -> Iterator[slice]:
    """The labels in blocks, so that what is computed on the way is small."""
    return (slice(start, start + _LABELS) for start in range(0, labels, _LABELS))


def entries(
    outcome: np.ndarray, positives: np.ndarray, rows: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(tp, fp, fn, tn) in parts of the rows, from sums over rows: an outcome (2, labels) of hits
    and of times given, and positives."""
    tp, given = outcome / rows
    positives = positives / rows
    # a difference of sums may miss 0 by its last bits
    return (
        tp,
        np.maximum(given - tp, 0),
        np.maximum(positives - tp, 0),
        np.maximum(1 - given - positives + tp, 0),
    )


def expected_coverage(ids: np.ndarray, probabilities: np.ndarray, labels: int) -> float:
    """The share of labels to expect that are given rightly somewhere, by the chance each time."""
    with np.errstate(divide="ignore"):
        missed = np.log1p(-np.minimum(probabilities, 1.0, dtype=np.float64))
    return float(-np.expm1(np.bincount(ids, missed, labels)).sum()) / max(1, labels)


def measure(
    decided: Ranking,
    truth: Corpus | csr_matrix | Ranking,
    metric: str | Metric | Function = "macro-f1",
) -> float:
    """The value of a metric for decided labels: on true labels, or expected by probabilities.

    Parameters
    ----------
    decided : Ranking
        The labels that texts were given.
    truth : Corpus, CSR matrix, or Ranking of probabilities
        Labels as 0 and 1, or their probabilities: then the value is that of the expected
        confusion entries, and exactly the expected one for coverage. Labels of a corpus that the
        ranking does not know count as missed.
    metric : str, Metric or callable

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> labels = LabelSet(["cat", "dog"])
    >>> decided = Ranking([[0], [1]], [[0.9], [0.8]], labels)
    >>> measure(decided, csr_matrix([[1, 0], [1, 1]]), "macro-recall")
    0.75
    """
    metric = metric_of(metric)
    matrix = truth.to_csr() if isinstance(truth, Ranking) else label_matrix(truth, decided.labels)
    check_truth(decided, matrix)
    n, width = matrix.shape
    given = decided.to_csr()
    given = csr_matrix((np.ones(given.nnz), given.indices, given.indptr), shape=(n, width))
    both = given.multiply(matrix).tocsr()
    if is_coverage(metric):
        return expected_coverage(both.indices, both.data, width)
    hits, times, positives = (
        np.bincount(m.indices, m.data.astype(np.float64), width) for m in (both, given, matrix)
    )
    names = decided.labels
    return float(
        metric(
            *entries(np.array([hits, times]), positives, n),
            name=lambda at: names.name(at) if at < len(names) else at,
        ).mean()
    )
