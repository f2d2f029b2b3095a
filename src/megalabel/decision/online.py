"""Decisions on a stream of texts, each final when the next one comes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.base import Check, Learned, array, integer, number, one_of, optional, value
from megalabel.data import Corpus, Ranking
from megalabel.data.truth import label_matrix, truth_arrays
from megalabel.decision.metric import METRIC, Function, Metric, is_coverage, metric_of
from megalabel.decision.shortlists import (
    CAPS,
    Shortlisted,
    caps_of,
    check_budget,
    check_labels,
    chosen_ranking,
    native_objective,
    row_blocks,
)
from megalabel.errors import ParameterError

# one for all: a rule that had its own could neither be pickled nor copied
_DECIDING = threading.RLock()
NO_TRUTH = {
    "indptr": np.zeros(1, np.int64),
    "indices": np.zeros(0, np.int32),
    "positive": np.zeros(0, np.uint8),
}


class Online(Shortlisted):
    """Labels for texts as they come, for the macro metric of the whole stream.

    Each text gets the k labels in whose direction the metric rises fastest from the confusion
    entries so far, and is then taken into these: online measure maximisation (OMMA, Kotlowski and
    others 2024). What was decided is kept in `labels_`, so the same text may be answered otherwise
    later on. Calls from several threads are decided one after another.

    Parameters
    ----------
    metric : str, Metric or callable
        As for `FrankWolfe`.
    candidates : int
        How many of the most probable labels of a text are considered.
    weight : float
        The objective is (1 - weight) P@k + weight metric.
    budget : "exactly" or "at-most"
        What k means: k labels a text; up to k, those that do the objective good.
    caps : int or array, optional
        So many texts of the stream may be given a label at most; one number, or one for each label.
    smoothing : float
        So many texts of each of the outcomes are thought of for each label before the first.

    Attributes
    ----------
    labels_ : float64 array (labels, 4)
        Of each label, the sum of hits, how often it was given, how often it would have been right,
        and how often it may be given.
    seen_ : int
        How many texts were decided.

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> stream = Ranking([[0, 1]] * 3, [[0.6, 0.5]] * 3, LabelSet(["common", "rare"]))
    >>> rule = Online("macro-f1")
    >>> [tags[0].label for tags in rule.apply(stream, k=1).tags()]
    ['common', 'rare', 'common']
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "metric": METRIC,
        "candidates": integer(1),
        "weight": number(0, 1),
        "budget": one_of("exactly", "at-most"),
        "caps": CAPS,
        "smoothing": number(1e-9),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": optional(array(np.float64, "labels", 4)),
        "seen_": optional(value(integer(0))),
    }

    labels_: np.ndarray
    seen_: int

    def __init__(
        self,
        metric: str | Metric | Function = "macro-f1",
        *,
        candidates: int = 100,
        weight: float = 1.0,
        budget: str = "exactly",
        caps: int | np.ndarray | None = None,
        smoothing: float = 0.1,
    ) -> None:
        self.metric = metric
        self.candidates = candidates
        self.weight = weight
        self.budget = budget
        self.caps = caps
        self.smoothing = smoothing

    def apply(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ranking:
        """The labels of the next texts, whose truth stays unknown: their probabilities count."""
        return self.follow(ranking, k, overwrite=overwrite)

    def follow(
        self,
        ranking: Ranking,
        k: int,
        truth: Corpus | csr_matrix | None = None,
        *,
        overwrite: bool = False,
    ) -> Ranking:
        """The labels of the next texts, each of whose truth is learned after it is decided."""
        self.check_parameters()
        check_budget(ranking, k)
        metric = metric_of(self.metric)
        if is_coverage(metric):
            raise ParameterError("Online cannot take coverage; BlockCoordinateAscent can")
        with _DECIDING:
            return self._follow(metric, ranking, k, truth, overwrite)

    def _follow(
        self,
        metric: Metric,
        ranking: Ranking,
        k: int,
        truth: Corpus | csr_matrix | None,
        overwrite: bool,
    ) -> Ranking:
        m = len(ranking.labels)
        if not self.fitted:
            start = self.smoothing * np.array([1, 2, 2, np.inf])
            self.labels_, self.seen_ = np.tile(start, (m, 1)), 0
        check_labels(self, len(self.labels_), ranking)
        labels = np.array(self.labels_)  # what was loaded may be read-only; an error leaves it
        caps = caps_of(self.caps, ranking)
        # half a text more, as the texts thought of do not come to whole numbers
        labels[:, 3] = np.inf if caps is None else caps + 2 * self.smoothing + 0.5
        matrix = None if truth is None else label_matrix(truth, ranking.labels)
        chosen = []
        for rows in row_blocks(ranking):  # no view of the ranking may outlive this
            known = NO_TRUTH if matrix is None else truth_arrays(ranking[rows], matrix[rows])
            seen = self.seen_ + rows.start + 4 * self.smoothing
            given = _native.decision_follow(
                ranking.native(rows),
                truth=_native.Truth(**known),
                labels=labels,
                k=k,
                floor=0.0 if self.budget == "at-most" else -np.inf,
                objective=native_objective(
                    metric, (1 - self.weight) / k, self.weight / max(1, m), seen
                ),
                custom=metric.slopes if metric.twin is None else None,
            )
            chosen.append(given)
        self.labels_ = labels
        self.seen_ += len(ranking)
        return chosen_ranking(ranking, chosen, k, overwrite=overwrite)

    def check_learned(self) -> None:
        """A stream has both entries and a length, or has not begun."""
        if ("labels_" in vars(self)) != ("seen_" in vars(self)):
            raise ValueError("Online learns labels_ and seen_ together")
