"""What all decisions on shortlists share: budgets, and choices as rankings.

Choices are a list of uint8 arrays, one for each block of rows (`row_blocks`): a bit a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import Any, ClassVar

import numpy as np

from megalabel import _native
from megalabel.base import Check, instance, integer, one_of
from megalabel.data import Ranking
from megalabel.decision.metric import Metric, expected_coverage, is_coverage
from megalabel.errors import ParameterError, ShapeError
from megalabel.parts import Decision

BUDGETS = ("exactly", "at-most", "expected")
BUDGET: Check = one_of(*BUDGETS)
CAPS: Check = one_of(None) | instance(np.ndarray) | integer(0)
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)
_CELLS = 1 << 18  # of a shortlist at a time, so that no second copy of it is made


class Shortlisted(Decision):
    """A decision that looks at more candidates than it answers with.

    The budget k means: "exactly" k labels a text, if it has as many candidates; "at-most" k, those
    that do the objective good; "expected" k on average over the texts, many here and few there.
    Caps say how many of the texts may be given a label, whatever the budget; where there is no room
    for all, texts get fewer labels.
    """

    BY_LABEL: ClassVar[frozenset[str]] = frozenset({"caps"})

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
        fine = scores >= 0
        fine &= scores <= 1
        fine |= ranking.ids[rows] >= len(ranking.labels)
        if not fine.all():
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


def own_pages(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros in memory that goes back to the system with the array.

    What comes and goes among other arrays leaves gaps that nothing fills.
    """
    count = int(np.prod(shape))
    pages = mmap(-1, max(1, count * np.dtype(dtype).itemsize))
    return np.frombuffer(pages, dtype, count).reshape(shape)


def chosen_ranking(
    ranking: Ranking, chosen: list[np.ndarray], k: int | None, *, overwrite: bool
) -> Ranking:
    """The chosen candidates of a shortlist as a ranking, best first; k wide, or as any row needs.

    Empties `chosen` on the way. With `overwrite` the shortlist becomes the answer, unless its
    arrays are read-only.
    """
    if k is None:
        k = max((int(_ONES[part].sum(axis=1).max(initial=1)) for part in chosen), default=1)
    n, width = len(ranking), min(k, ranking.k)
    answer = ranking
    if not (overwrite and ranking.ids.flags.writeable and ranking.scores.flags.writeable):
        # not filled at once: memory counts when it is first written to
        empty = np.empty((n, width), np.int32), np.empty((n, width), np.float32)
        answer = Ranking(*empty, ranking.labels)
    # where the answer is put: at the front, where the shortlist has been read already
    ids = answer.ids.reshape(-1)[: n * width].reshape(n, width)
    scores = answer.scores.reshape(-1)[: n * width].reshape(n, width)
    for rows in row_blocks(ranking):
        part = chosen.pop(0)
        mask = unpacked(part, ranking.k)
        found = ranking.ids[rows][mask], ranking.scores[rows][mask]
        ids[rows], scores[rows] = len(ranking.labels), -np.inf
        # candidates are in order, so choices are
        places = np.arange(width) < _ONES[part].sum(axis=1)[:, None]
        ids[rows][places], scores[rows][places] = found
    if answer is ranking:
        answer.scores = scores.copy()
        del scores  # and with it the shortlist's, before there is a second copy
        answer.ids = ids.copy()
    return answer


def choices(ranking: Ranking) -> list[np.ndarray]:
    """No candidate of any row chosen."""
    width = (ranking.k + 7) // 8
    return [own_pages((len(ranking.ids[rows]), width), np.uint8) for rows in row_blocks(ranking)]


def in_blocks(ranking: Ranking, chosen: np.ndarray) -> list[np.ndarray]:
    """Choices of all rows in one array, block by block."""
    return [chosen[rows] for rows in row_blocks(ranking)]


def label_sums(ranking: Ranking) -> np.ndarray:
    """The sum of each label's scores, and how many they are; (2, labels)."""
    sums = own_pages((len(ranking.labels), 2), np.float64)
    everything = np.zeros((0, 0), np.uint8)
    for rows in row_blocks(ranking):
        _native.decision_sums(ranking.native(rows), chosen=everything, sums=sums)
    return sums.T


def expected_value(decided: Ranking, positives: np.ndarray, metric: Metric) -> float:
    """What a metric of decided labels is by their own probabilities, where `positives` are the sums
    over texts of all probabilities of each label; as `measure` has it of whole shortlists."""
    if is_coverage(metric):
        present = decided.present
        return expected_coverage(decided.ids[present], decided.scores[present], len(positives))
    hits, given = label_sums(decided)
    total = metric.total(hits, given, positives, max(1, len(decided)), decided.labels)
    return total / max(1, len(positives))


def caps_of(caps: int | np.ndarray | None, ranking: Ranking) -> np.ndarray | None:
    """How many texts each label may be given to, if there is a limit."""
    if caps is None:
        return None
    m = len(ranking.labels)
    if np.ndim(caps) and np.shape(caps) != (m,):
        raise ShapeError(f"caps are {np.shape(caps)}, but there are {m} labels")
    if not (np.asarray(caps) >= 0).all():
        raise ParameterError("caps must be numbers of texts, 0 or more")
    limits = np.minimum(np.floor(caps), np.iinfo(np.int32).max).astype(np.int32)
    return np.ascontiguousarray(np.broadcast_to(limits, (m,)))


def plain_rule(ranking: Ranking) -> np.ndarray:
    """The weights and offsets (2, labels) by which probabilities count as they are."""
    rule = np.zeros((2, len(ranking.labels)), np.float32)
    rule[0] = 1
    return rule


def assign(
    ranking: Ranking, rule: np.ndarray, caps: np.ndarray, k: int, floor: float
) -> tuple[list[np.ndarray], np.ndarray]:
    """The candidates of the largest sum by one rule (2, labels) of weights and offsets, where caps
    hold: within a ten-thousandth of the range of values for each label given.

    And what each label costs: rows have the labels that are worth the most beyond their cost, but
    for some to which others are worth almost the same, and those that caps leave no room for.
    """
    chosen, costs = _native.decision_assign(
        ranking.native(), weights=rule[0], offsets=rule[1], caps=caps, k=k, floor=floor
    )
    return in_blocks(ranking, chosen), costs


def check_labels(owner: Decision, learned: int, ranking: Ranking) -> None:
    """Raise unless something learned for so many labels fits the ranking's."""
    if learned != len(ranking.labels):
        raise ShapeError(
            f"{type(owner).__name__} was fitted for {learned} labels, and the ranking has "
            f"{len(ranking.labels)}"
        )


def native_objective(metric: Metric, linear: float, scale: float, rows: float) -> _native.Objective:
    """A metric and an objective as the native core takes them."""
    return _native.Objective(
        metric=metric.twin, beta=metric.beta, linear=linear, scale=scale, rows=rows
    )


def price_of(values: np.ndarray, count: int) -> float:
    """What a value must exceed to be among the `count` largest."""
    flat = values[np.isfinite(values)]
    if count >= len(flat):
        return -np.inf
    return float(np.partition(flat, len(flat) - count - 1)[len(flat) - count - 1])


def largest(
    values: np.ndarray, ids: np.ndarray, count: int, caps: np.ndarray | None = None
) -> np.ndarray:
    """The `count` largest of the finite values as a mask, ties to the earlier; of each label no
    more than its cap."""
    order = np.argsort(-values, axis=None, kind="stable")
    order = order[np.isfinite(values.ravel()[order])]
    if caps is not None:
        labels = ids.ravel()[order]
        by_label = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels, minlength=len(caps))
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = order[np.sort(by_label[place < np.repeat(caps, sizes)])]
    mask = np.zeros(values.shape, bool)
    mask.ravel()[order[:count]] = True
    return mask
