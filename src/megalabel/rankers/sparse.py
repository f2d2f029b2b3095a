"""SparseLabels: labels that each look at a few features of a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from megalabel import _native
from megalabel.base import (
    Check,
    Learned,
    array,
    check_array,
    integer,
    one_of,
    optional,
    part,
    value,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import as_dense, check_width, clamped
from megalabel.errors import ParameterError
from megalabel.parts import Classifier
from megalabel.rankers.dense import best, best_products, log_sigmoid
from megalabel.rankers.fan_in import dense_weights, sparse_weights

if TYPE_CHECKING:
    from megalabel.base import Matrix

LINKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": lambda margins: np.exp(log_sigmoid(margins)),
    # the minimiser of the squared hinge is 2 P - 1 (Bartlett et al. 2006)
    "hinge": lambda margins: np.clip((margins + 1) / 2, 0, 1),
}
_VALUES = 1 << 24  # of rows, held as a dense array at a time
_NONE = np.zeros(0, np.float32)
_ALL = np.zeros(0, np.uint8)


class SparseLabels(Classifier):
    """A sparse output layer, without the network: of each label, the weights of a few features.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself; `from_dense`
    keeps the largest weights of any linear layer. Labels come in groups that share their features
    and have weights of their own; a group may be a single label. Frequent labels may have weights
    for all features beside that.

    Parameters
    ----------
    link : "sigmoid" or "hinge"
        What makes a score of the product and the bias: the sigmoid, or half of 1 more, from 0 to 1,
        as of what was trained by the squared hinge.

    Attributes
    ----------
    indices_ : uint16 or uint32 array (groups, fan_in)
        The features that each group looks at; one that is there twice counts twice.
    weights_ : float32, float16 or int8 array (groups, fan_in, group)
    scales_ : float32 array (groups, group), optional
        What int8 weights of each label are multiplied with.
    bias_ : float32 array (groups, group)
    label_of_place_ : int32 array (groups * group,)
        The label at each place of the groups; -1: none.
    width_ : int
        The number of features.
    head_labels_ : int32 array (head,), optional
        The labels with weights for all features, rising; they have no place.
    head_weights_ : float16 or float32 array (head, width), optional
    head_bias_ : float32 array (head,), optional
    labels_ : LabelSet
        Labels without a place are not found.

    Examples
    --------
    >>> weights = np.array([[0.1, -3.0, 2.0], [4.0, 0.0, 0.5]])
    >>> model = SparseLabels.from_dense(weights, [0, 0], LabelSet(["cat", "dog"]), fan_in=2)
    >>> model.indices_.tolist()
    [[1, 2], [0, 2]]
    >>> model.rank(np.array([[1.0, 1.0, 2.0]]), k=1).tags()
    [[Tag(label='dog', probability=0.99...)]]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"link": one_of(*LINKS)}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "indices_": array((np.uint16, np.uint32), "groups", "fan_in"),
        "weights_": array((np.float32, np.float16, np.int8), "groups", "fan_in", "group"),
        "scales_": optional(array(np.float32, "groups", "group")),
        "bias_": array(np.float32, "groups", "group"),
        "label_of_place_": array(np.int32, "places"),
        "width_": value(integer(1)),
        "head_labels_": optional(array(np.int32, "head")),
        "head_weights_": optional(array((np.float16, np.float32), "head", "width")),
        "head_bias_": optional(array(np.float32, "head")),
    }

    indices_: np.ndarray
    weights_: np.ndarray
    scales_: np.ndarray | None = None
    bias_: np.ndarray
    label_of_place_: np.ndarray
    width_: int
    head_labels_: np.ndarray | None = None
    head_weights_: np.ndarray | None = None
    head_bias_: np.ndarray | None = None

    def __init__(self, *, link: str = "sigmoid") -> None:
        self.link = link

    @classmethod
    def from_dense(
        cls,
        weights: Any,
        bias: Any,
        labels: LabelSet,
        *,
        fan_in: int,
        group: int = 1,
        order: Any = None,
        precision: str = "float32",
        head: int = 0,
        link: str = "sigmoid",
    ) -> Self:
        """The largest weights of a linear layer.

        Parameters
        ----------
        weights : array or CSR matrix (labels, width)
        bias : array (labels,)
        fan_in : int
            Features that each label, or each group, keeps; at most all of them are.
        group : int
            Labels that share their features: those with the largest mean size of the weights.
        order : int array, optional
            Labels in the order in which they are grouped; by default as they are numbered.
        precision : "float32", "float16" or "int8"
            Of the weights that are kept; those of the first labels in float16, if not float32.
        head : int
            Labels, the first of `order`, that keep all weights.
        link : "sigmoid" or "hinge"
        """
        count, width = weights.shape
        order = np.arange(count) if order is None else np.asarray(order)
        first, rest = np.sort(order[:head]), order[head:]
        indices, kept, places = sparse_weights(weights, fan_in, group=group, order=rest)
        by_place = np.append(np.asarray(bias, np.float32), np.float32(0))[places]
        learned = {
            "labels_": labels,
            "indices_": indices,
            "bias_": by_place.reshape(len(indices), group),
            "label_of_place_": places,
            "width_": width,
            **_rounded(kept, precision),
        }
        if head:
            rows = weights[first]
            rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
            learned |= {
                "head_labels_": first.astype(np.int32),
                "head_weights_": rows.astype(np.float32 if precision == "float32" else np.float16),
                "head_bias_": np.asarray(bias, np.float32)[first],
            }
        model = cls(link=link)
        model.restore(learned)
        return model

    @classmethod
    def of(cls, classifier: Classifier, *, fan_in: int, **options: Any) -> Self:
        """The largest weights of a fitted classifier that scores labels by a linear layer, such as
        a one-versus-all classifier or a `DenseTree` of one level.

        Parameters
        ----------
        classifier
        fan_in, **options
            As of `from_dense`.
        """
        weights, bias, link = classifier.linear_layer()
        return cls.from_dense(
            weights, bias, classifier.labels_, fan_in=fan_in, link=link, **options
        )

    def to_dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (labels, width) and biases of all labels; of those that have none, minus
        infinity."""
        self.check_fitted()
        count = len(self.labels_)
        kept = self.weights_.astype(np.float32)
        if self.scales_ is not None:
            kept *= self.scales_[:, None, :]
        weights = dense_weights(self.indices_, kept, self.label_of_place_, self.width_, count)
        bias = np.full(count, -np.inf, np.float32)
        there = self.label_of_place_ >= 0
        bias[self.label_of_place_[there]] = self.bias_.ravel()[there]
        if self.head_labels_ is not None:
            weights[self.head_labels_], bias[self.head_labels_] = (
                self.head_weights_,
                self.head_bias_,
            )
        return weights, bias

    def linear_layer(self) -> tuple[Any, np.ndarray, str]:
        """Weights (labels, width), biases and link; a label without a place counts as unlikely."""
        weights, bias = self.to_dense()
        return weights, np.maximum(bias, np.float32(-1e4)), self.link

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError(
            "SparseLabels is a part of a trained tagger: fit the system that made it, or use "
            "SparseLabels.from_dense"
        )

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels; scores estimate probabilities, and are not calibrated."""
        return self._searched(X, k, None)

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        return self._searched(X, k, allowed)

    def _searched(self, X: Matrix, k: int, allowed: np.ndarray | None) -> Ranking:
        self.check_fitted()
        check_width(self, X, self.width_)
        k = clamped(k, len(self.labels_))
        ids = np.empty((X.shape[0], k), np.int32)
        scores = np.empty(ids.shape, np.float32)
        size = max(1, _VALUES // self.width_)
        for start in range(0, len(ids), size):
            some = slice(start, start + size)
            ids[some], scores[some] = self._best(as_dense(X[some]), k, allowed)
        there = ids < len(self.labels_)
        scores[there] = LINKS[self.link](scores[there])
        return Ranking(ids, scores, self.labels_)

    def _best(
        self, X: np.ndarray, k: int, allowed: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels by product and bias; where there are fewer, what is no label."""
        X = np.ascontiguousarray(X)
        marks = _ALL if allowed is None else allowed.view(np.uint8)
        ids, scores = _native.fan_in_best(layer=self._layer, rows=X, allowed=marks, k=k)
        if self.head_labels_ is None:
            return ids, scores
        assert self.head_weights_ is not None
        assert self.head_bias_ is not None
        bias = self.head_bias_
        if allowed is not None:
            bias = np.where(allowed[self.head_labels_], bias, -np.inf).astype(np.float32)
        own, columns = best_products(X, self.head_weights_, bias, k)
        first = np.where(own > -np.inf, self.head_labels_[columns], len(self.labels_))
        scores, merged = best(np.hstack([scores, own]), np.hstack([ids, first]), k)
        return merged.astype(np.int32), scores

    def check_learned(self) -> None:
        """Each label has one place at most; features are looked at when they are used."""
        owner, labels = type(self).__name__, len(self.labels_)
        groups, _, group = self.weights_.shape
        places = self.label_of_place_
        check_array(owner, "label_of_place_", places, np.int32, (groups * group,))
        if (self.scales_ is not None) != (self.weights_.dtype == np.int8):
            raise ValueError(f"scales_ of {owner} are for int8, not {self.weights_.dtype}")
        head = [self.head_labels_, self.head_weights_, self.head_bias_]
        if any(part is None for part in head) != all(part is None for part in head):
            raise ValueError(f"{owner} needs head_labels_, head_weights_ and head_bias_ together")
        named = places[places >= 0]
        if places.min(initial=0) < -1 or named.max(initial=-1) >= labels:
            raise ValueError(f"label_of_place_ of {owner} must be labels or -1")
        if self.head_labels_ is not None and self.head_weights_ is not None:
            check_array(
                owner,
                "head_weights_",
                self.head_weights_,
                self.head_weights_.dtype.type,
                (None, self.width_),
            )
            first = self.head_labels_
            outside = len(first) == 0 or first[0] < 0 or first[-1] >= labels
            if outside or (np.diff(first) <= 0).any():
                raise ValueError(f"head_labels_ of {owner} must be labels, rising")
            named = np.append(named, first)
        if len(named) > labels or np.bincount(named, minlength=1).max() > 1:
            raise ValueError(f"a label of {owner} has several places")
        # kept, as it is asked for with every query
        self._layer = _native.FanIn(
            indices=self.indices_,
            weights=self.weights_,
            scales=_NONE if self.scales_ is None else self.scales_.ravel(),
            bias=self.bias_.ravel(),
            labels=places,
            width=self.width_,
            label_count=labels,
        )

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """The groups of the labels; the places of others become empty."""
        learned = super()._taken(numbers)
        renamed = np.full(len(self.labels_) + 1, -1, np.int32)
        renamed[numbers] = np.arange(len(numbers))
        groups, _, group = self.weights_.shape
        places = renamed[self.label_of_place_].reshape(groups, group)
        kept = (places >= 0).any(axis=1)
        for name in ("indices_", "weights_", "scales_", "bias_"):
            if learned.get(name) is not None:
                learned[name] = learned[name][kept]
        learned["label_of_place_"] = places[kept].ravel()
        if self.head_labels_ is not None:
            first = renamed[self.head_labels_]
            order = np.argsort(first, kind="stable")[(first < 0).sum() :]
            for name in ("head_labels_", "head_weights_", "head_bias_"):
                learned[name] = learned[name][order] if len(order) else None
            if len(order):
                learned["head_labels_"] = first[order]
        return learned


def _rounded(weights: np.ndarray, precision: str) -> dict[str, np.ndarray]:
    """Weights (groups, fan_in, group) in a precision, with scales where these are needed."""
    if precision == "float32":
        return {"weights_": weights}
    if precision == "float16":
        return {"weights_": weights.astype(np.float16)}
    if precision != "int8":
        raise ParameterError(f"precision must be 'float32', 'float16' or 'int8', not {precision!r}")
    scales = np.abs(weights).max(axis=1, initial=0) / np.float32(127)
    shares = weights / np.where(scales == 0, 1, scales)[:, None, :]
    return {"weights_": np.rint(shares).astype(np.int8), "scales_": scales}
