"""Weighted top-k: what is best for metrics that are linear in the hits on each label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.base import Check, Learned, array, instance, integer, number, one_of
from megalabel.data import Ranking
from megalabel.decision.shortlists import (
    BUDGET,
    CAPS,
    Shortlisted,
    assign,
    caps_of,
    check_budget,
    check_labels,
    chosen_ranking,
    in_blocks,
    label_sums,
    largest,
    packed,
    price_of,
    row_blocks,
)
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels import PROPENSITIES, PropensityModel, label_propensities

_EXPONENT = 0.5
_NAMES = (
    "power-law",
    "logarithm",
    "inverse-propensity",
    "macro-recall",
    "macro-balanced-accuracy",
)


class Weighted(Shortlisted):
    """The k labels of the largest weight times probability, plus an offset.

    Parameters
    ----------
    weights : str or array
        One weight for each label, or what to make them of, where pi is how probable a label is
        among training texts: "power-law", pi to the power of -`exponent`; "logarithm", -ln pi;
        "inverse-propensity", which is best for PSP@k; "macro-recall" and
        "macro-balanced-accuracy", which are best for those metrics.
    offsets : array, optional
        One offset for each label, with weights that are an array.
    exponent : float
        For "power-law".
    propensities : str, model or array, optional
        For "inverse-propensity": as in `labels.label_propensities`; None for the published ones.
    candidates : int
        How many of the most probable labels of a text are considered: weights of rare labels are
        large, and among all labels would find ever more improbable ones.
    budget : "exactly", "at-most" or "expected"
        What k means: k labels a text; up to k, those of a sum above 0; k on average.
    caps : int or array, optional
        So many of the texts decided together may be given a label at most; one number, or one for
        each label. The labels given are those of the largest sum over all texts.

    Attributes
    ----------
    weights_, offsets_ : float32 arrays (labels, 1)

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> ranking = Ranking([[0, 1]], [[0.6, 0.5]], LabelSet(["common", "rare"]))
    >>> rule = Weighted("power-law").fit(ranking, train_labels=(np.array([90, 10]), 100))
    >>> rule.apply(ranking, k=1).tags()
    [[Tag(label='rare', probability=0.5)]]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "weights": one_of(*_NAMES) | instance(np.ndarray),
        "offsets": one_of(None) | instance(np.ndarray),
        "exponent": number(0),
        "propensities": one_of(None, *PROPENSITIES)
        | instance(PropensityModel)
        | instance(np.ndarray),
        "candidates": integer(1),
        "budget": BUDGET,
        "caps": CAPS,
    }

    BY_LABEL: ClassVar[frozenset[str]] = frozenset({"weights", "offsets", "propensities", "caps"})
    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "weights_": array(np.float32, "labels", 1),
        "offsets_": array(np.float32, "labels", 1),
    }

    weights_: np.ndarray
    offsets_: np.ndarray

    def __init__(
        self,
        weights: str | np.ndarray = "power-law",
        offsets: np.ndarray | None = None,
        *,
        exponent: float = _EXPONENT,
        propensities: Any = None,
        candidates: int = 100,
        budget: str = "exactly",
        caps: int | np.ndarray | None = None,
    ) -> None:
        self.weights = weights
        self.offsets = offsets
        self.exponent = exponent
        self.propensities = propensities
        self.candidates = candidates
        self.budget = budget
        self.caps = caps

    def check_parameters(self) -> None:
        """Raise a ParameterError where one does not fit, or is not for these weights."""
        super().check_parameters()
        name = self.weights if isinstance(self.weights, str) else None
        if self.propensities is not None and name != "inverse-propensity":
            raise ParameterError('propensities are for weights="inverse-propensity"')
        if self.exponent != _EXPONENT and name != "power-law":
            raise ParameterError('exponent is for weights="power-law"')

    @property
    def learns(self) -> bool:
        """Whether fit is needed: to make weights of label counts."""
        return True

    def fit(
        self,
        ranking: Ranking,
        Y: csr_matrix | None = None,
        train_labels: tuple[np.ndarray, int] | None = None,
    ) -> Self:
        """Make the weights, from label counts and the number of texts they are counted in.

        Without `train_labels` the counts are those of Y, and without either those to expect by
        the ranking's probabilities.
        """
        self.check_parameters()
        m = len(ranking.labels)
        offsets = np.zeros(m) if self.offsets is None else np.asarray(self.offsets)
        if isinstance(self.weights, np.ndarray):
            weights = self.weights
        else:
            weights, offsets = self._named(*_counts(ranking, Y, train_labels), offsets)
        for name, given in (("weights", weights), ("offsets", offsets)):
            if np.shape(given) != (m,):
                raise ShapeError(f"{name} are {np.shape(given)}, but there are {m} labels")
        self.weights_ = np.asarray(weights, np.float32)[:, None]
        self.offsets_ = np.asarray(offsets, np.float32)[:, None]
        return self

    def _named(
        self, counts: np.ndarray, n: float, offsets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.weights == "inverse-propensity":
            return 1 / label_propensities(
                self.propensities, np.minimum(counts, n), max(1, int(n))
            ), offsets
        # labels never seen, and those seen on every text, have finite weights too
        prior = np.clip(counts / max(n, 1), 1 / (n + 1), n / (n + 1))
        if self.weights == "power-law":
            return prior**-self.exponent, offsets
        if self.weights == "logarithm":
            return -np.log(prior), offsets
        if self.weights == "macro-recall":
            return 1 / prior, offsets
        return 1 / prior + 1 / (1 - prior), offsets - 1 / (1 - prior)

    def apply(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ranking:
        """The labels to answer with, within the budget of k a text."""
        if isinstance(self.weights, np.ndarray) and not self.fitted:
            self.fit(ranking)
        self.check_fitted()
        check_budget(ranking, k)
        check_labels(self, len(self.weights_), ranking)
        expected = self.budget == "expected"
        width, floor = k, 0.0 if self.budget == "at-most" else -np.inf
        rule = np.stack([self.weights_[:, 0], self.offsets_[:, 0]])
        caps = caps_of(self.caps, ranking)
        if caps is not None and not expected:
            chosen, _ = assign(ranking, rule, caps, k, floor)
        elif caps is not None:
            kept = largest(rule_values(ranking, rule), ranking.ids, k * len(ranking), caps)
            chosen = in_blocks(ranking, packed(kept))
        else:
            if expected:
                width = max(1, ranking.k)
                floor = price_of(rule_values(ranking, rule), k * len(ranking))
            found = choose(ranking, self.weights_, self.offsets_, width, floor)
            chosen = in_blocks(ranking, found)
        return chosen_ranking(ranking, chosen, None if expected else k, overwrite=overwrite)


def choose(
    ranking: Ranking,
    weights: np.ndarray,
    offsets: np.ndarray,
    k: int,
    floor: float = -np.inf,
    shares: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """The candidates that weighted rules (labels, rules) choose.

    Of several rules, each is followed by the share of texts that `shares` says.
    """
    return _native.decision_choose(
        ranking.native(),
        weights=weights,
        offsets=offsets,
        shares=np.ones(1) if shares is None else shares,
        k=k,
        floor=floor,
        seed=seed,
    )


def rule_sums(
    ranking: Ranking, values: np.ndarray, rule: np.ndarray, k: int, floor: float
) -> np.ndarray:
    """For each label, over the candidates that one rule (2, labels) of weights and offsets
    chooses: the sum of values, float32 or 0 and 1 as uint8, and how many; (2, labels)."""
    sums = np.zeros((len(ranking.labels), 2))
    _native.decision_rule_sums(
        ranking.native(),
        values,
        weights=rule[0],
        offsets=rule[1],
        k=k,
        floor=floor,
        sums=sums,
    )
    return sums.T


def rule_values(ranking: Ranking, rule: np.ndarray) -> np.ndarray:
    """Weight times probability plus offset of every candidate, -infinity for padding."""
    sums = np.full(ranking.ids.shape, -np.inf)
    for rows in row_blocks(ranking):
        present = ranking.ids[rows] < len(ranking.labels)
        ids = ranking.ids[rows][present]
        p = ranking.scores[rows][present].astype(np.float64)
        sums[rows][present] = rule[0, ids].astype(np.float64) * p + rule[1, ids]
    return sums


def _counts(
    ranking: Ranking, Y: csr_matrix | None, train_labels: tuple[np.ndarray, int] | None
) -> tuple[np.ndarray, float]:
    if train_labels is not None:
        return np.asarray(train_labels[0], np.float64), float(train_labels[1])
    m = len(ranking.labels)
    if Y is None:
        return label_sums(ranking)[0], float(len(ranking))
    known = (Y.data > 0) & (Y.indices < m)
    return np.bincount(Y.indices[known], minlength=m).astype(np.float64), float(Y.shape[0])
