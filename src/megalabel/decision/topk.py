"""The k most probable labels: what is best for P@k, R@k and nDCG@k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from megalabel.base import Check, Decision, integer, number, one_of
from megalabel.data import Ranking
from megalabel.errors import ParameterError


class TopK(Decision):
    """The k best labels of each row, without those that are too improbable.

    Parameters
    ----------
    threshold : float, optional
        Labels of lower probability are left out.
    at_least : int
        So many labels of each row stay even below the threshold, if the row has them and k allows.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> ranking = Ranking([[1, 0], [0, 1]], [[0.9, 0.2], [0.3, 0.1]], LabelSet(["cat", "dog"]))
    >>> for tags in TopK(threshold=0.5, at_least=1).apply(ranking, k=2).tags():
    ...     print(tags)
    [Tag(label='dog', probability=0.9)]
    [Tag(label='cat', probability=0.3)]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "threshold": one_of(None) | number(0, 1),
        "at_least": integer(0),
    }

    def __init__(self, threshold: float | None = None, at_least: int = 0) -> None:
        self.threshold = threshold
        self.at_least = at_least

    def apply(self, ranking: Ranking, k: int) -> Ranking:
        """The labels to answer with, at most k a row, best first."""
        self.check_parameters()
        if k < 1:
            raise ParameterError(f"k must be an integer of at least 1, not {k!r}")
        top = ranking.top(k)
        if self.threshold is None:
            return top
        cut = top.scores < self.threshold
        cut[:, : self.at_least] = False
        ids = np.where(cut, len(top.labels), top.ids)
        return Ranking(ids, np.where(cut, -np.inf, top.scores), top.labels)

    def restore(self, learned: Mapping[str, Any]) -> None:
        """There is nothing to take back."""
        if learned:
            raise ValueError(f"TopK learns nothing, so cannot hold {sorted(learned)}")
