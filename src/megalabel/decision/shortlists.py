"""What all decisions on shortlists share: budgets, and choices as rankings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from megalabel import _native
from megalabel.base import Check, Decision, integer, one_of
from megalabel.data import Ranking
from megalabel.decision.metric import Metric
from megalabel.errors import ParameterError, ShapeError

BUDGETS = ("exactly", "at-most", "expected")
BUDGET: Check = one_of(*BUDGETS)
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)
_CELLS = 1 << 18  # of a shortlist at a time, so that no second copy of it is made


class Shortlisted(Decision):
    """A decision that looks at more candidates than it answers with.

    The budget k means: "exactly" k labels a text, if it has as many candidates; "at-most" k, those
    that do the objective good; "expected" k on average over the texts, many here and few there.
    """

    candidates: int

    def shortlist(self, k: int) -> int:
        """How many labels a text must be ranked: the candidates."""
        return max(k, self.candidates)


def check_budget(ranking: Ranking, k: int) -> None:
    """Raise unless k is a budget and the scores are probabilities."""
    if not integer(1).accepts(k):
        raise ParameterError(f"k must be an integer of at least 1, not {k!r}")
    for rows in row_blocks(ranking):
        scores = ranking.scores[rows]
        if not ((scores >= 0) & (scores <= 1) | (ranking.ids[rows] >= len(ranking.labels))).all():
            raise ParameterError(
                "scores must be probabilities from 0 to 1 to decide on; calibrate the tagger"
            )


def row_blocks(ranking: Ranking) -> Iterator[slice]:
    """The rows in blocks that are soon done, between which signals are looked at."""
    step = max(1, _CELLS // max(1, ranking.k))
    return (slice(start, start + step) for start in range(0, len(ranking), step))


def packed(mask: np.ndarray) -> np.ndarray:
    """A mask of candidates as the native core takes choices: a bit each."""
    return np.packbits(mask, axis=1, bitorder="little")


def unpacked(chosen: np.ndarray, width: int) -> np.ndarray:
    """Choices as a mask of candidates."""
    return np.unpackbits(chosen, axis=1, count=width, bitorder="little").view(bool)


def chosen_ranking(ranking: Ranking, chosen: np.ndarray, k: int | None = None) -> Ranking:
    """The chosen candidates of a shortlist as a ranking, best first, k wide."""
    counts = np.empty(len(ranking), np.int32)
    for rows in row_blocks(ranking):
        _ONES[chosen[rows]].sum(axis=1, out=counts[rows])
    width = int(counts.max(initial=1)) if k is None else min(k, ranking.k)
    ids = np.full((len(ranking), width), len(ranking.labels), np.int32)
    scores = np.full((len(ranking), width), -np.inf, np.float32)
    for rows in row_blocks(ranking):
        mask = unpacked(chosen[rows], ranking.k)
        places = np.arange(width) < counts[rows, None]  # candidates are in order, so choices are
        ids[rows][places] = ranking.ids[rows][mask]
        scores[rows][places] = ranking.scores[rows][mask]
    return Ranking(ids, scores, ranking.labels)


def choices(ranking: Ranking) -> np.ndarray:
    """No candidate of any row chosen."""
    return np.zeros((len(ranking), (ranking.k + 7) // 8), np.uint8)


def label_sums(ranking: Ranking, values: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    """For each label, over the chosen candidates (or all): the sum of values, and how many; (2, m).

    Values are float32, or 0 and 1 as uint8.
    """
    sums = np.zeros((len(ranking.labels), 2))
    for rows in row_blocks(ranking):
        some = np.zeros((0, 0), np.uint8) if chosen is None else chosen[rows]
        _native.decision_sums(ranking.ids[rows], values[rows], some, sums)
    return sums.T


def check_labels(owner: Decision, learned: int, ranking: Ranking) -> None:
    """Raise unless something learned for so many labels fits the ranking's."""
    if learned != len(ranking.labels):
        raise ShapeError(
            f"{type(owner).__name__} was fitted for {learned} labels, and the ranking has "
            f"{len(ranking.labels)}"
        )


def native_numbers(
    metric: Metric, linear: float, scale: float, rows: float
) -> tuple[int, float, float, float, float]:
    """A metric and an objective as the native core takes them."""
    return (metric.number, metric.beta, linear, scale, rows)


def price_of(values: np.ndarray, count: int) -> float:
    """What a value must exceed to be among the `count` largest."""
    flat = values[np.isfinite(values)]
    if count >= len(flat):
        return -np.inf
    return float(np.partition(flat, len(flat) - count - 1)[len(flat) - count - 1])
