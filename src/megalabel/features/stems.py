"""Stems: a table from words to their Snowball stems, which needs no stemmer once it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel import _native
from megalabel.base import Check, Component, Learned, array, optional, part, with_learned
from megalabel.data.strings import encoded, from_arrays, strings, to_arrays
from megalabel.features.inputs import TextArrays
from megalabel.features.languages import LANGUAGES, language, stemmer, stop_words

NO_TERMS = _native.Lookup(
    slots=np.zeros(0, np.uint64), offsets=np.zeros(1, np.int64), data=np.zeros(0, np.uint8)
)
NO_STEMS = _native.Stems(
    words=NO_TERMS,
    stem_of=np.zeros(0, np.int32),
    offsets=np.zeros(1, np.int64),
    data=np.zeros(0, np.uint8),
    endings=NO_TERMS,
    cuts=np.zeros(0, np.uint8),
    appended_offsets=np.zeros(1, np.int64),
    appended_data=np.zeros(0, np.uint8),
)
SHORTEST, LONGEST = 4, 6  # characters of a word with an ending, and of an ending
OFTEN = 2  # words that show what becomes of an ending
LOOKED_AT = 2_500  # words that endings are learned from, at most


class Stems(Component):
    """The stems of the words that were met, by the Snowball stemmer of a language.

    A word that was not met gets its stem by the longest of its endings that is known: those that
    most words with them lose, or change, in the same way. One whose stem would be longer is its own
    stem.

    Parameters
    ----------
    language : str
        By name ("english") or ISO 639-1 code ("en").

    Attributes
    ----------
    words_ : Arrow array of str
        The words that were met, in their order.
    slots_ : uint64 array
        Their lookup table.
    stem_of_ : int32 array
        The place of each word's stem among the stems.
    stems_ : Arrow array of str
        The stems.
    endings_, ending_slots_, cuts_, appended_ : arrays
        Endings, their lookup table, how many bytes each loses, and what takes their place.

    Examples
    --------
    >>> stems = Stems("english").learn(["dresses", "red", "dressing", "tracing", "tracking"])
    >>> stems.stems_.to_pylist()
    ['dress', 'red', 'trace', 'track']
    >>> stems.closed().endings_.to_pylist()
    ['ing']
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"language": language(LANGUAGES)}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "words_": part(pa.LargeStringArray, "words"),
        "slots_": array(np.uint64, "slots"),
        "stem_of_": array(np.int32, "words"),
        "stems_": part(pa.LargeStringArray, "stems"),
        "endings_": optional(part(pa.LargeStringArray, "endings")),
        "ending_slots_": optional(array(np.uint64, "ending slots")),
        "cuts_": optional(array(np.uint8, "endings")),
        "appended_": optional(part(pa.LargeStringArray, "endings")),
    }

    words_: pa.LargeStringArray
    slots_: np.ndarray
    stem_of_: np.ndarray
    stems_: pa.LargeStringArray
    endings_: pa.LargeStringArray | None = None
    ending_slots_: np.ndarray | None = None
    cuts_: np.ndarray | None = None
    appended_: pa.LargeStringArray | None = None

    def __init__(self, language: str = "english") -> None:
        self.language = language

    def learn(self, words: Sequence[str] | pa.LargeStringArray) -> Self:
        """A copy that knows more words, which are as texts have them: in lower case."""
        self.check_parameters()
        given = strings(words)
        known = self.words_ if self.fitted else strings([])
        stems = self.stems_ if self.fitted else strings([])
        stem_of = self.stem_of_ if self.fitted else np.zeros(0, np.int32)
        new = strings(pc.unique(given.filter(pc.invert(pc.is_in(given, value_set=known)))))
        found = strings(stemmer(self.language)(new.to_pylist()))
        fits = pc.and_(
            pc.less_equal(pc.binary_length(found), pc.binary_length(new)), pc.not_equal(found, "")
        )
        found = strings(pc.if_else(fits, found, new))
        fresh = pc.unique(found.filter(pc.invert(pc.is_in(found, value_set=stems))))
        stems = pa.concat_arrays([stems, strings(fresh)])
        places = np.asarray(pc.index_in(found, value_set=stems), np.int32)
        known = pa.concat_arrays([known, new])
        learned: dict[str, Any] = self.learned() | {
            "words_": known,
            "slots_": _native.lookup_slots(to_arrays(known)),
            "stem_of_": np.append(stem_of, places),
            "stems_": stems,
        }
        return with_learned(type(self)(self.language), **learned)

    def closed(self) -> Self:
        """A copy that has learned from the words that were met what becomes of endings."""
        if not self.fitted:
            return self
        step = -(-len(self.words_) // LOOKED_AT) or 1
        some = pa.array(np.arange(0, len(self.words_), step))
        stems = self.stems_.take(pa.array(self.stem_of_).take(some))
        rules = _rules(self.words_.take(some).to_pylist(), stems.to_pylist())
        endings = strings(list(rules))
        cuts = [len(cut.encode()) for cut, _ in rules.values()]
        learned: dict[str, Any] = self.learned() | {
            "endings_": endings,
            "ending_slots_": _native.lookup_slots(to_arrays(endings)),
            "cuts_": np.array(cuts, np.uint8),
            "appended_": strings([more for _, more in rules.values()]),
        }
        return with_learned(type(self)(self.language), **learned)

    def check_learned(self) -> None:
        """Words and stems must be strings; gets the lookups ready."""
        for name in ("words_", "stems_", "endings_", "appended_"):
            column = getattr(self, name)
            if column is None:
                continue
            if column.null_count:
                raise ValueError(f"{name} of Stems must be strings")
            column.validate()
        offsets, data = to_arrays(self.stems_)
        endings, cuts = NO_TERMS, np.zeros(0, np.uint8)
        appended = np.zeros(1, np.int64), np.zeros(0, np.uint8)
        known = (self.endings_, self.ending_slots_, self.cuts_, self.appended_)
        if any(one is not None for one in known):
            if any(one is None for one in known):
                raise ValueError("Stems must have all that is known of endings, or nothing")
            assert self.endings_ is not None
            assert self.ending_slots_ is not None
            assert self.cuts_ is not None
            endings, cuts = lookup(self.ending_slots_, to_arrays(self.endings_)), self.cuts_
            appended = to_arrays(self.appended_)
        self._native = _native.Stems(
            words=lookup(self.slots_, to_arrays(self.words_)),
            stem_of=self.stem_of_,
            offsets=offsets,
            data=data,
            endings=endings,
            cuts=cuts,
            appended_offsets=appended[0],
            appended_data=appended[1],
        )

    def native(self) -> _native.Stems:
        """The table as the native core takes it."""
        self.check_fitted()
        return self._native


def _rules(words: Sequence[str], stems: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What most words with an ending lose in the end, and what they get in its place, for endings
    of which shorter ones do not say the same.

    Examples
    --------
    >>> words = ["cities", "policies", "dogs", "cats", "cars"]
    >>> _rules(words, ["citi", "polici", "dog", "cat", "car"])
    {'es': ('es', ''), 's': ('s', '')}
    """
    votes: dict[str, Counter[tuple[str, str]]] = {}
    for word, stem in zip(words, stems, strict=True):
        if len(word) < SHORTEST:
            continue
        same = len(stem)
        while not word.startswith(stem[:same]):
            same -= 1
        rule = word[same:], stem[same:]
        for length in range(1, min(LONGEST, len(word) - 2) + 1):
            votes.setdefault(word[-length:], Counter())[rule] += 1
    sure: dict[str, tuple[str, str]] = {}
    for ending, counts in votes.items():
        rule, count = counts.most_common(1)[0]
        fits = len(rule[0]) <= len(ending) and len(rule[1].encode()) <= len(rule[0].encode())
        if fits and count >= OFTEN and 2 * count > counts.total():
            sure[ending] = rule
    unchanged = ("", "")
    rules = {}
    for ending, rule in sure.items():
        shorter = (sure[ending[at:]] for at in range(1, len(ending)) if ending[at:] in sure)
        if rule != next(shorter, unchanged):
            rules[ending] = rule
    return dict(sorted(rules.items()))


def lookup(slots: np.ndarray, terms: TextArrays) -> _native.Lookup:
    """What finds terms by their slots."""
    offsets, data = terms
    return _native.Lookup(slots=slots, offsets=offsets, data=data)


def lookup_of(words: Sequence[str] | str, how: _native.Analysis, normalise: Any) -> _native.Lookup:
    """What finds stop words, of a list or of a language, that are read as texts are.

    So "Don't" leaves out the words that it gives in a text.
    """
    given = stop_words(words) if isinstance(words, str) else list(words)
    found = _native.analyse(normalise(encoded(given)), how)
    arrays = to_arrays(from_arrays(*found).unique())
    return lookup(_native.lookup_slots(arrays), arrays)
