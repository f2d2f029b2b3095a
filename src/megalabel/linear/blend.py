"""Classifiers of labels without texts of training, made of what is there: the words of their
names, and trained classifiers of like labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack, vstack
from scipy.special import expit

from megalabel.linear.chunks import ChunkedWeights, beam_search
from megalabel.linear.one_vs_all import OneVsAll
from megalabel.linear.tree import TreeClassifier

LIFT = 0.08
"""What is added to the margins of new labels, which are wanted: unlike those of training, nobody
has told the model what their texts are."""
_AT_ONCE = 4096  # labels whose sums are made together
_LOGITS = 5.0  # a unit of margin in logits

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
    vectors: float = 1.4
    """How much the vector of the label's name counts, where features hold an encoder's."""
    hub: float = 0.5
    """Which share of its similarity to texts on average is taken from a vector's similarity."""
    neighbours: float = 0.12
    """How much the mean of its neighbours' classifiers counts."""
    shift: float = -0.9
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
    there: np.ndarray = np.less(ids, known)
    if own is not None:
        there &= ids != own[:, None]
        there[:, blend.nearest :] &= np.any(~there[:, : blend.nearest], axis=1, keepdims=True)
    there &= (np.diff(rows.indptr) > 0)[:, None]
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

    A label without neighbours has the mean of all biases in place of theirs. `middle` is the mean
    of texts' rows, where it is known.
    """
    rows, near = blend.text * parts.words + blend.vectors * parts.vectors, parts.near
    made, alone = [], np.diff(near.indptr) == 0
    text = hstack([rows, csr_matrix((rows.shape[0], 1))], "csr")
    shift = np.full(rows.shape[0], blend.shift)
    if middle is not None:
        shift -= blend.vectors * blend.hub * (parts.vectors @ middle)
    for levels, leaves in levels_of(classifier):
        places = np.empty(len(leaves), np.int64)
        places[leaves] = np.arange(len(leaves))
        own = levels[-1].to_csr()[places]
        biases = np.asarray(own[:, [-1]].todense()).ravel()
        bias = near @ biases + alone * (biases.mean() if len(biases) else 0.0)
        bias = blend.neighbours * bias + shift / (classifier.bias or np.inf)
        where = (np.arange(len(bias)), np.full(len(bias), rows.shape[1]))
        sums = _sums(near, own, classifier.prune) * np.float32(blend.neighbours)
        whole = text + sums + csr_matrix((bias, where), text.shape)
        made.append(csr_matrix(whole, dtype=np.float32))
    return made


def learned_blend(
    classifier: Linear,
    rows: csr_matrix,
    targets: csr_matrix,
    parts: Parts,
    blend: Blend,
    middle: np.ndarray,
) -> Blend:
    """A blend whose scale suits some of the labels known, each as if it were new.

    What the parts count beside each other stays as given. Their scale, and the shift, have the
    least loss of the classifier itself over all pairs of texts and labels: so new labels are on the
    scale of those that were trained. Then `LIFT` is added.

    Parameters
    ----------
    classifier : OneVsAll or TreeClassifier
    rows : CSR matrix (texts, features)
        Texts that training has not seen.
    targets : CSR matrix (texts, labels)
        Which of them carry the labels that stand for new ones.
    parts : Parts
        Those of these labels; none is its own neighbour.
    blend : Blend
        What is brought to scale.
    middle : array (features,)
        The mean of texts' rows.
    """
    made = blended(classifier, parts, blend, middle)[0]
    one = csr_matrix(np.full((rows.shape[0], 1), classifier.bias, np.float32))
    margins = (hstack([rows, one], "csr") @ made.T).toarray().ravel().astype(np.float64)
    truth = np.where(targets.toarray().ravel() > 0, 1.0, -1.0)
    if not (truth > 0).any():
        return blend

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss of a line through the margins, and its slopes."""
        right = truth * (line[0] * margins + line[1])
        if is_logistic:
            value, slope = np.logaddexp(0, -right).mean(), -expit(-right)
        else:
            short = np.maximum(0, 1 - right)
            value, slope = np.square(short).mean(), -2 * short
        slope *= truth
        return float(value), np.array([(slope * margins).mean(), slope.mean()])

    is_logistic = classifier.loss == "logistic"
    bounds = [(0.01, 10.0), (None, None)]
    scale, shift = minimize(loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=bounds).x.tolist()
    return blend._replace(
        text=scale * blend.text,
        vectors=scale * blend.vectors,
        neighbours=scale * blend.neighbours,
        shift=scale * blend.shift + shift + LIFT * (_LOGITS if is_logistic else 1),
    )


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
