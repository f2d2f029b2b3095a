"""The k most probable labels: what is best for P@k, R@k and nDCG@k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from megalabel.base import Check, integer, number, one_of
from megalabel.data import Ranking
from megalabel.decision.shortlists import (
    CAPS,
    assign,
    caps_of,
    chosen_ranking,
    plain_rule,
)
from megalabel.errors import ParameterError
from megalabel.parts import Decision


class TopK(Decision):
    """The k best labels of each row, without those that are too improbable.

    Parameters
    ----------
    threshold : float, optional
        Labels of lower probability are left out.
    at_least : int
        So many labels of each row stay even below the threshold, if the row has them and k allows.
    caps : int or array, optional
        So many of the rows decided together may be given a label at most; one number, or one for
        each label. The labels given are those of the largest sum of scores over all rows.
    candidates : int
        With caps: how many of the best labels of a row are considered.

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
        "caps": CAPS,
        "candidates": integer(1),
    }
    BY_LABEL: ClassVar[frozenset[str]] = frozenset({"caps"})

    def __init__(
        self,
        threshold: float | None = None,
        at_least: int = 0,
        *,
        caps: int | np.ndarray | None = None,
        candidates: int = 100,
    ) -> None:
        self.threshold = threshold
        self.at_least = at_least
        self.caps = caps
        self.candidates = candidates

    def shortlist(self, k: int) -> int:
        """How many labels a text must be ranked: k, and with caps the candidates."""
        return k if self.caps is None else max(k, self.candidates)

    def apply(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ranking:
        """The labels to answer with, at most k a row, best first."""
        self.check_parameters()
        if k < 1:
            raise ParameterError(f"k must be an integer of at least 1, not {k!r}")
        caps = caps_of(self.caps, ranking)
        if caps is not None:
            return self._capped(ranking, k, caps, overwrite)
        top = ranking.top(k)
        if self.threshold is None:
            return top
        cut = top.scores < self.threshold
        cut[:, : self.at_least] = False
        ids = np.where(cut, len(top.labels), top.ids)
        return Ranking(ids, np.where(cut, -np.inf, top.scores), top.labels)

    def _capped(self, ranking: Ranking, k: int, caps: np.ndarray, overwrite: bool) -> Ranking:
        if self.at_least:
            raise ParameterError("at_least cannot be promised with caps: a label may be full")
        floor = -np.inf if self.threshold is None else np.nextafter(self.threshold, -1)
        chosen, _ = assign(ranking, plain_rule(ranking), caps, k, floor)
        return chosen_ranking(ranking, chosen, k, overwrite=overwrite)
