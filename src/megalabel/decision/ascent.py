"""Block coordinate ascent: the label sets of given texts that are best for a macro metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from megalabel import _native
from megalabel.base import Check, integer, number, one_of
from megalabel.data import Ranking
from megalabel.decision.metric import METRIC, Function, Metric, is_coverage, metric_of
from megalabel.decision.shortlists import (
    BUDGET,
    CAPS,
    Shortlisted,
    assign,
    caps_of,
    check_budget,
    choices,
    chosen_ranking,
    in_blocks,
    label_sums,
    largest,
    native_objective,
    own_pages,
    packed,
    plain_rule,
    price_of,
    row_blocks,
    unpacked,
)
from megalabel.progress import progress

_LABEL = np.dtype([("hits", "f8"), ("given", "i4"), ("positives", "f4")])  # as in the native core


class Ascent(NamedTuple):
    """What block coordinate ascent came to."""

    ranking: Ranking
    """The labels decided on."""
    values: list[float]
    """The expected objective at the start and after each pass over the texts."""


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
        Fixes the order of texts in each pass, blocks of some thousands and the texts in each, and
        the random start.

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
        "caps": CAPS,
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

    def apply(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ranking:
        """The labels to answer with, within the budget of k a text."""
        return self.run(ranking, k, overwrite=overwrite).ranking

    def run(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ascent:
        """Decide as `apply`, and say how the expected objective rose."""
        chosen, values = self._decide(ranking, k)
        width = None if self._expected else k
        return Ascent(chosen_ranking(ranking, chosen, width, overwrite=overwrite), values)

    def _decide(self, ranking: Ranking, k: int) -> tuple[list[np.ndarray], list[float]]:
        self.check_parameters()
        check_budget(ranking, k)
        caps = caps_of(self.caps, ranking)
        state = _State(ranking, k, metric_of(self.metric), self.weight, caps)
        random = np.random.default_rng(self.seed)
        if self.start != "greedy":
            state.chosen = _start(ranking, k, caps, random if self.start == "random" else None)
        total = min(k * len(ranking), int(ranking.present.sum())) if self._expected else 0
        width = ranking.k if self._expected else k
        floor = 0.0 if self.budget == "at-most" else -np.inf
        values = [state.recount()]
        blocks = list(row_blocks(ranking))
        for turn in range(self.passes if len(ranking) else 0):
            if self._expected:
                floor = price_of(state.gains(), total)
            with progress(f"deciding, pass {turn + 1}", len(ranking)) as bar:
                # texts that are near each other in memory stay so in the order of visits
                for number in random.permutation(len(blocks)):
                    order = random.permutation(len(state.chosen[number])).astype(np.int32)
                    state.ascend(number, blocks[number], order, width, floor)
                    bar.advance(len(order))
            values.append(state.recount())
            if abs(values[-1] - values[-2]) <= self.tolerance:
                break
        if self._expected and len(ranking):
            # ties and the order of texts leave the sum near the budget; the gains make it exact
            kept = largest(state.gains(), ranking.ids, total, caps)
            state.chosen = in_blocks(ranking, packed(kept))
            values.append(state.recount())
        return state.chosen, values

    @property
    def _expected(self) -> bool:
        return self.budget == "expected"


class _State:
    """Choices, and the confusion entries that follow from them."""

    def __init__(
        self, ranking: Ranking, k: int, metric: Metric, weight: float, caps: np.ndarray | None
    ) -> None:
        n, m = max(1, len(ranking)), max(1, len(ranking.labels))
        self.ranking = ranking
        self.metric = metric
        self.linear, self.scale = (1 - weight) / (n * k), weight / m
        self.chosen = choices(ranking)
        self.labels = own_pages(len(ranking.labels), _LABEL)
        self.positives = own_pages(len(ranking.labels), np.float64)
        if not is_coverage(metric):
            self.positives[:] = label_sums(ranking)[0]
            self.labels["positives"] = self.positives
        self._caps = np.zeros(0, np.int32) if caps is None else caps
        self._call = self._differences if metric.twin is None else None
        self._objective = native_objective(metric, self.linear, self.scale, n)

    def _differences(self, both: np.ndarray, ids: np.ndarray) -> np.ndarray:
        labels, (tp, fp, fn, tn) = self.ranking.labels, both
        values = self.metric(tp, fp, fn, tn, lambda at: labels.name(ids[at % len(ids)]))
        with_it, without = np.split(values, 2)
        return np.ascontiguousarray(with_it - without)

    def _bytes(self) -> np.ndarray:
        """The labels as rows of float64, which is how the native core takes records."""
        return self.labels.view(np.float64).reshape(len(self.labels), -1)

    def ascend(self, number: int, rows: slice, order: np.ndarray, k: int, floor: float) -> None:
        """Decide the rows of a block anew."""
        _native.decision_ascend(
            self.ranking.native(rows),
            labels=self._bytes(),
            positives=self.positives,
            caps=self._caps,
            chosen=self.chosen[number],
            order=order,
            k=k,
            floor=floor,
            objective=self._objective,
            custom=self._call,
        )

    def gains(self) -> np.ndarray:
        """What each candidate is worth as the rest is decided."""
        gains = np.empty(self.ranking.ids.shape, np.float32)
        for part, rows in zip(self.chosen, row_blocks(self.ranking), strict=True):
            gains[rows] = _native.decision_gains(
                self.ranking.native(rows),
                labels=self._bytes(),
                positives=self.positives,
                caps=self._caps,
                chosen=part,
                objective=self._objective,
                custom=self._call,
            )
        return gains

    def recount(self) -> float:
        """Take the entries from the choices, as updates leave rounding errors; the objective."""
        hits, given = self.labels["hits"], self.labels["given"]
        hits[:] = given[:] = 0
        for part, rows in zip(self.chosen, row_blocks(self.ranking), strict=True):
            _native.decision_recount(self.ranking.native(rows), chosen=part, labels=self._bytes())
        n, precise = len(self.ranking), self.linear * float(hits.sum())
        if not n:
            return 0.0
        if is_coverage(self.metric):
            return precise + self.scale * self._coverage()
        total = self.metric.total(hits, given, self.positives, n, self.ranking.labels)
        return precise + self.scale * total

    def _coverage(self) -> float:
        self.labels["hits"] = self.labels["positives"] = 0
        for part, rows in zip(self.chosen, row_blocks(self.ranking), strict=True):
            mask = unpacked(part, self.ranking.k)
            ids, p = (a[rows][mask] for a in (self.ranking.ids, self.ranking.scores))
            sure = p >= 1
            missed = np.log1p(-p[~sure].astype(np.float64))
            np.add.at(self.labels["hits"], ids[~sure], missed)
            np.add.at(self.labels["positives"], ids[sure], 1)
        covered = np.where(self.labels["positives"] > 0, 1, -np.expm1(self.labels["hits"]))
        return float(covered.sum())


def _start(
    ranking: Ranking, k: int, caps: np.ndarray | None, random: np.random.Generator | None
) -> list[np.ndarray]:
    """The k most probable candidates of each row, or k at random, as far as caps allow."""
    if caps is not None:
        if random is not None:
            keys = random.random(ranking.ids.shape, np.float32)
            ranking = Ranking(ranking.ids, keys, ranking.labels)
        return assign(ranking, plain_rule(ranking), caps, k, -np.inf)[0]
    chosen = choices(ranking)
    for part, rows in zip(chosen, row_blocks(ranking), strict=True):
        mask = ranking.ids[rows] < len(ranking.labels)
        if random is None:
            mask[:, k:] = False
        else:
            keys = np.where(mask, random.random(mask.shape), 2)
            mask &= keys <= np.sort(keys, axis=1)[:, min(k, ranking.k) - 1 :][:, :1]
        part[:] = packed(mask)
    return chosen
