"""Frank-Wolfe: a rule for single texts that is best for a macro metric over the population."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import (
    Check,
    Learned,
    array,
    boolean,
    integer,
    number,
    one_of,
    sequence_of,
    value,
)
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
    assign,
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
    row_blocks,
)
from megalabel.decision.weighted import choose, rule_sums, rule_values
from megalabel.errors import ParameterError
from megalabel.progress import progress

log = logging.getLogger(__name__)

_GRID = (1.0, *(2.0**-i for i in range(1, 8)))  # steps grow short as rules become many
_REFINEMENTS, _FINE = 5, 1e-3  # how often, and to which part, a step's length is refined
_PATIENCE = 3  # rules in a row, by ever sharper slopes, that gain nothing
_CAPPED_PATIENCE = 6  # and for ever smaller shares, for which caps are wider
# in which (tp, fp, fn, tn) move when hits are added, and when texts are given the label in vain
_DIRECTIONS = np.array([[1.0, -1.0, -1.0, 1.0], [0.0, 1.0, 0.0, -1.0]])
_RAISE, _PROHIBITIVE = 1e-6, 0.03  # of the price of a label that is still given too often
_BEYOND = 1e-3  # of the price that any probability is worth: float32 does not round it away


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
        So many of the texts learned from may be given a label at most, on average over the rules,
        that is the same share of other texts; one number, or one for each label. A text gets
        other labels in place of those that cost too much, and may get fewer than k where caps
        leave little room or many probabilities tie.
    truth : "probabilities" or "labels"
        What the confusion entries are counted with. Calibrated probabilities know of more labels
        than a sample of texts carries.
    randomised : bool
        False keeps only the single rule of the highest value. With caps a mixture is better: texts
        to which a label is worth the same are all given it by one rule, or none.
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
        The objective at the start, the k most probable labels as far as one rule can give them
        within caps, and after each step.

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

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "weights_": array(np.float32, "labels", "rules"),
        "offsets_": array(np.float32, "labels", "rules"),
        "shares_": array(np.float64, "rules"),
        "values_": value(sequence_of(number())),
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
        if self.truth == "labels" and Y is None:
            raise ParameterError('truth="labels" needs the labels Y of the texts')
        problem = _Problem(self, metric, ranking, Y if self.truth == "labels" else None)
        rules = [problem.priced(plain_rule(ranking), problem.caps)]
        outcomes = [problem.outcome(rules[0])]
        shares = np.ones(1)
        at = outcomes[0].astype(np.float64)  # the mixture's outcome
        # the best that one rule does: first of all, texts have their labels
        single = (-problem.missing(outcomes[0]), problem.value(at), rules[0])
        self.values_ = [single[1]]
        smoothing, failures, part = 1.0, 0, 1.0
        patience = _PATIENCE if problem.caps is None else _CAPPED_PATIENCE
        with progress("learning rules", self.iterations) as bar:
            for _ in range(self.iterations):
                slopes = problem.slopes(at, smoothing)
                worst = problem.worst(slopes, outcomes)
                share = min(shares[worst], part)
                left = problem.left(at, outcomes[worst], share) if self.randomised else problem.caps
                rule = problem.best_rule(slopes, left)
                del slopes  # large, and of no more use
                to = problem.outcome(rule)
                if not self.randomised:
                    found = (-problem.missing(to), problem.value(to), rule)
                    single = max(single, found, key=lambda one: one[:2])
                # the new rule takes a share of all others; with caps only of the worst, as it was
                # made for the room that the others leave
                start, longest = (at, 1.0) if left is None else (outcomes[worst], share)
                fuller = problem.missing(outcomes[worst]) - problem.missing(to)
                length, value = problem.best_step(at, start, to, longest, whole=fuller > 0)
                bar.advance()
                if fuller < 0 or (fuller == 0 and value - self.values_[-1] <= self.tolerance):
                    failures += 1
                    if failures == patience:
                        break
                    smoothing, part = smoothing / 1000, part / 2
                    continue
                failures, smoothing = 0, smoothing / 2
                rules.append(rule)
                outcomes.append(to)
                shares = np.append(shares, 0.0)
                if left is None:
                    problem.move(at, at, to, length)
                    shares *= 1 - length
                    shares[-1] = length
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
            rules, shares = [single[2]], np.ones(1)
            self.values_ = [self.values_[0], single[1]]
        del outcomes  # as large as what they make room for
        self.weights_ = np.stack([rule[0] for rule in rules], axis=1)
        self.offsets_ = np.stack([rule[1] for rule in rules], axis=1)
        self.shares_ = shares / shares.sum()
        return self

    def apply(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ranking:
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
            self._floor,
            self.shares_,
            self.seed,
        )
        width = None if expected else k
        return chosen_ranking(ranking, in_blocks(ranking, chosen), width, overwrite=overwrite)

    @property
    def _floor(self) -> float:
        """What a label must be worth by a rule. With caps, there may not be room for k labels."""
        return -np.inf if self.budget == "exactly" and self.caps is None else 0.0

    def check_learned(self) -> None:
        """The shares must be parts of 1."""
        if not (self.shares_ >= 0).all() or not np.isclose(self.shares_.sum(), 1):
            raise ValueError("shares_ of FrankWolfe must be parts of 1")


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
        self.floor = rule._floor
        self.most = 0
        if self.caps is not None and rule.budget == "exactly":
            self.most = self._most()
            if not self.most and len(ranking):
                log.warning(
                    'caps leave no room for %d labels a text; budget="at-most" may do better',
                    rule.k,
                )
        self.linear, self.scale = (1 - rule.weight) / rule.k, rule.weight / max(1, m)
        if Y is None:
            self.values = ranking.scores
            self.positives = label_sums(ranking)[0] / self.n
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
        labels = self.ranking.labels
        values = self.metric(
            *entries(outcome, self.positives[block]),
            name=lambda at: labels.name(block.start + at),
        )
        return float(self.linear * outcome[0].sum() + self.scale * values.sum())

    def best_step(
        self,
        at: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        longest: float,
        whole: bool = False,
    ) -> tuple[float, float]:
        """How far to go from an outcome in the direction from one to another, or all the way; and
        the value."""

        def value(length: float) -> float:
            return sum(
                self._part(_between(at, start, end, length, block), block) for block in self.blocks
            )

        return (longest, value(longest)) if whole else _best_length(value, longest)

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
            found[:, block] *= self.scale
            found[0, block] += self.linear
            found[:, block][:, positives <= 0] = 0
        return found

    def _most(self) -> int:
        """How many labels texts are to be given; 0 if caps leave no room for so many."""
        assert self.caps is not None
        most = 0
        with_room = np.append(self.caps > 0, False)
        for rows in row_blocks(self.ranking):
            candidates = with_room.take(self.ranking.ids[rows], mode="clip").sum(axis=1)
            most += int(np.minimum(candidates, self.width).sum())
        wanted = label_sums(self.ranking)[1]
        return most if np.minimum(self.caps, wanted).sum() >= most else 0

    def missing(self, outcome: np.ndarray) -> int:
        """How many labels texts are short of by an outcome."""
        if not self.most:
            return 0
        return self.most - round(self.n * float(outcome[1].sum(dtype=np.float64)))

    def worst(self, slopes: np.ndarray, outcomes: list[np.ndarray]) -> int:
        """Which outcome is the worst by slopes; first of all, which misses the most labels."""
        keys = [(self.missing(o), -float(np.einsum("ij,ij", slopes, o))) for o in outcomes]
        return max(range(len(keys)), key=keys.__getitem__)

    def left(self, at: np.ndarray, replaced: np.ndarray, share: float) -> np.ndarray | None:
        """The caps of a rule that takes a share of another, if there are any: the room that the
        rest leaves, which is more where other rules cannot fill it."""
        if self.caps is None:
            return None
        room = self.caps - self.n * (at[1] - share * replaced[1])
        found: np.ndarray = np.clip(room / share + _BEYOND, 0, self.n).astype(np.int32)
        return found

    def best_rule(self, slopes: np.ndarray, caps: np.ndarray | None) -> np.ndarray:
        """The rule that is best for slopes, which are brought to its scale, within caps."""
        largest = max(slopes.max(initial=0), -slopes.min(initial=0))
        # the order of labels is the same, and float32 holds it
        slopes /= largest or 1
        return self.priced(_on_own_pages(slopes), caps)

    def priced(self, rule: np.ndarray, caps: np.ndarray | None) -> np.ndarray:
        """With the price at which k labels a text are given on average, if asked for, and those
        at which no label is given too often."""
        if caps is not None:
            rule[1] -= self._prices(rule, caps)
            given = self._hold_caps(rule, caps)
            opened = np.isfinite(rule[1])
            if self.most and opened.any() and given.sum() == self.most:
                # there is room for all, so any text is to have k, whatever its probabilities
                least = (rule[1] + np.minimum(rule[0], 0))[opened].min()
                rule[1] += max(0, _BEYOND - least)
                self._hold_caps(rule, caps)
        elif self.rule.budget == "expected":
            price = price_of(rule_values(self.ranking, rule), self.rule.k * len(self.ranking))
            rule[1] += -np.float32(price) if np.isfinite(price) else np.float32(np.inf)
        return rule

    def _prices(self, rule: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """What a label must be worth to be among those of the largest sum that caps leave."""
        if self.rule.budget != "expected":
            floor = -np.inf if self.rule.budget == "exactly" else 0.0
            return assign(self.ranking, rule, caps, self.rule.k, floor)[1]
        values = rule_values(self.ranking, rule)
        kept = largest(values, self.ranking.ids, self.rule.k * len(self.ranking), caps)
        prices = np.full(len(caps), np.inf)
        np.minimum.at(prices, self.ranking.ids[kept], values[kept])
        found: np.ndarray = np.nextafter(prices, -np.inf, where=np.isfinite(prices), out=prices)
        return found

    def _hold_caps(self, rule: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Raise the prices of labels that are given too often still: texts to which a label is
        worth (almost) the same are all given it or none. How often each is given."""
        step = _RAISE
        while True:
            sums = rule_sums(self.ranking, self.values, rule, self.width, self.floor)
            given: np.ndarray = sums[1]
            over = given > caps
            if not over.any():
                return given
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
