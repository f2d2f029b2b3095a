"""What makes one score of what the members of a mix say: means, a linear stack, boosted trees.

The columns are those of `rankers.mix`: three for each member (logit, place, distance to its best
label; not a number where the member does not list the label), those of all members together, and
any others after them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from megalabel import _native
from megalabel.base import (
    Check,
    Component,
    Learned,
    array,
    clone,
    instance,
    integer,
    number,
    one_of,
    part,
)
from megalabel.errors import ShapeError
from megalabel.rankers.boosting import BoostedTrees

OF_MEMBER, SHARED = _native.MIX_OF_MEMBER, _native.MIX_SHARED
FREQUENCY = 0  # the first of the columns of all members together: log(1 + texts of the label)
EDGES = np.log1p(np.array([1, 6, 20, 100])).astype(np.float32)  # of the bins of frequency
ROUNDS, FIRM = 30, 20.0  # of means: of improving weights; how firmly bins hang together
STEPS, HALVINGS, ENOUGH = 15, 10, 1e-6  # of Newton's method
MISSES = 100_000  # that a stack learns from, at most


class Combiner(Component, ABC):
    """One score for each candidate of what is said of it."""

    @abstractmethod
    def fit(self, said: np.ndarray, hits: np.ndarray, texts: np.ndarray) -> Self:
        """Learn from candidates.

        Parameters
        ----------
        said : float32 array (candidates, columns)
        hits : bool array (candidates,)
            Whether each is a label of its text.
        texts : int array (candidates,)
            The number of its text.
        """

    def margins(self, said: np.ndarray) -> np.ndarray:
        """The scores of candidates in float32: logits of probabilities."""
        return _native.combined_margins(self.native(), said)

    @abstractmethod
    def native(self) -> _native.Means | _native.Stack | _native.BoostedTrees:
        """What makes scores, as the native core takes it."""


class Means(Combiner):
    """Means of the members' probabilities, with weights for each bin of label frequency.

    The weights are those of the likeliest mixture, by expectation and maximisation: for all labels
    first, then for each bin, held near to them where there are few hits. A member that does not
    list a label counts as the share of hits among such labels.

    Parameters
    ----------
    members : int

    Attributes
    ----------
    weights_ : float64 array (bins, members)
    unlisted_ : float64 array (members,)

    Examples
    --------
    >>> said = np.zeros((4, 2 * OF_MEMBER + SHARED), np.float32)
    >>> said[:, 0], said[:, 3] = [3, -3, 3, -3], [-3, -3, 3, 3]
    >>> means = Means(2).fit(said, np.array([True, False, True, False]), np.arange(4))
    >>> means.weights_[0].round(1)
    array([1., 0.])
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"members": integer(1)}
    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "weights_": array(np.float64, len(EDGES) + 1, "members"),
        "unlisted_": array(np.float64, "members"),
    }

    weights_: np.ndarray
    unlisted_: np.ndarray

    def __init__(self, members: int) -> None:
        self.members = members

    def fit(self, said: np.ndarray, hits: np.ndarray, texts: np.ndarray) -> Self:
        """Learn the weights; see `Combiner.fit`."""
        self.check_parameters()
        absent = np.isnan(said[:, : OF_MEMBER * self.members : OF_MEMBER])
        self.unlisted_ = np.array(
            [(hits[column].sum() + 0.5) / (column.sum() + 1000) for column in absent.T]
        )
        probabilities = self._probabilities(said)
        likely = np.where(hits[:, None], probabilities, 1 - probabilities)
        even = np.full(self.members, 1 / self.members)
        whole = _likeliest(likely, hits, even, np.zeros(self.members))
        bins = self._bins(said)
        self.weights_ = np.stack(
            [
                _likeliest(likely[bins == b], hits[bins == b], whole, FIRM * whole)
                for b in range(len(EDGES) + 1)
            ]
        )
        return self

    def native(self) -> _native.Means:
        """The weights."""
        return _native.Means(edges=EDGES, weights=self.weights_, unlisted=self.unlisted_)

    def _probabilities(self, said: np.ndarray) -> np.ndarray:
        logits = said[:, : OF_MEMBER * self.members : OF_MEMBER].astype(np.float64)
        return np.where(np.isnan(logits), self.unlisted_, 1 / (1 + np.exp(-logits)))

    def _bins(self, said: np.ndarray) -> np.ndarray:
        return np.searchsorted(EDGES, said[:, OF_MEMBER * self.members + FREQUENCY], "right")

    def check_learned(self) -> None:
        """Weights and shares must be probabilities."""
        for values in (self.weights_, self.unlisted_):
            if not ((values >= 0) & (values <= 1 + 1e-9)).all() or values.shape[-1] != self.members:
                raise ValueError("weights_ and unlisted_ of Means must be shares of its members")


def _likeliest(
    likely: np.ndarray, hits: np.ndarray, start: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """The weights of the likeliest mixture; a hit counts as much as all misses of a hit."""
    if not hits.any():
        return start
    weights = start
    for _ in range(ROUNDS):
        shares = likely * weights
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
        total = shares[hits].sum(axis=0) + prior
        if not hits.all():
            total = total + shares[~hits].sum(axis=0) * (hits.sum() / (~hits).sum())
        weights = total / total.sum()
    return weights


def _loss(
    terms: np.ndarray, hits: np.ndarray, counts: np.ndarray, weights: np.ndarray, firm: np.ndarray
) -> float:
    margins = terms @ weights
    losses = np.logaddexp(0, np.where(hits, -margins, margins))
    return float(counts @ losses + 0.5 * (firm * weights**2).sum())


def _drawn(hits: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of all hits and of so many misses, drawn by a seed; and how many candidates each
    stands for."""
    yes, no = np.flatnonzero(hits), np.flatnonzero(~hits)
    some = no
    if len(no) > most:
        some = np.sort(np.random.default_rng(0).choice(no, most, replace=False))
    counts = np.append(np.ones(len(yes)), np.full(len(some), len(no) / max(1, len(some))))
    return np.append(yes, some), counts


class Stack(Combiner):
    """Logistic regression on what is said, each column brought to one scale.

    Places count by their logarithm. A value that is missing counts as the mean of its column, and
    has a weight of its own.

    Parameters
    ----------
    members : int
    l2 : float
        How firmly weights are held at 0, in candidates.

    Attributes
    ----------
    weights_ : float64 array (2 columns + 1,)
        Those of the columns, of values missing from each, and the constant.
    means_, scales_ : float64 arrays (columns,)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"members": integer(1), "l2": number(0)}
    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "weights_": array(np.float64, "weights"),
        "means_": array(np.float64, "columns"),
        "scales_": array(np.float64, "columns"),
    }

    weights_: np.ndarray
    means_: np.ndarray
    scales_: np.ndarray

    def __init__(self, members: int, l2: float = 10.0) -> None:
        self.members = members
        self.l2 = l2

    def fit(self, said: np.ndarray, hits: np.ndarray, texts: np.ndarray) -> Self:
        """Learn by Newton's method; see `Combiner.fit`."""
        self.check_parameters()
        values = self._scaled(said)
        present = ~np.isnan(values)
        count = np.maximum(present.sum(axis=0), 1)
        self.means_ = np.where(present, values, 0).sum(axis=0) / count
        spread = np.where(present, values - self.means_, 0)
        self.scales_ = np.sqrt((spread**2).sum(axis=0) / count) + 1e-6
        rows, counts = _drawn(hits, MISSES)
        terms, hits = self._terms(said[rows]), hits[rows]
        share = np.clip(counts @ hits / counts.sum(), 1e-6, 1 - 1e-6)
        weights = np.zeros(terms.shape[1])
        weights[-1] = np.log(share / (1 - share))
        firm = np.append(np.full(terms.shape[1] - 1, self.l2), 1e-6)
        loss = _loss(terms, hits, counts, weights, firm)
        for _ in range(STEPS):
            p = 1 / (1 + np.exp(-np.clip(terms @ weights, -30, 30)))
            slope = terms.T @ (counts * (p - hits)) + firm * weights
            curve = _native.weighted_gram(terms, counts * p * (1 - p)) + np.diag(firm)
            step, before = np.linalg.solve(curve, slope), loss
            for _ in range(HALVINGS):  # a whole step may lead too far
                loss = _loss(terms, hits, counts, weights - step, firm)
                if loss <= before:
                    break
                step /= 2
            weights = weights - step
            if before - loss < ENOUGH * counts.sum():
                break
        self.weights_ = weights
        return self

    def native(self) -> _native.Stack:
        """The weights, and the scale of each column."""
        return _native.Stack(
            members=self.members, weights=self.weights_, means=self.means_, scales=self.scales_
        )

    def _scaled(self, said: np.ndarray) -> np.ndarray:
        values = said.astype(np.float64)
        places = slice(1, OF_MEMBER * self.members, OF_MEMBER)
        values[:, places] = np.log(values[:, places])
        return values

    def _terms(self, said: np.ndarray) -> np.ndarray:
        if said.shape[1] != len(self.means_):
            raise ShapeError(f"{said.shape[1]} columns are said, {len(self.means_)} were learned")
        values = (self._scaled(said) - self.means_) / self.scales_
        missing = np.isnan(values)
        return np.hstack([np.where(missing, 0, values), missing, np.ones((len(said), 1))])

    def check_learned(self) -> None:
        """There must be finite weights for all columns."""
        parts = (self.weights_, self.means_, self.scales_)
        if len(self.weights_) != 2 * len(self.means_) + 1 or len(self.means_) < OF_MEMBER:
            raise ValueError("weights_ of Stack must be of its columns")
        if not all(np.isfinite(part).all() for part in parts) or (self.scales_ <= 0).any():
            raise ValueError("weights_, means_ and scales_ of Stack must be finite numbers")


class Boosted(Combiner):
    """Boosted trees on what is said; a fifth of the texts says when there are enough of them.

    Parameters
    ----------
    members : int
    trees : BoostedTrees, optional

    Attributes
    ----------
    trees_ : BoostedTrees
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "members": integer(1),
        "trees": instance(BoostedTrees) | one_of(None),
    }
    LEARNED: ClassVar[Mapping[str, Learned]] = {"trees_": part(BoostedTrees)}

    trees_: BoostedTrees

    def __init__(self, members: int, trees: BoostedTrees | None = None) -> None:
        self.members = members
        self.trees = trees

    def fit(self, said: np.ndarray, hits: np.ndarray, texts: np.ndarray) -> Self:
        """Grow the trees; see `Combiner.fit`."""
        self.check_parameters()
        trees = BoostedTrees() if self.trees is None else clone(self.trees)
        last = np.unique(texts, return_inverse=True)[1] % 5 == 4
        self.trees_ = trees.fit(said, hits, validation=last if last.any() else None)
        return self

    def native(self) -> _native.BoostedTrees:
        """The trees."""
        return self.trees_.native()
