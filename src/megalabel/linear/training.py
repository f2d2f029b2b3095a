"""Training of linear classifiers: what one-versus-all models and trees share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, issparse

from megalabel import _native
from megalabel.base import Check, clone, instance, integer, is_array, number, one_of, sequence_of
from megalabel.data.examples import Examples
from megalabel.data.matrix import canonical
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels import PROPENSITIES, PropensityModel
from megalabel.labels.costs import HIGHEST, LOWEST, WEIGHTINGS, label_costs
from megalabel.linear.chunks import PRECISIONS, ChunkedWeights
from megalabel.parts import Classifier

if TYPE_CHECKING:
    from megalabel.base import Matrix

LOSSES = ("squared-hinge", "logistic")
NORMS = (None, "l1", "l2", "max")
LANES = 16  # labels solved side by side (native/newton.hpp)
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

    def label_costs(self, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """What an error on a positive and on a negative of each label costs."""
        given = {name: getattr(self, name) for name in ("positive_costs", "negative_costs")}
        if self.weighting is not None and any(costs is not None for costs in given.values()):
            raise ParameterError(
                f"give {type(self).__name__} either weighting={self.weighting!r}, or "
                "positive_costs and negative_costs"
            )
        costs = []
        counts, texts = examples.label_counts, max(1, len(examples.texts))
        by_name = label_costs(self.weighting, counts, texts, self.propensities)
        for (name, own), weights in zip(given.items(), by_name, strict=True):
            if own is not None and len(own) != len(counts):
                raise ShapeError(
                    f"{name} are of {len(own)} labels but Y is {examples.targets.shape}"
                )
            costs.append(self.cost * (weights if own is None else np.asarray(own, np.float64)))
        return costs[0], costs[1]

    def _solver(self) -> dict[str, Any]:
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
    arrays: tuple[Any, ...] = _native.train_groups(
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        X.data,
        X.shape[1],
        row_starts,
        rows,
        np.asarray(group_starts, np.int64),
        targets.indptr.astype(np.int64, copy=False),
        targets.indices.astype(np.int32, copy=False),
        np.asarray(positive_costs, np.float32),
        np.asarray(negative_costs, np.float32),
        targets.data.astype(np.float32, copy=False) if weighed else np.empty(0, np.float32),
        loss == "logistic",
        float(eps),
        float(bias),
        float(prune),
    )
    starts, indices, values = arrays
    return csr_matrix((values, indices, starts), shape=(columns, X.shape[1] + 1))
