"""One call that holds a ranking against the truth, or several for a test set larger than memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel._native import add_row_sums, label_counts
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.data.matrix import canonical
from megalabel.data.truth import check_truth, truth_arrays
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import PropensityModel, label_propensities
from megalabel.labels.propensity import Propensities, check_propensities
from megalabel.metrics.batches import Batch, Batches
from megalabel.metrics.effects import text_effects
from megalabel.metrics.reliability import cells_at, grouped_at
from megalabel.metrics.result import Evaluation
from megalabel.metrics.tallies import Tallies
from megalabel.metrics.training import TrainLabels, train_counts


def evaluate(
    ranking: Ranking,
    truth: csr_matrix | Corpus,
    *,
    train_labels: TrainLabels | None = None,
    propensities: Propensities = None,
    k: int | Sequence[int] = (1, 3, 5),
    beta: float = 2.0,
    excluded: csr_matrix | None = None,
    probabilities: bool = False,
) -> Evaluation:
    """How good a ranking is, by every metric at once.

    Parameters
    ----------
    ranking : Ranking
        The answers. With fewer than k columns, P@k divides by k all the same.
    truth : CSR matrix (n, labels) or Corpus
        The labels the rows really carry: relevances above 0. A matrix has its columns numbered
        as in the ranking's label set; further columns are labels unknown there, which count but
        cannot be hit. A corpus is aligned by label ids.
    train_labels : CSR matrix, Corpus, or pair (counts, n), optional
        The training labels, or how often each occurs in n training rows. They say which labels
        are frequent and which are rare, and give propensities.
    propensities : str, PropensityModel or array, optional
        The model that gives propensities from `train_labels`, or its name, instead of "jpv"; or
        a propensity for each column of the truth. See `megalabel.labels.label_propensities`.
    k : int or several
        The cutoffs.
    beta : float
        Of the label-wise F-beta, besides F1: above 1, recall weighs more.
    excluded : CSR matrix (n, labels), optional
        Stored cells are removed from the ranking first, never from the truth. By default those
        of the corpus, if `truth` is one.
    probabilities : bool
        Whether the scores are probabilities; then their calibration is measured too.

    Returns
    -------
    Evaluation
        The values by name, with tables, intervals and comparisons.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> labels = LabelSet(["cat", "dog", "eel"])
    >>> ranking = Ranking([[0, 2, 1], [0, 1, 2]], [[3, 2, 1], [3, 2, 1]], labels)
    >>> truth = csr_matrix([[1, 1, 0], [0, 0, 1]])
    >>> evaluation = evaluate(ranking, truth, k=(1, 3))
    >>> print(evaluation)
    measured on 2 texts                              in %   that is
    Is the first suggestion right? (P@1)             50.0    1 of 2
    Of 3 suggestions, how many are right? (P@3)      50.0  1.5 of 3
    Of the right labels, how many are found? (R@3)  100.0
    How good is the order of the 3? (nDCG@3)         71.0
    How many labels are ever found? (coverage@3)    100.0    3 of 3
    >>> evaluation["MRR@3"]
    0.6666666666666666
    """
    evaluator = Evaluator(
        train_labels=train_labels,
        propensities=propensities,
        k=k,
        beta=beta,
        probabilities=probabilities,
    )
    return evaluator._result([evaluator._count(ranking, truth, excluded)])


class Evaluator:
    """`evaluate` for a test set that comes in batches; the result is the same to the last bit.

    Parameters
    ----------
    train_labels, propensities, k, beta, probabilities
        As for `evaluate`.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> evaluator = Evaluator(k=1)
    >>> for ids, truth in (([[0], [1]], [[1, 0], [1, 0]]), ([[1]], [[1, 1]])):
    ...     ranking = Ranking(ids, np.ones((len(ids), 1)), LabelSet(["cat", "dog"]))
    ...     evaluator = evaluator.add(ranking, csr_matrix(truth))
    >>> round(evaluator.result()["P@1"], 4)
    0.6667
    """

    def __init__(
        self,
        *,
        train_labels: TrainLabels | None = None,
        propensities: Propensities = None,
        k: int | Sequence[int] = (1, 3, 5),
        beta: float = 2.0,
        probabilities: bool = False,
    ) -> None:
        self.cutoffs = _cutoffs(k)
        if not 0 < beta < np.inf:
            raise ParameterError(f"beta must be above 0, not {beta!r}")
        self.beta = float(beta)
        self.train_labels = train_labels
        self.propensities = propensities
        self.probabilities = probabilities
        self.rows = 0
        self._tallies: Tallies | None = None
        self._ranked_labels: LabelSet | None = None
        self._weights = np.empty(0)
        self._batches = Batches()

    def add(
        self,
        ranking: Ranking,
        truth: csr_matrix | Corpus,
        *,
        excluded: csr_matrix | None = None,
    ) -> Self:
        """Count the next rows. All batches are ranked over the same labels."""
        self._count(ranking, truth, excluded, self._batches)
        return self

    def result(self) -> Evaluation:
        """All metrics of the rows so far."""
        return self._result(self._batches)

    def _result(self, batches: Iterable[Batch]) -> Evaluation:
        if self._tallies is None or not self.rows:
            raise DataError("there are no rows to evaluate")
        tallies = replace(self._tallies)  # which does not change when more rows are added
        tallies.effects, tallies.noise = text_effects(tallies, batches)
        return Evaluation(tallies.values(), self.rows, tallies=tallies)

    def _count(
        self,
        ranking: Ranking,
        truth: csr_matrix | Corpus,
        excluded: csr_matrix | None,
        batches: Batches | None = None,
    ) -> Batch:
        """Count rows, and put a copy of them among `batches`."""
        if self._ranked_labels is not None and ranking.labels != self._ranked_labels:
            raise DataError("this batch was ranked over other labels than those before")
        truth, labels, excluded = self._aligned(ranking, truth, excluded)
        check_truth(ranking, truth)
        ranking = _without(ranking, excluded)
        tallies = self._grown(truth, labels, ranking.labels)
        cells = grouped = None
        if self.probabilities:
            cells = cells_at(ranking, truth, self.cutoffs)
            grouped = grouped_at(ranking, truth, self.cutoffs, tallies.train_counts)
        arrays = truth_arrays(ranking, truth)
        scores = ranking.scores if self.probabilities else np.empty((0, 0), np.float32)
        batch = Batch(self.rows, ranking.ids, scores, len(ranking.labels), **arrays)
        sums = add_row_sums(
            tallies.sums,
            first_row=batch.first_row,
            ranked=batch.ranked,
            truth=batch.truth,
            cutoffs=self.cutoffs,
            weights=self._weights,
        )
        counts = label_counts(
            batch.ranked, batch.truth, cutoffs=self.cutoffs, width=len(tallies.labels)
        )
        if batches is not None:
            batches.add(batch.top(int(self.cutoffs[-1])))
        # nothing can fail from here on, so that a refused batch leaves no trace
        cuts = len(self.cutoffs)
        tallies.sums = sums
        tallies.predicted = tallies.predicted + np.cumsum(counts[:cuts], axis=0)
        tallies.hits = tallies.hits + np.cumsum(counts[cuts:-1], axis=0)
        tallies.positives = tallies.positives + counts[-1]
        if cells is not None:
            cells = np.cumsum(cells, axis=0)
            tallies.cells = cells if tallies.cells is None else tallies.cells + cells
        if grouped is not None:
            tallies.grouped = grouped if tallies.grouped is None else tallies.grouped + grouped
        before = np.concatenate([[0], np.cumsum(batch.positive, dtype=np.int64)])
        sizes = np.diff(before[batch.indptr])
        tallies.checksum = zlib.crc32(sizes.tobytes(), tallies.checksum)
        self._tallies, self._ranked_labels = tallies, ranking.labels
        self.rows += len(ranking)
        return batch

    def _aligned(
        self, ranking: Ranking, truth: csr_matrix | Corpus, excluded: csr_matrix | None
    ) -> tuple[csr_matrix, LabelSet | None, csr_matrix | None]:
        """The truth's matrix, its labels where they have names, and the cells to leave out."""
        if not isinstance(truth, Corpus):
            return canonical(truth, "truth"), None, excluded
        known = ranking.labels if self._tallies is None else self._tallies.labels
        aligned = truth.aligned(known)
        return (
            aligned.targets,
            aligned.labels,
            aligned.excluded if excluded is None else excluded,
        )

    def _grown(self, truth: csr_matrix, labels: LabelSet | None, ranked: LabelSet) -> Tallies:
        """What was counted before, wide enough for the truth's labels; and weights for them."""
        before, width = self._tallies, truth.shape[1]
        if before is not None and len(before.labels) == width:
            return before
        if before is not None and labels is None:
            raise ShapeError(
                f"the truth is {truth.shape}, that of earlier rows has {len(before.labels)} labels"
            )
        if labels is None:
            labels = _padded(ranked, width)
        tallies = Tallies.empty(self.cutoffs, self.beta, labels)
        counts, rows = None, 0
        if self.train_labels is not None:
            counts, rows = train_counts(self.train_labels, labels, len(ranked), len(labels))
        if counts is not None or self.propensities is not None:
            self._weights = 1 / _propensities(self.propensities, counts, rows, truth.shape)
        tallies.train_counts = None if counts is None else counts.astype(np.int64)
        tallies.weighted = len(self._weights) > 0
        if before is not None:
            seen = len(before.labels)
            tallies.sums, tallies.cells = before.sums, before.cells
            tallies.grouped, tallies.checksum = before.grouped, before.checksum
            for name in ("predicted", "hits", "positives"):
                getattr(tallies, name)[..., :seen] = getattr(before, name)
        return tallies


def _cutoffs(k: int | Sequence[int]) -> np.ndarray:
    """The cutoffs, rising and each once."""
    given = np.unique(np.asarray(k))
    if given.size == 0 or given.dtype.kind not in "iu" or given[0] < 1:
        raise ParameterError(f"k must be one or more integers of at least 1, not {k!r}")
    return given.astype(np.int64)


def _without(ranking: Ranking, excluded: csr_matrix | None) -> Ranking:
    if excluded is None:
        return ranking
    excluded = csr_matrix(excluded)
    if excluded.shape[1] > len(ranking.labels):  # labels that are never ranked
        excluded = excluded[:, : len(ranking.labels)]
    return ranking.without(excluded)


def _padded(labels: LabelSet, width: int) -> LabelSet:
    """Names for columns of a matrix beyond the ranking's labels."""
    if width == len(labels):
        return labels
    return labels.extended(LabelSet([f"unknown label {i}" for i in range(len(labels), width)]))


def _propensities(
    given: Propensities, counts: np.ndarray | None, rows: int, truth: tuple[int, int]
) -> np.ndarray:
    if given is None or isinstance(given, str | PropensityModel):
        if counts is None:
            raise ParameterError(
                f"give train_labels to evaluate: propensities={given!r} needs them"
            )
        return label_propensities(given, counts, rows)
    found = check_propensities(given)
    if found.shape != truth[1:]:
        raise ShapeError(f"propensities are {found.shape} but the truth is {truth}")
    return found
