"""Classifiers of labels without texts of training, made of what is there: the words of their
names, and trained classifiers of like labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, hstack

from megalabel import _native
from megalabel.data import LabelSet
from megalabel.data.matrix import canonical, csr_of, filled_rows, row_numbers, sparse_rows
from megalabel.linear.chunks import ChunkedWeights, beam_search
from megalabel.linear.one_vs_all import OneVsAll
from megalabel.linear.tree import TreeClassifier

COST = 0.01
"""The most of their R@10 that labels known may lose to new ones, a fifth as many or more."""
_PLACES = 10  # that labels take from each other
_SPAN, _TRIALS, _LOGITS = 1.0, 6, 5.0  # of shifts that are tried; a unit of margin in logits
_THIN = 0.5  # of the size of weights that training keeps: what neighbours add is left out below it

Linear = OneVsAll | TreeClassifier


class Blend(NamedTuple):
    """How much each part counts in the classifier of a label that has no texts:

    text * (words of its name) + vectors * (the encoder's vector of its name)
    + neighbours * (mean of its neighbours' classifiers) + shift.

    Words and vectors are scaled so that their products with a text are cosines. Neighbours are the
    labels whose classifiers say the most to the label's own name, as a text; they are weighed by
    the softmax of what they say.
    """

    text: float = 0.5
    """How much the words of the label's names count."""
    vectors: float = 1.0
    """How much the vector of the label's name counts, where features hold an encoder's."""
    hub: float = 0.7
    """Which share of its similarity to texts on average is taken from a vector's similarity."""
    neighbours: float = 0.09
    """How much the mean of its neighbours' classifiers counts."""
    shift: float = -0.97
    """What is added to every margin: the bias of a label that nothing speaks for."""
    nearest: int = 10
    """How many neighbours a label has."""
    temperature: float = 0.2
    """Of the softmax: the lower it is, the more the nearest count."""


class Parts(NamedTuple):
    """What classifiers of new labels are made of: a row each."""

    words: csr_matrix
    vectors: csr_matrix
    near: csr_matrix
    """The weights of the labels known that are neighbours; none for a label without any."""
    leading: csr_matrix | None = None
    """What leads to a label that has no place among those known: words of its name that training
    has not met."""


class Texts(NamedTuple):
    """Texts that training has not seen."""

    rows: csr_matrix
    targets: csr_matrix
    """Which of the labels known they carry; none where that is not known."""


def levels_of(classifier: Linear) -> list[tuple[Sequence[ChunkedWeights], np.ndarray]]:
    """The levels of each tree of a linear classifier, and the label of each of its leaves."""
    if isinstance(classifier, OneVsAll):
        return [([classifier.weights_], np.arange(len(classifier.labels_), dtype=np.int32))]
    return [
        (levels, tree.label_of_leaf_)
        for tree, levels in zip(classifier.trees_, classifier.levels_, strict=True)
    ]


def neighbours_of(classifier: Linear, rows: csr_matrix, blend: Blend) -> csr_matrix:
    """The weights (rows, labels) of the neighbours of labels with these texts; they add up to 1.

    Where there are several trees, neighbours are those of the first. A row of zeros has no
    neighbours.
    """
    levels, leaves = levels_of(classifier)[0]
    known, bias = len(classifier.labels_), classifier.bias
    most = min(blend.nearest, known)
    ids, margins = beam_search(levels, leaves, rows, most, post="noop", bias=bias, n_labels=known)
    there = np.less(ids, known) & (np.diff(rows.indptr) > 0)[:, None]
    margins = np.where(there, margins, -np.inf)
    best = margins.max(1, initial=-1e30, keepdims=True)
    shares = np.exp((margins - best) / max(blend.temperature, 1e-6))
    shares /= np.maximum(shares.sum(1, keepdims=True), np.finfo(np.float64).tiny)
    at = shares > 0
    cells = np.nonzero(at)[0], ids[at]
    return csr_matrix((shares[at].astype(np.float32), cells), (len(ids), known))


def blended(
    classifier: Linear, parts: Parts, blend: Blend, middle: np.ndarray | None = None
) -> list[csr_matrix]:
    """Weights (labels, features + 1) of new labels in each tree of a classifier.

    A label without neighbours has the mean of all biases in place of theirs. What neighbours add is
    left out where it is smaller than half the weights that training keeps. `middle` is the mean of
    texts' rows, where it is known.
    """
    rows = canonical(blend.text * parts.words + blend.vectors * parts.vectors)
    near, made, unit = parts.near, [], classifier.bias or np.inf
    alone = np.diff(near.indptr) == 0
    shift = np.full(rows.shape[0], blend.shift)
    if middle is not None:
        shift -= blend.vectors * blend.hub * (parts.vectors @ middle)
    for levels, leaves in levels_of(classifier):
        places = np.empty(len(leaves), np.int64)
        places[leaves] = np.arange(len(leaves))
        own = levels[-1].to_csr()[places]
        biases = np.asarray(own[:, [-1]].todense()).ravel()
        bias = near @ biases + alone * (biases.mean() if len(biases) else 0.0)
        bias = blend.neighbours * bias + shift / unit
        weights = rows
        if blend.neighbours:
            least = _THIN * classifier.prune / abs(blend.neighbours)
            sums = thin_product(near, own[:, :-1], least)
            weights = rows + sums * np.float32(blend.neighbours)
        made.append(_with_bias(weights, bias))
    return made


def raised(weights: csr_matrix, shift: float) -> csr_matrix:
    """The same weights with a shift of biases, but of labels that nothing else speaks for."""
    rows, bias = weights[:, :-1], weights[:, [-1]].toarray().ravel()
    return _with_bias(rows, bias + shift * filled_rows(rows))


def _with_bias(weights: csr_matrix, bias: np.ndarray) -> csr_matrix:
    return hstack([weights, csr_matrix(bias.astype(np.float32)[:, None])], "csr")


def thin_product(weights: csr_matrix, rows: csr_matrix, least: float) -> csr_matrix:
    """weights @ rows, without values that are smaller than `least`.

    Examples
    --------
    >>> rows = csr_matrix([[1.0, 0.0, 0.2], [0.0, 4.0, 0.4]], dtype=np.float32)
    >>> thin_product(csr_matrix([[0.5, 0.5]], dtype=np.float32), rows, 0.4).toarray()
    array([[0.5, 2. , 0. ]], dtype=float32)
    """
    starts, columns, values = _native.thin_product(
        weights=sparse_rows(weights), rows=sparse_rows(rows), least=least
    )
    return csr_of(values, columns, starts, rows.shape[1])


def affordable_shift(
    classifier: Linear,
    labels: LabelSet,
    weights: Sequence[csr_matrix],
    beside: np.ndarray,
    texts: Texts,
    leading: csr_matrix | None = None,
) -> float:
    """The most that can be added to the margins of new labels so that the R@10 of labels known
    falls by at most `COST` on texts that carry some of them; where new labels are fewer than a
    fifth of those known, by less.

    Parameters
    ----------
    classifier : OneVsAll or TreeClassifier
    labels : LabelSet
        The new ones.
    weights : list of CSR matrices (labels, features + 1)
        Theirs in each tree.
    beside : int array (labels,)
        The label known whose cluster each one joins.
    texts : Texts
    leading : CSR matrix, optional
        As for `TreeClassifier.add_labels`.
    """
    some = np.flatnonzero(np.diff(texts.targets.indptr))
    texts = Texts(texts.rows[some], texts.targets[some])
    most = COST * min(1.0, 5 * len(labels) / len(classifier.labels_))
    if isinstance(classifier, TreeClassifier) and classifier.may_miss:
        return _tried_shift(classifier, labels, weights, beside, texts, leading, most)
    return _shift_of_margins(classifier, weights[0], texts, most)


def _shift_of_margins(classifier: Linear, weights: csr_matrix, texts: Texts, most: float) -> float:
    """Where all labels are compared by their margins: from the margins of each text at once."""
    levels, leaves = levels_of(classifier)[0]
    search: dict[str, Any] = {"post": "noop", "bias": classifier.bias}
    ids, margins = beam_search(levels, leaves, texts.rows, _PLACES, **search)
    heard = weights[filled_rows(weights[:, :-1])]
    if not heard.shape[0]:
        return 0.0
    level = ChunkedWeights.build(heard, [0, heard.shape[0]])
    _, rivals = beam_search([level], np.arange(heard.shape[0]), texts.rows, _PLACES, **search)
    rows, places, shares = _hits(ids, texts.targets)
    # a label loses its place to as many new ones as there are places from it on
    limits = margins[rows, places] - rivals[rows, _PLACES - 1 - places]
    order = np.argsort(limits)
    limits = limits[order][: 1 + int(np.searchsorted(shares[order].cumsum(), most, side="right"))]
    limits = limits[np.isfinite(limits)]  # which it is not where new labels are too few
    return float(limits[-1]) if len(limits) else 0.0


def _tried_shift(
    classifier: TreeClassifier,
    labels: LabelSet,
    weights: Sequence[csr_matrix],
    beside: np.ndarray,
    texts: Texts,
    leading: csr_matrix | None,
    most: float,
) -> float:
    """Where scores along paths are compared: by trial, as a shift moves each in its own way."""

    def recall(ids: np.ndarray) -> float:
        return float(_hits(ids, texts.targets)[2].sum())

    before = recall(classifier.rank(texts.rows, _PLACES).ids)
    low, high = (-_SPAN, _SPAN)
    if classifier.loss == "logistic":
        low, high = _LOGITS * low, _LOGITS * high
    for _ in range(_TRIALS):
        shift = (low + high) / 2
        louder = [raised(one, shift / classifier.bias) for one in weights]
        more = classifier.add_labels(labels, louder, beside, leading)
        ids = more.rank(texts.rows, _PLACES).ids
        low, high = (shift, high) if before - recall(ids) <= most else (low, shift)
    return low


def _hits(ids: np.ndarray, targets: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The texts and places of right answers, and what each adds to the mean of R@10."""
    rows, places = np.nonzero(ids < targets.shape[1])
    right = np.asarray(targets[rows, ids[rows, places]]).ravel() > 0
    rows, places = rows[right], places[right]
    return rows, places, 1 / np.diff(targets.indptr)[rows] / max(1, targets.shape[0])


def nearest(near: csr_matrix, common: int) -> np.ndarray:
    """The first neighbour of each label; where there is none, a label that stands in."""
    first = np.full(near.shape[0], common, np.int64)
    order = np.lexsort((-near.data, row_numbers(near)))
    filled = np.diff(near.indptr) > 0
    first[filled] = near.indices[order[near.indptr[:-1][filled]]]
    return first
