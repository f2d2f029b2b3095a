"""The words of texts by number: how words are made, and rows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from megalabel import _native
from megalabel.data.matrix import picked_rows
from megalabel.data.strings import from_arrays
from megalabel.features.inputs import TextArrays
from megalabel.features.stems import NO_STEMS, NO_TERMS, lookup_of

FEWEST = 2  # texts that a word is in which is kept, if it is in no name


class WordRows:
    """The words of texts by number, in order; rows are picked as those of a matrix are.

    Parameters
    ----------
    ids : int32 array
        The words of all rows in a row: a word's number; -2 less a stem's number for a word that is
        not known but begins as known ones do; -1 for all others.
    indptr : int64 array (rows + 1,)
        Where each row starts.
    vocabulary : int
        How many words are known.

    Examples
    --------
    >>> rows = WordRows(np.array([5, -1, 6], np.int32), np.array([0, 1, 3]), vocabulary=9)
    >>> rows[[1]].ids, rows.shape
    (array([-1,  6], dtype=int32), (2, 9))
    """

    def __init__(self, ids: np.ndarray, indptr: np.ndarray, vocabulary: int) -> None:
        self.ids, self.indptr, self.vocabulary = ids, indptr, vocabulary

    @classmethod
    def joined(cls, batches: Sequence[tuple[np.ndarray, np.ndarray]], vocabulary: int) -> WordRows:
        """Rows of several batches, each where its rows start and their words."""
        if len(batches) == 1:
            indptr, ids = batches[0]
            return cls(ids, indptr, vocabulary)
        ends = np.cumsum([0, *(len(ids) for _, ids in batches)])
        starts = [end + indptr[1:] for end, (indptr, _) in zip(ends, batches, strict=False)]
        indptr = np.concatenate([np.zeros(1, np.int64), *starts])
        ids = np.concatenate([np.zeros(0, np.int32), *(ids for _, ids in batches)])
        return cls(ids, indptr, vocabulary)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and the number of words that are known."""
        return len(self), self.vocabulary

    @property
    def size(self) -> int:
        """Words of all rows."""
        return len(self.ids)

    def native(self) -> _native.RowsOfNumbers:
        """The rows as the native core takes them."""
        return _native.RowsOfNumbers(starts=self.indptr, items=self.ids)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: Any) -> WordRows:
        at, indptr = picked_rows(self.indptr, np.arange(len(self))[rows])
        return WordRows(self.ids[at], indptr, self.vocabulary)


def word_analysis(
    cut: int = 0,
    case: _native.Case = _native.Case.fold,
    stems: _native.Stems = NO_STEMS,
    stop: _native.Lookup = NO_TERMS,
) -> _native.Analysis:
    """How words are made: as by Tfidf, of any length; cut to so many characters unless 0."""
    return _native.Analysis(
        unit=_native.Unit.word,
        case=case,
        strip_marks=False,
        shortest=1,
        longest=1,
        min_word_length=1,
        cut=cut,
        stop_words=stop,
        stems=stems,
    )


def normalised(texts: TextArrays) -> TextArrays:
    """Texts in the normal form that words are made of."""
    changed = _native.normalise_texts(texts, compose=True, compatible=True)
    return texts if changed is None else changed


def stop_lookup(stop_words: Sequence[str] | str | None) -> _native.Lookup:
    """What finds stop words, of a list or of a language; nothing where there are none."""
    return lookup_of(stop_words, word_analysis(), normalised) if stop_words else NO_TERMS


def word_idf(n_texts: int, text_counts: np.ndarray) -> np.ndarray:
    """How rare words are that so many of the texts have."""
    # never 0, so that a name of common words alone has shares too
    return np.log((n_texts + 1) / (text_counts + 0.5)).astype(np.float32)


def vocabulary_of(
    texts: TextArrays, names: TextArrays, how: _native.Analysis, fewest: int = FEWEST
) -> tuple[pa.LargeStringArray, np.ndarray]:
    """The terms of names and those that enough texts have, and how many texts have each."""
    offsets, data, text_counts, counts = _native.count_terms(texts, how)
    named_offsets, named_data, _, name_counts = _native.count_terms(names, how)
    offsets, data, text_counts, name_counts = _native.merge_terms(
        (offsets, data, text_counts, np.zeros_like(counts)),
        (named_offsets, named_data, np.zeros_like(name_counts), name_counts),
    )
    kept = (text_counts >= fewest) | (name_counts > 0)
    return from_arrays(offsets, data).filter(pa.array(kept)), text_counts[kept]


def unknown_words(
    names: TextArrays, how: _native.Analysis, known: _native.Lookup
) -> pa.LargeStringArray:
    """The terms of names that are not known."""
    terms = _native.count_terms(names, how)[:2]
    ids = found_words(terms, word_analysis(case=_native.Case.keep), known)[1]
    return from_arrays(*terms).filter(pa.array(ids < 0))


def found_words(
    texts: TextArrays, how: _native.Analysis, terms: _native.Lookup
) -> tuple[np.ndarray, np.ndarray]:
    """Where the terms of each text start, and their numbers; -1: not known."""
    return _native.find_words(
        texts, how, words=terms, stems=NO_TERMS, inflected=NO_STEMS, stem_length=1
    )
