"""Frank-Wolfe: a rule for single texts that is best for a macro metric over the population."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import Check, boolean, check_array, integer, number, one_of
from megalabel.data import Ranking
from megalabel.data.truth import hits
from megalabel.decision.metric import (
    METRIC,
    Function,
    Metric,
    entries,
    is_coverage,
    label_blocks,
    metric_of,
)
from megalabel.decision.shortlists import (
    BUDGET,
    CAPS,
    Shortlisted,
    caps_of,
    check_budget,
    check_labels,
    chosen_ranking,
    in_blocks,
    label_sums,
    largest,
    own_pages,
    plain_rule,
    price_of,
)
from megalabel.decision.weighted import choose, rule_sums, rule_values
from megalabel.errors import ParameterError
from megalabel.progress import progress

_GRID = (1.0, *(2.0**-i for i in range(1, 8)))  # steps grow short as rules become many
_REFINEMENTS, _FINE = 5, 1e-3  # how often, and to which part, a step's length is refined
_PATIENCE = 3  # rules in a row, by ever sharper slopes, that gain nothing
# in which (tp, fp, fn, tn) move when hits are added, and when texts are given the label in vain
_DIRECTIONS = np.array([[1.0, -1.0, -1.0, 1.0], [0.0, 1.0, 0.0, -1.0]])
_RAISE, _PROHIBITIVE = 1e-6, 1e4  # of the price of a label that is still given too often


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
    caps : int or array, optional
        So many of the texts learned from may be given a label at most, that is the same share of
        other texts on average; one number, or one for each label. With budget "expected" only:
        otherwise what one text is given depends on what others have left.
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
        "caps": CAPS,
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
        caps: int | np.ndarray | None = None,
        truth: str = "probabilities",
        randomised: bool = True,
        iterations: int = 100,
        tolerance: float = 1e-6,
        seed: int = 0,
    ) -> None:
        self.metric = metric
        self.k = k
        self.candidates = candidates
        self.weight = weight
        self.budget = budget
        self.caps = caps
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
        if self.caps is not None and self.budget != "expected":
            raise ParameterError(
                'FrankWolfe can keep caps with budget="expected" only; BlockCoordinateAscent and '
                "Weighted, which decide texts together, with any"
            )
        if self.truth == "labels" and Y is None:
            raise ParameterError('truth="labels" needs the labels Y of the texts')
        problem = _Problem(self, metric, ranking, Y if self.truth == "labels" else None)
        rules = [problem.priced(plain_rule(ranking))]
        outcomes = [problem.outcome(rules[0])]
        shares = np.ones(1)
        at = outcomes[0].astype(np.float64)  # the mixture's outcome
        single = (problem.value(at), rules[0])  # the best that one rule does
        self.values_ = [single[0]]
        smoothing, failures = 1.0, 0
        with progress("learning rules", self.iterations) as bar:
            for _ in range(self.iterations):
                slopes = problem.slopes(at, smoothing)
                worst = int(np.argmin([np.einsum("ij,ij", slopes, o) for o in outcomes]))
                rule = problem.best_rule(slopes)
                del slopes  # large, and of no more use
                to = problem.outcome(rule)
                if not self.randomised:
                    single = max(single, (problem.value(to), rule), key=lambda found: found[0])
                length, value = problem.best_step(at, at, to, 1.0)
                bar.advance()
                if value - self.values_[-1] <= self.tolerance:
                    failures += 1
                    if failures == _PATIENCE:
                        break
                    smoothing /= 1000
                    continue
                failures, smoothing = 0, smoothing / 2
                problem.move(at, at, to, length)
                rules.append(rule)
                outcomes.append(to)
                shares = np.append(shares * (1 - length), length)
                # the rule that has become the worst hands on its share, often all of it: fewer
                # steps, and fewer rules to keep
                length, value = problem.best_step(at, outcomes[worst], to, shares[worst])
                problem.move(at, outcomes[worst], to, length)
                shares[[worst, -1]] += -length, length
                self.values_.append(value)
                followed = np.flatnonzero(shares > 0)
                rules, outcomes = [rules[i] for i in followed], [outcomes[i] for i in followed]
                shares = shares[followed]
        if not self.randomised:
            rules, shares = [single[1]], np.ones(1)
            self.values_ = [self.values_[0], single[0]]
        del outcomes  # as large as what they make room for
        self.weights_ = np.stack([rule[0] for rule in rules], axis=1)
        self.offsets_ = np.stack([rule[1] for rule in rules], axis=1)
        self.shares_ = shares / shares.sum()
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
        return chosen_ranking(ranking, in_blocks(ranking, chosen), None if expected else k)

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

    An outcome is an array (2, labels): hits, and texts given the label, in parts of all texts. A
    rule is a float32 array (2, labels): weights and offsets.
    """

    def __init__(
        self, rule: FrankWolfe, metric: Metric, ranking: Ranking, Y: csr_matrix | None
    ) -> None:
        self.rule, self.metric, self.ranking = rule, metric, ranking
        self.n = max(1, len(ranking))
        m = len(ranking.labels)
        self.blocks = list(label_blocks(m))
        self.caps = caps_of(rule.caps, ranking)
        self.width = max(1, ranking.k) if rule.budget == "expected" else rule.k
        self.floor = -np.inf if rule.budget == "exactly" else 0.0
        self.linear, self.scale = (1 - rule.weight) / rule.k, rule.weight / max(1, m)
        if Y is None:
            self.values = ranking.scores
            self.positives = label_sums(ranking, ranking.scores, None)[0] / self.n
        else:
            self.values = hits(ranking, Y).view(np.uint8)
            known = (Y.data > 0) & (Y.indices < m)
            self.positives = np.bincount(Y.indices[known], minlength=m) / self.n

    def outcome(self, rule: np.ndarray) -> np.ndarray:
        """What a rule does on the texts, as float32: one is kept for each rule."""
        sums = rule_sums(self.ranking, self.values, rule, self.width, self.floor)
        sums /= self.n
        return _on_own_pages(sums)

    def value(self, outcome: np.ndarray) -> float:
        """The objective."""
        return sum(self._part(outcome[:, block], block) for block in self.blocks)

    def _part(self, outcome: np.ndarray, block: slice) -> float:
        values = self.metric(*entries(outcome, self.positives[block]))
        return float(self.linear * outcome[0].sum() + self.scale * values.sum())

    def best_step(
        self, at: np.ndarray, start: np.ndarray, end: np.ndarray, longest: float
    ) -> tuple[float, float]:
        """How far to go from an outcome in the direction from one to another; and the value."""

        def value(length: float) -> float:
            return sum(
                self._part(_between(at, start, end, length, block), block) for block in self.blocks
            )

        return _best_length(value, longest)

    def move(self, at: np.ndarray, start: np.ndarray, end: np.ndarray, length: float) -> None:
        """Go so far, in place."""
        for block in self.blocks:
            at[:, block] = _between(at, start, end, length, block)

    def slopes(self, at: np.ndarray, smoothing: float) -> np.ndarray:
        """How fast the objective rises with hits and with texts given each label.

        Slopes are taken as if so many texts more had been decided by a coin: where a label is
        given to no text, many metrics have none, or one that no whole text can follow.
        """
        part = smoothing / self.n
        found = np.empty_like(at)
        for block in self.blocks:
            positives = self.positives[block]
            near = (1 - part) * at[:, block]
            near += part / 2 * np.array([positives, np.ones_like(positives)])
            here = np.array(entries(near, positives))
            for i, direction in enumerate(_DIRECTIONS):
                found[i, block] = self.metric.slopes(
                    here, np.broadcast_to(direction[:, None], here.shape)
                )
            # nothing is to be gained by a label that no text has
            useless = (positives <= 0) | ~np.isfinite(found[:, block]).all(axis=0)
            found[:, block] *= self.scale
            found[0, block] += self.linear
            found[:, block][:, useless] = 0
        return found

    def best_rule(self, slopes: np.ndarray) -> np.ndarray:
        """The rule that is best for slopes, which are brought to its scale."""
        largest = max(slopes.max(initial=0), -slopes.min(initial=0))
        # the order of labels is the same, and float32 holds it
        slopes /= largest or 1
        return self.priced(_on_own_pages(slopes))

    def priced(self, rule: np.ndarray) -> np.ndarray:
        """With the price at which k labels a text are given on average, if asked for, and those
        at which no label is given too often."""
        if self.rule.budget != "expected":
            return rule
        values, count = rule_values(self.ranking, rule), self.rule.k * len(self.ranking)
        if self.caps is None:
            price = price_of(values, count)
            rule[1] += -np.float32(price) if np.isfinite(price) else np.float32(np.inf)
            return rule
        kept = largest(values, self.ranking.ids, count, self.caps)
        prices = np.full(len(self.caps), np.inf)
        np.minimum.at(prices, self.ranking.ids[kept], values[kept])
        rule[1] -= np.nextafter(prices, -np.inf, where=np.isfinite(prices), out=prices)
        self._hold_caps(rule, self.caps)
        return rule

    def _hold_caps(self, rule: np.ndarray, caps: np.ndarray) -> None:
        """Raise the prices of labels that are given too often still: texts to which a label is
        worth the same are all given it or none, and float32 rounds."""
        step = _RAISE
        while True:
            given = rule_sums(self.ranking, self.values, rule, self.width, self.floor)[1]
            over = given > caps
            if not over.any():
                return
            rule[1, over] -= step if step < _PROHIBITIVE else np.inf
            step *= 2


def _on_own_pages(array: np.ndarray) -> np.ndarray:
    """As float32 in memory of its own: rules and outcomes come and go one by one."""
    copy = own_pages(array.shape, np.float32)
    copy[:] = array
    return copy


def _between(
    at: np.ndarray, start: np.ndarray, end: np.ndarray, length: float, block: slice
) -> np.ndarray:
    """Where a step from an outcome leads; taking a share away may miss 0 by the last bits."""
    moved: np.ndarray = np.subtract(end[:, block], start[:, block], dtype=np.float64)
    moved *= length
    moved += at[:, block]
    np.maximum(moved, 0, out=moved)
    return moved


def _best_length(value: Callable[[float], float], longest: float) -> tuple[float, float]:
    """The length in [0, longest] of the highest value: the best of a grid, refined by parabolas."""
    found = sorted((longest * part, value(longest * part)) for part in (0.0, *_GRID))
    for _ in range(_REFINEMENTS):
        best = max(range(len(found)), key=lambda i: found[i][1])
        middle = min(max(best, 1), len(found) - 2)
        (low, at_low), (x, at_x), (high, at_high) = found[middle - 1 : middle + 2]
        left, right = (x - low) * (at_x - at_high), (x - high) * (at_x - at_low)
        top = x - 0.5 * ((x - low) * left - (x - high) * right) / ((left - right) or np.nan)
        if not low < top < high or abs(top - x) < _FINE * longest:
            break
        found.insert(middle + (top > x), (top, value(top)))
    return max(found, key=lambda step: step[1])
