"""Classifiers of labels without texts of training, made of what is there: the words of their
names, and trained classifiers of like labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, hstack, vstack

from megalabel.linear.chunks import ChunkedWeights, beam_search
from megalabel.linear.one_vs_all import OneVsAll
from megalabel.linear.tree import TreeClassifier

_AT_ONCE = 4096  # labels whose sums are made together

Linear = OneVsAll | TreeClassifier


class Blend(NamedTuple):
    """How much each part counts in the classifier of a label that has no texts:
    text * (its own row) + neighbours * (the mean of its neighbours' classifiers) + shift.

    Neighbours are the labels whose classifiers say the most to the label's own name, as a text;
    they are weighed by the softmax of what they say.
    """

    text: float = 0.8
    """How much the label's own words, or its vector, count."""
    neighbours: float = 0.1
    """How much the mean of its neighbours' classifiers counts."""
    shift: float = -0.9
    """What is added to every margin: the bias of a label that nothing speaks for."""
    nearest: int = 10
    """How many neighbours a label has."""
    temperature: float = 0.2
    """Of the softmax: the lower it is, the more the nearest count."""


def levels_of(classifier: Linear) -> list[tuple[Sequence[ChunkedWeights], np.ndarray]]:
    """The levels of each tree of a linear classifier, and the label of each of its leaves."""
    if isinstance(classifier, OneVsAll):
        return [([classifier.weights_], np.arange(len(classifier.labels_), dtype=np.int32))]
    return [
        (levels, tree.label_of_leaf_)
        for tree, levels in zip(classifier.trees_, classifier.levels_, strict=True)
    ]


def neighbours_of(
    classifier: Linear, rows: csr_matrix, blend: Blend, own: np.ndarray | None = None
) -> csr_matrix:
    """The weights (rows, labels) of the neighbours of labels with these texts; they add up to 1.

    Where there are several trees, neighbours are those of the first. `own` is, for each row, a
    label that is no neighbour. A row of zeros has no neighbours.
    """
    levels, leaves = levels_of(classifier)[0]
    known, more = len(classifier.labels_), int(own is not None)
    most = min(blend.nearest + more, known)
    bias = classifier.bias
    ids, margins = beam_search(levels, leaves, rows, most, post="noop", bias=bias, n_labels=known)
    there = np.asarray(ids < known)
    if own is not None:
        there &= ids != own[:, None]
        there[:, blend.nearest :] &= (~there[:, : blend.nearest]).any(1)[:, None]
    there &= (np.diff(rows.indptr) > 0)[:, None]
    margins = np.where(there, margins, -np.inf)
    best = margins.max(1, initial=-1e30, keepdims=True)
    shares = np.exp((margins - best) / max(blend.temperature, 1e-6))
    shares /= np.maximum(shares.sum(1, keepdims=True), np.finfo(np.float64).tiny)
    at = shares > 0
    cells = np.nonzero(at)[0], ids[at]
    return csr_matrix((shares[at].astype(np.float32), cells), (len(ids), known))


def blended(
    classifier: Linear, rows: csr_matrix, near: csr_matrix, blend: Blend
) -> list[csr_matrix]:
    """Weights (labels, features + 1) of new labels in each tree of a classifier.

    Parameters
    ----------
    classifier : OneVsAll or TreeClassifier
    rows : CSR matrix (labels, features)
        The labels' own rows.
    near : CSR matrix (labels, labels known)
        Their neighbours, as `neighbours_of` gives them. A label without any has the mean of all
        biases.
    blend : Blend
    """
    made, alone = [], np.diff(near.indptr) == 0
    nothing = csr_matrix((rows.shape[0], 1), dtype=np.float32)
    text = hstack([rows * np.float32(blend.text), nothing], "csr")
    for levels, leaves in levels_of(classifier):
        places = np.empty(len(leaves), np.int64)
        places[leaves] = np.arange(len(leaves))
        own = levels[-1].to_csr()[places]
        biases = np.asarray(own[:, [-1]].todense()).ravel()
        bias = near @ biases + alone * (biases.mean() if len(biases) else 0.0)
        bias = blend.neighbours * bias + blend.shift / (classifier.bias or np.inf)
        where = (np.arange(len(bias)), np.full(len(bias), rows.shape[1]))
        sums = _sums(near, own, classifier.prune) * np.float32(blend.neighbours)
        made.append(
            csr_matrix(text + sums + csr_matrix((bias, where), text.shape), dtype=np.float32)
        )
    return made


def _sums(near: csr_matrix, weights: csr_matrix, least: float) -> csr_matrix:
    """The weighted sums of classifiers without their biases; what is smaller than `least` is left
    out, as in training."""
    blocks = []
    for start in range(0, near.shape[0], _AT_ONCE):
        sums = csr_matrix(near[start : start + _AT_ONCE] @ weights, dtype=np.float32)
        sums.data[(np.abs(sums.data) < least) | (sums.indices == weights.shape[1] - 1)] = 0
        sums.eliminate_zeros()
        blocks.append(sums)
    return vstack(blocks, "csr") if blocks else csr_matrix((0, weights.shape[1]), dtype=np.float32)


def nearest(near: csr_matrix, common: int) -> np.ndarray:
    """The first neighbour of each label; where there is none, a label that stands in."""
    first: Any = np.asarray(near.argmax(axis=1)).ravel().astype(np.int64)
    return np.where(np.diff(near.indptr) > 0, first, common)
