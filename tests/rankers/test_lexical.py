"""LexicalMatcher: its index and features against plain Python, what it learns, what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import Corpus, LabelSet, _native, systems
from megalabel.data.concepts import Concept
from megalabel.data.examples import Examples
from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.features import StemmedWords
from megalabel.mixing import mix
from megalabel.preparing import examples_of
from megalabel.rankers import BoostedTrees, LexicalMatcher
from megalabel.rankers.lexical import COLUMN, FEATURES, Found

WORDS = 12
IDF = np.linspace(0.3, 3.1, WORDS).astype(np.float32)
EMPTY = _native.RowsOfNumbers(starts=np.zeros(0, np.int64), items=np.zeros(0, np.int32))


def rows_of(rows: list[list[int]]) -> _native.RowsOfNumbers:
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return _native.RowsOfNumbers(
        starts=starts, items=np.array([i for row in rows for i in row], np.int32)
    )


def index_of(
    names: list[list[int]],
    owners: list[int],
    share: float = 0.5,
    idf: np.ndarray = IDF,
    **more: Any,
) -> _native.NameIndex:
    labels = max(owners) + 1
    starts = np.searchsorted(owners, np.arange(labels + 1)).astype(np.int64)
    found = _native.index_names(
        rows_of(names), owners=np.array(owners, np.int32), idf=idf, share=share
    )
    options = {"looked_at": 10_000, "candidates": 1_000, "usual_words": 4.0} | more
    links = dict.fromkeys(("broader", "narrower", "related", "collections"), EMPTY)
    return _native.NameIndex(
        names=_native.RowsOfNumbers(starts=starts, items=np.arange(len(names), dtype=np.int32)),
        words=rows_of(names),
        owners=np.array(owners, np.int32),
        shared=found[2],
        postings=_native.RowsOfNumbers(starts=found[0], items=found[1]),
        idf=idf,
        share=share,
        **(links | options),
    )


def window(text: list[int], words: set[int]) -> int:
    """Words of the shortest piece of text that has all words."""
    spans = (
        (last - first + 1)
        for first in range(len(text))
        for last in range(first, len(text))
        if words <= set(text[first : last + 1])
    )
    return min(spans)


def plainly(
    text: list[int], names: list[list[int]], owners: list[int], share: float
) -> dict[int, dict[str, float]]:
    """What the native core should find, in plain Python and double precision."""
    idf = IDF.astype(np.float64)
    known = [word for word in text if word >= 0]
    matches: dict[int, list[tuple[float, float, int]]] = {}
    whole = []
    for number, name in enumerate(names):
        words = set(name)
        total = sum(idf[w] for w in words)
        mass = sum(idf[w] for w in words & set(known))
        if mass > 0 and mass >= (share - 1e-6) * total:
            matches.setdefault(owners[number], []).append((mass / total, mass, number))
            if words <= set(known):
                whole.append((words, mass))
    found: dict[int, dict[str, float]] = {}
    rarest = {}
    for label, own in matches.items():
        part, mass, number = max(own, key=lambda one: (round(one[0], 5), one[1], -one[2]))
        words = set(names[number])
        there, missing = words & set(known), words - set(known)
        rarest[label] = max(there, key=lambda w: idf[w])
        counts = {w: known.count(w) for w in there}
        bm25 = sum(
            idf[w] * c * 2.2 / (c + 1.2 * (0.25 + 0.75 * len(text) / 4.0))
            for w, c in counts.items()
        )
        first = min(text.index(w) for w in there)
        last = max(len(text) - 1 - text[::-1].index(w) for w in there)
        length = len(names[number])
        phrases = [text[i : i + length] for i in range(len(text) - length + 1)]
        longest = min(max((m for ws, m in whole if w in ws), default=0) for w in there)
        sharing = {owners[i] for i, name in enumerate(names) if set(name) == words}
        first_of_label = owners.index(label)
        found[label] = {
            "share": part,
            "words_found": len(there),
            "words_missing": len(missing),
            "mass_found": mass,
            "mass_missing": sum(idf[w] for w in missing),
            "rarest_found": idf[rarest[label]],
            "rarest_missing": max((idf[w] for w in missing), default=0),
            "commonest_found": min(idf[w] for w in there),
            "phrase": not missing and names[number] in phrases,
            "window": window(text, there) / len(there),
            "occurrences": min(counts.values()),
            "bm25": bm25,
            "first_position": first / len(text),
            "last_position": last / len(text),
            "spread": (last - first) / len(text),
            "text_words": math.log1p(len(text)),
            "text_share": mass / sum(idf[w] for w in set(known)),
            "preferred": number == first_of_label,
            "names": math.log(owners.count(label)),
            "names_found": len(own),
            "shared": math.log(len(sharing)),
            "longer": longest / mass,
            "candidates": math.log1p(len(matches)),
        }
    by_score = sorted(found, key=lambda label: (-round(found[label]["bm25"], 9), label))
    for label, row in found.items():
        row["relative_bm25"] = row["bm25"] / found[by_score[0]]["bm25"]
        row["place"] = math.log1p(by_score.index(label))
        row["rivals"] = math.log(sum(rarest[other] == rarest[label] for other in found))
    return found


word = st.integers(0, WORDS - 1)
name = st.lists(word, min_size=1, max_size=4)


@given(
    names=st.lists(name, min_size=1, max_size=12),
    text=st.lists(st.integers(-1, WORDS - 1), min_size=1, max_size=14),
    share=st.sampled_from([0.2, 0.5, 0.8, 1.0]),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_finds_what_a_plain_search_finds(names, text, share, data):
    owners = sorted(
        data.draw(st.lists(st.integers(0, 5), min_size=len(names), max_size=len(names)))
    )
    owners = np.unique(owners, return_inverse=True)[1].tolist()
    index = index_of(names, owners, share)
    found = Found(*_native.find_names(index, rows_of([[], text])))
    expected = plainly(text, names, owners, share)
    assert found.starts.tolist() == [0, 0, len(expected)]
    assert found.labels.tolist() == sorted(expected)
    for label, row in zip(found.labels.tolist(), found.features, strict=True):
        wanted = expected[label]
        for column, value in wanted.items():
            assert row[COLUMN[column]] == pytest.approx(float(value), rel=1e-4, abs=1e-5), column


@pytest.mark.parametrize("weight", [0.0, 1e-7])
def test_a_name_without_a_word_that_weighs_next_to_nothing_is_not_whole(weight):
    idf = np.array([12.0, weight], np.float32)
    found = Found(*_native.find_names(index_of([[0, 1]], [0], idf=idf), rows_of([[0]])))
    assert found.labels.tolist() == [0]
    assert found.features[0, COLUMN["words_missing"]] == 1
    assert found.features[0, COLUMN["longer"]] == 0  # no whole name has the word


def test_a_bound_on_names_looked_at_takes_those_of_rare_words_first():
    names = [[0], [0, 1], [0, 2], [11]]
    index = index_of(names, [0, 1, 2, 3], looked_at=1)
    assert _native.find_names(index, rows_of([[0, 11]]))[1].tolist() in ([0], [3])
    assert _native.find_names(index_of(names, [0, 1, 2, 3]), rows_of([[0, 11]]))[1].tolist() == [
        0,
        3,
    ]
    few = index_of([[0], [11], [5]], [0, 1, 2], candidates=1)
    assert _native.find_names(few, rows_of([[0, 11, 5]]))[1].tolist() == [1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"shared": np.zeros(0, np.int32)}, "differ in number"),
        ({"idf": IDF[:3]}, "words and their postings"),
        ({"share": 0.0}, "must be above 0"),
        ({"owners": np.array([9], np.int32)}, "label 9 of 1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(damage, message):
    arrays: dict[str, Any] = {
        "names": rows_of([[0]]),
        "words": rows_of([[0, 1]]),
        "owners": np.zeros(1, np.int32),
        "shared": np.ones(1, np.int32),
        "postings": rows_of([[0] if w == 1 else [] for w in range(WORDS)]),
        "idf": IDF,
        "broader": EMPTY,
        "narrower": EMPTY,
        "related": EMPTY,
        "collections": EMPTY,
        "usual_words": 4.0,
        "share": 0.5,
        "looked_at": 10,
        "candidates": 10,
    }
    with pytest.raises(ValueError, match=message):
        _native.find_names(_native.NameIndex(**(arrays | damage)), rows_of([[1]]))


def test_numbers_outside_are_refused():
    index = index_of([[0]], [0])
    with pytest.raises(ValueError, match=f"word {WORDS} of {WORDS}"):
        _native.find_names(index, rows_of([[WORDS]]))
    with pytest.raises(ValueError, match="word 99 of"):
        _native.index_names(rows_of([[99]]), owners=np.zeros(1, np.int32), idf=IDF, share=0.5)
    found = rows_of([[0]])
    with pytest.raises(ValueError, match="label 7 of 2"):
        _native.ranked_names(
            found,
            scores=np.ones(1, np.float32),
            others=np.array([7], np.int32),
            other_scores=np.zeros(1, np.float32),
            labels=2,
            k=2,
        )


# --- the classifier

NAMES = ["trade policy", "sea fishing", "sugar", "import", "olive oil", "wine"]
TEXTS = [
    "policies of trade in sugar",
    "fishing at sea, and imports of sugar",
    "wines and olive oils",
    "the wine policy",
    "oil imports",
    "importing sugars by sea",
] * 6
TARGETS = [
    ["trade policy", "sugar"],
    ["sea fishing"],
    ["wine", "olive oil"],
    ["wine"],
    [],
    ["sugar"],
]


@pytest.fixture(scope="module")
def corpus():
    return Corpus(TEXTS, targets=TARGETS * 6, labels=LabelSet(NAMES))


def fitted(corpus: Corpus, **options: Any) -> tuple[StemmedWords, LexicalMatcher]:
    words = StemmedWords()
    rows = words.fit_transform(corpus)
    matcher = LexicalMatcher(**options)
    return words, matcher.fit(
        rows, corpus.targets, corpus.labels, label_rows=words.names(corpus.labels)
    )


def test_counts_are_of_texts_that_name_a_label(corpus):
    _, matcher = fitted(corpus)
    sugar, wine = NAMES.index("sugar"), NAMES.index("wine")
    assert matcher.matched_[sugar].tolist() == [0, 18]
    assert matcher.hits_[sugar].tolist() == [0, 12]
    assert matcher.matched_[wine, 1] == matcher.hits_[wine, 1] == 12
    assert matcher.word_matched_.sum() == matcher.matched_.sum()
    assert matcher.word_hits_.sum() == matcher.hits_.sum()


def test_a_text_of_training_is_scored_as_if_it_was_not_counted(corpus):
    words, matcher = fitted(corpus)
    rows = words.transform(corpus.texts)
    found = matcher.match(rows)
    hits = matcher._hits(found, corpus.targets)
    alone = matcher._features(found, hits)
    for text in range(6):
        _, other = fitted(corpus[np.delete(np.arange(len(TEXTS)), text)])
        here = found.rows == text
        # the same words in both, as texts are repeated
        expected = other._features(matcher.match(rows[[text]]))
        of_all = [FEATURES.index(name) for name in ("matched_share", "word_share")]
        shares = alone[here][:, of_all]
        # held to what is usual in all texts, where one more hardly counts
        np.testing.assert_allclose(shares, expected[:, of_all], rtol=0.02)
        rest = np.delete(np.arange(len(FEATURES)), of_all)
        np.testing.assert_allclose(alone[here][:, rest], expected[:, rest], rtol=1e-5)
        assert alone.shape[1] == len(FEATURES)


def test_nothing_is_learned_from_excluded_cells(corpus, monkeypatch):
    sugar = NAMES.index("sugar")
    at = np.flatnonzero(corpus.targets[:, [sugar]].toarray().ravel())[:5]
    cells = csr_matrix((np.ones(5, np.float32), (at, np.full(5, sugar))), corpus.targets.shape)
    targets = corpus.targets.tolil()
    targets[at, sugar] = 0
    words = StemmedWords()
    rows = words.fit_transform(corpus)
    seen = []
    grown = LexicalMatcher._grown
    monkeypatch.setattr(LexicalMatcher, "_grown", lambda *a: seen.append(a[1:]) or grown(*a))
    names = words.names(corpus.labels)
    parts = targets.tocsr(), corpus.labels
    examples = Examples.of(rows, *parts, excluded=cells, find_label_rows=lambda: names)
    matcher = LexicalMatcher().fit_examples(examples)
    assert matcher.matched_[sugar].tolist() == [0, 13]
    assert matcher.hits_[sugar].tolist() == [0, 7]
    matcher.rank_held_out(rows, np.arange(len(TEXTS)), 3)
    for features, hits in seen:
        assert np.isfinite(features).all()
        assert hits.sum() <= examples.targets.nnz


def test_hits_are_the_cells_of_a_matrix(corpus):
    words, matcher = fitted(corpus)
    found = matcher.match(words.transform(corpus.texts))
    expected = corpus.targets.toarray()[found.rows, found.labels] > 0
    np.testing.assert_array_equal(matcher._hits(found, corpus.targets), expected)
    assert not matcher._hits(found, csr_matrix(corpus.targets.shape)).any()


def test_labels_without_texts_are_found_and_others_come_after(corpus):
    labels = LabelSet([*NAMES, "honey of bees", "unheard of"])
    more = Corpus(TEXTS, targets=TARGETS * 6, labels=LabelSet(NAMES)).aligned(labels)
    words, matcher = fitted(more)
    ranking = matcher.rank(words.transform(["bees and honey"]), 8)
    assert ranking.labels.name(ranking.ids[0, 0]) == "honey of bees"
    assert ranking.ids[0, 1] == np.argmax(matcher.label_counts_)
    assert sorted(ranking.ids[0]) == list(range(8))
    _, strict = fitted(more, others=False)
    alone = strict.rank(words.transform(["bees and honey", "nothing"]), 8)
    assert alone.present.sum(1).tolist() == [1, 0]


def test_allowed_labels_keep_the_scores_that_they_have_among_all(corpus):
    words, matcher = fitted(corpus)
    rows = words.transform(["sugar wine imports and olive oil", "nothing", "fishing at sea"])
    allowed = np.array([True, False, True, True, False, True])
    whole = matcher.rank(rows, 6)
    some = matcher.rank_allowed(rows, 4, allowed)
    for row in range(3):
        kept = allowed[whole.ids[row]]
        assert some.ids[row].tolist() == whole.ids[row][kept].tolist()
        assert some.scores[row].tolist() == whole.scores[row][kept].tolist()


def test_without_labels_to_learn_from_matches_are_scored_by_bm25():
    labels = LabelSet(NAMES)
    words, matcher = fitted(Corpus(TEXTS, labels=labels))
    assert matcher.trees_ is None
    ranking = matcher.rank(words.transform(["sugar, sugar and a tree of policies"]), 2)
    assert ranking.labels.name(ranking.ids[0, 0]) == "sugar"
    assert 0 < ranking.scores[0, 0] < 1
    held_out = matcher.rank_held_out(words.transform(TEXTS[:3]), np.arange(3), 2)
    assert held_out.present.all()


def test_texts_held_out_are_scored_by_other_trees(corpus):
    words, matcher = fitted(corpus)
    rows = words.transform(corpus.texts)
    held_out = matcher.rank_held_out(rows, np.arange(len(TEXTS)), 3)
    assert held_out.present.all()
    hits = sum(
        corpus.targets[row, label] > 0 for row, label in enumerate(held_out.ids[:, 0].tolist())
    )
    assert hits > 20
    matcher.restore(matcher.learned())
    with pytest.raises(ParameterError, match="right after a fit"):
        matcher.rank_held_out(rows, np.arange(len(TEXTS)), 3)


def test_some_labels_are_taken(corpus):
    words, matcher = fitted(corpus, others=False)
    numbers = np.array([5, 2, 3])
    some = matcher.take_labels(numbers)
    rows = words.transform(["sugar wine imports and olive oil"])
    assert sorted(numbers[some.match(rows).labels].tolist()) == [2, 3, 5]
    assert some.rank(rows, 3).present.all()
    assert some.label_counts_.tolist() == matcher.label_counts_[numbers].tolist()


def test_names_and_links_of_a_vocabulary_count():
    vocabulary = Vocabulary.of(
        [
            Concept("x/food", {"en": "food"}, narrower=["x/sugar"]),
            Concept("x/sugar", {"en": "sugar"}, {"en": ["saccharose"]}, related=["x/wine"]),
            Concept("x/wine", {"en": "wine"}, collections=["x/g"]),
            Concept("x/beer", {"en": "beer"}, collections=["x/g"]),
        ]
    )
    ids = ["x/food", "x/sugar", "x/wine", "x/beer"]
    labels = LabelSet(ids, ["food", "sugar", "wine", "beer"], None, vocabulary, range(4), "en")
    words, matcher = fitted(Corpus(["wine", "food", "a red dress"], labels=labels))
    found = matcher.match(words.transform(["food with saccharose, wine and beer"]))
    assert found.labels.tolist() == [0, 1, 2, 3]
    told = {n: found.features[:, COLUMN[n]].tolist() for n in COLUMN}
    assert told["broader"] == [0, 1, 0, 0]
    assert told["narrower"] == [1, 0, 0, 0]
    assert told["related"] == [0, 1, 1, 0]
    assert told["collection"] == [0, 0, 1, 1]
    assert told["preferred"] == [1, 0, 1, 1]
    there, _ = matcher.explain(words.transform(["saccharose"]), 1)
    assert words.matched("sugar, saccharose", there) == ["saccharose"]
    some = matcher.take_labels(np.array([1, 0]))
    found = some.match(words.transform(["food with saccharose, wine and beer"]))
    assert found.features[:, COLUMN["broader"]].tolist() == [1, 0]


def test_what_it_cannot_read_is_named(corpus):
    with pytest.raises(ParameterError, match="its features must be StemmedWords"):
        LexicalMatcher().fit(np.eye(2), csr_matrix(np.eye(2)), label_rows=np.eye(2))
    _, matcher = fitted(corpus)
    with pytest.raises(DataError, match="words of texts, not a ndarray"):
        matcher.rank(np.eye(2), 1)
    learned = matcher.learned()
    for spoilt, message in (
        ({"name_starts_": learned["name_starts_"][::-1].copy()}, "name_starts_ of LexicalMatcher"),
        ({"idf_": np.full_like(learned["idf_"], np.nan)}, "idf_ of LexicalMatcher must be finite"),
        ({"idf_": -learned["idf_"]}, "idf_ of LexicalMatcher must be finite"),
        ({"links_": [], "link_starts_": []}, "links of four kinds"),
        ({"trees_": BoostedTrees(trees=1).fit(np.eye(40), np.arange(40) % 2)}, "trees_ of"),
    ):
        with pytest.raises(ValueError, match=message):
            matcher.restore(learned | spoilt)


def test_a_mix_judges_labels_without_texts():
    labels = LabelSet([*NAMES, "honey of bees"])
    known = Corpus(TEXTS, targets=TARGETS * 6, labels=LabelSet(NAMES)).aligned(labels)
    members = [systems.create("knn").fit(known), systems.create("lexical").fit(known)]
    more = Corpus(
        [f"{text} in {place}" for place in ("spring", "autumn") for text in TEXTS[:6]] * 2
        + [f"honey made by bees in {place}" for place in ("spring", "autumn", "May", "June")] * 4,
        targets=[*TARGETS * 4, *[["honey of bees"]] * 16],
        labels=labels,
    )
    made = mix(members, more, form="stack")
    [best] = made.tag("bees and their honey", k=1)
    assert best.label == "honey of bees"
    assert made.explain("bees and their honey").label == "honey of bees"


# --- labels that join


def test_labels_that_join_are_found_as_if_they_had_been_there():
    texts = ["a tale of whales", "red dresses and blue gowns", "the whaling ship", ""] * 3
    every = LabelSet(["whales", "blue dresses", "ships at sea", "a fjord"])
    queries = [*texts[:4], "fjords, ships and dresses", "zeppelins of whales at sea"]

    def learned(labels: LabelSet) -> tuple[StemmedWords, LexicalMatcher]:
        corpus = Corpus(texts, labels=labels)
        features = StemmedWords().fit(corpus)
        return features, LexicalMatcher().fit_examples(
            examples_of(features, features.transform(corpus), corpus)
        )

    whole_features, whole = learned(every)
    features, some = learned(every.take([0, 1]))
    more_features = features.with_names(every.take([2, 3]))
    more = some.add_labels(every.take([2, 3]), more_features.names(every.take([2, 3])))
    wanted = whole.rank(whole_features.transform(queries), 4)
    found = more.rank(more_features.transform(queries), 4)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-6)
    # words of names that have gone again are as unknown ones
    back, rows = more.take_labels([0, 1]), features.transform(queries)
    words = more_features.transform(queries)
    np.testing.assert_array_equal(back.rank(words, 2).scores, some.rank(rows, 2).scores)
    np.testing.assert_array_equal(back.match(words).features, some.match(rows).features)
    with pytest.raises(ShapeError, match="words, of which"):
        more.add_labels(LabelSet(["sea"]), features.names(LabelSet(["sea"])))
