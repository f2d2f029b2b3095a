"""A linear layer of labels as one of few features, whatever ranks by it."""

from __future__ import annotations

import numpy as np

from megalabel.parts import Classifier
from megalabel.rankers.rectified import Rectified
from megalabel.rankers.sparse import SparseLabels


def with_fan_in(
    classifier: Classifier, fan_in: int, *, group: int = 1, counts: np.ndarray | None = None
) -> Classifier:
    """A ranker that looks at few features: of each label those with the largest weights, or of each
    group of labels those with the largest mean size.

    Parameters
    ----------
    classifier : Classifier
        What scores labels by a linear layer (`Classifier.linear_layer`), perhaps after a layer of
        rectified numbers, which stays.
    fan_in : int
    group : int
        Labels that share their features.
    counts : array (labels,), optional
        How frequent labels are: those of a group are about as frequent. None: they are grouped as
        they are numbered.

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> weights = np.array([[0.1, -3.0, 2.0], [4.0, 0.0, 0.5]])
    >>> whole = SparseLabels.from_dense(weights, [0, 0], LabelSet(["cat", "dog"]), fan_in=3)
    >>> with_fan_in(whole, 1).indices_.tolist()
    [[1], [0]]
    """
    if isinstance(classifier, Rectified):
        inner = with_fan_in(classifier.ranker_, fan_in, group=group, counts=counts)
        return Rectified.over(inner, classifier.layer_, classifier.layer_bias_)
    order = None if counts is None else np.argsort(-counts, kind="stable")
    return SparseLabels.of(classifier, fan_in=fan_in, group=group, order=order, precision="float16")
