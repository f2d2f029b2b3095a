"""Parts of texts in the place of labels: what a bi-encoder can learn from where there are none."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

_SENTENCE = re.compile(r"[^.!?…\n]+[.!?…\n]*\s*")
_WORD = re.compile(r"\S+")
_LONGEST = 32  # words of a part
_SHORTEST = 2
_FIRST = 0.5  # how often the first sentence is the part: titles stand there
_TAKEN_OUT = 0.9  # how often the part is taken out of the text, so that it is not merely copied


def segments(texts: Sequence[str], seed: int = 0) -> tuple[np.ndarray, list[str], list[str]]:
    """A part of each text and what is left of it (Zhang et al. 2021, MACLR: title and body; Zhang
    et al. 2022, RTS: random parts).

    Of several sentences the part is the first one or a random run of them, of one sentence a random
    run of its words. A text of fewer than four words has none.

    Returns
    -------
    numbers : int64 array
        Of the texts that have a part.
    parts, rests : lists of str

    Examples
    --------
    >>> numbers, parts, rests = segments(["A tale of whales. They swim in the sea.", "short"])
    >>> numbers.tolist(), parts, rests
    ([0], ['They swim in the sea.'], ['A tale of whales.'])
    """
    numbers, parts, rests = list[int](), list[str](), list[str]()
    for number, text in enumerate(texts):
        random = np.random.default_rng((seed, number))  # whatever texts are beside it
        words = [found.span() for found in _WORD.finditer(text)]
        if len(words) < 2 * _SHORTEST:
            continue
        units = [m.span() for m in _SENTENCE.finditer(text) if m[0].strip()]
        if len(units) > 1:
            first = 0 if random.random() < _FIRST else int(random.integers(len(units)))
            last = first + int(random.integers(1, max(2, len(units) // 2 + 1)))
            if first == 0:
                last = 1
        else:
            units = words
            length = int(random.integers(_SHORTEST, max(_SHORTEST + 1, len(words) // 2 + 1)))
            first = int(random.integers(len(words) - length + 1))
            last = first + length
        last = min(last, len(units))
        begin, end = units[first][0], units[last - 1][1]
        part = " ".join(text[begin:end].split()[:_LONGEST])
        rest = text[:begin] + text[end:] if random.random() < _TAKEN_OUT else text
        if not (rest := " ".join(rest.split())):
            continue
        numbers.append(number)
        parts.append(part)
        rests.append(rest)
    return np.array(numbers, np.int64), parts, rests
