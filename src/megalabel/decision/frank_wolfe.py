"""Frank-Wolfe: a rule for single texts that is best for a macro metric over the population."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import Check, boolean, check_array, integer, number, one_of
from megalabel.data import Ranking
from megalabel.data.truth import hits
from megalabel.decision.metric import METRIC, Function, Metric, entries, is_coverage, metric_of
from megalabel.decision.shortlists import (
    BUDGET,
    Shortlisted,
    check_budget,
    check_labels,
    chosen_ranking,
    label_sums,
)
from megalabel.decision.weighted import choose, expected_price
from megalabel.errors import ParameterError
from megalabel.progress import progress

_GRID = np.linspace(0, 1, 11)
_NARROW = (np.sqrt(5) - 1) / 2
_FINE = 1e-4  # to which a step's length is found
_PATIENCE = 3  # rules in a row, by ever sharper slopes, that gain nothing


class FrankWolfe(Shortlisted):
    """A randomised rule, learned once and applied to any text, for a metric of the population.

    The rule is a mixture of weighted top-k rules; each label of a text is given with the joint
    share of the rules for it, by Madow's systematic sampling, which keeps exactly k. The random
    number of a text is made of its candidates and the seed: a text is answered alike whenever it
    comes, and in any batch.

    Parameters
    ----------
    metric : str, Metric or callable
        As for `BlockCoordinateAscent`, but not coverage, which is no function of the population's
        confusion entries.
    k : int
        The budget that is learned for.
    candidates : int
        How many of the most probable labels of a text are considered.
    weight : float
        The objective is (1 - weight) P@k + weight metric.
    budget : "exactly", "at-most" or "expected"
        What k means: k labels a text; up to k, those that do the objective good; k on average.
    truth : "probabilities" or "labels"
        What the confusion entries are counted with. Calibrated probabilities know of more labels
        than a sample of texts carries.
    randomised : bool
        False keeps only the single rule of the highest value.
    iterations : int
        At most so many rules are mixed.
    tolerance : float
        A rule that adds no more than this to the objective is the last.
    seed : int
        Fixes which texts follow which rule.

    Attributes
    ----------
    weights_, offsets_ : float32 arrays (labels, rules)
        The labels given are the largest weight times probability plus offset.
    shares_ : float64 array (rules,)
        How often each rule is followed.
    values_ : list of float
        The objective at the start, the k most probable labels, and after each step.

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> labels = LabelSet(["common", "rare"])
    >>> ranking = Ranking([[0, 1], [0, 1]], [[0.6, 0.5], [0.6, 0.1]], labels)
    >>> rule = FrankWolfe("macro-recall", k=1).fit(ranking)
    >>> [[tag.label for tag in tags] for tags in rule.apply(ranking, k=1).tags()]
    [['rare'], ['common']]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "metric": METRIC,
        "k": integer(1),
        "candidates": integer(1),
        "weight": number(0, 1),
        "budget": BUDGET,
        "truth": one_of("probabilities", "labels"),
        "randomised": boolean(),
        "iterations": integer(1),
        "tolerance": number(0),
        "seed": integer(0),
    }

    weights_: np.ndarray
    offsets_: np.ndarray
    shares_: np.ndarray
    values_: list[float]

    def __init__(
        self,
        metric: str | Metric | Function = "macro-f1",
        k: int = 5,
        *,
        candidates: int = 100,
        weight: float = 1.0,
        budget: str = "exactly",
        truth: str = "probabilities",
        randomised: bool = True,
        iterations: int = 100,
        tolerance: float = 3e-7,
        seed: int = 0,
    ) -> None:
        self.metric = metric
        self.k = k
        self.candidates = candidates
        self.weight = weight
        self.budget = budget
        self.truth = truth
        self.randomised = randomised
        self.iterations = iterations
        self.tolerance = tolerance
        self.seed = seed

    @property
    def learns(self) -> bool:
        """Whether fit is needed: always."""
        return True

    def fit(
        self,
        ranking: Ranking,
        Y: csr_matrix | None = None,
        train_labels: tuple[np.ndarray, int] | None = None,
    ) -> Self:
        """Learn from texts that the classifier has not seen, with their labels Y if truth says."""
        self.check_parameters()
        check_budget(ranking, self.k)
        metric = metric_of(self.metric)
        if is_coverage(metric):
            raise ParameterError("FrankWolfe cannot take coverage; BlockCoordinateAscent can")
        if self.truth == "labels" and Y is None:
            raise ParameterError('truth="labels" needs the labels Y of the texts')
        problem = _Problem(self, metric, ranking, Y if self.truth == "labels" else None)
        rules = [problem.top_rule()]
        shares = np.ones(1)
        at = problem.outcome(*rules[0])
        single = (problem.value(at), rules[0])  # the best that one rule does
        self.values_ = [single[0]]
        smoothing, failures = 1.0, 0
        with progress("learning rules", self.iterations) as bar:
            for _ in range(self.iterations):
                rule = problem.best_rule(at, smoothing)
                to = problem.outcome(*rule)
                single = max(single, (problem.value(to), rule), key=lambda found: found[0])
                length, value = _best_step(problem.along(at, to))
                bar.advance()
                if value - self.values_[-1] <= self.tolerance:
                    failures += 1
                    if failures == _PATIENCE:
                        break
                    smoothing /= 1000
                    continue
                failures, smoothing = 0, smoothing / 2
                at = (1 - length) * at + length * to
                self.values_.append(value)
                rules.append(rule)
                shares = np.append(shares * (1 - length), length)
        if not self.randomised:
            rules, shares = [single[1]], np.ones(1)
            self.values_ = [self.values_[0], single[0]]
        kept = np.flatnonzero(shares > 0)
        self.weights_ = np.stack([rules[i][0] for i in kept], axis=1)
        self.offsets_ = np.stack([rules[i][1] for i in kept], axis=1)
        self.shares_ = shares[kept] / shares[kept].sum()
        return self

    def apply(self, ranking: Ranking, k: int) -> Ranking:
        """The labels to answer with; a k other than in fit keeps the rules, if not their price."""
        self.check_fitted()
        check_budget(ranking, k)
        check_labels(self, len(self.weights_), ranking)
        expected = self.budget == "expected"
        chosen = choose(
            ranking,
            self.weights_,
            self.offsets_,
            max(1, ranking.k) if expected else k,
            -np.inf if self.budget == "exactly" else 0.0,
            self.shares_,
            self.seed,
        )
        return chosen_ranking(ranking, chosen, None if expected else k)

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take the rules back."""
        if set(learned) != {"weights_", "offsets_", "shares_", "values_"}:
            raise ValueError(f"FrankWolfe does not learn {sorted(learned)}")
        check_array("FrankWolfe", "shares_", learned["shares_"], np.float64, (None,))
        rules = len(learned["shares_"])
        check_array("FrankWolfe", "weights_", learned["weights_"], np.float32, (None, rules))
        m = len(learned["weights_"])
        check_array("FrankWolfe", "offsets_", learned["offsets_"], np.float32, (m, rules))
        if not (learned["shares_"] >= 0).all() or not np.isclose(learned["shares_"].sum(), 1):
            raise ValueError("shares_ of FrankWolfe must be parts of 1")
        super().restore(learned)


class _Problem:
    """The objective over the confusion entries that weighted rules can reach on given texts.

    An outcome is an array (2, labels): hits, and texts given the label, in parts of all texts.
    """

    def __init__(
        self, rule: FrankWolfe, metric: Metric, ranking: Ranking, Y: csr_matrix | None
    ) -> None:
        self.rule, self.metric, self.ranking = rule, metric, ranking
        self.n = max(1, len(ranking))
        m = len(ranking.labels)
        self.linear, self.scale = (1 - rule.weight) / rule.k, rule.weight / max(1, m)
        if Y is None:
            self.values = ranking.scores
            self.positives = label_sums(ranking, ranking.scores, None)[0] / self.n
        else:
            self.values = hits(ranking, Y).view(np.uint8)
            known = (Y.data > 0) & (Y.indices < m)
            self.positives = np.bincount(Y.indices[known], minlength=m) / self.n

    def outcome(self, weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """What a rule does on the texts."""
        expected = self.rule.budget == "expected"
        chosen = choose(
            self.ranking,
            weights[:, None],
            offsets[:, None],
            max(1, self.ranking.k) if expected else self.rule.k,
            -np.inf if self.rule.budget == "exactly" else 0.0,
        )
        return label_sums(self.ranking, self.values, chosen) / self.n

    def value(self, outcome: np.ndarray) -> float:
        """The objective."""
        values = self.metric(*entries(outcome, self.positives))
        return float(self.linear * outcome[0].sum() + self.scale * values.sum())

    def along(self, at: np.ndarray, to: np.ndarray) -> Callable[[float], float]:
        """The objective on the way from one outcome to another."""
        moved = (at != to).any(axis=0)
        a, b, positives = at[:, moved], to[:, moved], self.positives[moved]
        still = self.metric(*entries(at[:, ~moved], self.positives[~moved])).sum()
        start, rise = self.linear * at[0].sum(), self.linear * (to[0] - at[0]).sum()

        def value(length: float) -> float:
            between = (1 - length) * a + length * b
            values = self.metric(*entries(between, positives)).sum() + still
            return float(start + length * rise + self.scale * values)

        return value

    def top_rule(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights and offsets for the most probable labels."""
        m = len(self.positives)
        weights = np.ones(m, np.float32)
        return weights, self.priced(weights, np.zeros(m, np.float32))

    def best_rule(self, at: np.ndarray, smoothing: float) -> tuple[np.ndarray, np.ndarray]:
        """Weights and offsets of the rule that is best for the objective's slope at an outcome.

        Slopes are taken as if so many texts more had been decided by a coin: where a label is
        given to no text, many metrics have none, or one that no whole text can follow.
        """
        part = smoothing / self.n
        near = (1 - part) * at
        near += part * np.array([self.positives / 2, np.full_like(self.positives, 0.5)])
        tp, fp, fn, tn = self.metric.gradient(*entries(near, self.positives))
        weights = self.linear + self.scale * (tp - fp - fn + tn)
        offsets = self.scale * (fp - tn)
        unknown = self.positives <= 0  # no text has it: nothing to gain by it
        weights[unknown] = offsets[unknown] = 0
        bad = ~(np.isfinite(weights) & np.isfinite(offsets))
        weights[bad] = offsets[bad] = 0
        largest = max(np.abs(weights).max(initial=0), np.abs(offsets).max(initial=0))
        if largest > 0:  # the order of labels is the same, and float32 holds it
            weights, offsets = weights / largest, offsets / largest
        found = weights.astype(np.float32)
        return found, self.priced(found, offsets.astype(np.float32))

    def priced(self, weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Offsets less the price at which k labels a text are given on average, if asked for."""
        if self.rule.budget != "expected":
            return offsets
        price = expected_price(self.ranking, weights[:, None], offsets[:, None], self.rule.k)
        return offsets - np.float32(price) if np.isfinite(price) else offsets + np.float32(np.inf)


def _best_step(value: Callable[[float], float]) -> tuple[float, float]:
    """The length in [0, 1] of the highest value: the best of a grid, refined by golden section."""
    on_grid = [value(length) for length in _GRID]
    best = int(np.argmax(on_grid))
    low, high = _GRID[max(best - 1, 0)], _GRID[min(best + 1, len(_GRID) - 1)]
    found = (float(_GRID[best]), on_grid[best])
    left, right = high - _NARROW * (high - low), low + _NARROW * (high - low)
    at_left, at_right = value(left), value(right)
    while high - low > _FINE:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - _NARROW * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _NARROW * (high - low)
            at_right = value(right)
    return max(found, (float(left), at_left), (float(right), at_right), key=lambda step: step[1])
