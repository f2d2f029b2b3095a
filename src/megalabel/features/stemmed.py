"""StemmedWords: the words of texts by number, by their stems, for what looks for names in texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from megalabel import _native
from megalabel.base import (
    Check,
    Learned,
    array,
    instance,
    integer,
    one_of,
    optional,
    part,
    sequence_of,
    value,
    with_learned,
)
from megalabel.data import Corpus, LabelSet
from megalabel.data.strings import encoded, from_arrays, to_arrays
from megalabel.errors import DataError
from megalabel.features.inputs import TextArrays, text_batches
from megalabel.features.languages import LANGUAGES, language, language_name
from megalabel.features.stems import NO_STEMS, Stems, lookup
from megalabel.features.stop_words import STOP_WORDS
from megalabel.features.words import (
    WordRows,
    found_words,
    normalised,
    stop_lookup,
    unknown_words,
    vocabulary_of,
    word_analysis,
    word_idf,
)
from megalabel.parts import Featurizer

AUTO = "auto"
_WORD = re.compile(r"\w+")


class NameRows(NamedTuple):
    """The names of labels in the words of a `StemmedWords`."""

    starts: np.ndarray
    """Where the names of each label start."""
    words: WordRows
    """The words of each name."""
    idf: np.ndarray
    """How rare each word is in texts."""
    usual_words: float
    """Words of a text on average."""


class StemmedWords(Featurizer):
    """The words of texts by number and in order, forms of a word as one.

    Words are those of `Tfidf` with its own settings, but words of one letter count too. A word's
    idf is log((n + 1) / (texts with the word + 0.5)) of the n texts that were learned from.

    Parameters
    ----------
    stemmer : str, optional
        The language whose Snowball stems take the place of words, by name ("english") or ISO 639-1
        code ("en"); it needs the extra `stemming`, to fit alone. "auto": that of the names of
        labels where it is known, else English. None: words as they are.
    stop_words : list of str, or str, optional
        Words that are left out, or the language whose articles, pronouns and the like are.

    Attributes
    ----------
    words_ : Arrow array of str
        The stems of all words of texts and of names, sorted; then those that came with further
        names.
    slots_ : uint64 array
        Their lookup table.
    idf_ : float32 array
        How rare each is in texts.
    stems_ : Stems or None
        Which stem other words have.
    n_texts_, n_words_ : int
        How many texts were learned from, and how many words they have in all.

    Examples
    --------
    >>> words = StemmedWords().fit(Corpus(["a tale of whales"], labels=["Whaling"]))
    >>> words.words_.to_pylist()
    ['a', 'of', 'tale', 'whale']
    >>> words.transform(["Whales!", "no whale"]).ids
    array([ 3, -1,  3], dtype=int32)

    Notes
    -----
    `transform` may be called from several threads at once.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "stemmer": one_of(AUTO) | language(LANGUAGES) | one_of(None),
        "stop_words": sequence_of(instance(str)) | language(STOP_WORDS) | one_of(None),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "n_texts_": value(integer(0)),
        "n_words_": value(integer(0)),
        "words_": part(pa.LargeStringArray, "words"),
        "slots_": array(np.uint64, "slots"),
        "idf_": array(np.float32, "words"),
        "stems_": optional(part(Stems)),
    }

    n_texts_: int
    n_words_: int
    words_: pa.LargeStringArray
    slots_: np.ndarray
    idf_: np.ndarray
    stems_: Stems | None = None

    def __init__(
        self,
        *,
        stemmer: str | None = AUTO,
        stop_words: Sequence[str] | str | None = None,
    ) -> None:
        self.stemmer = stemmer
        self.stop_words = stop_words

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Learn the words of a corpus: those of its texts, and those of its labels' names."""
        self.fit_transform(inputs)
        return self

    def fit_transform(self, inputs: Any, y: Any = None) -> WordRows:
        """`fit` and `transform` in one."""
        self.check_parameters()
        if not isinstance(inputs, Corpus) or inputs.texts is None:
            raise DataError(
                "StemmedWords learns from texts and the names of labels: give a Corpus with texts"
            )
        texts = normalised(to_arrays(inputs.texts))
        names = normalised(to_arrays(inputs.labels.all_names()[1]))
        stems = self._table(inputs.labels, texts, names)
        learned = {} if stems is None else {"stems_": stems}
        how = word_analysis(stems=_native_of(stems), stop=self._stop())
        words, text_counts = vocabulary_of(texts, names, how, fewest=1)
        slots = _native.lookup_slots(to_arrays(words))
        indptr, ids = found_words(texts, how, lookup(slots, to_arrays(words)))
        self.restore(
            {
                "n_texts_": len(inputs),
                "n_words_": len(ids),
                "words_": words,
                "slots_": slots,
                "idf_": word_idf(len(inputs), text_counts),
                **learned,
            }
        )
        return WordRows(ids, indptr, len(words))

    def with_names(self, labels: LabelSet) -> Self:
        """A copy that knows the words of more names too, numbered after those that are known.

        Examples
        --------
        >>> words = StemmedWords().fit(Corpus(["a tale of whales"], labels=["Whaling"]))
        >>> words.with_names(LabelSet(["Old ships"])).words_.to_pylist()
        ['a', 'of', 'tale', 'whale', 'old', 'ship']
        """
        self.check_fitted()
        names = normalised(to_arrays(labels.all_names()[1]))
        learned = self.learned()
        if self.stems_ is not None:
            met = _native.count_terms(names, word_analysis())[:2]
            learned["stems_"] = self.stems_.learn(from_arrays(*met))
        how = word_analysis(stems=_native_of(learned.get("stems_")), stop=self._stop())
        new = unknown_words(names, how, self._words)
        learned["words_"] = pa.concat_arrays([self.words_, new])
        learned["slots_"] = _native.lookup_slots(to_arrays(learned["words_"]))
        unmet = word_idf(self.n_texts_, np.zeros(len(new)))
        learned["idf_"] = np.append(self.idf_, unmet)
        return with_learned(type(self)(**self.get_params(deep=False)), **learned)

    def _table(self, labels: LabelSet, *given: TextArrays) -> Stems | None:
        """The stems of the words that texts and names have."""
        spoken = self.stemmer
        if spoken == AUTO:
            known = language_name(labels.language or "")
            spoken = known if known in LANGUAGES else "english"
        if spoken is None:
            return None
        table = Stems(spoken)
        for arrays in given:
            table = table.learn(from_arrays(*_native.count_terms(arrays, word_analysis())[:2]))
        return table.closed()

    def _stop(self) -> _native.Lookup:
        return stop_lookup(self.stop_words)

    def check_learned(self) -> None:
        """Words must be strings; gets the lookup ready."""
        if self.words_.null_count:
            raise ValueError("words_ of StemmedWords must be strings")
        if (self.stems_ is None) != (self.stemmer is None):
            raise ValueError("StemmedWords must have stems_ if it has a stemmer, and only then")
        self.words_.validate()
        self._words = lookup(self.slots_, to_arrays(self.words_))
        self._how = word_analysis(stems=_native_of(self.stems_), stop=self._stop())

    def transform(self, inputs: Any) -> WordRows:
        """The words of each text in order."""
        self.check_fitted()
        batches = [
            found_words(normalised(texts), self._how, self._words) for texts in text_batches(inputs)
        ]
        return WordRows.joined(batches, self.n_features)

    def known(self, inputs: Any, vectors: WordRows) -> np.ndarray:
        """Which texts hold a known word."""
        ends = np.append(0, np.cumsum(vectors.ids >= 0))
        return np.asarray(np.diff(ends[vectors.indptr]) > 0)

    def names(self, labels: LabelSet) -> NameRows:
        """The names of labels in words."""
        self.check_fitted()
        starts, names = labels.all_names()
        rows = self.transform(names) if len(names) else self.transform(from_arrays(*encoded([])))
        return NameRows(starts, rows, self.idf_, max(1.0, self.n_words_ / max(1, self.n_texts_)))

    def matched(self, text: str, words: np.ndarray) -> list[str]:
        """The words of a text, as they stand there, whose stems are among some words; each once.

        Examples
        --------
        >>> words = StemmedWords().fit(Corpus(["a tale of whales"], labels=["Whaling"]))
        >>> words.matched("Whales, whaling and tales", [3])
        ['Whales', 'whaling']
        """
        self.check_fitted()
        found: dict[str, str] = {}
        wanted = set(np.asarray(words).tolist())
        for piece in _WORD.findall(text):
            ids = self.transform([piece]).ids.tolist()
            if wanted.intersection(ids):
                found.setdefault(piece.casefold(), piece)
        return list(found.values())

    @property
    def n_features(self) -> int:
        """The number of words that are known."""
        self.check_fitted()
        return len(self.words_)


def _native_of(stems: Stems | None) -> _native.Stems:
    return NO_STEMS if stems is None else stems.native()
