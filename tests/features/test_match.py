"""Match features against a slow twin; edges, damage, threads, labels taken and added, folders."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel import Corpus, LabelSet, Ranking, store
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.features import Each, NameWords, Tfidf, WordRows

WORDS = ["a", "b", "Whale", "whales", "whaling", "WHALER", "Ärzte", "ärztin", "ärztliche", "ß", "2"]
SPACES = [" ", " ", " -- ", ", ", "(", "/", "é"]
F = NameWords.FEATURES


@st.composite
def written(draw: st.DrawFn, longest: int) -> str:
    words = draw(st.lists(st.sampled_from(WORDS), max_size=longest))
    return "".join(word + draw(st.sampled_from(SPACES)) for word in words)


def split(text: str) -> list[str]:
    return Tfidf(min_word_length=1).analyse(text)


class Twin:
    """Every feature, one after another, by the words themselves."""

    def __init__(self, texts: list[str], names: list[str], stem_length: int = 5) -> None:
        self.n, self.cut = len(texts), stem_length
        self.known = {word for name in names for word in split(name)}
        self.texts = Counter(word for text in texts for word in set(split(text)))
        self.known_stems = {self.stem(word) for word in self.known}
        self.stem_texts = Counter(
            stem for text in texts for stem in {self.stem(word) for word in split(text)}
        )
        self.known |= {word for word, count in self.texts.items() if count > 1}

    def stem(self, word: str) -> str:
        return word[: self.cut]

    def idf(self, word: str) -> float:
        count = self.texts[word] if word in self.known else 0
        return math.log((self.n + 1) / (count + 0.5))

    def stem_idf(self, stem: str) -> float:
        return math.log((self.n + 1) / (self.stem_texts[stem] + 0.5))

    def features(self, text: str, name: str) -> dict[str, float]:
        words, wanted = split(text), split(name)
        nothing = dict.fromkeys(F, 0.0) | {"first_position": math.nan}
        if not wanted:
            return nothing
        found = [word for word in wanted if word in words]
        missing = [word for word in wanted if word not in words]
        stems = {self.stem(word) for word in words}
        seen = [word for at, word in enumerate(words) if word not in words[:at]]
        unknown = [word for word in words if word not in self.known]
        mass = sum(self.idf(word) for word in seen if word in self.known) + sum(
            self.idf(word) for word in unknown
        )
        starts = range(len(words) - len(wanted) + 1)
        wanted_stems = [self.stem(word) for word in wanted]
        return {
            "weighted_share": sum(map(self.idf, found)) / sum(map(self.idf, wanted)),
            "share": len(found) / len(wanted),
            "whole": float(not missing),
            "phrase": float(any(words[at : at + len(wanted)] == wanted for at in starts)),
            "first_position": min(map(words.index, found)) / len(words) if found else math.nan,
            "rarest_found": max(map(self.idf, found), default=0.0),
            "rarest_missing": max(map(self.idf, missing), default=0.0),
            "name_words": len(wanted),
            "text_share": sum(map(self.idf, set(found))) / mass if mass else 0.0,
            "stem_share": sum(self.stem_idf(stem) for stem in wanted_stems if stem in stems)
            / sum(map(self.stem_idf, wanted_stems)),
        }

    def best(self, text: str, names: list[str]) -> dict[str, float]:
        """Those of the best of several names."""
        found = [self.features(text, name) for name in names]
        return max(
            found, key=lambda one: (np.float32(one["weighted_share"]), round(one["stem_share"], 6))
        )


def all_features(names: NameWords, texts: list[str]) -> np.ndarray:
    labels = len(names.name_starts_) - 1
    return names.features(names.transform(texts), np.tile(np.arange(labels), (len(texts), 1)))


def agree(found: np.ndarray, expected: list[list[dict[str, float]]]) -> None:
    values = np.array([[[one[name] for name in F] for one in row] for row in expected])
    np.testing.assert_allclose(found, values.reshape(found.shape), rtol=1e-5, atol=1e-6)


def changed(names: NameWords, **learned: Any) -> NameWords:
    """A copy with other arrays, as a folder may bring them."""
    copy = NameWords(**names.get_params())
    copy.restore(names.learned() | learned)
    return copy


TEXTS = ["a red dress", "Blue jeans", "blue dress, blue shoes", "", "ÉTÉ à Paris: été, red"]
NAMES = ["Dress, red", "blue dress", "Jeans -- Blue", "", "étés", "the the red"]


@pytest.fixture(scope="module")
def names() -> NameWords:
    return NameWords().fit(Corpus(TEXTS, labels=LabelSet([f"L{i}" for i in range(6)], NAMES)))


# --- features


@given(
    st.lists(written(8), max_size=6),
    st.lists(written(4), min_size=1, max_size=5),
    st.lists(written(12), min_size=1, max_size=3),
    st.integers(1, 6),
)
def test_agrees_with_the_twin(texts, labels, asked, stem_length):
    labels = LabelSet.numbered(len(labels)).ids, labels
    corpus = Corpus(pa.array(texts, pa.large_string()), labels=LabelSet(*labels))
    names = NameWords(stem_length=stem_length).fit(corpus)
    twin = Twin(texts, labels[1], stem_length)
    asked = [*asked, *texts]
    expected = [[twin.features(text, name) for name in labels[1]] for text in asked]
    agree(all_features(names, asked), expected)


@given(st.lists(written(3), min_size=4, max_size=4), written(8), st.integers(0, 4))
def test_the_best_of_several_names_counts(several, text, cut):
    texts = ["a whale", "whaling b", "a b"]
    one_each = NameWords().fit(Corpus(texts, labels=LabelSet(["1", "2", "3", "4"], several)))
    both = changed(one_each, name_starts_=np.array([0, cut, 4]))
    twin = Twin(texts, several)
    found = all_features(both, [text])[0]
    for row, group in zip(found, (several[:cut], several[cut:]), strict=True):
        best = twin.best(text, group or [""])
        for name in ("weighted_share", "stem_share"):
            assert row[F.index(name)] == pytest.approx(best[name], rel=1e-5)
        candidates = [twin.features(text, name) for name in group or [""]]
        assert any(
            np.allclose(row, [one[name] for name in F], rtol=1e-5, equal_nan=True)
            for one in candidates
        )


def test_a_phrase_is_in_a_row_and_in_order(names):
    def phrase(text: str, label: int) -> list[float]:
        row = names.features(names.transform([text]), [[label]])[0, 0]
        return [row[F.index("whole")], row[F.index("phrase")]]

    assert phrase("that blue dress of hers", 1) == [1, 1]
    assert phrase("blue, blue Dress", 1) == [1, 1]
    assert phrase("dress blue", 1) == [1, 0]
    assert phrase("a blue unheard dress", 1) == [1, 0]
    assert phrase("blue", 1) == [0, 0]
    assert phrase("the the the red", 5) == [1, 1]
    assert phrase("the red the", 5) == [1, 0]


def test_words_that_no_text_has_weigh_most(names):
    idf = dict(zip(names.words_.to_pylist(), names.word_idf_, strict=True))
    assert idf["the"] == max(idf.values()) == np.float32(math.log(6 / 0.5))
    assert idf["étés"] > idf["jeans"] > idf["blue"] > 0
    assert "shoes" not in idf  # in one text and no name


def test_inflected_words_share_a_stem():
    corpus = Corpus(["whales swim"], labels=["Whaling", "Swims"])
    found = NameWords().fit(corpus)
    values = all_features(found, ["a whale swam", "whaled"])
    assert values[:, 0, F.index("share")].tolist() == [0, 0]
    assert values[:, 0, F.index("stem_share")].tolist() == [0, 0]
    shorter = NameWords(stem_length=4).fit(corpus)
    values = all_features(shorter, ["a whale swam", "whaled"])
    assert values[:, 0, F.index("stem_share")].tolist() == [1, 1]
    assert values[:, 1, F.index("stem_share")].tolist() == [0, 0]


def test_places_without_a_candidate_are_nan(names):
    rows = names.transform(TEXTS[:2])
    found = names.features(rows, [[0, -1], [len(NAMES), 2]])
    assert np.isnan(found[0, 1]).all()
    assert np.isnan(found[1, 0]).all()
    assert found[0, 0, F.index("whole")] == found[1, 1, F.index("whole")] == 1
    assert names.features(rows, np.zeros((2, 0), np.int32)).shape == (2, 0, len(F))


def test_a_ranking_can_be_asked_as_it_is(names):
    ranking = Ranking.from_csr(
        Corpus(TEXTS, targets=[[0, 1, 0, 0, 0, 0]] * 5).targets, 3, LabelSet.numbered(6)
    )
    found = names.features(names.transform(TEXTS), ranking.ids)
    assert np.isnan(found[:, 1:]).all()
    assert not np.isnan(found[:, 0, 0]).any()


def test_many_long_texts_by_any_number_of_threads(names, threads):
    chance = np.random.default_rng(0)
    words = np.array(["red", "blue", "dress", "dresses", "jeans", "the", "unheard", "Été"])
    texts = [" ".join(chance.choice(words, size)) for size in chance.integers(0, 300, 500)]
    ids = chance.integers(-1, 7, (500, 9))
    threads(1)
    rows = names.transform(texts)
    expected = names.features(rows, ids)
    for count in (2, 3, 7):
        threads(count)
        again = names.transform(texts)
        np.testing.assert_array_equal(again.ids, rows.ids)
        np.testing.assert_array_equal(again.indptr, rows.indptr)
        found = names.features(again, ids)
        assert found.tobytes() == expected.tobytes()
        np.testing.assert_array_equal(names.features(rows[7:9], ids[7:9]), expected[7:9])


# --- rows


def test_rows_are_picked_as_those_of_a_matrix(names):
    rows = names.transform(TEXTS)
    assert rows.shape == (5, names.n_features) == (5, len(names.words_))
    mask = np.array([True, False, False, False, True])
    for some in (slice(1, 3), [4, 0], np.array([2, 2]), mask):
        expected = names.transform(np.array(TEXTS, object)[some])
        np.testing.assert_array_equal(rows[some].ids, expected.ids)
        np.testing.assert_array_equal(rows[some].indptr, expected.indptr)


def test_a_stream_is_put_together(names):
    rows, whole = names.transform(iter([TEXTS[:2], TEXTS[2:]])), names.transform(TEXTS)
    np.testing.assert_array_equal(rows.ids, whole.ids)
    np.testing.assert_array_equal(rows.indptr, whole.indptr)
    assert len(names.transform([])) == len(names.transform(iter([]))) == 0
    assert all_features(names, []).shape == (0, 6, len(F))


# --- labels


def test_names_that_say_something():
    assert NameWords.useful(LabelSet(["Whales -- Fiction", "libfoo-dev"]))
    assert not NameWords.useful(LabelSet.numbered(30))
    assert not NameWords.useful(LabelSet([]))
    assert not NameWords.useful(LabelSet(["a", "b"], ["1.5", "2-3"]))
    assert NameWords.useful(LabelSet(["1", "2"], ["鯨", "кит"]))


def test_some_labels(names):
    taken = names.take_labels([4, 0, 3])
    np.testing.assert_array_equal(
        all_features(taken, TEXTS), all_features(names, TEXTS)[:, [4, 0, 3]]
    )
    several = changed(names, name_starts_=np.array([0, 2, 2, 6]))
    expected = all_features(several, TEXTS)
    for order in ([2, 0, 1], [0], []):
        found = all_features(several.take_labels(order), TEXTS)
        np.testing.assert_array_equal(found, expected[:, order])
    with pytest.raises(ParameterError, match="no label 6"):
        names.take_labels([6])


def test_some_labels_of_several_featurizers(names):
    tfidf = Tfidf().fit(TEXTS)
    taken = Each.of([tfidf, names]).take_labels([4, 0])
    assert taken.parts_[0] is tfidf
    expected = all_features(names, TEXTS)[:, [4, 0]]
    np.testing.assert_array_equal(all_features(taken.parts_[1], TEXTS), expected)
    words = Each.of([tfidf])
    assert words.take_labels([4, 0]) is words


def test_labels_that_are_added(names):
    new = ["unheard (dress)", "Paris", "unheardof"]
    more = names.add_labels(LabelSet(new))
    old_rows, texts = names.transform(TEXTS), [*TEXTS, "the unheard parisian"]
    expected = all_features(names, TEXTS)
    np.testing.assert_array_equal(more.features(old_rows, np.tile(np.arange(6), (5, 1))), expected)
    twin = Twin(TEXTS, NAMES)
    twin.known |= {word for name in new for word in split(name)}
    twin.texts["paris"] = twin.stem_texts["paris"] = 0  # was in one text and no name
    found = all_features(more, texts)[:, 6:]
    agree(found, [[twin.features(text, name) for name in new] for text in texts])
    assert len(names.name_starts_) == 7  # the first one is as it was


# --- folders and damage


def test_a_folder_brings_it_back(names, tmp_path):
    store.save(names, tmp_path / "names")
    again = store.load(tmp_path / "names")
    assert not again.name_words_.flags.writeable
    np.testing.assert_array_equal(all_features(again, TEXTS), all_features(names, TEXTS))
    copied = pickle.loads(pickle.dumps(names))
    np.testing.assert_array_equal(all_features(copied, TEXTS), all_features(names, TEXTS))


@pytest.mark.parametrize(
    ("name", "at", "to"),
    [
        ("name_starts_", 1, -1),
        ("name_starts_", 1, 5),
        ("name_starts_", -1, 2**40),
        ("word_starts_", 1, -3),
        ("word_starts_", -1, 10**6),
        ("name_words_", 0, 10**6),
        ("name_words_", 0, -1),
        ("stem_of_", slice(None), 10**6),
        ("stem_of_", slice(None), -2),
    ],
)
def test_positions_outside_the_arrays_are_refused(names, name, at, to):
    values = getattr(names, name).copy()
    values[at] = to
    spoilt = changed(names, **{name: values})
    with pytest.raises(ValueError, match=r"outside the arrays| of "):
        all_features(spoilt, TEXTS)
    if name in ("name_starts_", "word_starts_"):
        with pytest.raises(ValueError, match=f"{name} of NameWords must rise"):
            spoilt.take_labels([0])


@pytest.mark.parametrize("ids", [[10**6, 0], [-(10**6), 0]])
def test_rows_of_another_vocabulary_are_refused(names, ids):
    rows = WordRows(np.array(ids, np.int32), np.array([0, 2]), 9)
    with pytest.raises(ValueError, match=r"(word|stem) .* of "):
        names.features(rows, [[0]])
    with pytest.raises(ValueError, match="text 0 lies outside"):
        names.features(WordRows(rows.ids, np.array([0, 3]), 9), [[0]])


def test_wrong_candidates_are_refused(names):
    rows = names.transform(TEXTS)
    with pytest.raises(ShapeError, match=r"candidates must be \(5, k\).*not \(4, 1\)"):
        names.features(rows, [[0]] * 4)
    with pytest.raises(ShapeError, match=r"not \(5,\)"):
        names.features(rows, [0] * 5)
    for label in (7, -2):
        with pytest.raises(ValueError, match=f"label {label} of 6"):
            names.features(rows, [[label]] * 5)


def test_what_it_cannot_learn_from():
    with pytest.raises(DataError, match="give a Corpus with texts"):
        NameWords().fit(["red dress"])
    with pytest.raises(DataError, match="give a Corpus with texts"):
        NameWords().fit(Corpus(features=[[1.0]]))
    with pytest.raises(ParameterError, match="stem_length of NameWords"):
        NameWords(stem_length=0).fit(Corpus(["red"], labels=["red"]))
    with pytest.raises(NotFittedError):
        NameWords().transform(["red"])
