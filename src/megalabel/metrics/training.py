"""How often labels occur in training."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, LabelSet
from megalabel.data.truth import label_matrix
from megalabel.errors import ShapeError

TrainLabels: TypeAlias = csr_matrix | Corpus | tuple[ArrayLike, int]


def train_counts(
    train: TrainLabels, labels: LabelSet, known: int, width: int
) -> tuple[np.ndarray, int]:
    """How many training rows carry each label, of `width`, and how many rows there are.

    The first `known` labels are those of a ranking; the further ones of the truth may be left out.
    A corpus is aligned to `labels`.
    """
    if isinstance(train, tuple):
        counts, rows = np.asarray(train[0]), train[1]
    else:
        matrix = label_matrix(train, labels, "train_labels")
        rows = matrix.shape[0]
        counts = np.bincount(matrix.indices[matrix.data > 0], minlength=matrix.shape[1])
        if isinstance(train, Corpus):
            counts = counts[:width]  # not those that neither ranking nor truth knows
    if counts.ndim != 1 or not known <= len(counts) <= width:
        raise ShapeError(
            f"train_labels count {counts.shape} labels, but the ranking has "
            f"{known} and the truth {width}"
        )
    return np.pad(counts, (0, width - len(counts))), rows
