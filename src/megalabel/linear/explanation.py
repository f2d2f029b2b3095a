"""Why a label: the features that spoke for and against it, step by step down the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.linear.chunks import ChunkedWeights


@dataclass(frozen=True)
class Step:
    """One classifier on the way to a label."""

    node: int
    """The node's number on its level; on the last one, the label's place."""
    margin: float
    bias: float
    features: np.ndarray
    contributions: np.ndarray
    """What each of the text's features adds to the margin, largest first by size."""
    tree: int = 0
    """Which of several trees it is in."""


def explain_path(
    levels: Sequence[ChunkedWeights],
    path: Sequence[int],
    x: csr_matrix,
    bias: float,
    tree: int = 0,
) -> list[Step]:
    """The steps down a path of nodes, one a level, for one row of features."""
    steps = []
    for level, node in zip(levels, path, strict=True):
        features, weights = node_weights(level, node)
        constant = float(weights[features == level.n_features_].sum()) * bias
        _, at_x, at_w = np.intersect1d(x.indices, features, return_indices=True)
        added = x.data[at_x].astype(np.float64) * weights[at_w]
        order = np.argsort(-np.abs(added), kind="stable")
        margin = float(added.sum()) + constant
        found = x.indices[at_x][order], added[order]
        steps.append(Step(int(node), margin, constant, *found, tree))
    return steps


def node_weights(level: ChunkedWeights, node: int) -> tuple[np.ndarray, np.ndarray]:
    """The features that a node's classifier uses, and their weights; the bias has the number d."""
    parent = int(np.searchsorted(level.child_starts_, node, side="right")) - 1
    nodes, features, weights = level.chunks(parent, parent + 1)
    own = nodes == node
    return features[own], weights[own].astype(np.float64)
