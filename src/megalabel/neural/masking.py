"""Masked tokens, to be guessed: drawn anew every epoch, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from megalabel.errors import ParameterError
from megalabel.neural.tokens import Tokens

_MASKED, _SWAPPED = 0.8, 0.1  # shares of the chosen tokens; the rest stays as it is
_SPAN_END, _LONGEST_SPAN = 0.2, 10


@dataclass(frozen=True)
class Masked:
    """Rows some of whose tokens are to be guessed."""

    tokens: Tokens
    """With chosen tokens masked, swapped, or left."""
    chosen: np.ndarray
    """Where in `tokens.ids` the chosen ones are."""
    truth: np.ndarray
    """What was there."""


def masked(
    tokens: Tokens,
    rows: np.ndarray,
    *,
    seed: int,
    epoch: int,
    share: float = 0.15,
    units: str = "tokens",
) -> Masked:
    """Choose a share of each row's tokens, at least one, and hide most of them.

    Of the chosen tokens 80 % become the mask, 10 % some other token, and 10 % stay; special
    tokens are never chosen. The draw depends on the seed, the epoch and the row alone.

    Parameters
    ----------
    tokens : Tokens
    rows : int array
        The rows to take.
    seed, epoch : int
    share : float
    units : "tokens", "words" or "spans"
        Choose single tokens, whole words, or spans of up to ten tokens.

    Examples
    --------
    >>> special = {"mask": 0}
    >>> tokens = Tokens(np.arange(1, 9), np.array([0, 8]), vocabulary=9, special=special)
    >>> made = masked(tokens, np.array([0]), seed=0, epoch=0, share=0.5)
    >>> len(made.chosen), bool((made.truth == tokens.ids[made.chosen]).all())
    (4, True)
    """
    if "mask" not in tokens.special:
        raise ParameterError("the tokenizer has no mask token, so tokens cannot be masked")
    special = list(tokens.special.values())
    others = np.setdiff1d(np.arange(tokens.vocabulary), special)
    part = tokens[rows]
    ids = np.array(part.ids)
    ordinary = ~np.isin(ids, special)
    starts = np.zeros(len(ids), bool)
    starts[part.word_starts()] = True
    every = [np.empty(0, np.int64)]
    for row, start, end in zip(rows, part.indptr[:-1], part.indptr[1:], strict=True):
        at = start + np.flatnonzero(ordinary[start:end])
        if not len(at):
            continue
        random = np.random.default_rng((seed, epoch, int(row)))
        count = max(1, round(share * len(at)))
        starts[at[0]] = True  # also where it goes on with a word that is unknown
        chosen = at[_CHOOSE[units](starts[at], count, random)]
        fate = random.random(len(chosen))
        ids[chosen[fate < _MASKED]] = tokens.special["mask"]
        swapped = chosen[(fate >= _MASKED) & (fate < _MASKED + _SWAPPED)]
        ids[swapped] = random.choice(others, len(swapped))
        every.append(chosen)
    places = np.concatenate(every)
    return Masked(part.like(ids, part.indptr), places, part.ids[places])


def _tokens(starts: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    return np.sort(random.choice(len(starts), count, replace=False))


def _words(starts: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    word = np.cumsum(starts) - 1
    order = random.permutation(word[-1] + 1)
    filled = np.cumsum(np.bincount(word)[order])
    return np.flatnonzero(np.isin(word, order[: max(1, int((filled <= count).sum()))]))


def _spans(starts: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    chosen = np.zeros(len(starts), bool)
    for start in random.permutation(np.flatnonzero(starts)):
        length = min(int(random.geometric(_SPAN_END)), _LONGEST_SPAN)
        span = np.arange(start, min(start + length, len(starts)))
        chosen[span[~chosen[span]][: count - int(chosen.sum())]] = True
        if chosen.sum() == count:
            break
    return np.flatnonzero(chosen)


_CHOOSE: dict[str, Callable[[np.ndarray, int, np.random.Generator], np.ndarray]] = {
    "tokens": _tokens,
    "words": _words,
    "spans": _spans,
}
UNITS = tuple(_CHOOSE)
