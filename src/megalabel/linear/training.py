"""Training of linear classifiers: what one-versus-all models and trees share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, issparse

from megalabel import _native
from megalabel.base import Check, clone, instance, integer, is_array, number, one_of, sequence_of
from megalabel.data.examples import Examples
from megalabel.data.matrix import (
    canonical,
    column_slice,
    row_numbers,
    scaled_rows,
    sparse_rows,
    with_values,
)
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels import PROPENSITIES, PropensityModel
from megalabel.labels.costs import HIGHEST, LOWEST, WEIGHTINGS, label_costs
from megalabel.linear.chunks import PRECISIONS, ChunkedWeights
from megalabel.parts import Classifier
from megalabel.work import Unit

if TYPE_CHECKING:
    from megalabel.base import Matrix

LOSSES = {"squared-hinge": _native.Loss.squared_hinge, "logistic": _native.Loss.logistic}
NORMS = (None, "l1", "l2", "max")
LANES = _native.LANES  # labels solved side by side
# What is trained between two checkpoints of a tree, in feature values times blocks of
# labels: some seconds' work. A slice also has blocks enough for all threads.
SLICE_WORK = 1 << 26
SLICE_BLOCKS = 256


def _one_a_label(low: float, high: float) -> Check:
    def accepts(values: Any) -> bool:
        if isinstance(values, np.ndarray):
            fit = values.ndim == 1 and values.dtype.kind in "iuf"
            return fit and bool(((values >= low) & (values <= high)).all())
        return sequence_of(number(low, high)).accepts(values)

    return Check(accepts, f"an array of numbers from {low:g} to {high:g}, one a label")


_COSTS = _one_a_label(LOWEST, HIGHEST)


class LinearClassifier(Classifier):
    """What one-versus-all models and trees share: parameters, and how rows are taken."""

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "loss": one_of(*LOSSES),
        "cost": number(LOWEST, HIGHEST),
        "weighting": one_of(*WEIGHTINGS),
        "propensities": one_of(None, *PROPENSITIES)
        | instance(PropensityModel)
        | _one_a_label(LOWEST, 1),
        "positive_costs": _COSTS | one_of(None),
        "negative_costs": _COSTS | one_of(None),
        "relevance": one_of(None, "labels"),
        "relevance_norm": one_of(*NORMS),
        "eps": number(1e-6, 1),
        "bias": number(0),
        "prune": number(0),
        "precision": one_of(*PRECISIONS),
        "seed": integer(0),
    }
    BY_LABEL: ClassVar[frozenset[str]] = frozenset(
        {"propensities", "positive_costs", "negative_costs"}
    )

    loss: str
    cost: float
    weighting: str | None
    propensities: Any
    positive_costs: Any
    negative_costs: Any
    relevance: str | None
    relevance_norm: str | None
    eps: float
    bias: float
    prune: float
    precision: str

    @property
    def learns_label_points(self) -> bool:
        """True: of a target y, as positives of cost y times their weight."""
        return True

    @property
    def weighs_label_points(self) -> bool:
        """True."""
        return True

    def label_costs(self, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """What an error on a positive and on a negative of each label costs."""
        given = {name: getattr(self, name) for name in ("positive_costs", "negative_costs")}
        if self.weighting is not None and any(costs is not None for costs in given.values()):
            raise ParameterError(
                f"give {type(self).__name__} either weighting={self.weighting!r}, or "
                "positive_costs and negative_costs"
            )
        costs = []
        counts, texts = examples.label_counts, max(1, examples.n_texts)
        by_name = label_costs(self.weighting, counts, texts, self.propensities)
        for (name, own), weights in zip(given.items(), by_name, strict=True):
            if own is not None and len(own) != len(counts):
                raise ShapeError(
                    f"{name} are of {len(own)} labels but Y is {examples.targets.shape}"
                )
            costs.append(self.cost * (weights if own is None else np.asarray(own, np.float64)))
        return costs[0], costs[1]

    def solver(self) -> dict[str, Any]:
        """The parameters that go to `train` as they are."""
        return {name: getattr(self, name) for name in ("loss", "eps", "bias", "prune")}

    def _with_labels(self, others: Sequence[Self]) -> Self:
        """An unfitted classifier of several, which may differ in parameters by label."""
        first, every = self.get_params(deep=False), (self, *others)
        for which, other in enumerate(others, 2):
            for name, value in other.get_params(deep=False).items():
                arrays = [is_array(of_label) for of_label in (value, first[name])]
                if name in ("positive_costs", "negative_costs", "tree") or all(arrays):
                    continue
                if any(arrays) or value != first[name]:
                    raise ParameterError(
                        f"{name} is {first[name]!r} in model 1 but {value!r} in model {which}"
                    )
        merged = type(self)(**first)
        for name in self.BY_LABEL:
            given = [getattr(one, name) for one in every]
            if any(map(is_array, given)):
                sizes = [len(one.labels_) for one in every]
                filled = [np.ones(n) if c is None else c for c, n in zip(given, sizes, strict=True)]
                setattr(merged, name, np.concatenate(filled))
        return merged

    def _grown(self, more: int) -> Self:
        """An unfitted copy for so many more labels: an error on one of them costs what it does
        where no label has a cost of its own."""
        copy: Self = clone(self)
        for name in self.BY_LABEL:
            if is_array(own := getattr(self, name)):
                setattr(copy, name, np.append(own, np.ones(more)))
        return copy

    def pruned(self, threshold: float = 0.0, max_per_label: int | None = None) -> Self:
        """A copy with only the largest weights of each classifier, and the bias."""
        self.check_fitted()

        def smaller(value: Any) -> Any:
            if isinstance(value, ChunkedWeights):
                return largest(value, threshold, max_per_label)
            return [smaller(part) for part in value] if isinstance(value, list) else value

        result: Self = clone(self)
        result.prune = max(self.prune, threshold)
        result.restore({name: smaller(value) for name, value in self.learned().items()})
        return result


def weighed_targets(
    examples: Examples,
    norm: str | None,
    weighed: bool,
    of: Callable[[csr_matrix], csr_matrix] = lambda Y: Y,
) -> csr_matrix:
    """Targets of examples as what positives cost: those of a text are its relevances, scaled by
    their norm, or 1 if these do not weigh; those of label points are their targets, at most 1,
    times their weight; and 0 where nothing is said.

    `of` gives what nodes above the labels have of a matrix by label, the sums over those below.

    Examples
    --------
    >>> some = Examples.of(np.eye(1), csr_matrix([[3.0, 0]]))
    >>> some = some.with_label_points(np.ones((1, 1)), csr_matrix([[1.0, 0.5]]), weight=0.5)
    >>> weighed_targets(some, None, weighed=False).toarray().tolist()
    [[1.0, 0.0], [0.5, 0.25]]
    """
    Y = of(examples.targets)
    scaled = scaled_rows(Y, norm)
    if examples.label_points is None:
        return scaled
    point = np.zeros(Y.shape[0], bool)
    point[examples.label_points] = True
    point = point[row_numbers(Y)]
    of_texts = scaled.data if weighed else np.float32(1)
    of_points = np.minimum(Y.data, 1) * np.float32(examples.label_point_weight)
    costs = with_values(Y, np.where(point, of_points, of_texts))
    if examples.silent is None:
        return costs
    silent = of(examples.silent) > 0
    silent = csr_matrix(silent - silent.multiply(Y > 0), dtype=np.float32)
    costs = csr_matrix(costs - silent)  # below zero where nothing is said: a sum leaves out zeros
    np.maximum(costs.data, 0, out=costs.data)
    return costs


def rows_of(X: Matrix) -> csr_matrix:
    """X as the solver takes it: sparse, canonical; dense rows are stored whole."""
    return canonical(X if issparse(X) else csr_matrix(np.asarray(X, np.float32)), "X")


def largest(level: ChunkedWeights, threshold: float, most: int | None) -> ChunkedWeights:
    """A level with only the weights above `threshold` in size, at most so many a node, and biases.

    Of equal weights, those of lower features stay.
    """
    weights = level.to_csr()
    rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    bias = weights.indices == level.n_features_
    size = np.where(bias, np.inf, np.abs(weights.data))
    kept = size > threshold
    if most is not None:
        order = np.lexsort((weights.indices, -size, rows))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - weights.indptr[rows]  # biases come first
        kept &= place < most + np.bincount(rows[bias], minlength=weights.shape[0])[rows]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=weights.shape[0]))])
    left = csr_matrix((weights.data[kept], weights.indices[kept], starts), shape=weights.shape)
    return ChunkedWeights.build(left, level.child_starts_, level.precision)


def unit_of(
    name: str,
    targets: csc_matrix,
    costs: Sequence[np.ndarray],
    numbers: Mapping[str, Any],
    group_starts: np.ndarray | None = None,
    reach: csc_matrix | None = None,
) -> Unit:
    """A unit of work: what `train` takes besides rows, as arrays and numbers."""
    arrays = {
        "target_starts": targets.indptr,
        "target_rows": targets.indices,
        "target_values": targets.data,
        "positive_costs": costs[0],
        "negative_costs": costs[1],
    }
    if reach is not None and group_starts is not None:
        arrays |= {"group_starts": group_starts}
        arrays |= {"reach_starts": reach.indptr, "reach_rows": reach.indices}
    return Unit(name, targets.shape[1], arrays, numbers)


def run_unit(rows: csr_matrix, unit: Unit) -> csr_matrix:
    """The weights of a unit's labels or nodes."""
    arrays = unit.arrays
    return train(
        rows,
        targets_of(unit, rows.shape[0]),
        group_starts=arrays.get("group_starts"),
        reach=reach_of(unit, rows.shape[0]) if "reach_rows" in arrays else None,
        positive_costs=arrays["positive_costs"],
        negative_costs=arrays["negative_costs"],
        **cast(Any, unit.numbers),
    )


def targets_of(unit: Unit, rows: int) -> csc_matrix:
    """The rows of each of a unit's labels or nodes."""
    parts = (f"target_{part}" for part in ("values", "rows", "starts"))
    return csc_matrix(tuple(unit.arrays[part] for part in parts), shape=(rows, unit.size))


def reach_of(unit: Unit, rows: int) -> csc_matrix:
    """The rows that each group of a unit is trained on."""
    starts, numbers = unit.arrays["reach_starts"], unit.arrays["reach_rows"]
    values = np.broadcast_to(np.float32(1), len(numbers))
    return csc_matrix((values, numbers, starts), shape=(rows, len(starts) - 1))


def blocks_of_groups(unit: Unit) -> np.ndarray:
    """How many blocks the labels of each group make; those without a text need no training."""
    used = np.append(0, np.cumsum(np.diff(unit.arrays["target_starts"]) > 0))
    return np.asarray(-(-np.diff(used[unit.arrays["group_starts"]]) // LANES))


def values_of_columns(X: csr_matrix, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The number of feature values in the rows of each column of a matrix."""
    ends = np.append(0, np.cumsum(np.diff(X.indptr)[rows], dtype=np.int64))
    return np.diff(ends[starts])


def values_of_groups(X: csr_matrix, unit: Unit) -> np.ndarray:
    """The number of feature values in the rows of each group."""
    return values_of_columns(X, unit.arrays["reach_starts"], unit.arrays["reach_rows"])


def _small_groups(X: csr_matrix, unit: Unit) -> Unit:
    """The same unit with its large groups as several groups of the same rows."""
    starts, most = unit.arrays["group_starts"], SLICE_BLOCKS * LANES
    pieces = np.maximum(1, -(-np.diff(starts) // most))
    if (pieces == 1).all():
        return unit
    group = np.repeat(np.arange(len(pieces)), pieces)
    place = np.arange(len(group)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    reach = reach_of(unit, X.shape[0])[:, group]
    arrays = {
        "group_starts": np.append(starts[group] + most * place, starts[-1]),
        "reach_starts": reach.indptr,
        "reach_rows": reach.indices,
    }
    return replace(unit, arrays={**unit.arrays, **arrays})


def cut(X: csr_matrix, whole: Unit) -> list[Unit]:
    """The groups of a unit in units of a few seconds; how they are cut changes no weight."""
    whole = _small_groups(X, whole)
    arrays = whole.arrays
    starts = arrays["group_starts"]
    groups = len(starts) - 1
    blocks = blocks_of_groups(whole)
    work = np.append(0, np.cumsum(blocks * values_of_groups(X, whole)))
    blocks = np.append(0, np.cumsum(blocks))
    targets, reach = targets_of(whole, X.shape[0]), reach_of(whole, X.shape[0])
    units = []
    first = 0
    while first < groups:
        enough = max(
            np.searchsorted(work, work[first] + SLICE_WORK),
            np.searchsorted(blocks, blocks[first] + SLICE_BLOCKS),
        )
        last = min(int(enough), groups)
        nodes = slice(int(starts[first]), int(starts[last]))
        costs = [arrays[name][nodes] for name in ("positive_costs", "negative_costs")]
        units.append(
            unit_of(
                f"{whole.name}-nodes-{nodes.start}-{nodes.stop}",
                column_slice(targets, nodes),
                costs,
                whole.numbers,
                starts[first : last + 1] - nodes.start,
                column_slice(reach, slice(first, last)),
            )
        )
        first = last
    return units


def train(
    X: csr_matrix,
    targets: csc_matrix,
    *,
    group_starts: np.ndarray | None = None,
    reach: csc_matrix | None = None,
    positive_costs: np.ndarray,
    negative_costs: np.ndarray,
    weighed: bool = False,
    loss: str,
    eps: float,
    bias: float,
    prune: float,
) -> csr_matrix:
    """Weights of one classifier for each column of `targets`, (columns, features + 1), bias last.

    Parameters
    ----------
    X : CSR matrix (n, features)
    targets : CSC matrix (n, columns)
        Stored entries are the positives.
    group_starts : array, optional
        Columns `group_starts[g]` to `group_starts[g + 1]` are trained on the rows stored in column
        g of `reach`. None: all on all rows.
    reach : CSC matrix (n, groups), optional
    positive_costs, negative_costs : float arrays (columns,)
        What an error costs.
    weighed : bool
        Multiply the cost of each positive with its value in `targets`.
    loss, eps, bias, prune
        As in `OneVsAll`.
    """
    if X.shape[0] != targets.shape[0]:
        raise ShapeError(f"X is {X.shape} but the targets are {targets.shape}")
    columns = targets.shape[1]
    if reach is None:
        row_starts, rows = np.empty(0, np.int64), np.empty(0, np.int32)
        group_starts = np.array([0, columns])
    else:
        row_starts = reach.indptr.astype(np.int64, copy=False)
        rows = reach.indices.astype(np.int32, copy=False)
    factors = targets.data.astype(np.float32, copy=False) if weighed else np.empty(0, np.float32)
    groups = _native.LabelGroups(
        row_starts=row_starts,
        rows=rows,
        label_starts=np.asarray(group_starts, np.int64),
        positive_starts=targets.indptr.astype(np.int64, copy=False),
        positives=targets.indices.astype(np.int32, copy=False),
        positive_costs=np.asarray(positive_costs, np.float32),
        negative_costs=np.asarray(negative_costs, np.float32),
        factors=factors,
    )
    starts, indices, values = _native.train_groups(
        sparse_rows(X), groups, loss=LOSSES[loss], eps=eps, bias=bias, prune=prune
    )
    return csr_matrix((values, indices, starts), shape=(columns, X.shape[1] + 1))
