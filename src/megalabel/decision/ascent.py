"""Block coordinate ascent: the label sets of given texts that are best for a macro metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from megalabel import _native
from megalabel.base import Check, instance, integer, number, one_of
from megalabel.data import Ranking
from megalabel.decision.metric import METRIC, Function, Metric, entries, is_coverage, metric_of
from megalabel.decision.shortlists import (
    BUDGET,
    Shortlisted,
    check_budget,
    choices,
    chosen_ranking,
    label_sums,
    native_numbers,
    packed,
    price_of,
    row_blocks,
)
from megalabel.errors import ShapeError
from megalabel.progress import progress


@dataclass(frozen=True)
class Ascent:
    """What block coordinate ascent came to.

    Attributes
    ----------
    ranking : Ranking
        The labels decided on.
    values : list of float
        The expected objective at the start and after each pass over the texts.
    """

    ranking: Ranking
    values: list[float]


class BlockCoordinateAscent(Shortlisted):
    """The labels of a set of texts, decided together for the best macro metric to expect.

    Each text in turn gets the k labels that do the most for the metric as all other texts are
    decided, until nothing changes: the expected-test-utility setting of Schultheis and others
    (2023), on expected confusion entries. Trusts probabilities, so calibrate first. The answer
    for a text depends on the other texts; `FrankWolfe` learns a rule for single texts.

    Parameters
    ----------
    metric : str, Metric or callable
        One of `megalabel.decision.METRICS`, `macro-f` with a beta, or a function of
        (tp, fp, fn, tn).
    candidates : int
        How many of the most probable labels of a text are considered.
    weight : float
        The objective is (1 - weight) P@k + weight metric.
    budget : "exactly", "at-most" or "expected"
        What k means: k labels a text; up to k, those that do the objective good; k on average.
    caps : int or array, optional
        So many texts at most may be given a label; one number, or one for each label.
    start : "top", "greedy" or "random"
        What the first pass changes: the k most probable labels, none, or k candidates at random.
    passes : int
        At most so many passes; 1 with start="greedy" is the greedy algorithm.
    tolerance : float
        A pass that gains no more than this is the last.
    seed : int
        Fixes the order of texts in each pass and the random start.

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> labels = LabelSet(["common", "rare"])
    >>> ranking = Ranking([[0, 1], [0, 1]], [[0.6, 0.5], [0.6, 0.1]], labels)
    >>> rule = BlockCoordinateAscent("macro-f1")
    >>> [[tag.label for tag in tags] for tags in rule.apply(ranking, k=1).tags()]
    [['rare'], ['common']]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "metric": METRIC,
        "candidates": integer(1),
        "weight": number(0, 1),
        "budget": BUDGET,
        "caps": one_of(None) | instance(np.ndarray) | integer(0),
        "start": one_of("top", "greedy", "random"),
        "passes": integer(0),
        "tolerance": number(0),
        "seed": integer(0),
    }

    def __init__(
        self,
        metric: str | Metric | Function = "macro-f1",
        *,
        candidates: int = 100,
        weight: float = 1.0,
        budget: str = "exactly",
        caps: int | np.ndarray | None = None,
        start: str = "top",
        passes: int = 100,
        tolerance: float = 1e-6,
        seed: int = 0,
    ) -> None:
        self.metric = metric
        self.candidates = candidates
        self.weight = weight
        self.budget = budget
        self.caps = caps
        self.start = start
        self.passes = passes
        self.tolerance = tolerance
        self.seed = seed

    def apply(self, ranking: Ranking, k: int) -> Ranking:
        """The labels to answer with, within the budget of k a text."""
        return self.run(ranking, k).ranking

    def run(self, ranking: Ranking, k: int) -> Ascent:
        """Decide, and say how the expected objective rose."""
        self.check_parameters()
        check_budget(ranking, k)
        state = _State(ranking, k, metric_of(self.metric), self.weight, self._caps(ranking))
        random = np.random.default_rng(self.seed)
        if self.caps is None and self.start == "top":
            _choose_by_key(state.chosen, ranking, k, None)
        elif self.caps is None and self.start == "random":
            _choose_by_key(state.chosen, ranking, k, random)
        total = min(k * len(ranking), int(ranking.present.sum())) if self._expected else 0
        width = ranking.k if self._expected else k
        floor = 0.0 if self.budget == "at-most" else -np.inf
        values = [state.recount()]
        for turn in range(self.passes if len(ranking) else 0):
            order = np.arange(len(ranking), dtype=np.int32)
            random.shuffle(order)
            if turn == 0 and self.caps is not None:
                # whoever comes first takes what is scarce: let it be the surest
                order = np.argsort(-ranking.scores[:, 0], kind="stable").astype(np.int32)
            if self._expected:
                floor = price_of(state.gains(), total)
            with progress(f"deciding, pass {turn + 1}", len(ranking)) as bar:
                for part in row_blocks(ranking):
                    state.ascend(order[part], width, floor)
                    bar.advance(len(order[part]))
            values.append(state.recount())
            if abs(values[-1] - values[-2]) <= self.tolerance:
                break
        if self._expected and len(ranking):
            # ties and the order of texts leave the sum near the budget; the gains make it exact
            state.chosen[:] = packed(_largest(state.gains(), total))
            values.append(state.recount())
        decided = chosen_ranking(ranking, state.chosen, None if self._expected else k)
        return Ascent(decided, values)

    @property
    def _expected(self) -> bool:
        return self.budget == "expected"

    def _caps(self, ranking: Ranking) -> np.ndarray:
        m = len(ranking.labels)
        caps = np.inf if self.caps is None else np.asarray(self.caps, np.float64)
        if np.ndim(caps) and np.shape(caps) != (m,):
            raise ShapeError(f"caps are {np.shape(caps)}, but there are {m} labels")
        return np.broadcast_to(caps, (m,))

    def restore(self, learned: Mapping[str, Any]) -> None:
        """There is nothing to take back."""
        if learned:
            raise ValueError(f"{type(self).__name__} learns nothing, not {sorted(learned)}")


class _State:
    """Choices, and the confusion entries that follow from them."""

    def __init__(
        self, ranking: Ranking, k: int, metric: Metric, weight: float, caps: np.ndarray
    ) -> None:
        n, m = max(1, len(ranking)), max(1, len(ranking.labels))
        self.ranking = ranking
        self.metric = metric
        self.linear, self.scale = (1 - weight) / (n * k), weight / m
        self.chosen = choices(ranking)
        self.labels = np.zeros((len(ranking.labels), 4))
        self.labels[:, 3] = caps
        if not is_coverage(metric):
            self.labels[:, 2] = label_sums(ranking, ranking.scores, None)[0]
        self._call = self._differences if metric.number < 0 else None
        self._numbers = native_numbers(metric, self.linear, self.scale, n)

    def _differences(self, both: np.ndarray) -> np.ndarray:
        with_it, without = np.split(self.metric(*both), 2)
        return np.ascontiguousarray(with_it - without)

    def ascend(self, rows: np.ndarray, k: int, floor: float) -> None:
        """Decide some rows anew."""
        _native.decision_ascend(
            self.ranking.ids,
            self.ranking.scores,
            self.labels,
            self.chosen,
            rows,
            k,
            floor,
            self._numbers,
            self._call,
        )

    def gains(self) -> np.ndarray:
        """What each candidate is worth as the rest is decided."""
        gains: np.ndarray = _native.decision_gains(
            self.ranking.ids,
            self.ranking.scores,
            self.labels,
            self.chosen,
            self._numbers,
            self._call,
        )
        return gains

    def recount(self) -> float:
        """Take the entries from the choices, as updates leave rounding errors; the objective."""
        outcome = label_sums(self.ranking, self.ranking.scores, self.chosen)
        self.labels[:, :2] = outcome.T
        n, m = len(self.ranking), len(self.ranking.labels)
        if not n or not m:
            return 0.0
        if is_coverage(self.metric):
            decided = chosen_ranking(self.ranking, self.chosen)
            ids, p = (a[decided.present] for a in (decided.ids, decided.scores.astype(np.float64)))
            sure = p >= 1
            self.labels[:, 0] = np.bincount(ids[~sure], np.log1p(-p[~sure]), m)
            self.labels[:, 2] = np.bincount(ids[sure], minlength=m)
            values = np.where(self.labels[:, 2] > 0, 1, -np.expm1(self.labels[:, 0]))
        else:
            values = self.metric(*entries(outcome, self.labels[:, 2], n))
        return float(self.linear * outcome[0].sum() + self.scale * values.sum())


def _choose_by_key(
    chosen: np.ndarray, ranking: Ranking, k: int, random: np.random.Generator | None
) -> None:
    """Choose the first k candidates of each row, or k at random."""
    for rows in row_blocks(ranking):
        mask = ranking.ids[rows] < len(ranking.labels)
        if random is None:
            mask[:, k:] = False
        else:
            keys = np.where(mask, random.random(mask.shape), 2)
            mask &= keys <= np.sort(keys, axis=1)[:, min(k, ranking.k) - 1 :][:, :1]
        chosen[rows] = packed(mask)


def _largest(gains: np.ndarray, count: int) -> np.ndarray:
    """Exactly the `count` largest as a mask, ties to the earlier."""
    price = price_of(gains, count)
    above = gains > price
    missing = count - int(above.sum())
    ties = np.flatnonzero(gains.ravel() == price)[:missing]
    above.ravel()[ties] = True
    return above
