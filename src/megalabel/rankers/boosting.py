"""BoostedTrees: a margin for each row of a few features, by gradient-boosted trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from megalabel import _native
from megalabel.base import (
    Check,
    Component,
    Learned,
    array,
    integer,
    made_once,
    number,
    one_of,
    value,
)
from megalabel.data.matrix import NO_WEIGHTS, check_width
from megalabel.errors import DataError, ShapeError
from megalabel.progress import progress

NOT_HELD_OUT = np.zeros(0, np.uint8)


class BoostedTrees(Component):
    """Gradient-boosted decision trees for yes or no, with logistic loss.

    Features are sorted into bins once; trees grow leaf by leaf, where the loss falls most, from
    histograms of gradients. A value that is missing (NaN) goes to the side where it serves better.
    Infinite values count as the largest numbers. The trees do not depend on the number of threads.

    For n rows of d features a fit takes about n (d + 28) bytes of memory beside the rows.

    Parameters
    ----------
    trees : int
        The most trees; fewer where validation rows no longer gain.
    max_leaves : int
        The most leaves of a tree.
    max_depth : int, optional
        The most splits between a root and a leaf.
    learning_rate : float
        What share of its best step each leaf takes.
    min_rows : int
        The fewest rows of a leaf.
    min_hessian : float
        The least sum of weight p (1 - p) over the rows of a leaf, p being the probability so far.
    l2 : float
        What is added to that sum where it divides, so that leaves of few rows say little.
    min_gain : float
        What a split must gain: twice by how much the loss falls, before the learning rate.
    bins : int
        The most bins of a feature, besides the one of missing values.
    feature_share, row_share : float
        The share of features, and of rows, that each tree sees; others are drawn for each tree.
    patience : int
        After so many trees without a gain on validation rows no more are grown, and those since the
        best are taken back.
    seed : int
        Of draws of rows and features.

    Attributes
    ----------
    starts_ : int64 array (trees + 1,)
        Where the nodes of each tree start. A tree's root comes first, children after their parents.
    feature_ : int32 array (nodes,)
        The column that a node looks at; -1: the node is a leaf.
    threshold_ : float32 array (nodes,)
        Values of at most that go left.
    left_, right_ : int32 arrays (nodes,)
        The children of a node, counted from the root of their tree.
    missing_left_ : uint8 array (nodes,)
        Whether a missing value goes left.
    value_ : float32 array (nodes,)
        What a leaf adds to the margin.
    base_ : float
        The margin without any tree: the logit of the mean target.
    gains_ : float64 array (features,)
        How much the splits by each column have gained.

    Examples
    --------
    >>> X = np.array([[0.1, 5], [0.2, np.nan], [0.8, np.nan], [0.9, 5]] * 50, np.float32)
    >>> trees = BoostedTrees(trees=20).fit(X, [0, 0, 1, 1] * 50)
    >>> (trees.margins(X[:4]) > 0).tolist()
    [False, False, True, True]
    >>> (trees.gains_ > 0).tolist()
    [True, False]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "trees": integer(1),
        "max_leaves": integer(2, _native.MOST_LEAVES),
        "max_depth": one_of(None) | integer(1),
        "learning_rate": number(1e-6, 10),
        "min_rows": integer(1),
        "min_hessian": number(1e-12),
        "l2": number(0),
        "min_gain": number(0),
        "bins": integer(2, _native.MOST_BINS),
        "feature_share": number(1e-6, 1),
        "row_share": number(1e-6, 1),
        "patience": integer(1),
        "seed": integer(0),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "starts_": array(np.int64, "trees+1"),
        "feature_": array(np.int32, "nodes"),
        "threshold_": array(np.float32, "nodes"),
        "left_": array(np.int32, "nodes"),
        "right_": array(np.int32, "nodes"),
        "missing_left_": array(np.uint8, "nodes"),
        "value_": array(np.float32, "nodes"),
        "base_": value(number(-100, 100)),
        "gains_": array(np.float64, "features"),
    }

    starts_: np.ndarray
    feature_: np.ndarray
    threshold_: np.ndarray
    left_: np.ndarray
    right_: np.ndarray
    missing_left_: np.ndarray
    value_: np.ndarray
    base_: float
    gains_: np.ndarray

    def __init__(
        self,
        *,
        trees: int = 300,
        max_leaves: int = 31,
        max_depth: int | None = None,
        learning_rate: float = 0.1,
        min_rows: int = 20,
        min_hessian: float = 1e-3,
        l2: float = 5.0,
        min_gain: float = 0.0,
        bins: int = 255,
        feature_share: float = 1.0,
        row_share: float = 1.0,
        patience: int = 20,
        seed: int = 0,
    ) -> None:
        self.trees = trees
        self.max_leaves = max_leaves
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.min_rows = min_rows
        self.min_hessian = min_hessian
        self.l2 = l2
        self.min_gain = min_gain
        self.bins = bins
        self.feature_share = feature_share
        self.row_share = row_share
        self.patience = patience
        self.seed = seed

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        validation: ArrayLike | None = None,
    ) -> Self:
        """Grow trees for rows and their targets.

        Parameters
        ----------
        X : array (rows, features)
            NaN where a value is missing.
        y : array (rows,)
            What is not 0 is a yes.
        weights : array (rows,), optional
            How much each row counts.
        validation : bool array (rows,), optional
            Rows that no tree learns from and that say when to stop. Rows of one text belong
            together: hold out all of them or none.
        """
        self.check_parameters()
        rows = _rows(X)
        targets = _of_rows("y", y, len(rows)) != 0
        given = NO_WEIGHTS if weights is None else _of_rows("weights", weights, len(rows))
        held_out = NOT_HELD_OUT
        if validation is not None:
            held_out = (_of_rows("validation", validation, len(rows)) != 0).view(np.uint8)
        if not len(rows) or not rows.shape[1] or (len(held_out) and held_out.all()):
            raise DataError(f"there is nothing to learn from: X is {rows.shape}, less validation")
        if len(given) and not (np.isfinite(given).all() and given.min() >= 0 and given.any()):
            raise DataError("weights must be finite, not negative, and some above 0")
        with progress("boosting trees", None):
            learned = _native.train_boosted(
                rows=rows,
                targets=targets.view(np.uint8),
                weights=given.astype(np.float32),
                validation=held_out,
                trees=self.trees,
                leaves=self.max_leaves,
                depth=self.max_depth or 0,
                bins=self.bins,
                rate=self.learning_rate,
                min_rows=self.min_rows,
                min_hessian=self.min_hessian,
                l2=self.l2,
                min_gain=self.min_gain,
                feature_share=self.feature_share,
                row_share=self.row_share,
                patience=self.patience,
                seed=self.seed,
            )
        self.restore(dict(zip(self.LEARNED, learned, strict=True)))
        return self

    def margins(self, X: ArrayLike) -> np.ndarray:
        """The margin of each row, a logit: float32 (rows,)."""
        self.check_fitted()
        rows = _rows(X)
        check_width(self, rows, len(self.gains_))
        return _native.boosted_margins(self.native(), rows)

    def native(self) -> _native.BoostedTrees:
        """The trees as the native core takes them."""
        return made_once(self, "_native", self._as_native)

    def check_learned(self) -> None:
        """The arrays must be trees."""
        vars(self).pop("_native", None)  # that of other trees
        self.native()

    def _as_native(self) -> _native.BoostedTrees:
        names = ("starts", "feature", "threshold", "left", "right", "missing_left", "value", "base")
        arrays: dict[str, Any] = {name: getattr(self, f"{name}_") for name in names}
        return _native.BoostedTrees(**arrays, features=len(self.gains_))


def _rows(X: ArrayLike) -> np.ndarray:
    """A contiguous two-dimensional array of float32; a copy only if needed."""
    try:
        rows = np.ascontiguousarray(X, np.float32)
    except (TypeError, ValueError):
        raise DataError("X must be a matrix of numbers") from None
    if rows.ndim != 2:
        raise ShapeError(f"X must have two dimensions, not shape {rows.shape}")
    return rows


def _of_rows(name: str, values: ArrayLike, rows: int) -> np.ndarray:
    """An array with a number for each row."""
    found = np.asarray(values)
    if found.shape != (rows,):
        raise ShapeError(f"{name} is {found.shape} but X has {rows} rows")
    if found.dtype.kind not in "biuf":
        raise DataError(f"{name} must be numbers, not {found.dtype}")
    return found
