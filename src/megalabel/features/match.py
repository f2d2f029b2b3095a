"""NameWords: how the names of labels match a text, for what ranks a few candidates again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel import _native
from megalabel.base import (
    Component,
    array,
    instance,
    integer,
    one_of,
    optional,
    part,
    sequence_of,
    value,
)
from megalabel.data import Corpus, LabelSet
from megalabel.data.matrix import picked_rows
from megalabel.data.strings import from_arrays, to_arrays
from megalabel.errors import DataError, ShapeError
from megalabel.features.inputs import TextArrays, text_batches
from megalabel.features.languages import LANGUAGES, language
from megalabel.features.stems import NO_STEMS, NO_TERMS, Stems, lookup, lookup_of
from megalabel.features.stop_words import STOP_WORDS
from megalabel.features.words import (
    WordRows,
    found_words,
    normalised,
    unknown_words,
    vocabulary_of,
    word_analysis,
    word_idf,
)
from megalabel.parts import Featurizer


class NameWords(Featurizer):
    """The words of texts, and features of how the names of labels match them.

    `transform` gives the words of texts by number; `features` gives numbers for each text and some
    candidate labels. Words are those of `Tfidf` with its own settings, but words of one letter
    count too. A word's idf is log((n + 1) / (texts with the word + 0.5)) of the n texts that were
    learned from, and largest for a word that is in none of them. Only names are looked at, not the
    longer texts of labels.

    Parameters
    ----------
    stem_length : int
        Words that agree in so many first characters have the same stem, without a `stemmer`.
    stemmer : str, optional
        The language whose Snowball stems are taken, by name ("english") or ISO 639-1 code ("en").
        Those of words that `fit` and `add_labels` meet are kept, so that only they need the extra
        `stemming`; of other words the endings are cut that such words lose.
    stop_words : list of str, or str, optional
        Words that do not count, in names and in texts; or the language whose articles, pronouns and
        the like do not. A name of stop words alone matches nothing.

    Attributes
    ----------
    words_, stems_ : Arrow array of str
        Words and stems of all names, and those that are in two texts at least.
    word_slots_, stem_slots_ : uint64 array
        Their lookup tables.
    word_idf_, stem_idf_ : float32 array
        How rare each is in texts.
    stem_of_ : int32 array
        The stem of each word.
    name_starts_, word_starts_ : int64 array
        Where the names of each label start, and where the words of each name start.
    name_words_ : int32 array
        The words of all names in a row.
    n_texts_ : int
        How many texts were learned from.
    inflected_ : Stems
        Which stem other words have; with `stemmer` only.

    Examples
    --------
    >>> corpus = Corpus(["a tale of whales", "red dress"], targets=[["Whale -- Fiction"], ["Red"]])
    >>> names = NameWords().fit(corpus)
    >>> found = names.features(names.transform(["Red whales"]), [[0, 1]])
    >>> found[0, :, names.FEATURES.index("share")]
    array([1., 0.], dtype=float32)
    >>> found[0, :, names.FEATURES.index("stem_share")].round(2)
    array([1.  , 0.28], dtype=float32)

    Notes
    -----
    The columns of `features` (`FEATURES`), of a text and a name:

    - `weighted_share`: share of the name's words that are in the text, weighed by idf
    - `share`: the same, each word weighing the same
    - `whole`: 1 if all of its words are in the text
    - `phrase`: 1 if they are there in a row and in order
    - `first_position`: share of the text before the first word that matches; NaN: none does
    - `rarest_found`, `rarest_missing`: the largest idf of a word that is in the text, and of one
      that is not; 0: there is none
    - `name_words`: how many words the name has
    - `text_share`: share of the idf of the text's words, each counted once, that the name covers
    - `stem_share`: as `weighted_share`, of stems

    Words count as often as a name has them. A name without words has nothing in common with any
    text. Of a label with several names, the one with the largest `weighted_share` counts, then the
    one with the largest `stem_share`. All methods but `fit` may be called from several threads at
    once.
    """

    FEATURES: ClassVar[tuple[str, ...]] = tuple(one.name for one in _native.MatchFeature)

    PARAMETERS = {  # noqa: RUF012
        "stem_length": integer(1),
        "stemmer": language(LANGUAGES) | one_of(None),
        "stop_words": sequence_of(instance(str)) | language(STOP_WORDS) | one_of(None),
    }

    LEARNED = {  # noqa: RUF012
        "n_texts_": value(integer(0)),
        "words_": part(pa.LargeStringArray, "words"),
        "word_slots_": array(np.uint64, "word slots"),
        "word_idf_": array(np.float32, "words"),
        "stems_": part(pa.LargeStringArray, "stems"),
        "stem_slots_": array(np.uint64, "stem slots"),
        "stem_idf_": array(np.float32, "stems"),
        "stem_of_": array(np.int32, "words"),
        "name_starts_": array(np.int64, "labels+1"),
        "word_starts_": array(np.int64, "names+1"),
        "name_words_": array(np.int32, "words of names"),
        "inflected_": optional(part(Stems)),
    }

    n_texts_: int
    words_: pa.LargeStringArray
    word_slots_: np.ndarray
    word_idf_: np.ndarray
    stems_: pa.LargeStringArray
    stem_slots_: np.ndarray
    stem_idf_: np.ndarray
    stem_of_: np.ndarray
    name_starts_: np.ndarray
    word_starts_: np.ndarray
    name_words_: np.ndarray
    inflected_: Stems | None = None

    def __init__(
        self,
        *,
        stem_length: int = 5,
        stemmer: str | None = None,
        stop_words: Sequence[str] | str | None = None,
    ) -> None:
        self.stem_length = stem_length
        self.stemmer = stemmer
        self.stop_words = stop_words

    @staticmethod
    def useful(labels: LabelSet) -> bool:
        """Whether there is anything to match: not where most names hold no letter, such as the
        numbers of labels.

        Examples
        --------
        >>> NameWords.useful(LabelSet(["red", "3D"])), NameWords.useful(LabelSet.numbered(3))
        (True, False)
        """
        worded = pc.match_substring_regex(labels.names, r"\p{L}")
        return 2 * (pc.sum(worded).as_py() or 0) > len(labels)

    def known(self, inputs: Any, vectors: WordRows) -> np.ndarray:
        """Which texts hold a known word, or one that begins as known ones do."""
        ends = np.append(0, np.cumsum(vectors.ids != -1))
        return np.asarray(np.diff(ends[vectors.indptr]) > 0)

    # --- learning

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Learn the words of a corpus: those of its texts, and those of its labels' names."""
        self.check_parameters()
        if not isinstance(inputs, Corpus) or inputs.texts is None:
            raise DataError(
                "NameWords learns from texts and the names of labels: give a Corpus with texts"
            )
        texts = normalised(to_arrays(inputs.texts))
        names = normalised(to_arrays(inputs.labels.names))
        stop = self._stop()
        table: dict[str, Stems] = {}
        if self.stemmer is not None:
            met = _native.merge_terms(
                *(_native.count_terms(t, word_analysis()) for t in (texts, names))
            )
            table["inflected_"] = Stems(self.stemmer).learn(from_arrays(*met[:2])).closed()
        words, word_counts = vocabulary_of(texts, names, word_analysis(stop=stop))
        stems, stem_counts = vocabulary_of(
            texts, names, self._stem_analysis(table.get("inflected_"), stop=stop)
        )
        n_texts = len(inputs)
        return self._learn(
            names,
            n_texts_=n_texts,
            words_=words,
            word_idf_=word_idf(n_texts, word_counts),
            stems_=stems,
            stem_idf_=word_idf(n_texts, stem_counts),
            name_starts_=np.zeros(1, np.int64),
            word_starts_=np.zeros(1, np.int64),
            name_words_=np.zeros(0, np.int32),
            **table,
        )

    def _stop(self) -> _native.Lookup:
        """The stop words."""
        return (
            lookup_of(self.stop_words, word_analysis(), normalised) if self.stop_words else NO_TERMS
        )

    def _stem_analysis(
        self,
        table: Stems | None,
        case: _native.Case = _native.Case.fold,
        stop: _native.Lookup = NO_TERMS,
    ) -> _native.Analysis:
        """How stems are made."""
        cut = self.stem_length if self.stemmer is None else 0
        return word_analysis(cut, case, NO_STEMS if table is None else table.native(), stop)

    def add_labels(self, labels: LabelSet) -> Self:
        """A copy that knows more labels, numbered after those that are known.

        Words that were in fewer than two texts and in no name count as in none. The rows of texts
        that were made before can still be used.

        Examples
        --------
        >>> names = NameWords().fit(Corpus(["a red dress", "a red hat"], labels=["Red", "Hats"]))
        >>> more = names.add_labels(LabelSet(["Dresses, red"]))
        >>> more.features(more.transform(["red dress"]), [[2]])[0, 0, :2].round(2)
        array([0.09, 0.5 ], dtype=float32)
        """
        self.check_fitted()
        names = normalised(to_arrays(labels.names))
        table: dict[str, Stems] = {}
        if self.inflected_ is not None:
            met = _native.count_terms(names, word_analysis())[:2]
            table["inflected_"] = self.inflected_.learn(from_arrays(*met))
        stop = self._stop()
        words = unknown_words(names, word_analysis(stop=stop), self._words)
        inflected = table.get("inflected_")
        stems = unknown_words(names, self._stem_analysis(inflected, stop=stop), self._stems)
        learned = self.learned() | {
            "words_": pa.concat_arrays([self.words_, words]),
            "word_idf_": np.append(self.word_idf_, word_idf(self.n_texts_, np.zeros(len(words)))),
            "stems_": pa.concat_arrays([self.stems_, stems]),
            "stem_idf_": np.append(self.stem_idf_, word_idf(self.n_texts_, np.zeros(len(stems)))),
            **table,
        }
        return type(self)(**self.get_params(deep=False))._learn(names, **learned)

    def _learn(self, names: TextArrays, **learned: Any) -> Self:
        """Take what is known of words, and further labels with one name each."""
        words, stems = to_arrays(learned["words_"]), to_arrays(learned["stems_"])
        learned["word_slots_"] = _native.lookup_slots(words)
        learned["stem_slots_"] = _native.lookup_slots(stems)
        known = lookup(learned["word_slots_"], words)
        cut = self._stem_analysis(learned.get("inflected_"), _native.Case.keep)
        learned["stem_of_"] = found_words(words, cut, lookup(learned["stem_slots_"], stems))[1]
        starts, ids = found_words(names, word_analysis(stop=self._stop()), known)
        for name, more in (
            ("name_starts_", np.arange(1, len(starts))),
            ("word_starts_", starts[1:]),
        ):
            before = learned[name]
            learned[name] = np.append(before, before[-1] + more)
        learned["name_words_"] = np.append(learned["name_words_"], ids)
        self.restore(learned)
        return self

    def check_learned(self) -> None:
        """Words must be strings, and all names be those of labels; gets the lookups ready."""
        for name, strings in (("words_", self.words_), ("stems_", self.stems_)):
            if strings.null_count:
                raise ValueError(f"{name} of NameWords must be strings")
            strings.validate()
        self._words = lookup(self.word_slots_, to_arrays(self.words_))
        self._stems = lookup(self.stem_slots_, to_arrays(self.stems_))
        if (self.stemmer is not None) != (self.inflected_ is not None):
            raise ValueError("NameWords must have inflected_ if it has a stemmer, and only then")
        self._how = word_analysis(stop=self._stop())
        self._names = _native.Names(
            name_starts=self.name_starts_,
            word_starts=self.word_starts_,
            words=self.name_words_,
            stems=self.stem_of_,
            word_idf=self.word_idf_,
            stem_idf=self.stem_idf_,
            unknown_idf=float(word_idf(self.n_texts_, np.zeros(1))[0]),
        )

    def take_labels(self, numbers: Any) -> Self:
        """A copy for some of the labels, in the order of their numbers; all words stay known."""
        return Component.take_labels(self, numbers)

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        names = self.word_starts_[1:]
        for name, inner in (("name_starts_", names), ("word_starts_", self.name_words_)):
            starts = getattr(self, name)
            if starts[0] != 0 or starts[-1] != len(inner) or (np.diff(starts) < 0).any():
                raise ValueError(f"{name} of NameWords must rise from 0 to {len(inner)}")
        taken, name_starts = picked_rows(self.name_starts_, numbers)
        words, word_starts = picked_rows(self.word_starts_, taken)
        return self.learned() | {
            "name_starts_": name_starts,
            "word_starts_": word_starts,
            "name_words_": self.name_words_[words],
        }

    # --- using what was learned

    def transform(self, inputs: Any) -> Any:
        """The words of each text in order, as WordRows."""
        self.check_fitted()
        batches = [
            _native.find_words(
                normalised(texts),
                self._how,
                words=self._words,
                stems=self._stems,
                inflected=NO_STEMS if self.inflected_ is None else self.inflected_.native(),
                stem_length=self.stem_length if self.stemmer is None else 0,
            )
            for texts in text_batches(inputs)
        ]
        return WordRows.joined(batches, self.n_features)

    def native(self) -> _native.Names:
        """The names as the native core takes them."""
        self.check_fitted()
        return self._names

    def features(self, rows: WordRows, ids: Any) -> np.ndarray:
        """How the names of labels match texts.

        Parameters
        ----------
        rows : WordRows
            The texts, as `transform` gives them.
        ids : int32 array (rows, k)
            The candidates of each text. -1, and the number of labels, with which a `Ranking` is
            padded, stand for none.

        Returns
        -------
        float32 array (rows, k, len(FEATURES))
            NaN where there is no candidate.
        """
        self.check_fitted()
        candidates = np.ascontiguousarray(ids, np.int32)
        if candidates.ndim != 2 or len(candidates) != len(rows):
            raise ShapeError(
                f"candidates must be ({len(rows)}, k), a row for each text, not {candidates.shape}"
            )
        found = _native.match_features(
            self._names, starts=rows.indptr, ids=rows.ids, candidates=candidates
        )
        return found.reshape(*candidates.shape, len(self.FEATURES))

    @property
    def n_features(self) -> int:
        """The number of words that are known."""
        self.check_fitted()
        return len(self.words_)
