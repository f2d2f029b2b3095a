"""The truth that a ranking is held against: the labels the texts really carry."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from megalabel._native import Truth, ranking_hits
from megalabel.data.corpus import Corpus
from megalabel.data.labelset import LabelSet
from megalabel.data.matrix import canonical
from megalabel.data.ranking import Ranking
from megalabel.errors import ShapeError


def label_matrix(truth: Corpus | csr_matrix, labels: LabelSet, what: str = "truth") -> csr_matrix:
    """The label matrix of `truth`, its columns numbered as in `labels` (unknown ones after)."""
    if isinstance(truth, Corpus):
        return truth.aligned(labels).targets
    return canonical(truth, what)


def check_truth(ranking: Ranking, truth: csr_matrix) -> None:
    """Raise a ShapeError unless there is a row of truth a row and a column a label.

    More columns are labels unknown to the ranking, which cannot be hit.
    """
    if truth.shape[0] != len(ranking) or truth.shape[1] < len(ranking.labels):
        raise ShapeError(
            f"the truth is {truth.shape}, the ranking {(len(ranking), len(ranking.labels))}"
        )


def truth_arrays(ranking: Ranking, truth: csr_matrix) -> dict[str, np.ndarray]:
    """What the native core makes a `Truth` of a label matrix by."""
    check_truth(ranking, truth)
    return {
        "indptr": truth.indptr.astype(np.int64, copy=False),
        "indices": truth.indices.astype(np.int32, copy=False),
        "positive": (truth.data > 0).view(np.uint8),
    }


def hits(ranking: Ranking, truth: Corpus | csr_matrix, k: int | None = None) -> np.ndarray:
    """Whether each of the first k ranked labels is right: bool (n, k); padding never is.

    Examples
    --------
    >>> ranking = Ranking([[1, 0]], [[0.9, 0.2]], LabelSet(["cat", "dog"]))
    >>> hits(ranking, csr_matrix([[1, 0]]))
    array([[False,  True]])
    """
    k = ranking.k if k is None else min(k, ranking.k)
    arrays = truth_arrays(ranking, label_matrix(truth, ranking.labels))
    return ranking_hits(ranking.native(), Truth(**arrays), k).view(bool)
