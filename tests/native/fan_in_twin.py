"""Labels that look at a few features, slowly and in float64; and arrays of them to try."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from megalabel import _native

NO_FLOATS, NO_WEIGHTS = np.zeros(0, np.float32), np.zeros((0, 0, 0), np.float32)
ALL = np.zeros(0, np.uint8)


def bits_of(values: np.ndarray) -> np.ndarray:
    """Numbers of float32 cut to bfloat16, as bits."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def numbers_of(bits: np.ndarray) -> np.ndarray:
    """What bits of bfloat16 stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


@dataclass
class Layer:
    """Arrays of a layer, as the native core takes them."""

    indices: np.ndarray
    weights: np.ndarray
    labels: np.ndarray
    bias: np.ndarray
    width: int
    label_count: int
    scales: np.ndarray = field(default_factory=lambda: NO_FLOATS)

    @classmethod
    def drawn(
        cls,
        seed: int,
        *,
        groups: int,
        size: int,
        fan_in: int,
        width: int,
        padding: int = 0,
        kind: str = "float32",
        whole: bool = False,
    ) -> Layer:
        """One at random: with duplicate features, and labels in any order."""
        random = np.random.default_rng(seed)
        places = groups * size
        shape = (groups, fan_in, size)
        weights = random.normal(size=shape).astype(np.float32)
        if whole:  # sums that many labels share
            weights = random.integers(-1, 2, shape).astype(np.float32)
        labels = random.permutation(places).astype(np.int32)
        count = max(1, places - padding)
        labels[labels >= count] = -1
        numbers = random.integers(0, width, (groups, fan_in))
        layer = cls(
            indices=np.sort(numbers, axis=1).astype(np.uint16 if seed % 2 else np.uint32),
            weights=weights,
            labels=labels,
            bias=random.integers(-1, 2, places).astype(np.float32),
            width=width,
            label_count=count,
        )
        if kind == "float16":
            layer.weights = weights.astype(np.float16)
        elif kind == "bfloat16":
            layer.weights = bits_of(weights)
        elif kind == "int8":
            layer.weights = random.integers(-127, 128, shape).astype(np.int8)
            layer.scales = random.random(places).astype(np.float32) + np.float32(0.1)
        return layer

    def native(self) -> _native.FanIn:
        return _native.FanIn(**vars(self))

    def best(self, X: np.ndarray, k: int, allowed: np.ndarray = ALL) -> tuple[np.ndarray, ...]:
        return _native.fan_in_best(layer=self.native(), rows=X, allowed=allowed, k=k)

    @property
    def places(self) -> np.ndarray:
        """Where each label is."""
        places = np.full(self.label_count, -1, np.int32)
        there = np.flatnonzero(self.labels >= 0)
        places[self.labels[there]] = there
        return places

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (labels, width), to which duplicates add, and biases, in float64."""
        groups, _, size = self.weights.shape
        values = numbers_of(self.weights) if self.weights.dtype == np.uint16 else self.weights
        values = values.astype(np.float64)
        if len(self.scales):
            values *= self.scales.reshape(groups, 1, size).astype(np.float64)
        weights = np.zeros((self.label_count, self.width))
        bias = np.zeros(self.label_count)
        for place, label in enumerate(self.labels):
            if label >= 0:
                group, at = divmod(place, size)
                np.add.at(weights[label], self.indices[group], values[group, :, at])
                bias[label] = self.bias[place] if len(self.bias) else 0
        return weights, bias

    def scores(self, X: np.ndarray) -> np.ndarray:
        weights, bias = self.dense()
        return X.astype(np.float64) @ weights.T + bias


def softplus(s: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, s)


LOSSES: dict[str, Any] = {
    # of a label that does not apply: the loss and its derivative by the score
    "logistic": (lambda s, n: softplus(s), lambda s, n: expit(s)),
    "squared_hinge": (
        lambda s, n: np.maximum(0, 1 + s) ** 2,
        lambda s, n: 2 * np.maximum(0, 1 + s),
    ),
    "focal": (
        lambda s, n: expit(s) ** n * softplus(s),
        lambda s, n: expit(s) ** n * (n * expit(-s) * softplus(s) + expit(s)),
    ),
}


@dataclass
class Truth:
    """What the loss of each label counts for, in each row."""

    applies: np.ndarray  # (rows, labels): which are entries
    positives: np.ndarray
    negatives: np.ndarray
    label_weights: np.ndarray  # or of size 0: 0.5 for all

    @classmethod
    def drawn(cls, seed: int, rows: int, labels: int, *, weighted: bool = False) -> Truth:
        random = np.random.default_rng(seed)
        shape = (rows, labels)
        by_label = random.random(labels).astype(np.float32) if weighted else NO_FLOATS
        applies = random.random(shape) < 0.15
        applies[::3] = False  # rows without labels
        drawn = random.random((2, *shape)).astype(np.float32)
        return cls(applies, drawn[0], drawn[1], by_label)

    def native(self) -> _native.FanInTruth:
        return _native.FanInTruth(
            starts=np.append(0, np.cumsum(self.applies.sum(axis=1))).astype(np.int64),
            labels=np.nonzero(self.applies)[1].astype(np.int32),
            positives=self.positives[self.applies],
            negatives=self.negatives[self.applies],
            weights=self.label_weights,
            weight=0.5,
            normalisers=NO_FLOATS,
            masses=NO_FLOATS,
        )

    def of(self, form: str, number: float, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """The sum of the losses, and its gradient by the scores."""
        value, slope = LOSSES[form]
        usual = self.label_weights if len(self.label_weights) else 0.5
        positives = np.where(self.applies, self.positives, 0).astype(np.float64)
        negatives = np.where(self.applies, self.negatives, usual).astype(np.float64)
        total = positives * value(-scores, number) + negatives * value(scores, number)
        by_score = negatives * slope(scores, number) - positives * slope(-scores, number)
        return float(total.sum()), by_score


@dataclass
class Moves:
    """How weights move, as the native core takes it."""

    method: str = "sgd"
    rate: float = 0.1
    momentum: float = 0.0
    decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8
    seed: int = 0
    first: int = 0

    def native(self, step: int) -> _native.FanInOptimiser:
        options = vars(self) | {"method": _native.FanInMethod[self.method], "step": step}
        return _native.FanInOptimiser(**options)


@dataclass
class Twin:
    """The same step in float64: each weight has the gradient of its place."""

    layer: Layer
    moves: Moves

    def __post_init__(self) -> None:
        self.weights = self.layer.weights.astype(np.float64)
        self.bias = self.layer.bias.astype(np.float64)
        self.first, self.second = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self.steps = 0

    def step(self, X: np.ndarray, truth: Truth, form: str, number: float) -> tuple[Any, ...]:
        """The value of the loss and its gradient by the rows; weights move."""
        layer, by = self.layer, self.moves
        now = Layer(**vars(layer) | {"weights": self.weights, "bias": self.bias})
        dense, _ = now.dense()
        value, by_score = truth.of(form, number, now.scores(X))
        by_place = np.zeros((len(X), len(layer.labels)))
        there = layer.labels >= 0
        by_place[:, there] = by_score[:, layer.labels[there]]
        groups, _, size = self.weights.shape
        gradient = np.einsum(
            "bgi,bgf->gfi", by_place.reshape(len(X), groups, size), X[:, layer.indices]
        )
        self.steps += 1
        if by.method != "sgd":
            squares = gradient**2
            if by.method == "label_adam":
                squares = squares.mean(axis=1, keepdims=True)
            self.first = by.beta1 * self.first + (1 - by.beta1) * gradient
            self.second = by.beta2 * self.second + (1 - by.beta2) * squares
            mean = self.first / (1 - by.beta1**self.steps)
            spread = np.sqrt(self.second / (1 - by.beta2**self.steps)) + by.epsilon
            self.weights = self.weights - by.rate * (mean / spread + by.decay * self.weights)
        else:
            self.first = by.momentum * self.first + gradient + by.decay * self.weights
            self.weights = self.weights - by.rate * self.first
        if len(self.bias):
            self.bias = self.bias - by.rate * by_place.sum(axis=0)
        return value, by_score @ dense
