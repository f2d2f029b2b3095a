"""Training of linear classifiers: what one-versus-all models and trees share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, issparse

from megalabel import _native
from megalabel.base import Check, Classifier, clone, instance, integer, number, one_of, sequence_of
from megalabel.data.corpus import canonical
from megalabel.data.native import sparse_rows
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels import PROPENSITIES, PropensityModel
from megalabel.labels.costs import HIGHEST, LOWEST, WEIGHTINGS, label_costs
from megalabel.linear.chunks import PRECISIONS, ChunkedWeights
from megalabel.linear.prior import begin

if TYPE_CHECKING:
    from megalabel.base import Matrix
    from megalabel.data import LabelSet

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
BY_LABEL = ("propensities", "positive_costs", "negative_costs")  # parameters that may be arrays


@dataclass(frozen=True)
class Options:
    """How some labels are trained: what `train` takes besides rows and targets."""

    positive_costs: np.ndarray
    negative_costs: np.ndarray
    others: Mapping[str, Any]

    def of(self, labels: slice | np.ndarray) -> dict[str, Any]:
        """The keywords of `train` for some of the labels."""
        costs = {name: getattr(self, name)[labels] for name in ("positive_costs", "negative_costs")}
        return {**costs, **self.others}


class LinearClassifier(Classifier):
    """What one-versus-all models and trees share: parameters, and how a fit begins."""

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

    def _begin(
        self, X: Matrix, Y: csr_matrix, labels: LabelSet | None
    ) -> tuple[csr_matrix, csr_matrix]:
        """X and Y as the solver takes them, checked; `labels_` is set."""
        Y = begin(self, X, Y, labels)
        return rows_of(X), Y

    def label_costs(self, Y: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
        """What an error on a positive and on a negative of each label costs."""
        given = {name: getattr(self, name) for name in ("positive_costs", "negative_costs")}
        if self.weighting is not None and any(costs is not None for costs in given.values()):
            raise ParameterError(
                f"give {type(self).__name__} either weighting={self.weighting!r}, or "
                "positive_costs and negative_costs"
            )
        costs = []
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        n = max(1, Y.shape[0])
        by_name = label_costs(self.weighting, counts, n, self.propensities)
        for (name, own), weights in zip(given.items(), by_name, strict=True):
            if own is not None and len(own) != Y.shape[1]:
                raise ShapeError(f"{name} are of {len(own)} labels but Y is {Y.shape}")
            costs.append(self.cost * (weights if own is None else np.asarray(own, np.float64)))
        return costs[0], costs[1]

    def _solver(self) -> dict[str, Any]:
        """The parameters that go to `train` as they are."""
        return {name: getattr(self, name) for name in ("loss", "eps", "bias", "prune")}

    def for_labels(self, numbers: np.ndarray) -> Self:
        """An unfitted copy for some of the labels: arrays among its parameters are cut to them."""
        part: Self = clone(self)
        for name in BY_LABEL:
            if _is_array(given := getattr(part, name)):
                setattr(part, name, np.asarray(given)[numbers])
        return part

    @classmethod
    def _merged(cls, parts: Sequence[Self], labels: LabelSet) -> Self:
        """A classifier with the parameters of the parts, which may differ in those of labels."""
        first = parts[0].get_params(deep=False)
        for which, part in enumerate(parts[1:], 2):
            for name, value in part.get_params(deep=False).items():
                arrays = [_is_array(of_label) for of_label in (value, first[name])]
                if name in ("positive_costs", "negative_costs", "tree") or all(arrays):
                    continue
                if any(arrays) or value != first[name]:
                    raise ParameterError(
                        f"{name} is {first[name]!r} in model 1 but {value!r} in model {which}"
                    )
        merged = cls(**first)
        merged.labels_ = labels
        for name in BY_LABEL:
            given = [getattr(part, name) for part in parts]
            if any(map(_is_array, given)):
                sizes = [len(part.labels_) for part in parts]
                filled = [np.ones(n) if c is None else c for c, n in zip(given, sizes, strict=True)]
                setattr(merged, name, np.concatenate(filled))
        return merged

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


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | list | tuple)


def rows_of(X: Matrix) -> csr_matrix:
    """X as the solver takes it: sparse, canonical; dense rows are stored whole."""
    return canonical(X if issparse(X) else csr_matrix(np.asarray(X, np.float32)), "X")


def scaled_rows(Y: csr_matrix, norm: str | None) -> csr_matrix:
    """Y with each row divided by its sum, its length or its largest value."""
    if norm is None or not Y.nnz:
        return Y
    if norm == "max":
        sizes = Y.max(axis=1).toarray().ravel()
    else:
        power = 1 if norm == "l1" else 2
        sizes = np.asarray(Y.power(power).sum(axis=1)).ravel() ** (1 / power)
    scaled = Y.data / np.repeat(sizes, np.diff(Y.indptr))
    return csr_matrix((scaled.astype(np.float32), Y.indices, Y.indptr), shape=Y.shape)


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


def blocks_of_groups(targets: csc_matrix, group_starts: np.ndarray) -> np.ndarray:
    """How many blocks the labels of each group make; those without a text need no training."""
    used = np.append(0, np.cumsum(np.diff(targets.indptr) > 0))
    return np.asarray(-(-np.diff(used[group_starts]) // LANES))


def values_of_groups(X: csr_matrix, reach: csc_matrix) -> np.ndarray:
    """The number of feature values in the rows of each group."""
    ends = np.append(0, np.cumsum(np.diff(X.indptr)[reach.indices], dtype=np.int64))
    return np.diff(ends[reach.indptr])


def slices(
    X: csr_matrix, targets: csc_matrix, group_starts: np.ndarray, reach: csc_matrix
) -> Iterator[slice]:
    """The groups in steps of a few seconds; how they are cut changes no weight."""
    groups = len(group_starts) - 1
    blocks = blocks_of_groups(targets, group_starts)
    work = np.append(0, np.cumsum(blocks * values_of_groups(X, reach)))
    blocks = np.append(0, np.cumsum(blocks))
    first = 0
    while first < groups:
        enough = max(
            np.searchsorted(work, work[first] + SLICE_WORK),
            np.searchsorted(blocks, blocks[first] + SLICE_BLOCKS),
        )
        last = min(int(enough), groups)
        yield slice(first, last)
        first = last


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
