"""Stems: a table from words to their Snowball stems, which needs no stemmer once it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel import _native
from megalabel.base import Check, Component, Learned, array, part
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
)


class Stems(Component):
    """The stems of the words that were met, by the Snowball stemmer of a language.

    Only words whose stem is another word are kept. A word that was not met is its own stem, as is
    one whose stem would be longer.

    Parameters
    ----------
    language : str
        By name ("english") or ISO 639-1 code ("en").

    Attributes
    ----------
    words_ : Arrow array of str
        Words whose stem is another word, in the order in which they were met.
    slots_ : uint64 array
        Their lookup table.
    stem_of_ : int32 array
        The place of each word's stem among the stems.
    stems_ : Arrow array of str
        The stems.

    Examples
    --------
    >>> stems = Stems("english").learn(["dresses", "red", "dressing"])
    >>> stems.words_.to_pylist(), stems.stems_.to_pylist()
    (['dresses', 'dressing'], ['dress'])
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {"language": language(LANGUAGES)}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "words_": part(pa.LargeStringArray, "words"),
        "slots_": array(np.uint64, "slots"),
        "stem_of_": array(np.int32, "words"),
        "stems_": part(pa.LargeStringArray, "stems"),
    }

    words_: pa.LargeStringArray
    slots_: np.ndarray
    stem_of_: np.ndarray
    stems_: pa.LargeStringArray
    _met: pa.LargeStringArray | None = None  # also words that are their own stems

    def __init__(self, language: str = "english") -> None:
        self.language = language

    def learn(self, words: Sequence[str] | pa.LargeStringArray) -> Self:
        """A copy that knows more words, which are as texts have them: in lower case."""
        self.check_parameters()
        given = strings(words)
        known = self.words_ if self.fitted else strings([])
        stems = self.stems_ if self.fitted else strings([])
        stem_of = self.stem_of_ if self.fitted else np.zeros(0, np.int32)
        met = self._met if self._met is not None else known
        new = strings(pc.unique(given.filter(pc.invert(pc.is_in(given, value_set=met)))))
        met = pa.concat_arrays([met, new])
        found = strings(stemmer(self.language)(new.to_pylist()))
        shorter = np.asarray(pc.less_equal(pc.binary_length(found), pc.binary_length(new)))
        told = np.asarray(pc.not_equal(found, new)) & np.asarray(pc.not_equal(found, ""))
        kept = pa.array(shorter & told)
        new, found = strings(new.filter(kept)), strings(found.filter(kept))
        fresh = pc.unique(found.filter(pc.invert(pc.is_in(found, value_set=stems))))
        stems = pa.concat_arrays([stems, strings(fresh)])
        places = np.asarray(pc.index_in(found, value_set=stems), np.int32)
        made = type(self)(self.language)
        made.restore(_arrays(pa.concat_arrays([known, new]), np.append(stem_of, places), stems))
        made._met = met
        return made

    def check_learned(self) -> None:
        """Words and stems must be strings; gets the lookup ready."""
        for name, column in (("words_", self.words_), ("stems_", self.stems_)):
            if column.null_count:
                raise ValueError(f"{name} of Stems must be strings")
            column.validate()
        offsets, data = to_arrays(self.stems_)
        self._native = _native.Stems(
            words=lookup(self.slots_, to_arrays(self.words_)),
            stem_of=self.stem_of_,
            offsets=offsets,
            data=data,
        )

    def native(self) -> _native.Stems:
        """The table as the native core takes it."""
        self.check_fitted()
        return self._native


def _arrays(
    words: pa.LargeStringArray, stem_of: np.ndarray, stems: pa.LargeStringArray
) -> dict[str, Any]:
    slots = _native.lookup_slots(to_arrays(words))
    return {"words_": words, "slots_": slots, "stem_of_": stem_of, "stems_": stems}


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
