"""Tfidf gives scikit-learn's terms and matrix under the same settings."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import (
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)

from megalabel import _native
from megalabel.features import Tfidf

CASES = {"lower": True, None: False}
# characters that this Python knows but the tables do not could be words here and not there
NEWER = unicodedata.unidata_version != _native.UNICODE_VERSION
LAST = 0xFFFF if NEWER else None
letters = st.characters(max_codepoint=LAST, exclude_categories=["Cs"] + (["Cn"] if NEWER else []))
words = st.sampled_from(
    [
        "red",
        "Dress",
        "a",
        "ΟΔΟΣ",
        "İstanbul",
        "naïve",
        "ß",
        "été",
        "日本語",
        "שלום",
        "x_1",
        "😀",
        "\0",
    ]
)
spaces = st.sampled_from([" ", "  ", "\n", "\t\u3000", "-", "\u00a0", ", ", "\u0301"])
texts = st.lists(
    st.one_of(
        st.text(letters, max_size=20),
        st.lists(st.one_of(words, spaces), max_size=12).map("".join),
    ),
    min_size=1,
    max_size=8,
)


def pair(**parameters: Any) -> tuple[Tfidf, TfidfVectorizer]:
    ours = {"case": "lower", "normalise": None, "sublinear_tf": False} | parameters
    theirs = dict(parameters)
    theirs["lowercase"] = CASES[theirs.pop("case", "lower")]
    length = theirs.pop("min_word_length", 2)
    theirs["token_pattern"] = rf"(?u)\b\w{{{length},}}\b"
    if ours.get("analyzer", "word") != "word":
        del theirs["token_pattern"]
    return Tfidf(**ours), TfidfVectorizer(**theirs)


def check(ours: Any, theirs: Any, corpus: list[str]) -> None:
    try:
        expected = theirs.fit_transform(corpus)
    except ValueError:  # nothing is left, or max_df is fewer texts than min_df
        with pytest.raises(ValueError, match=r"no terms|max_df"):
            ours.fit_transform(corpus)
        return
    found = ours.fit_transform(corpus)
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    assert_same(found, expected)
    assert_same(ours.transform(corpus), expected)
    if ours.use_idf:
        np.testing.assert_allclose(ours.idf_, theirs.idf_, rtol=1e-6)


def assert_same(found: Any, expected: Any) -> None:
    assert found.dtype == np.float32
    assert found.indices.dtype == np.int32
    assert found.shape == expected.shape
    expected = expected.tocsr().sorted_indices()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-6, atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    corpus=texts,
    analyzer=st.sampled_from(["word", "char", "char_wb"]),
    low=st.integers(1, 4),
    more=st.integers(0, 3),
    case=st.sampled_from(["lower", None]),
    length=st.integers(1, 3),
)
def test_terms_come_in_the_same_order(
    corpus: list[str], analyzer: str, low: int, more: int, case: str | None, length: int
) -> None:
    ours, theirs = pair(
        analyzer=analyzer, ngram_range=(low, low + more), case=case, min_word_length=length
    )
    analyse = theirs.build_analyzer()
    for text in corpus:
        assert ours.analyse(text) == analyse(text)


@settings(max_examples=200, deadline=None)
@given(corpus=texts, data=st.data())
def test_matrices_agree_on_any_text(corpus: list[str], data: st.DataObject) -> None:
    parameters = {
        "analyzer": data.draw(st.sampled_from(["word", "char", "char_wb"])),
        "ngram_range": data.draw(st.sampled_from([(1, 1), (1, 2), (2, 3), (3, 5)])),
        "min_df": data.draw(st.sampled_from([1, 2, 0.3])),
        "max_df": data.draw(st.sampled_from([1.0, 0.9, 5])),
        "binary": data.draw(st.booleans()),
        "sublinear_tf": data.draw(st.booleans()),
        "use_idf": data.draw(st.booleans()),
        "smooth_idf": data.draw(st.booleans()),
        "norm": data.draw(st.sampled_from(["l2", "l1", None])),
    }
    check(*pair(**parameters), corpus)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"sublinear_tf": True, "min_df": 2},
        {"ngram_range": (1, 3), "min_df": 3, "max_df": 0.1},
        {"ngram_range": (2, 2), "case": None, "min_word_length": 1},
        {"stop_words": ["the", "of", "and"], "ngram_range": (1, 2), "smooth_idf": False},
        {"analyzer": "char", "ngram_range": (2, 4), "norm": "l1"},
        {"analyzer": "char_wb", "ngram_range": (3, 5), "min_df": 2},
        {"analyzer": "char_wb", "ngram_range": (1, 6), "binary": True, "use_idf": False},
        {"norm": None, "sublinear_tf": True},
    ],
    ids=str,
)
def test_matrices_agree_on_real_texts(real_texts: list[str], parameters: dict[str, Any]) -> None:
    check(*pair(**parameters), real_texts[:1500])


def test_the_most_frequent_terms_agree(real_texts: list[str]) -> None:
    counts = TfidfVectorizer(use_idf=False, norm=None).fit_transform(real_texts).sum(axis=0)
    counts = np.sort(np.asarray(counts).ravel())[::-1]
    # where the cut goes through equal counts, scikit-learn's choice is that of an unstable sort
    limit = next(i for i in range(300, 1000) if counts[i - 1] != counts[i])
    check(*pair(max_features=limit), real_texts)


def test_max_features_takes_the_earlier_of_equal_terms() -> None:
    tfidf = Tfidf(max_features=2).fit(["bb aa cc", "cc dd"])
    assert tfidf.terms_.to_pylist() == ["aa", "cc"]


@settings(max_examples=80, deadline=None)
@given(
    corpus=texts,
    columns=st.sampled_from([1, 7, 2**20, 2**31 - 1]),
    analyzer=st.sampled_from(["word", "char", "char_wb"]),
    binary=st.booleans(),
    norm=st.sampled_from(["l2", "l1", None]),
)
def test_hashing_agrees(
    corpus: list[str], columns: int, analyzer: str, binary: bool, norm: str | None
) -> None:
    shared = {"analyzer": analyzer, "ngram_range": (1, 2), "binary": binary, "norm": norm}
    ours = Tfidf(
        **shared,
        hashing=columns,
        case="lower",
        normalise=None,
        sublinear_tf=False,
        use_idf=False,
    )
    theirs = HashingVectorizer(**shared, n_features=columns, alternate_sign=False)
    expected = theirs.transform(corpus)
    assert_same(ours.fit_transform(corpus), expected)
    assert_same(ours.fit(corpus).transform(corpus), expected)


def test_hashing_with_learned_weights_agrees(real_texts: list[str]) -> None:
    counts = HashingVectorizer(n_features=4096, alternate_sign=False, norm=None).transform(
        real_texts
    )
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    ours = Tfidf(hashing=4096, case="lower", normalise=None)
    assert_same(ours.fit_transform(real_texts), expected)
    assert_same(ours.fit(iter([real_texts[:99], real_texts[99:]])).transform(real_texts), expected)
