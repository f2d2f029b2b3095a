"""Tfidf: words or character n-grams to weighted sparse vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix, vstack

from megalabel import _native
from megalabel.base import (
    array,
    boolean,
    instance,
    integer,
    number,
    one_of,
    optional,
    part,
    sequence_of,
    value,
    with_learned,
)
from megalabel.data import Corpus
from megalabel.data.matrix import NO_WEIGHTS, NORMS, csr_of
from megalabel.data.strings import encoded, from_arrays, strings, to_arrays
from megalabel.errors import DataError, ParameterError
from megalabel.features.inputs import TextArrays, text_batches, texts_in_memory
from megalabel.features.languages import LANGUAGES, language
from megalabel.features.stems import NO_STEMS, NO_TERMS, Stems, lookup, lookup_of
from megalabel.features.stop_words import STOP_WORDS
from megalabel.parts import Featurizer

CASES = {None: _native.Case.keep, "lower": _native.Case.lower, "fold": _native.Case.fold}

TermArrays: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Tfidf(Featurizer):
    """Text to tf-idf vectors, natively and in parallel.

    With the same settings the terms and the matrix are those of scikit-learn's TfidfVectorizer
    (`case="lower", normalise=None, sublinear_tf=False` are its defaults), or of its
    HashingVectorizer (`hashing`, `alternate_sign=False`).

    Parameters
    ----------
    analyzer : "word", "char" or "char_wb"
        Terms are runs of words, runs of characters, or runs of characters within words that are
        padded with a space on both sides. A word is a run of what `\\w` matches in Python.
    ngram_range : (int, int)
        The least and the greatest number of words or characters in a term.
    case : "fold", "lower" or None
        Case folding (`str.casefold`: "Straße" and "STRASSE" are one word), lower case
        (`str.lower`), or case as it is.
    normalise : "NFKC", "NFKD", "NFC", "NFD" or None
        Unicode normal form that texts are brought to first, so that characters which look the
        same are the same. Normal forms, case and words are those of Unicode 14.0, whichever
        version Python or Arrow has.
    strip_accents : bool
        Drop accents and other combining marks. Texts are then decomposed first: NFKD in place of
        NFKC or None, NFD in place of NFC.
    min_word_length : int
        Words of fewer characters are left out; of `analyzer="word"` only.
    stop_words : list of str, or str, optional
        Words that are left out before n-grams are made, in any case if `case` is set; or the
        language whose articles, pronouns, prepositions and the like are left out, by name
        ("english") or ISO 639-1 code ("en").
    stemmer : str, optional
        The language whose Snowball stems take the place of words, by name or code. The stems of the
        words that `fit` meets, in texts and in names of labels, are kept in a table, so that only
        `fit` needs the extra `stemming`; other words lose the endings that such words lose.
    min_df, max_df : int or float
        Terms in fewer than `min_df` or more than `max_df` texts are left out: a number of texts,
        or as a float a share of them.
    max_features : int, optional
        Keep only the terms that occur most often.
    sublinear_tf : bool
        1 + log(count) in place of the count.
    use_idf, smooth_idf : bool
        Weigh by log(n / df) + 1; smoothed as if one more text held every term.
    norm : "l2", "l1" or None
        What each row is divided by.
    binary : bool
        Counts of one, however often a term occurs in a text.
    hashing : int, optional
        Hash terms into this many columns, with no list of terms to keep.

    Attributes
    ----------
    terms_ : Arrow array of str
        The terms, sorted, then those that came later (`grown`); a term's position is its column.
        Not with `hashing`.
    slots_ : uint64 array
        The lookup table of the terms, as it is saved. Not with `hashing`.
    idf_ : float32 array
        The weight of each column; with `use_idf` only.
    n_texts_ : int
        How many texts were learned from.
    stems_ : Stems
        The stems of words; with `stemmer` only.
    counted_ : int
        How many columns make the length of a row, where some were added apart (`grown`).

    Examples
    --------
    >>> tfidf = Tfidf()
    >>> tfidf.fit_transform(["a red dress", "blue jeans", "blue dress"]).shape
    (3, 4)
    >>> tfidf.terms_.to_pylist()
    ['blue', 'dress', 'jeans', 'red']
    >>> Tfidf(stemmer="en", stop_words="en").fit(["she dresses", "the dress"]).terms_.to_pylist()
    ['dress']

    Notes
    -----
    Inputs are a corpus, a sequence of texts, an Arrow array, or any iterable of those as batches.
    From batches, `fit` keeps only the terms found so far, so the texts may be larger than memory.
    `transform` is safe to call from several threads at once.
    """

    PARAMETERS = {  # noqa: RUF012
        "analyzer": one_of("word", "char", "char_wb"),
        "ngram_range": sequence_of(integer(1), 2),
        "case": one_of("fold", "lower", None),
        "normalise": one_of("NFKC", "NFKD", "NFC", "NFD", None),
        "strip_accents": boolean(),
        "min_word_length": integer(1),
        "stop_words": sequence_of(instance(str)) | language(STOP_WORDS) | one_of(None),
        "stemmer": language(LANGUAGES) | one_of(None),
        "min_df": integer(0) | number(0.0, 1.0),
        "max_df": integer(1) | number(0.0, 1.0),
        "max_features": integer(1) | one_of(None),
        "sublinear_tf": boolean(),
        "use_idf": boolean(),
        "smooth_idf": boolean(),
        "norm": one_of("l2", "l1", None),
        "binary": boolean(),
        "hashing": integer(1, 2**31 - 1) | one_of(None),
    }

    LEARNED = {  # noqa: RUF012
        "n_texts_": value(integer(0)),
        "terms_": optional(part(pa.LargeStringArray, "columns")),
        "slots_": optional(array(np.uint64, "slots")),
        "idf_": optional(array(np.float32, "columns")),
        "stems_": optional(part(Stems)),
        "counted_": optional(value(integer(1))),
    }

    terms_: pa.LargeStringArray
    slots_: np.ndarray
    idf_: np.ndarray
    n_texts_: int
    stems_: Stems | None = None
    counted_: int | None = None

    def __init__(
        self,
        *,
        analyzer: str = "word",
        ngram_range: tuple[int, int] = (1, 1),
        case: str | None = "fold",
        normalise: str | None = "NFKC",
        strip_accents: bool = False,
        min_word_length: int = 2,
        stop_words: Sequence[str] | str | None = None,
        stemmer: str | None = None,
        min_df: int | float = 1,
        max_df: int | float = 1.0,
        max_features: int | None = None,
        sublinear_tf: bool = True,
        use_idf: bool = True,
        smooth_idf: bool = True,
        norm: str | None = "l2",
        binary: bool = False,
        hashing: int | None = None,
    ) -> None:
        self.analyzer = analyzer
        self.ngram_range = ngram_range
        self.case = case
        self.normalise = normalise
        self.strip_accents = strip_accents
        self.min_word_length = min_word_length
        self.stop_words = stop_words
        self.stemmer = stemmer
        self.min_df = min_df
        self.max_df = max_df
        self.max_features = max_features
        self.sublinear_tf = sublinear_tf
        self.use_idf = use_idf
        self.smooth_idf = smooth_idf
        self.norm = norm
        self.binary = binary
        self.hashing = hashing

    # --- learning

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Learn the terms and their weights; one pass over a stream, whatever its size."""
        how, stems = self._settings(), self._stems_of_names(inputs)
        n_texts, runs = 0, list[TermArrays]()
        text_counts = self._column_counts(())
        for texts in text_batches(inputs):
            arrays = self._normalised(texts)
            stems = self._more_stems(stems, arrays)
            how = how if stems is None else self._settings(stems)
            n_texts += len(arrays[0]) - 1
            if self.hashing is None:
                runs.append(_native.count_terms(arrays, how))
                # each run is at most half of the one before, so few terms are merged many times
                while len(runs) > 1 and 2 * len(runs[-1][0]) > len(runs[-2][0]):
                    runs[-2:] = [_native.merge_terms(runs[-2], runs[-1])]
            elif self.use_idf:
                text_counts += self._column_counts(_native.hash_rows(arrays, how, self.hashing)[1])
        if self.hashing is not None:
            return self._learn(n_texts, text_counts)
        while len(runs) > 1:
            runs[-2:] = [_native.merge_terms(runs[-2], runs[-1])]
        if not runs:
            raise self._no_terms(0, n_texts)
        terms = _native.select_terms(runs[0], self._selection(n_texts))
        return self._learn_terms(n_texts, terms, len(runs[0][0]) - 1, stems)

    def fit_transform(self, inputs: Any, y: Any = None) -> csr_matrix:
        """`fit` and `transform` in one; texts in memory are read only once."""
        texts = texts_in_memory(inputs)
        if texts is None:
            if isinstance(inputs, Iterator):
                raise DataError(
                    "fit_transform reads a stream twice, which an iterator does not allow; give a"
                    " list, or an object whose __iter__ starts anew"
                )
            return self.fit(inputs).transform(inputs)
        arrays = self._normalised(texts)
        stems = self._more_stems(self._stems_of_names(inputs), arrays)
        how = self._settings(stems)
        n_texts = len(arrays[0]) - 1
        if self.hashing is None:
            terms, found, rows = _native.learn_rows(arrays, how, self._selection(n_texts))
            self._learn_terms(n_texts, terms, found, stems)
        else:
            rows = _native.hash_rows(arrays, how, self.hashing)
            self._learn(n_texts, self._column_counts(rows[1]))
        return self._weighed(*rows)

    def _stems_of_names(self, inputs: Any) -> Stems | None:
        """The stems of words in names of labels."""
        if self.stemmer is None:
            return None
        self._settings()
        stems = Stems(self.stemmer)
        if isinstance(inputs, Corpus):
            return self._more_stems(
                stems, self._normalised(to_arrays(inputs.labels.all_names()[1]))
            )
        return stems

    def _more_stems(self, stems: Stems | None, arrays: TextArrays) -> Stems | None:
        """The same with those of the words of texts."""
        if stems is None:
            return None
        words = _native.count_terms(arrays, self._analysis(1, 1, 1, NO_TERMS))[:2]
        return stems.learn(from_arrays(*words))

    def grown(self, texts: Any, *, apart: bool = False) -> Self:
        """A copy that knows the words of more texts too: in new columns at the end, weighed by how
        many of the new texts they are in. Columns that are there stay as they are.

        `apart`: rows keep the values they have in the columns that are there. A row is divided by
        its length in those alone, words have the stems that they had, and any new word counts,
        however rare.

        Examples
        --------
        >>> tfidf = Tfidf().fit(["red dress", "blue dress"])
        >>> tfidf.grown(["red zebra"]).terms_.to_pylist()
        ['blue', 'dress', 'red', 'zebra']
        >>> apart = tfidf.grown(["red zebra"], apart=True)
        >>> tfidf.transform(["blue zebra"]).data.tolist()
        [1.0]
        >>> apart.transform(["blue zebra"]).toarray().astype(float).round(1).tolist()
        [[1.0, 0.0, 0.0, 1.2]]
        """
        self.check_fitted()
        if self.hashing is not None:
            return self
        stems, runs, n_texts = self.stems_, list[TermArrays](), 0
        for batch in text_batches(texts):
            arrays = self._normalised(batch)
            if not apart:
                stems = self._more_stems(stems, arrays)
            how = self._how if stems is None else self._settings(stems)
            runs[:] = [_native.count_terms(arrays, how), *runs]
            while len(runs) > 1:
                runs[-2:] = [_native.merge_terms(runs[-2], runs[-1])]
            n_texts += len(arrays[0]) - 1
        if not runs:
            return self
        offsets, data, text_counts, _ = runs[0]
        terms = from_arrays(offsets, data)
        fewest = self.min_df if isinstance(self.min_df, int) and not apart else 1
        new = np.asarray(pc.invert(pc.is_in(terms, value_set=self.terms_))) & (
            text_counts >= fewest
        )
        if not new.any():
            return self
        n_texts += self.n_texts_
        learned = self.learned() if apart else self.learned() | {"n_texts_": n_texts}
        learned["terms_"] = pa.concat_arrays([self.terms_, terms.filter(pa.array(new))])
        learned["slots_"] = _native.lookup_slots(to_arrays(learned["terms_"]))
        if self.use_idf:
            idf = self._idf(n_texts, text_counts[new])
            learned["idf_"] = np.append(self.idf_, idf.astype(np.float32))
        if stems is not None:
            learned["stems_"] = stems
        if apart and self.counted_ is None:
            learned["counted_"] = self.n_features
        return with_learned(type(self)(**self.get_params()), **learned)

    def shrunk(self) -> Self:
        """A copy without the words that came apart (`grown`).

        Examples
        --------
        >>> tfidf = Tfidf().fit(["red dress"])
        >>> tfidf.grown(["zebra"], apart=True).shrunk().terms_.to_pylist()
        ['dress', 'red']
        """
        if self.counted_ is None:
            return self
        terms = strings(self.terms_[: self.counted_])
        learned = self.learned() | {"terms_": terms, "counted_": None}
        learned["slots_"] = _native.lookup_slots(to_arrays(terms))
        if self.use_idf:
            learned["idf_"] = self.idf_[: self.counted_]
        return with_learned(type(self)(**self.get_params()), **learned)

    def _learn_terms(
        self, n_texts: int, terms: TermArrays, found: int, stems: Stems | None
    ) -> Self:
        offsets, data, text_counts, _ = terms
        if not len(text_counts):
            raise self._no_terms(found, n_texts)
        slots = _native.lookup_slots((offsets, data))
        learned = {} if stems is None else {"stems_": stems.closed()}
        terms_ = from_arrays(offsets, data)
        return self._learn(n_texts, text_counts, terms_=terms_, slots_=slots, **learned)

    def _column_counts(self, columns: np.ndarray | tuple[()]) -> np.ndarray:
        """How many texts each hashed column occurs in, where that is of use."""
        if not self.use_idf:
            return np.zeros(0, np.int64)
        return np.bincount(np.asarray(columns, np.int32), minlength=self.hashing or 0)

    def _learn(self, n_texts: int, text_counts: np.ndarray, **learned: Any) -> Self:
        learned["n_texts_"] = n_texts
        if self.use_idf:
            learned["idf_"] = self._idf(n_texts, text_counts).astype(np.float32)
        self.restore(learned)
        return self

    def _idf(self, n_texts: int, text_counts: np.ndarray) -> np.ndarray:
        extra = int(self.smooth_idf)
        # a column that no text has met (only hashing has such) counts as met once
        seen = np.maximum(text_counts + extra, 1)
        return np.asarray(np.log((n_texts + extra) / seen) + 1)

    def _selection(self, n_texts: int) -> _native.Selection:
        fewest, most = self._bounds(n_texts)
        if most < fewest and n_texts:
            raise ParameterError(
                f"max_df={self.max_df} is fewer texts than min_df={self.min_df}, of {n_texts}"
            )
        return _native.Selection(
            fewest=fewest, most=most, limit=self.max_features or 0, by_texts=self.binary
        )

    def _bounds(self, n_texts: int) -> tuple[float, float]:
        """The fewest and the most texts that a term may be in."""
        fewest, most = (
            share * n_texts if isinstance(share, float) else share
            for share in (self.min_df, self.max_df)
        )
        return fewest, most

    def _no_terms(self, found: int, n_texts: int) -> DataError:
        if found:
            return DataError(
                f"no terms left: each of the {found} terms is in fewer than min_df={self.min_df}"
                f" or more than max_df={self.max_df} of the {n_texts} texts"
            )
        why = "they are empty"
        if self.analyzer == "word":
            why = (
                "they hold nothing but stop words and words of fewer than"
                f" min_word_length={self.min_word_length} characters"
            )
        return DataError(f"no terms in {n_texts} texts: {why}")

    # --- using what was learned

    def transform(self, inputs: Any) -> csr_matrix:
        """Rows of weights, one a text; a stream's batches are put one below the other."""
        self.check_fitted()
        blocks = []
        for texts in text_batches(inputs):
            arrays = self._normalised(texts)
            if self.hashing is None:
                rows = _native.find_rows(arrays, self._how, self._lookup)
            else:
                rows = _native.hash_rows(arrays, self._how, self.hashing)
            blocks.append(self._weighed(*rows))
        if not blocks:
            return csr_matrix((0, self.n_features), dtype=np.float32)
        return blocks[0] if len(blocks) == 1 else vstack(blocks, "csr")

    def held_out(
        self, vectors: csr_matrix, some: np.ndarray, left_out: np.ndarray | None
    ) -> csr_matrix:
        """Some rows of the vectors of all texts, as if fitted without the texts `left_out`; None:
        each as if without itself.

        Weights are by the idf of the other texts, and terms that these have not, or too seldom or
        too often, are dropped. Terms that these alone would bring in (`max_df`, `max_features`)
        are not.

        Examples
        --------
        >>> tfidf = Tfidf()
        >>> vectors = tfidf.fit_transform(["red dress", "blue dress", "red shoes"])
        >>> tfidf.held_out(vectors, np.array([0, 1]), left_out=None).toarray().round(2)
        array([[0.  , 0.71, 0.71, 0.  ],
               [0.  , 1.  , 0.  , 0.  ]], dtype=float32)
        """
        rows, width = vectors[some], vectors.shape[1]
        text_counts = np.bincount(vectors.indices, minlength=width)
        if left_out is None:
            n_texts, known = self.n_texts_ - 1, text_counts[rows.indices] - 1
        else:
            n_texts = self.n_texts_ - len(left_out)
            text_counts -= np.bincount(vectors[left_out].indices, minlength=width)
            known = text_counts[rows.indices]
        values = rows.data
        if self.use_idf:
            values = values * (self._idf(n_texts, known) / self.idf_[rows.indices])
        if self.hashing is None:
            fewest, most = self._bounds(n_texts)
            values = np.where((known >= max(1, fewest)) & (known <= most), values, 0)
        rows = csr_of(values.astype(np.float32), rows.indices, rows.indptr, width)
        rows.eliminate_zeros()
        indptr = rows.indptr.astype(np.int64, copy=False)
        self._weigh(indptr, rows.indices, rows.data, idf=NO_WEIGHTS, counts=False)
        return rows

    def analyse(self, text: str) -> list[str]:
        """The terms of a text in order, known or not.

        Examples
        --------
        >>> Tfidf(ngram_range=(1, 2)).analyse("A RED dress")
        ['red', 'dress', 'red dress']
        """
        arrays = self._normalised(encoded([text]))
        if self.fitted:
            how = self._how
        else:
            how = self._settings(self._more_stems(self._stems_of_names(None), arrays))
        terms: list[str] = from_arrays(*_native.analyse(arrays, how)).to_pylist()
        return terms

    @property
    def n_features(self) -> int:
        """The number of columns."""
        self.check_fitted()
        return self._columns

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The term of each column, for scikit-learn's tools."""
        self.check_fitted()
        if self.hashing is not None:
            raise ParameterError("with hashing, columns have no terms")
        self.terms_.validate(full=True)  # it may be mapped from a damaged file
        return np.array(self.terms_.to_pylist(), dtype=object)

    def check_learned(self) -> None:
        """What was learned must be what the parameters ask for; gets the lookup ready."""
        for name, asked in (
            ("terms_", self.hashing is None),
            ("slots_", self.hashing is None),
            ("idf_", self.use_idf),
            ("stems_", self.stemmer is not None),
        ):
            if asked != (getattr(self, name, None) is not None):
                raise ValueError(f"{self!r} must {'have' if asked else 'not have'} {name}")
        if self.hashing is None:
            if self.terms_.null_count:
                raise ValueError("terms_ of Tfidf must be strings")
            self.terms_.validate()
            self._lookup = lookup(self.slots_, to_arrays(self.terms_))
        self._columns = len(self.terms_) if self.hashing is None else int(self.hashing)
        if self.use_idf and len(self.idf_) != self._columns:
            raise ValueError(f"idf_ of Tfidf must be of {self._columns} columns")
        self._how = self._settings(self.stems_)

    # --- how texts are read

    def _settings(self, stems: Stems | None = None) -> _native.Analysis:
        """How the native core makes terms, of words with such stems."""
        self.check_parameters()
        shortest, longest = self.ngram_range
        if shortest > longest:
            raise ParameterError(f"ngram_range of Tfidf must rise, not {tuple(self.ngram_range)!r}")
        stop = NO_TERMS
        if self.stop_words:
            if self.analyzer != "word":
                raise ParameterError("stop_words of Tfidf are for analyzer='word' only")
            how = self._analysis(1, 1, 1, NO_TERMS)
            stop = lookup_of(self.stop_words, how, self._normalised)
        self._check_stemmer()
        return self._analysis(shortest, longest, self.min_word_length, stop, stems)

    def _check_stemmer(self) -> None:
        """Raise a ParameterError where words cannot be stemmed."""
        if self.stemmer is None:
            return
        if self.analyzer != "word":
            raise ParameterError("stemmer of Tfidf is for analyzer='word' only")
        if self.case is None:
            raise ParameterError("stems are of words in lower case: give case='fold' or 'lower'")
        if self.hashing is not None:
            raise ParameterError(
                "with hashing, no table of words and their stems is kept: give no stemmer, or no "
                "hashing"
            )

    def _analysis(
        self,
        shortest: int,
        longest: int,
        min_word_length: int,
        stop: _native.Lookup,
        stems: Stems | None = None,
    ) -> _native.Analysis:
        return _native.Analysis(
            unit=_native.Unit[self.analyzer],
            case=CASES[self.case],
            strip_marks=self.strip_accents,
            shortest=shortest,
            longest=longest,
            min_word_length=min_word_length,
            cut=0,
            stop_words=stop,
            stems=NO_STEMS if stems is None else stems.native(),
        )

    def _normalised(self, arrays: TextArrays) -> TextArrays:
        form = self.normalise
        if self.strip_accents:
            form = {None: "NFKD", "NFKC": "NFKD", "NFC": "NFD"}.get(form, form)
        if form is None:
            return arrays
        changed = _native.normalise_texts(arrays, compose=form[-1] == "C", compatible="K" in form)
        return arrays if changed is None else changed

    def _weighed(self, indptr: np.ndarray, indices: np.ndarray, counts: np.ndarray) -> csr_matrix:
        idf = self.idf_ if self.use_idf else NO_WEIGHTS
        self._weigh(indptr, indices, counts, idf=idf, counts=True)
        return csr_of(counts, indices, indptr, self._columns)

    def _weigh(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        *,
        idf: np.ndarray,
        counts: bool,
    ) -> None:
        """Make rows of values, which may be counts of terms still, those of weights, in place."""
        _native.weigh_rows(
            indptr,
            indices,
            values,
            idf=idf,
            binary=counts and self.binary,
            sublinear=counts and self.sublinear_tf,
            norm=NORMS[self.norm],
            counted=self._columns if self.counted_ is None else self.counted_,
        )
