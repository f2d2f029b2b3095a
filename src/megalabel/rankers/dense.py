"""DenseTree: labels by dense weights over vectors, all of them or down a tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from megalabel.base import (
    Check,
    Learned,
    array,
    check_array,
    integer,
    list_of,
    one_of,
    part,
    sequence_of,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import as_dense, check_width, clamped, products
from megalabel.data.ranking import unnamed_scores
from megalabel.errors import ParameterError
from megalabel.labels import LabelTree
from megalabel.parts import Classifier

if TYPE_CHECKING:
    from megalabel.base import Matrix

_SCORES = 1 << 22  # held at a time
_WEIGHTS = 1 << 24  # in single precision, held at a time
_ROWS = 256  # walked down the tree together
_FEW = 4  # times as many candidates as are asked for: of more, most are put aside at a glance


class Accelerator(Protocol):
    """What makes the products of rankers on a device; each method is as the function here or in
    `rankers.attention`."""

    def best_products(
        self, X: np.ndarray, weights: np.ndarray, bias: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def shortlisted(
        self, X: np.ndarray, weights: np.ndarray, bias: np.ndarray, shortlist: np.ndarray
    ) -> np.ndarray: ...

    def attended(
        self,
        states: np.ndarray,
        mask: np.ndarray,
        queries: np.ndarray,
        layers: list[np.ndarray],
        numbers: np.ndarray,
    ) -> np.ndarray: ...


def _none() -> Accelerator | None:
    return None


accelerator: Callable[[], Accelerator | None] = _none
"""Finds what makes products in the place of NumPy. The neural room sets it, for machines with a
GPU."""


def accelerate(find: Callable[[], Accelerator | None]) -> None:
    """Ask `find` from now on."""
    global accelerator
    accelerator = find


class DenseTree(Classifier):
    """The levels of a trained network, without the network: Renee's, LightXML's, InceptionXML's.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself. The first
    level scores all of its nodes, each later one the children of the best ones above. Without
    clusters of labels the tree has one level.

    Parameters
    ----------
    beams : list of int
        The nodes of each level but the last whose children the next level sees.
    prediction : "weighted" or "level"
        The score of a label: its probability times that of its cluster, or its own.

    Attributes
    ----------
    tree_ : LabelTree
    weights_ : list of float16 arrays (nodes, width)
        Of each level, which sees its own columns of the vectors: those after the level above's.
    biases_ : list of float32 arrays (nodes,)
    labels_ : LabelSet

    Examples
    --------
    >>> model = DenseTree()
    >>> model.restore(
    ...     {
    ...         "tree_": LabelTree.from_parents(np.array([-1, -1])),
    ...         "weights_": [np.array([[1, 0], [0, 1]], np.float16)],
    ...         "biases_": [np.zeros(2, np.float32)],
    ...         "labels_": LabelSet(["cat", "dog"]),
    ...     }
    ... )
    >>> model.rank(np.array([[-1.0, 2.0]]), k=1).tags()
    [[Tag(label='dog', probability=0.88...)]]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "beams": sequence_of(integer(1)),
        "prediction": one_of("weighted", "level"),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "tree_": part(LabelTree),
        "weights_": list_of(array(np.float16, "nodes", "width"), "levels"),
        "biases_": list_of(array(np.float32, "nodes"), "levels"),
    }

    tree_: LabelTree
    weights_: list[np.ndarray]
    biases_: list[np.ndarray]

    def __init__(self, *, beams: Sequence[int] = (), prediction: str = "weighted") -> None:
        self.beams = beams
        self.prediction = prediction

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError("DenseTree is a part of a trained tagger: fit the system that made it")

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels, with the probabilities that the sigmoid gives."""
        return self._searched(X, k, self.biases_)

    @property
    def may_miss(self) -> bool:
        """True where beams may not meet all labels."""
        return len(self.weights_) > 1

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        # nodes above none of these labels are below all others, whatever their product
        above = self.tree_.nodes_above(np.flatnonzero(allowed))
        return self._searched(
            X, k, [only(b, at) for b, at in zip(self.biases_, above, strict=True)]
        )

    def _searched(self, X: Matrix, k: int, biases: Sequence[np.ndarray]) -> Ranking:
        self.check_fitted()
        widths = [weights.shape[1] for weights in self.weights_]
        check_width(self, X, sum(widths))
        k = clamped(k, len(self.labels_))
        parts = np.split(as_dense(X), np.cumsum(widths)[:-1], axis=1)
        wide = k if len(parts) == 1 else self.beams[0]
        scores, nodes = best_products(parts[0], self.weights_[0], biases[0], wide)
        above = log_sigmoid(scores)
        ids = np.full((len(nodes), k), len(self.labels_), np.int32)
        found = np.full(ids.shape, -np.inf, np.float32)
        for start in range(0, len(nodes), _ROWS):
            part = slice(start, start + _ROWS)
            rows = [x[part] for x in parts]
            total, leaves = self._walked(rows, above[part], nodes[part], biases)
            there = (leaves >= 0) & (biases[-1][leaves] > -np.inf)
            names = np.where(there, self.tree_.label_of_leaf_[leaves], len(self.labels_))
            total, names = best(np.where(there, total, -np.inf), names, k)
            ids[part, : names.shape[1]] = names
            # scores that are too low for a float are still scores
            found[part, : names.shape[1]] = np.where(
                names < len(self.labels_), np.exp(total), -np.inf
            )
        return Ranking(ids, found, self.labels_)

    def _walked(
        self,
        parts: list[np.ndarray],
        above: np.ndarray,
        nodes: np.ndarray,
        biases: Sequence[np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and numbers of the last level's nodes below those of the first; -1 for none."""
        total = above
        for t in range(1, len(parts)):
            if t > 1:
                above, nodes = best(above, nodes, self.beams[t - 1])
            children = below(self.tree_.levels_[t], nodes)
            shortlist = children.reshape(len(nodes), -1)
            own = shortlisted(parts[t], self.weights_[t], biases[t], shortlist)
            own = np.where(shortlist >= 0, log_sigmoid(own), -np.inf)
            total = own
            if self.prediction == "weighted":
                total = own + np.repeat(above, children.shape[2], axis=1)
            above, nodes = own, shortlist
        return total, nodes

    def linear_layer(self) -> tuple[Any, np.ndarray, str]:
        """The weights of labels, where there is one level."""
        if len(self.weights_) > 1:
            return super().linear_layer()
        leaf = self.tree_.leaf_of_label
        return self.weights_[0][leaf], self.biases_[0][leaf], "sigmoid"

    def check_learned(self) -> None:
        """The levels must fit the tree."""
        check_tree(self, self.tree_)
        sizes = self.tree_.level_sizes
        if len(self.weights_) != len(sizes):
            raise ValueError("weights_ of DenseTree must be an array for each level")
        for size, weights, biases in zip(sizes, self.weights_, self.biases_, strict=True):
            check_array("DenseTree", "weights_", weights, np.float16, (size, None))
            check_array("DenseTree", "biases_", biases, np.float32, (size,))
        if len(self.beams) != len(sizes) - 1:
            raise ValueError(f"DenseTree has {len(self.beams)} beams for {len(sizes)} levels")

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """The branches of the labels; other nodes go."""
        kept = self.tree_.nodes_above(numbers)
        return super()._taken(numbers) | {
            "weights_": [w[nodes] for w, nodes in zip(self.weights_, kept, strict=True)],
            "biases_": [b[nodes] for b, nodes in zip(self.biases_, kept, strict=True)],
        }


def only(biases: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The biases of some nodes; those of all others are infinitely low.

    Examples
    --------
    >>> only(np.array([1.0, 2.0, 3.0]), np.array([1]))
    array([-inf,   2., -inf])
    """
    low = np.full(biases.shape, -np.inf, biases.dtype)
    low[nodes] = biases[nodes]
    return low


def check_tree(classifier: Classifier, tree: LabelTree) -> None:
    """Raise a ValueError unless a tree is of the labels of a classifier."""
    if tree.n_labels != len(classifier.labels_):
        raise ValueError(f"a tree of {tree.n_labels} labels for {len(classifier.labels_)}")


def best(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of each row (rows, candidates), best first, ties to the lower id.

    Examples
    --------
    >>> best(np.array([[1.0, 3.0, 1.0]]), np.array([[7, 8, 2]]), 2)
    (array([[3., 1.]], dtype=float32), array([[8, 2]]))
    """
    if scores.shape[1] > _FEW * k:
        scores, ids = _contenders(scores, ids, k)
    # one integer says both: a float's bits, in the order of floats, then the id from high to low
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32).astype(np.int64)
    behind = 0x7FFFFFFF - ids.astype(np.int64)
    keys = (np.where(bits < 0, bits ^ 0x7FFFFFFF, bits) << 32) | behind
    if k < keys.shape[1]:
        keys = np.partition(keys, keys.shape[1] - k, axis=1)[:, -k:]
    keys = np.sort(keys, axis=1)[:, ::-1]
    bits = keys >> 32
    bits = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int32)
    return bits.view(np.float32), 0x7FFFFFFF - (keys & 0xFFFFFFFF)


def _contenders(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of each row that are not below its k-th best; a few more places where others tie."""
    least = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k, None]
    there = ~(scores < least)
    counts = there.sum(1)
    places = np.arange(counts.max(initial=0)) < counts[:, None]
    narrow = np.full(places.shape, -np.inf, np.float32)
    numbers = np.full(places.shape, 0x7FFFFFFF, np.int64)
    narrow[places] = scores[there]
    numbers[places] = np.broadcast_to(ids, scores.shape)[there]
    return narrow, numbers


def best_products(
    X: np.ndarray, weights: np.ndarray, bias: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k best of X @ weights.T + bias, which is made in chunks, and their columns.

    Examples
    --------
    >>> weights, bias = np.array([[1, 0], [0, 1]], np.float16), np.array([0.0, 0.5])
    >>> best_products(np.array([[1.0, 1.0]]), weights, bias, 1)
    (array([[1.5]], dtype=float32), array([[1]]))
    """
    if (device := accelerator()) is not None:
        return device.best_products(X, weights, bias, k)
    size = max(1, _SCORES // max(1, len(X)))
    found: tuple[np.ndarray, np.ndarray] | None = None
    for first in range(0, len(weights), size):
        part = slice(first, first + size)
        scores = products(X, weights[part]) + bias[part]
        made = best(scores, np.arange(first, first + scores.shape[1])[None], k)
        if found is not None:
            both = [np.hstack(pair) for pair in zip(found, made, strict=True)]
            made = best(both[0], both[1], k)
        found = made
    if found is None:
        raise ValueError("there are no labels to rank")
    return found


def shortlisted(
    X: np.ndarray, weights: np.ndarray, bias: np.ndarray, shortlist: np.ndarray
) -> np.ndarray:
    """<x, w> + b of each row x and the labels on its shortlist (rows, candidates); where that is
    below 0, anything.

    Examples
    --------
    >>> weights, bias = np.array([[1, 0], [0, 1]], np.float16), np.array([0.0, 0.5])
    >>> shortlisted(np.array([[1.0, 2.0]]), weights, bias, np.array([[1, 0]]))
    array([[2.5, 1. ]], dtype=float32)
    """
    if (device := accelerator()) is not None:
        return device.shortlisted(X, weights, bias, shortlist)
    at = np.maximum(shortlist, 0)
    scores = np.empty(at.shape, np.float32)
    size = max(1, _WEIGHTS // max(1, at.shape[1] * weights.shape[1]))
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        with np.errstate(invalid="ignore"):
            made = weights[at[part]].astype(np.float32) @ X[part, :, None]
        scores[part] = made[..., 0] + bias[at[part]]
    return scores


def filled(ranking: Ranking, counts: np.ndarray, allowed: np.ndarray | None = None) -> Ranking:
    """Places that no candidate took go to the most frequent of the other labels that are allowed,
    with a score of 0, or the lowest of the row where that is below.

    Examples
    --------
    >>> short = Ranking([[2, 3]], [[0.5, -np.inf]], LabelSet(["a", "b", "c"]))
    >>> filled(short, np.array([1, 4, 2])).ids
    array([[2, 1]], dtype=int32)
    """
    frequent = np.argsort(-counts, kind="stable")
    if allowed is not None:
        frequent = frequent[allowed[frequent]]
    frequent = frequent[: 2 * ranking.k]
    ids, scores, lowest = ranking.ids.copy(), ranking.scores.copy(), unnamed_scores(ranking)
    for row in np.flatnonzero(~ranking.present.all(1)):
        places = np.flatnonzero(~ranking.present[row])
        others = frequent[~np.isin(frequent, ids[row])]
        places = places[: len(others)]  # fewer where not all labels are allowed
        ids[row, places], scores[row, places] = others[: len(places)], lowest[row]
    return Ranking(ids, scores, ranking.labels)


def below(starts: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """The children (rows, parents, most) of each row's parents; -1 where there is none."""
    first, last = starts[np.maximum(parents, 0)], starts[parents + 1]
    numbers = first[..., None] + np.arange(np.diff(starts).max())
    there = (numbers < last[..., None]) & (parents >= 0)[..., None]
    return np.where(there, numbers, -1)


def log_sigmoid(scores: np.ndarray) -> np.ndarray:
    """The logarithms of the probabilities that scores stand for."""
    return np.asarray(-np.logaddexp(np.float32(0), -scores))
