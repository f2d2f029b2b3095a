"""One call that holds a ranking against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.data.corpus import canonical
from megalabel.data.truth import check_truth, label_matrix
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import jpv
from megalabel.metrics.instance import instance_metrics
from megalabel.metrics.reliability import bins_by_rank
from megalabel.metrics.result import Evaluation

TrainLabels: TypeAlias = csr_matrix | Corpus | tuple[ArrayLike, int]


def evaluate(
    ranking: Ranking,
    truth: csr_matrix | Corpus,
    *,
    train_labels: TrainLabels | None = None,
    propensities: ArrayLike | None = None,
    k: int | Sequence[int] = (1, 3, 5),
    excluded: csr_matrix | None = None,
    probabilities: bool = False,
) -> Evaluation:
    """How good a ranking is: P@k, R@k, nDCG@k and, where propensities are known, PSP@k.

    Parameters
    ----------
    ranking : Ranking
        The answers. With fewer than k columns, P@k divides by k all the same.
    truth : CSR matrix (n, labels) or Corpus
        The labels the rows really carry: relevances above 0. A matrix has its columns numbered
        as in the ranking's label set; further columns are labels unknown there, which count but
        cannot be hit. A corpus is aligned by label ids.
    train_labels : CSR matrix, Corpus, or pair (counts, n), optional
        The training labels, or how often each occurs in n training rows. They give propensities
        by `megalabel.labels.jpv` with its default constants, and so PSP@k.
    propensities : array, optional
        One propensity for each column of the truth, instead of `train_labels`.
    k : int or several
        The cutoffs.
    excluded : CSR matrix (n, labels), optional
        Stored cells are removed from the ranking first, never from the truth. By default those
        of the corpus, if `truth` is one.
    probabilities : bool
        Whether the scores are probabilities; then ECE@k is measured too.

    Returns
    -------
    Evaluation
        The values by name; `PSP-raw@k` is the propensity-scored precision without normalisation.

    Examples
    --------
    >>> from megalabel import LabelSet, Ranking
    >>> labels = LabelSet(["cat", "dog", "eel"])
    >>> ranking = Ranking([[0, 2, 1], [0, 1, 2]], [[3, 2, 1], [3, 2, 1]], labels)
    >>> truth = csr_matrix([[1, 1, 0], [0, 0, 1]])
    >>> print(evaluate(ranking, truth, k=(1, 3), propensities=[1, 0.5, 0.1]))
    % of 2 rows     @1      @3
    P            50.00   50.00
    R            25.00  100.00
    nDCG         50.00   70.99
    PSP           8.33  100.00
    PSP-raw      50.00  216.67
    """
    if len(ranking) == 0:
        raise DataError("there are no rows to evaluate")
    cutoffs = _cutoffs(k)
    labels = ranking.labels
    if isinstance(truth, Corpus):
        aligned = truth.aligned(labels)
        labels = aligned.labels
        excluded = aligned.excluded if excluded is None else excluded
        truth = aligned.targets
    else:
        truth = canonical(truth, "truth")
    check_truth(ranking, truth)
    if excluded is not None:
        excluded = csr_matrix(excluded)
        if excluded.shape[1] > len(ranking.labels):  # labels that are never ranked
            excluded = excluded[:, : len(ranking.labels)]
        ranking = ranking.without(excluded)

    inverse = None
    if train_labels is not None or propensities is not None:
        inverse = 1 / _propensities(train_labels, propensities, ranking, truth, labels)
    values = instance_metrics(ranking, truth, cutoffs, inverse)
    if probabilities:
        bins = bins_by_rank(ranking, truth, cutoffs[-1], bins=15)
        for cutoff in cutoffs:
            values[f"ECE@{cutoff}"] = bins.top(cutoff).expected_calibration_error()
    return Evaluation(values, rows=len(ranking))


def _cutoffs(k: int | Sequence[int]) -> list[int]:
    """The cutoffs, rising and each once."""
    given = np.unique(np.asarray(k))
    if given.size == 0 or given.dtype.kind not in "iu" or given[0] < 1:
        raise ParameterError(f"k must be one or more integers of at least 1, not {k!r}")
    return [int(cutoff) for cutoff in given]


def _propensities(
    train_labels: TrainLabels | None,
    propensities: ArrayLike | None,
    ranking: Ranking,
    truth: csr_matrix,
    labels: LabelSet,
) -> np.ndarray:
    """A propensity for each column of the truth."""
    if train_labels is not None and propensities is not None:
        raise ParameterError("give train_labels or propensities, not both")
    width = truth.shape[1]
    if propensities is not None:
        given = np.asarray(propensities, dtype=np.float64)
        if given.shape != (width,):
            raise ShapeError(f"propensities are {given.shape} but the truth is {truth.shape}")
        if not ((given > 0) & (given <= 1)).all():
            raise ParameterError("propensities must be above 0 and at most 1")
        return given
    if isinstance(train_labels, tuple):
        counts, n = np.asarray(train_labels[0]), train_labels[1]
    else:
        matrix = label_matrix(train_labels, labels, "train_labels")
        n = matrix.shape[0]
        counts = np.bincount(matrix.indices[matrix.data > 0], minlength=matrix.shape[1])
        if isinstance(train_labels, Corpus):
            counts = counts[:width]  # labels that neither the ranking nor the truth knows
    if counts.ndim != 1 or not len(ranking.labels) <= len(counts) <= width:
        raise ShapeError(
            f"train_labels count {counts.shape} labels, but the ranking has "
            f"{len(ranking.labels)} and the truth {width}"
        )
    return jpv(np.pad(counts, (0, width - len(counts))), n)
