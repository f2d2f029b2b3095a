"""Threshold: the labels above one threshold, the one with the best F1 on texts that are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import Check, Learned, integer, number, value
from megalabel.data import Ranking
from megalabel.data.truth import hits, label_matrix
from megalabel.errors import ParameterError
from megalabel.parts import Decision


class Threshold(Decision):
    """The best labels of each row whose probability reaches a threshold, which is learned.

    It is the one with the largest mean over rows of F1 = 2 hits / (labels given + labels of the
    row), where at most `k` labels of a row are given. Rows without labels count as 0, or as 1 where
    none is given.

    Parameters
    ----------
    k : int
        Labels given at most when it is learned.
    at_least : int
        So many labels of each row are given even below the threshold.

    Attributes
    ----------
    threshold_ : float

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> labels = LabelSet(["cat", "dog", "bird"])
    >>> ranking = Ranking([[0, 1], [2, 0]], [[0.9, 0.8], [0.6, 0.2]], labels)
    >>> rule = Threshold(k=2).fit(ranking, csr_matrix([[1.0, 1, 0], [0, 0, 1]]))
    >>> rule.apply(ranking, k=2).ids
    array([[0, 1],
           [2, 3]], dtype=int32)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"k": integer(1), "at_least": integer(0)}
    LEARNED: ClassVar[Mapping[str, Learned]] = {"threshold_": value(number())}

    threshold_: float

    def __init__(self, k: int = 5, *, at_least: int = 1) -> None:
        self.k = k
        self.at_least = at_least

    @property
    def most(self) -> int:
        """As many as it has learned with."""
        return self.k

    @property
    def learns(self) -> bool:
        """True."""
        return True

    def shortlist(self, k: int) -> int:
        """How many labels a text must be ranked: k, and as many as it learns from."""
        return max(k, self.k)

    def fit(
        self,
        ranking: Ranking,
        Y: csr_matrix | None = None,
        train_labels: tuple[np.ndarray, int] | None = None,
    ) -> Self:
        """Learn the threshold from a ranking of rows and their labels."""
        self.check_parameters()
        if Y is None:
            raise ParameterError("Threshold learns from the labels of rows: give them")
        top = ranking.top(self.k)
        truth = label_matrix(Y, ranking.labels)
        self.restore({"threshold_": best_threshold(top, truth, self.at_least)})
        return self

    def apply(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ranking:
        """The labels to answer with, at most k a row, best first."""
        self.check_fitted()
        if k < 1:
            raise ParameterError(f"k must be an integer of at least 1, not {k!r}")
        top = ranking.top(k)
        cut = top.scores < self.threshold_
        cut[:, : self.at_least] = False
        ids = np.where(cut, len(top.labels), top.ids)
        return Ranking(ids, np.where(cut, -np.inf, top.scores), top.labels)


def best_threshold(ranking: Ranking, truth: csr_matrix, at_least: int = 0) -> float:
    """The threshold with the largest mean F1 of rows whose best labels are ranked; of equal ones
    the highest. 0 where there is nothing to learn from."""
    right = hits(ranking, truth)
    wanted = np.diff(csr_matrix(truth > 0).indptr)[:, None]
    given = np.arange(1, ranking.k + 1)[None, :]
    found = np.cumsum(right, axis=1)
    # F1 of each row after each of its labels, and what a label adds to it
    after = 2 * found / (given + wanted)
    before = np.hstack([(wanted == 0).astype(float), after[:, :-1]])
    gain = np.where(ranking.present, after - before, 0.0)[:, at_least:]
    scores = ranking.scores[:, at_least:]
    there = ranking.present[:, at_least:]
    if not there.any() or not wanted.any():
        return 0.0
    scores, gain = scores[there].astype(np.float64), gain[there]
    order = np.argsort(-scores, kind="stable")
    scores, total = scores[order], np.cumsum(gain[order])
    ends = np.append(scores[1:] < scores[:-1], True)  # equal scores are given together
    scores, total = scores[ends], total[ends]
    best = int(np.argmax(total))
    # as scores are compared: in single precision
    if total[best] <= 0:
        return float(np.nextafter(np.float32(scores[0]), np.float32(np.inf)))
    below = scores[best + 1] if best + 1 < len(scores) else 0.0
    middle = np.float32((scores[best] + below) / 2)
    return float(middle if middle > below else scores[best])
