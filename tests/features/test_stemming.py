"""Stems and stop words: a table of the words that were met, beside a plain stemmer in Python."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel import Corpus, LabelSet, store
from megalabel.errors import MissingExtraError, ParameterError
from megalabel.features import NameWords, Tfidf
from megalabel.features.languages import CODES, LANGUAGES, language_name, stemmer, stop_words
from megalabel.features.stems import Stems
from megalabel.features.stop_words import STOP_WORDS

snowball = pytest.importorskip("snowballstemmer", reason="stems need snowballstemmer")

TEXTS = [
    "The dresses, a red dress; dressing",
    "Universities and their policies",
    "A university's policy on naïveties, été",
    "Red dressings are dressed",
]
WORDS = ["dress", "dresses", "Dressed", "the", "policies", "policy", "naïveties", "été", "of", "a1"]


def stemmed(texts: list[str], language: str = "english", left_out: Any = ()) -> list[str]:
    """The texts with stems in place of words, without stop words."""
    plain, stems = Tfidf(min_word_length=1), snowball.stemmer(language)
    words = [[w for w in plain.analyse(text) if len(w) > 1] for text in texts]
    return [" ".join(stems.stemWord(w) for w in row if w not in left_out) for row in words]


def assert_equal(one: Any, other: Any) -> None:
    assert one.shape == other.shape
    np.testing.assert_array_equal(one.indptr, other.indptr)
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_array_equal(one.data, other.data)


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("min_df", [1, 2])
def test_rows_are_those_of_texts_that_were_stemmed(ngram_range, min_df):
    plain = Tfidf(ngram_range=ngram_range, min_df=min_df, min_word_length=1)
    left_out = set(stop_words("english"))
    expected = plain.fit_transform(stemmed(TEXTS, left_out=left_out))
    options = {"ngram_range": ngram_range, "min_df": min_df, "stop_words": "en"}
    tfidf = Tfidf(stemmer="english", **options)
    assert_equal(tfidf.fit_transform(TEXTS), expected)
    assert tfidf.terms_ == plain.terms_
    assert_equal(tfidf.transform(TEXTS), expected)
    streamed = Tfidf(stemmer="en", **options).fit(iter([TEXTS[:1], TEXTS[1:]]))
    assert streamed.terms_ == plain.terms_
    assert_equal(streamed.transform(TEXTS), expected)


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_terms_of_any_texts_are_stems(texts):
    tfidf = Tfidf(stemmer="english")
    found = [tfidf.analyse(text) for text in texts]
    assert [" ".join(row) for row in found] == stemmed(texts)


def test_stop_words_of_a_language_are_a_list_of_words():
    named = Tfidf(stop_words="english").fit_transform(TEXTS)
    assert_equal(Tfidf(stop_words=stop_words("en")).fit_transform(TEXTS), named)
    assert "the" not in Tfidf(stop_words="english").analyse("The dress, don't you think?")


def test_words_of_names_of_labels_have_stems_too():
    corpus = Corpus(["a policy"], labels=LabelSet(["p"], ["Policies"]), targets=[["p"]])
    tfidf = Tfidf(stemmer="english").fit(corpus)
    assert tfidf.transform(["policies"]).nnz == 1
    assert_equal(tfidf.transform(["policies"]), tfidf.transform(["policy"]))
    alone = Tfidf(stemmer="english").fit(["a policy"])
    assert alone.transform(["policies"]).nnz == 0


def test_answering_needs_no_stemmer(tmp_path, monkeypatch):
    tfidf = Tfidf(stemmer="english", stop_words="english").fit(TEXTS)
    store.save(tfidf, tmp_path / "m")
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    again = store.load(tmp_path / "m")
    assert_equal(again.transform(TEXTS), tfidf.transform(TEXTS))
    assert again.analyse("dresses") == ["dress"]
    with pytest.raises(MissingExtraError, match=r"megalabel\[stemming\]"):
        Tfidf(stemmer="english").fit(TEXTS)
    assert Tfidf(stop_words="english").fit(TEXTS).terms_.to_pylist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hashing": 64}, "with hashing, no table of words and their stems is kept"),
        ({"analyzer": "char"}, "stemmer of Tfidf is for analyzer='word' only"),
        ({"case": None}, "stems are of words in lower case"),
        ({"stemmer": "klingon"}, "stemmer of Tfidf must be a language by name or code"),
        (
            {"stop_words": "klingon"},
            "stop_words of Tfidf must be .* or a language",
        ),
    ],
)
def test_what_cannot_be_stemmed_is_refused(settings, message):
    with pytest.raises(ParameterError, match=message):
        Tfidf(**({"stemmer": "english"} | settings)).fit(TEXTS)


def test_languages_have_names_and_codes():
    assert set(CODES.values()) == LANGUAGES <= set(snowball.algorithms())
    assert set(STOP_WORDS) <= LANGUAGES
    assert all(code.islower() and language_name(code) == name for code, name in CODES.items())
    for name in STOP_WORDS:
        words = stop_words(name)
        assert 80 < len(words) == len(set(words))
        assert all(word == word.lower() and word.isalpha() for word in words)
    for name in LANGUAGES:
        assert stemmer(name)(["words"])
    with pytest.raises(ParameterError, match="no stemmer is known of 'englisch'; did you mean"):
        stemmer("englisch")
    with pytest.raises(ParameterError, match="no stop words are known of 'hi'; give a list"):
        stop_words("hi")


def test_stems_learn_on():
    first = Stems("english").learn(["dresses", "red"])
    second = first.learn(["policies", "dressing", "dresses"])
    assert second.words_.to_pylist() == ["dresses", "red", "policies", "dressing"]
    assert second.stems_.to_pylist() == ["dress", "red", "polici"]
    assert second.stem_of_.tolist() == [0, 1, 2, 0]
    assert first.words_.to_pylist() == ["dresses", "red"]


LEARNED_FROM = """
    policies cities studies parties ladies dresses crosses glasses houses traces tracing tracking
    parking marking cats dogs cars boats class glass press grass policy city study naïveties
"""
MET = LEARNED_FROM.split()


def by_ending(word: str, stems: Stems) -> str:
    """The stem of a word that was not met, in plain Python."""
    rules = zip(
        stems.endings_.to_pylist(), stems.cuts_.tolist(), stems.appended_.to_pylist(), strict=True
    )
    known = {ending: (cut, more) for ending, cut, more in rules}
    for length in range(len(word) - 2, 0, -1):
        if (rule := known.get(word[-length:])) is not None:
            kept = word.encode()[: len(word.encode()) - rule[0]]
            return kept.decode() + rule[1]
    return word


@given(st.text("abdeginrsty", min_size=4, max_size=9) | st.sampled_from(["berries", "mass", "été"]))
@settings(max_examples=100, deadline=None)
def test_a_word_that_was_not_met_loses_its_ending_as_others_do(word):
    tfidf = Tfidf(stemmer="english").fit([" ".join(MET)])
    if word in MET or len(word) < 4:
        return
    assert tfidf.analyse(word) == [by_ending(word, tfidf.stems_)]


def test_endings_are_those_that_most_words_lose():
    tfidf = Tfidf(stemmer="english").fit([" ".join(MET)])
    told = {
        word: tfidf.analyse(word)[0] for word in ("berries", "walking", "trees", "mass", "ties")
    }
    assert told == {
        "berries": "berri",
        "walking": "walk",
        "trees": "tre",  # as dresses, crosses and glasses do
        "mass": "mass",
        "ties": "ti",
    }
    # words that were met have the stemmer's own stems
    assert [tfidf.analyse(word)[0] for word in MET] == snowball.stemmer("english").stemWords(MET)
    plain = Stems("english").learn(MET)
    assert plain.endings_ is None
    with pytest.raises(ValueError, match="all that is known of endings, or nothing"):
        Stems("english").restore(tfidf.stems_.learned() | {"cuts_": None})


def test_damaged_endings_are_refused():
    tfidf = Tfidf(stemmer="english").fit([" ".join(MET)])
    learned = tfidf.stems_.learned()
    stems = Stems("english")
    more = pa.array(["x" * 9] * len(learned["endings_"]), pa.large_string())
    stems.restore(learned | {"cuts_": np.full_like(learned["cuts_"], 250), "appended_": more})
    tfidf.restore(tfidf.learned() | {"stems_": stems})
    assert tfidf.analyse("walking") == ["walking"]  # nothing is cut that is not there


@pytest.mark.parametrize("damage", [-1, 700])
def test_a_table_that_names_no_stem_is_refused(damage):
    tfidf = Tfidf(stemmer="english").fit(TEXTS)
    learned = tfidf.stems_.learned()
    stems = Stems("english")
    stems.restore(learned | {"stem_of_": np.full_like(learned["stem_of_"], damage)})
    tfidf.restore(tfidf.learned() | {"stems_": stems})
    with pytest.raises(ValueError, match=f"stem {damage} of"):
        tfidf.transform(["dresses"])


def test_a_stem_longer_than_its_word_is_refused():
    learned = Stems("english").learn(["dresses"]).learned()
    stems = Stems("english")
    stems.restore(learned | {"stems_": pa.array(["x" * 50], pa.large_string())})
    tfidf = Tfidf(stemmer="english").fit(["a dress"])
    tfidf.restore(tfidf.learned() | {"stems_": stems})
    with pytest.raises(ValueError, match="no longer than its word"):
        tfidf.transform(["dresses"])


def test_names_match_by_stems_of_a_language():
    corpus = Corpus(["whales and the sea", "the whale", "history"], labels=["Whaling", "Seas of"])
    names = NameWords(stemmer="english", stop_words="english").fit(corpus)
    share, whole = (names.FEATURES.index(name) for name in ("stem_share", "whole"))
    found = names.features(names.transform(["Histories of a whale, by sea"]), [[0, 1]])[0]
    assert found[:, share].tolist() == [1, 1]
    assert found[:, whole].tolist() == [0, 0]
    more = names.add_labels(LabelSet(["Histories of whalings"]))
    assert more.features(more.transform(["history of whaling"]), [[2]])[0, 0, share] == 1
    assert names.transform(["of the"]).ids.tolist() == []
