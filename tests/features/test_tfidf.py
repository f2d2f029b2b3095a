"""What Tfidf does beside agreeing with scikit-learn: inputs, streams, edges, damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import megalabel
from megalabel.data import Corpus
from megalabel.errors import DataError, NotFittedError, ParameterError
from megalabel.features import Tfidf

TEXTS = ["a red dress", "Blue jeans", "blue dress, blue shoes", "", "ÉTÉ à Paris"]


class Batches:
    """A stream that can be read again."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def assert_equal(a: Any, b: Any) -> None:
    assert a.shape == b.shape
    np.testing.assert_array_equal(a.indptr, b.indptr)
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.data, b.data)


def reopened(tfidf: Tfidf, **changed: Any) -> Tfidf:
    """A copy made from what a store keeps, with arrays that cannot be written to."""
    learned = tfidf.learned() | changed
    for value in learned.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    copy = Tfidf(**tfidf.get_params())
    copy.restore(learned)
    return copy


# --- inputs


@pytest.mark.parametrize(
    "inputs",
    [
        tuple(TEXTS),
        Corpus(TEXTS),
        pa.array(TEXTS),
        pa.array(TEXTS).dictionary_encode(),
        pa.chunked_array([TEXTS[:2], TEXTS[2:]]),
        pa.array(["other", *TEXTS, "more"], pa.large_string())[1:-1],
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        dict.fromkeys(TEXTS).keys(),
    ],
    ids=lambda v: type(v).__name__,
)
def test_texts_come_in_many_forms(inputs: Any) -> None:
    expected = Tfidf().fit_transform(TEXTS)
    tfidf = Tfidf()
    assert_equal(tfidf.fit_transform(inputs), expected)
    assert_equal(tfidf.fit(inputs).transform(inputs), expected)


@pytest.mark.parametrize("hashing", [None, 64])
@pytest.mark.parametrize(
    "stream",
    [
        Batches(TEXTS[:2], TEXTS[2:]),
        [TEXTS[:1], pa.array(TEXTS[1:3]), Corpus(TEXTS[3:])],
        Batches(*TEXTS),
        Batches(TEXTS[0], TEXTS[1:4], [], TEXTS[4]),
        Batches(*[[text] for text in TEXTS]),
    ],
)
def test_a_stream_gives_what_its_texts_give(stream: Any, hashing: int | None) -> None:
    whole, streamed = Tfidf(hashing=hashing), Tfidf(hashing=hashing)
    expected = whole.fit_transform(TEXTS)
    assert_equal(streamed.fit_transform(stream), expected)
    assert_equal(streamed.fit(iter(stream)).transform(iter(stream)), expected)
    assert streamed.n_texts_ == len(TEXTS)
    for name, value in whole.learned().items():
        assert np.array_equal(streamed.learned()[name], value)


def test_many_batches_of_real_texts(real_texts: list[str]) -> None:
    settings = {"ngram_range": (1, 2), "min_df": 2, "max_df": 0.2, "max_features": 3000}
    batches = [real_texts[i : i + 137] for i in range(0, len(real_texts), 137)]
    expected = Tfidf(**settings).fit_transform(real_texts)
    assert_equal(Tfidf(**settings).fit_transform(batches), expected)


def test_an_iterator_cannot_be_read_twice() -> None:
    with pytest.raises(DataError, match="starts anew"):
        Tfidf().fit_transform(iter([TEXTS]))


def test_an_empty_stream() -> None:
    with pytest.raises(DataError, match="no terms in 0 texts"):
        Tfidf().fit(Batches())
    assert Tfidf().fit(TEXTS).transform(Batches()).shape == (0, 7)
    assert Tfidf().fit(TEXTS).transform([]).shape == (0, 7)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("one text", "found one string"),
        (b"bytes", "found one string"),
        (7, "found int"),
        ([1, 2], "expected a string at position 0, found 1"),
        (["a", None], "position 1"),
        (["fine", "bad \ud800 one"], r"position 1 holds a lone surrogate, '\\ud800'"),
        (Corpus(features=np.eye(2)), "expected a corpus with texts"),
    ],
)
def test_what_is_not_text_is_named(inputs: Any, message: str) -> None:
    for method in (Tfidf().fit, Tfidf().fit_transform, Tfidf().fit(TEXTS).transform):
        with pytest.raises(DataError, match=message):
            method(inputs)


# --- settings


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"analyzer": "syllable"}, "analyzer of Tfidf must be one of"),
        ({"ngram_range": (2, 1)}, "must rise"),
        ({"ngram_range": 2}, "ngram_range"),
        ({"min_df": -1}, "min_df"),
        ({"max_df": 1.5}, "max_df"),
        ({"min_df": 4, "max_df": 2}, "max_df=2 is fewer texts than min_df=4"),
        ({"stop_words": "latin"}, "stop_words"),
        ({"stop_words": ["a"], "analyzer": "char"}, "analyzer='word' only"),
        ({"hashing": 0}, "hashing"),
        ({"normalise": "NFX"}, "normalise"),
    ],
)
def test_a_wrong_setting_is_named(parameters: dict[str, Any], message: str) -> None:
    for method in (Tfidf(**parameters).fit, Tfidf(**parameters).fit_transform):
        with pytest.raises(ParameterError, match=message):
            method(TEXTS)


@pytest.mark.parametrize(
    ("texts", "parameters", "message"),
    [
        (TEXTS, {"min_df": 3}, "each of the 7 terms is in fewer than min_df=3"),
        (["", " ", "?!"], {}, "words of fewer than min_word_length=2"),
        (["the", "The a"], {"stop_words": ["the"]}, "stop words"),
        (["", ""], {"analyzer": "char"}, "they are empty"),
        ([], {}, "no terms in 0 texts"),
    ],
)
def test_nothing_to_learn_from_is_an_error(
    texts: list[str], parameters: dict[str, Any], message: str
) -> None:
    for method in (Tfidf(**parameters).fit, Tfidf(**parameters).fit_transform):
        with pytest.raises(DataError, match=message):
            method(texts)


def test_stop_words_are_read_as_texts_are() -> None:
    tfidf = Tfidf(stop_words=["THE", "don't"], strip_accents=True)
    assert tfidf.analyse("The dog, the DON and don't") == ["dog", "and"]


def test_parameters_are_kept_and_cloned() -> None:
    tfidf = Tfidf(ngram_range=(1, 2), min_df=2)
    assert clone(tfidf).get_params() == tfidf.get_params()
    assert repr(tfidf) == "Tfidf(ngram_range=(1, 2), min_df=2)"


def test_it_must_be_fitted_first() -> None:
    with pytest.raises(NotFittedError):
        Tfidf().transform(TEXTS)
    with pytest.raises(NotFittedError):
        _ = Tfidf(hashing=8).n_features


def test_hashed_columns_have_no_names() -> None:
    tfidf = Tfidf(hashing=16).fit(TEXTS)
    assert tfidf.n_features == 16
    assert set(tfidf.learned()) == {"n_texts_", "idf_"}
    with pytest.raises(ParameterError, match="no terms"):
        tfidf.get_feature_names_out()


def test_fitting_again_forgets() -> None:
    tfidf = Tfidf().fit(TEXTS)
    tfidf.set_params(hashing=8, use_idf=False).fit(TEXTS)
    assert set(tfidf.learned()) == {"n_texts_"}


# --- texts at the edges


def test_rows_without_known_terms_are_empty() -> None:
    tfidf = Tfidf(stop_words=["red"]).fit(TEXTS)
    rows = tfidf.transform(["", "red", "unknown words only", "a", "\0", "blue"])
    assert np.diff(rows.indptr).tolist() == [0, 0, 0, 0, 0, 1]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = megalabel.get_threads()
    megalabel.set_threads(request.param)
    yield request.param
    megalabel.set_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
def test_long_and_odd_texts(analyzer: str) -> None:
    texts = [
        "x" * 3_000_000,  # one word longer than any chunk of memory inside
        "word " * 200_000,
        "\0a\0\0b\0",
        "שלום עולם",
        "👩‍👩‍👧 family",
        "e\u0301" * 1000,
        " \u3000 ",
    ]
    tfidf = Tfidf(analyzer=analyzer, ngram_range=(1, 2), norm=None, sublinear_tf=False)
    rows = tfidf.set_params(use_idf=False).fit_transform(texts)
    assert_equal(tfidf.transform(texts), rows)
    terms = [tfidf.analyse(text) for text in texts]
    assert rows.sum(axis=1).ravel().tolist()[0] == [len(t) for t in terms]
    assert tfidf.terms_.to_pylist() == sorted({term for t in terms for term in t})


def test_bytes_that_are_not_utf8_do_no_harm() -> None:
    data = b"ab\xff\xc3 \xe2\x82 \xed\xa0\x80 \xf5cd\xc0\x80 ok\xc3"
    bad = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(np.array([0, len(data)])), pa.py_buffer(data)]
    )
    for analyzer in ("word", "char", "char_wb"):
        tfidf = Tfidf(normalise=None, analyzer=analyzer).fit(bad)
        tfidf.terms_.validate(full=True)
        assert_equal(tfidf.transform(bad), tfidf.fit_transform(bad))


# --- the same answer, always


@pytest.mark.parametrize("parameters", [{"ngram_range": (1, 2)}, {"hashing": 999}])
def test_threads_and_batches_change_nothing(
    real_texts: list[str], parameters: dict[str, Any]
) -> None:
    threads = megalabel.get_threads()
    results = []
    try:
        for n in (1, 2, 5):
            megalabel.set_threads(n)
            tfidf = Tfidf(min_df=2, **parameters)
            results.append((tfidf.fit_transform(real_texts), tfidf))
    finally:
        megalabel.set_threads(threads)
    for rows, tfidf in results[1:]:
        assert_equal(rows, results[0][0])
        for name, value in results[0][1].learned().items():
            assert np.array_equal(tfidf.learned()[name], value)
    rows, tfidf = results[0]
    assert_equal(tfidf.transform(real_texts), rows)
    assert_equal(tfidf.transform([real_texts[i : i + 700] for i in range(0, 5000, 700)]), rows)
    for i in (0, 17, 4999):
        assert_equal(tfidf.transform([real_texts[i]]), rows[i])


def test_what_was_learned_can_be_taken_back_read_only() -> None:
    tfidf = Tfidf()
    rows = tfidf.fit_transform(TEXTS)
    assert_equal(reopened(tfidf).transform(TEXTS), rows)


# --- damage


@pytest.mark.parametrize(
    "changed",
    [
        {"terms_": pa.array(["one"])},
        {"terms_": pa.array(["one", None], pa.large_string())},
        {"slots_": np.zeros(8, np.int32)},
        {"slots_": np.zeros((4, 4), np.uint64)},
        {"idf_": np.ones(3, np.float32)},
        {"idf_": np.ones(8)},
        {"extra_": 1},
    ],
    ids=lambda changed: next(iter(changed), "nothing"),
)
def test_learned_parts_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Tfidf"):
        reopened(Tfidf().fit(TEXTS), **changed)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_table_raises_or_answers_but_never_crashes(data: st.DataObject) -> None:
    tfidf = Tfidf().fit(TEXTS)
    slots = tfidf.slots_.copy()
    offsets = np.frombuffer(tfidf.terms_.buffers()[1], np.int64).copy()
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            where = data.draw(st.integers(0, len(slots) - 1))
            keep = slots[where] & np.uint64(0xFFFFFFFF00000000)
            slots[where] = keep | np.uint64(data.draw(st.integers(0, 2**32 - 1)))
        else:
            where = data.draw(st.integers(1, len(offsets) - 2))
            offsets[where] = data.draw(st.integers(-(2**63), 2**63 - 1))
    buffers = [None, pa.py_buffer(offsets), tfidf.terms_.buffers()[2]]
    terms = pa.Array.from_buffers(pa.large_string(), len(tfidf.terms_), buffers)
    damaged = reopened(tfidf, slots_=slots, terms_=terms)
    try:
        rows = damaged.transform(TEXTS)
    except ValueError:
        return
    assert rows.shape == (len(TEXTS), damaged.n_features)
    rows.check_format(full_check=True)


@pytest.mark.parametrize("slots", [np.zeros(7, np.uint64), np.full(8, 2**64 - 1, np.uint64)])
def test_a_table_without_an_empty_slot_ends(slots: np.ndarray) -> None:
    tfidf = Tfidf().fit(TEXTS)
    if len(slots) == 7:
        with pytest.raises(ValueError, match="power of two"):
            reopened(tfidf, slots_=slots).transform(TEXTS)
    else:
        assert reopened(tfidf, slots_=slots).transform(TEXTS).nnz == 0


def _words(random, texts):
    shares = 1 / np.arange(1, 61)
    return [
        " ".join(
            f"w{i}" for i in random.choice(60, size=random.integers(1, 9), p=shares / shares.sum())
        )
        for _ in range(texts)
    ]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"min_df": 2},
        {"min_df": 0.05, "max_df": 0.6},
        {"use_idf": False},
        {"smooth_idf": False, "norm": "l1"},
        {"norm": None, "sublinear_tf": False},
        {"binary": True, "ngram_range": (1, 2)},
        {"hashing": 50},
    ],
)
def test_held_out_rows_are_those_of_a_fit_without_them(how):
    texts = _words(np.random.default_rng(0), 80)
    tfidf = Tfidf(**how)
    vectors = tfidf.fit_transform(texts)
    left_out, rest = np.arange(0, 80, 7), np.setdiff1d(np.arange(80), np.arange(0, 80, 7))
    other = Tfidf(**how).fit([texts[i] for i in rest])
    some = np.arange(0, 80, 3)  # of both
    ours, theirs = (
        tfidf.held_out(vectors, some, left_out),
        other.transform([texts[i] for i in some]),
    )
    names = other.terms_.to_pylist() if "hashing" not in how else None
    columns = slice(None) if names is None else [tfidf.terms_.to_pylist().index(n) for n in names]
    np.testing.assert_allclose(ours[:, columns].toarray(), theirs.toarray(), rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(ours.sum(), theirs.sum(), rtol=1e-6)  # no other column has a value
    one = tfidf.held_out(vectors, np.array([5, 7]), None)
    alone = tfidf.held_out(vectors, np.array([7]), np.array([7]))
    np.testing.assert_allclose(one[1].toarray(), alone.toarray(), rtol=1e-6)
    assert ours.has_canonical_format


@pytest.mark.parametrize(
    "settings", [{}, {"ngram_range": (1, 2)}, {"norm": None, "use_idf": False}]
)
def test_words_of_more_texts_get_columns_at_the_end(settings):
    texts = ["red dress", "blue dress", "red shoes"]
    tfidf = Tfidf(**settings).fit(texts)
    more = tfidf.grown(["a green dress", "green zebra"])
    width = tfidf.n_features
    assert more.terms_[:width].equals(tfidf.terms_)
    assert more.n_texts_ == 5
    rows = more.transform([*texts, "zebra dress green"])
    assert rows.has_sorted_indices
    np.testing.assert_array_equal(rows[:3, :width].toarray(), tfidf.transform(texts).toarray())
    assert rows[:3, width:].nnz == 0
    named = [more.terms_[i].as_py() for i in rows[3].indices]
    assert set(named) == set(more.analyse("zebra dress green")) & set(more.terms_.to_pylist())
    assert tfidf.n_features == width
    assert more.grown(texts) is more
    if tfidf.use_idf:  # of words that are new, as if learned with these texts
        idf = more.idf_[more.terms_.to_pylist().index("green")]
        assert idf == pytest.approx(np.log(6 / 3) + 1)


@pytest.mark.parametrize("norm", ["l2", "l1", None])
def test_words_that_come_apart_leave_rows_as_they_are(norm: str | None) -> None:
    texts = ["red dress", "blue dress", "a red shoe", "blue shoe"]
    tfidf = Tfidf(norm=norm, min_df=2).fit(texts)
    more, known = tfidf.grown(["zebra zebu"], apart=True), tfidf.n_features
    queries = ["red zebra dress", "blue zebu zebu", "zebra", "red", ""]
    before, rows = tfidf.transform(queries).toarray(), more.transform(queries).toarray()
    np.testing.assert_array_equal(rows[:, :known], before)
    # the whole row in float64, divided by the length of the columns that were there
    counts = np.array([[1, 0], [0, 1 + np.log(2)], [1, 0], [0, 0], [0, 0]])
    unscaled = Tfidf(norm=None, min_df=2).fit(texts).transform(queries).toarray()
    whole = np.hstack([unscaled.astype(np.float64), counts * more.idf_[known:]])
    for row, full in zip(rows, whole, strict=True):
        counted = full[:known] if full[:known].any() else full
        length = {"l2": np.sqrt((counted**2).sum()), "l1": counted.sum(), None: 1.0}[norm]
        np.testing.assert_allclose(row, full / (length or 1.0), rtol=1e-6)
    assert more.shrunk().terms_.equals(tfidf.terms_)
