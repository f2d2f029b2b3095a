"""AttentionTree: labels that weigh the states of tokens, without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from megalabel.base import (
    Check,
    Component,
    Learned,
    array,
    check_array,
    instance,
    integer,
    list_of,
    part,
    value,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import clamped
from megalabel.errors import ParameterError
from megalabel.features.onnx import AT_ONCE, opened_graph
from megalabel.labels import LabelTree
from megalabel.parts import Classifier
from megalabel.rankers import dense
from megalabel.rankers.dense import below, best, check_tree, filled, log_sigmoid

_HELD = 1 << 24  # numbers held at a time of what labels make of tokens


class States(Component, ABC):
    """A trained encoder that gives the state of each token."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The width of a state."""

    @abstractmethod
    def of(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The states (rows, length, width), float32, of token numbers (rows, length), int64;
        `mask` says where a token is."""

    def onnx_twin(self, int8: bool) -> States:
        """The same without torch; `int8`: with weights in 8 bits."""
        return self

    def take_labels(self, numbers: Any) -> Self:
        """Itself: states know no labels."""
        return self


class OnnxStates(States):
    """States by onnxruntime.

    Attributes
    ----------
    graph_ : uint8 array
        The encoder as ONNX: from tokens to states.
    """

    LEARNED: ClassVar[Mapping[str, Learned]] = {"graph_": array(np.uint8, "bytes")}

    graph_: np.ndarray

    @property
    def width(self) -> int:
        """The width of a state."""
        found = self._session.get_outputs()[0].shape[-1]
        return found if isinstance(found, int) else 0

    def of(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The states (rows, length, width)."""
        inputs = {"input_ids": tokens, "attention_mask": mask.astype(np.int64)}
        return np.asarray(self._session.run(None, inputs)[0])

    def check_learned(self) -> None:
        """Open the graph."""
        self._session = opened_graph("OnnxStates", self.graph_)


class AttentionTree(Classifier):
    """What AttentionXML has learned: an encoder for each level, and the nodes that attend to it.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself. Rows are
    the token numbers of `features.OnnxTokens`.

    Parameters
    ----------
    beam : int
        The nodes of a level whose children the next level sees.

    Attributes
    ----------
    tree_ : LabelTree
    states_ : list of States
        The encoder of each level.
    queries_ : list of float16 arrays (nodes, width)
        What each level's nodes weigh tokens by; those of the last level in the order of labels.
    layers_ : list of lists of float32 arrays
        Weights and biases, in turn, of the layers that the nodes of each level share.
    pad_ : int
        The token of padding.
    label_counts_ : int64 array (labels,)
        How many texts had each label.
    labels_ : LabelSet
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"beam": integer(1)}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "tree_": part(LabelTree),
        "states_": list_of(part(States), "levels"),
        "queries_": list_of(array(np.float16, "nodes", "width"), "levels"),
        "layers_": list_of(list_of(value(instance(np.ndarray))), "levels"),
        "pad_": value(integer()),
        "label_counts_": array(np.int64, "labels"),
    }

    tree_: LabelTree
    states_: list[States]
    queries_: list[np.ndarray]
    layers_: list[list[np.ndarray]]
    pad_: int
    label_counts_: np.ndarray

    def __init__(self, *, beam: int = 160) -> None:
        self.beam = beam

    @property
    def reads_texts(self) -> bool:
        """True, as rows are tokens."""
        return True

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError(
            "AttentionTree is a part of a trained tagger: fit the system that made it"
        )

    def rank(self, X: np.ndarray, k: int) -> Ranking:
        """The k best labels: a label's score is the product of probabilities down its path.

        Places that the beam leaves empty go to the most frequent of the other labels.
        """
        return self._searched(X, k)

    @property
    def may_miss(self) -> bool:
        """True where the beam may not meet all labels."""
        return self.tree_.depth > 1

    def _rank_allowed(self, X: np.ndarray, k: int, allowed: np.ndarray) -> Ranking:
        return self._searched(X, k, allowed)

    def _searched(self, X: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Ranking:
        self.check_fitted()
        k = clamped(k, len(self.labels_))
        ids = np.full((len(X), k), len(self.labels_), np.int32)
        scores = np.full((len(X), k), -np.inf, np.float32)
        open_nodes = self._open_nodes(allowed)
        lengths = (X >= 0).sum(1)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(X), AT_ONCE):
            rows = order[start : start + AT_ONCE]
            tokens = X[rows, : max(1, lengths[rows].max())]
            sure, found = self._walked(tokens, k, open_nodes)
            there = sure > -np.inf
            ids[rows, : found.shape[1]] = np.where(there, found, len(self.labels_))
            scores[rows, : found.shape[1]] = sure
        return filled(Ranking(ids, scores, self.labels_), self.label_counts_, allowed)

    def _open_nodes(self, allowed: np.ndarray | None) -> list[np.ndarray]:
        """Which nodes of each level are above labels that are allowed; on the last level, which
        labels are."""
        if allowed is None:
            return [np.ones(size, bool) for size in self.tree_.level_sizes]
        above = self.tree_.nodes_above(np.flatnonzero(allowed))
        masks = [np.zeros(size, bool) for size in self.tree_.level_sizes]
        for mask, nodes in zip(masks[:-1], above[:-1], strict=True):
            mask[nodes] = True
        return [*masks[:-1], allowed]

    def _walked(
        self, tokens: np.ndarray, k: int, open_nodes: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and numbers of each row's best labels, down the levels."""
        mask = tokens >= 0
        tokens = np.where(mask, tokens, self.pad_).astype(np.int64)
        mask[:, 0] = True  # a text without tokens has one of padding
        above = nodes = np.empty(0)
        for t, starts in enumerate(self.tree_.levels_):
            last = t + 1 == self.tree_.depth
            score = partial(
                attended, self.states_[t].of(tokens, mask), mask, self.queries_[t], self.layers_[t]
            )
            if t == 0:
                numbers = np.arange(len(self.queries_[0]))[None]
                sure = np.exp(log_sigmoid(score(numbers)))
            else:
                children = below(starts, nodes)
                numbers = children.reshape(len(nodes), -1)
                if last:
                    named = self.tree_.label_of_leaf_[numbers]
                    numbers = np.where(numbers >= 0, named, -1)
                sure = np.exp(log_sigmoid(score(np.maximum(numbers, 0))))
                sure = sure * np.repeat(above, children.shape[2], axis=1)
            there = (numbers >= 0) & open_nodes[t][numbers]
            if last:
                there = there & (self.label_counts_[numbers] > 0)
            above, nodes = best(np.where(there, sure, -np.inf), numbers, k if last else self.beam)
        return above, nodes

    def onnx_twin(self, int8: bool) -> AttentionTree:
        """The same over encoders that need no torch."""
        states = [part.onnx_twin(int8) for part in self.states_]
        return with_learned(AttentionTree(beam=self.beam), **self.learned() | {"states_": states})

    def check_learned(self) -> None:
        """The levels must fit the tree; opens their encoders."""
        name = type(self).__name__
        check_tree(self, self.tree_)
        if len(self.states_) != self.tree_.depth:
            raise ValueError(f"states_ of {name} must have one for each level")
        for size, states, queries, layers in zip(
            self.tree_.level_sizes, self.states_, self.queries_, self.layers_, strict=True
        ):
            width = states.width
            check_array(name, "queries_", queries, np.float16, (size, width))
            if len(layers) < 2 or len(layers) % 2:
                raise ValueError(f"layers_ of {name} must be weights and biases in turn")
            for weight, bias in zip(layers[::2], layers[1::2], strict=True):
                check_array(name, "layers_", weight, np.float32, (None, width))
                width = len(weight)
                check_array(name, "layers_", bias, np.float32, (width,))

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """The branches of the labels; other nodes go."""
        kept = [*self.tree_.nodes_above(numbers)[:-1], numbers]
        queries = [q[nodes] for q, nodes in zip(self.queries_, kept, strict=True)]
        return super()._taken(numbers) | {"queries_": queries}


def attended(
    states: np.ndarray,
    mask: np.ndarray,
    queries: np.ndarray,
    layers: list[np.ndarray],
    numbers: np.ndarray,
) -> np.ndarray:
    """Scores (rows, nodes) of the nodes with such numbers: each row's own, or the same for all.

    The weights of node l over the tokens t of a row are softmax_t(<h_t, u_l>), with `states` h and
    `queries` u; the mean of the states by them goes through `layers`, weights and biases in turn.
    """
    if (device := dense.accelerator()) is not None:
        return device.attended(states, mask, queries, layers, numbers)
    rows, length, width = states.shape
    size = max(1, _HELD // (rows * (length + 2 * width)))
    parts = []
    for start in range(0, numbers.shape[1], size):
        wanted = queries[numbers[:, start : start + size]].astype(np.float32)
        with np.errstate(invalid="ignore"):  # kernels of BLAS may raise the flag over padding
            matches = np.where(mask[:, None], wanted @ states.transpose(0, 2, 1), -np.inf)
            weights = np.exp(matches - matches.max(2, keepdims=True))
            made = (weights / weights.sum(2, keepdims=True)) @ states
            for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
                made = np.maximum(made @ weight.T + bias, 0)
            parts.append((made @ layers[-2].T + layers[-1])[..., 0])
    return np.concatenate(parts, axis=1)
