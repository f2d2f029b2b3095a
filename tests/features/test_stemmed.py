"""StemmedWords: words by stem and number, and names in them."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import Corpus, LabelSet
from megalabel.errors import DataError, ParameterError
from megalabel.features import StemmedWords
from megalabel.features.words import word_idf

CORPUS = Corpus(
    ["A policy of trade", "Trading policies", "", "the sea"], labels=["Fisheries", "Trade policy"]
)


def test_words_are_stems_in_order_with_their_idf():
    words = StemmedWords()
    rows = words.fit_transform(CORPUS)
    terms = words.words_.to_pylist()
    assert terms == sorted(["a", "polici", "of", "trade", "the", "sea", "fisheri"])
    assert [terms[i] for i in rows[[1]].ids] == ["trade", "polici"]
    counts = [sum(i in rows[[row]].ids for row in range(4)) for i in range(len(terms))]
    np.testing.assert_array_equal(words.idf_, word_idf(4, np.array(counts)))
    again = words.transform(CORPUS.texts)
    np.testing.assert_array_equal(again.ids, rows.ids)
    np.testing.assert_array_equal(again.indptr, rows.indptr)
    streamed = words.transform(iter([["A policy of trade", "Trading policies"], ["", "the sea"]]))
    np.testing.assert_array_equal(streamed.ids, rows.ids)
    assert words.known(CORPUS.texts, rows).tolist() == [True, True, False, True]
    assert words.n_words_ == 8


def test_names_of_labels_are_rows_too():
    words = StemmedWords().fit(CORPUS)
    names = words.names(LabelSet(["Fishery", "policies, trading"]))
    assert names.starts.tolist() == [0, 1, 2]
    terms = words.words_.to_pylist()
    # a word that was not met, nor others with its ending, is its own stem
    assert names.words[[0]].ids.tolist() == [-1]
    assert [terms[i] for i in names.words[[1]].ids] == ["polici", "trade"]
    assert len(words.names(LabelSet([])).words) == 0


@pytest.mark.parametrize(
    ("options", "terms"),
    [
        ({"stemmer": None}, ["a", "of", "policies", "policy", "trade", "trading"]),
        ({"stop_words": "en"}, ["polici", "trade"]),
        ({"stemmer": "sv", "stop_words": ["of"]}, ["a", "polici", "policy", "trad", "trading"]),
    ],
)
def test_language_is_a_choice(options, terms):
    words = StemmedWords(**options).fit(
        Corpus(["A policy of trade", "Trading policies"], labels=["x"])
    )
    assert [term for term in words.words_.to_pylist() if term != "x"] == terms


def test_words_are_found_again_as_they_stand():
    words = StemmedWords().fit(CORPUS)
    trade = words.words_.to_pylist().index("trade")
    assert words.matched("TRADING, trade and Trade", np.array([trade])) == ["TRADING", "trade"]


def test_what_it_cannot_learn_from_is_named():
    with pytest.raises(DataError, match="give a Corpus with texts"):
        StemmedWords().fit(["a text"])
    with pytest.raises(ParameterError, match="stemmer of StemmedWords must be"):
        StemmedWords(stemmer="klingon").fit(CORPUS)
    words = StemmedWords().fit(CORPUS)
    with pytest.raises(ValueError, match="must have stems_ if it has a stemmer"):
        words.restore({k: v for k, v in words.learned().items() if k != "stems_"})
