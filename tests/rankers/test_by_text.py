"""Labels by their names and definitions, against a slow twin in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random

from megalabel import LabelSet, store
from megalabel.errors import ParameterError, ShapeError
from megalabel.rankers import ByText, by_text

LABELS, WORDS, WIDTH = 12, 30, 5
RANDOM = np.random.default_rng(0)
STARTS = np.array([0, 1, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 14])  # the last has no name
NAMES = csr_matrix(random(14, WORDS, 0.12, "csr", random_state=1) > 0, dtype=np.float32)
IDF = RANDOM.uniform(0.1, 4, WORDS).astype(np.float32)
RAREST = 5.0
TEXTS = (4 * random(40, WORDS, 0.25, "csr", random_state=2)).ceil().astype(np.float32)
VECTORS = RANDOM.normal(size=(40, WIDTH)).astype(np.float32)
OWN, DEFINED = RANDOM.normal(size=(2, LABELS, WIDTH)).astype(np.float32)
DEFINED[::3] = 0  # without a definition
MIDDLE = RANDOM.normal(scale=0.1, size=WIDTH).astype(np.float32)
LABEL_SET = LabelSet([f"label {i}" for i in range(LABELS)])
WEIGHTS = {"definitions": 0.4, "words": 0.7, "matches": 0.6}


def model(vectors: bool = True, definitions: bool = True, **weights) -> ByText:
    weights = WEIGHTS | weights
    made = ByText.of(LABEL_SET, NAMES, IDF, RAREST, name_starts=STARTS, **weights)
    if not vectors:
        return made
    return made.with_vectors(OWN, MIDDLE, DEFINED if definitions else None)


def twin(text: int, label: int, vectors: bool, definitions: bool) -> float:
    """The score by its definition."""
    words, idf = TEXTS[text].toarray()[0].astype(np.float64), IDF.astype(np.float64)
    own = np.where(words > 0, (1 + np.log(np.maximum(words, 1))) * idf, 0)
    lexical = 0.0
    for name in range(STARTS[label], STARTS[label + 1]):
        there = NAMES[name].toarray()[0] > 0
        if not there.any():
            continue
        weighed = np.where(there, idf, 0)
        lengths = np.linalg.norm(own) * np.linalg.norm(weighed)
        cosine = own @ weighed / lengths if lengths else 0.0
        found = idf[there & (words > 0)].sum()
        share = found / idf[there].sum()
        match = share * found / (2 * RAREST) if share >= 0.5 else 0.0
        lexical = max(lexical, WEIGHTS["words"] * cosine + WEIGHTS["matches"] * match)
    if not vectors:
        return lexical

    def cosine_of(rows: np.ndarray) -> float:
        x, z = VECTORS[text].astype(np.float64), rows[label].astype(np.float64)
        z /= np.linalg.norm(z)
        return float(x @ z / np.linalg.norm(x) - MIDDLE @ z)

    cosine = cosine_of(OWN)
    if definitions and DEFINED[label].any():
        share = WEIGHTS["definitions"]
        cosine = (1 - share) * cosine + share * cosine_of(DEFINED)
    return lexical + cosine


@pytest.mark.parametrize(("vectors", "definitions"), [(False, False), (True, False), (True, True)])
def test_scores_are_those_of_the_twin(vectors, definitions):
    made = model(vectors, definitions)
    ranking = made.rank([VECTORS, TEXTS] if vectors else [TEXTS], LABELS)
    assert (np.diff(ranking.scores) <= 0).all()
    for text in range(len(ranking)):
        assert sorted(ranking.ids[text].tolist()) == list(range(LABELS))
        expected = [twin(text, label, vectors, definitions) for label in ranking.ids[text]]
        logits = made.scale * np.array(expected) + made.bias
        np.testing.assert_allclose(ranking.scores[text], 1 / (1 + np.exp(-logits)), atol=2e-3)


def test_rows_do_not_depend_on_those_beside_them(monkeypatch):
    made = model()
    whole = made.rank([VECTORS, TEXTS], 4)
    monkeypatch.setattr(by_text, "_CELLS", LABELS * 3)
    parts = made.rank([VECTORS, TEXTS], 4)
    alone = made.rank([VECTORS[7:8], TEXTS[7]], 4)
    np.testing.assert_array_equal(whole.ids, parts.ids)
    np.testing.assert_array_equal(whole.scores, parts.scores)
    np.testing.assert_array_equal(whole.scores[7:8], alone.scores)


def test_definitions_are_not_copied_for_each_answer():
    class Sealed(np.ndarray):
        def __getitem__(self, *args):
            raise AssertionError("rows were taken again")

    made = model()
    expected = made.rank([VECTORS, TEXTS], 4).scores
    made.definitions_ = made.definitions_.view(Sealed)
    np.testing.assert_array_equal(made.rank([VECTORS, TEXTS], 4).scores, expected)


def test_equal_scores_go_to_the_lower_label():
    ranking = model(vectors=False).rank([csr_matrix((1, WORDS), dtype=np.float32)], 3)
    assert ranking.ids.tolist() == [[0, 1, 2]]


def test_among_some_labels():
    made = model()
    allowed = np.arange(LABELS) % 3 == 1
    ranking = made.rank_allowed([VECTORS, TEXTS], 6, allowed)
    whole = made.rank([VECTORS, TEXTS], LABELS).only(allowed).top(6)
    np.testing.assert_array_equal(ranking.ids, whole.ids)
    np.testing.assert_array_equal(ranking.scores, whole.scores)
    assert (ranking.present.sum(axis=1) == allowed.sum()).all()


def test_some_of_the_labels():
    made, some = model(), np.array([5, 1, 11, 0])
    taken = made.take_labels(some)
    assert taken.labels_ == LABEL_SET.take(some)
    whole = made.rank([VECTORS, TEXTS], LABELS).to_csr()[:, some].toarray()
    np.testing.assert_allclose(taken.rank([VECTORS, TEXTS], 4).to_csr().toarray(), whole)


# ------------------------------------------------------------------ labels that join
MORE = LabelSet(["another", "yet another"])
LATE = 3  # words that came with the names of new labels
LATE_NAMES = np.zeros((3, WORDS + LATE), np.float32)
LATE_NAMES[[0, 0, 1, 1, 2, 2], [3, -1, 7, -2, 5, 8]] = 1  # the last has none of them
LATE_NAMES = csr_matrix(LATE_NAMES)
LATE_TEXTS = csr_matrix((4 * random(40, WORDS + LATE, 0.3, "csr", random_state=6)).ceil())


def joined(made: ByText) -> ByText:
    vectors = {} if made.vectors_ is None else {"vectors": OWN[:2], "definitions": DEFINED[:2]}
    return made.add_labels(MORE, LATE_NAMES, name_starts=np.array([0, 2, 3]), **vectors)


def scores(made: ByText, words: csr_matrix) -> np.ndarray:
    X = [words] if made.vectors_ is None else [VECTORS, words]
    return made.rank(X, len(made.labels_)).to_csr().toarray()


@pytest.mark.parametrize(("vectors", "definitions"), [(False, False), (True, False), (True, True)])
def test_labels_that_are_there_do_not_move(vectors, definitions):
    made = model(vectors, definitions)
    more, met = joined(made), csr_matrix(LATE_TEXTS[:, :WORDS])
    before, after = scores(made, met), scores(more, LATE_TEXTS)
    np.testing.assert_array_equal(before, after[:, :LABELS])
    back = more.take_labels(np.arange(LABELS))
    np.testing.assert_array_equal(scores(back, LATE_TEXTS), before)
    twice = back.add_labels(MORE, csr_matrix(LATE_NAMES[:2]), **_of_two(made))
    np.testing.assert_array_equal(scores(twice, LATE_TEXTS)[:, :LABELS], before)


def _of_two(made: ByText) -> dict[str, np.ndarray]:
    return {} if made.vectors_ is None else {"vectors": OWN[2:4]}


def test_new_labels_are_scored_as_if_they_had_been_there():
    """A word that came with names is as rare as one that no text has; it counts in the length of a
    text for names with such words, and for no other."""
    idf = np.append(IDF, np.full(LATE, RAREST, np.float32))
    alone = ByText.of(MORE, LATE_NAMES, idf, RAREST, name_starts=np.array([0, 2, 3]), **WEIGHTS)
    alone = alone.with_vectors(OWN[:2], MIDDLE, DEFINED[:2])
    met = LATE_TEXTS.multiply(np.arange(WORDS + LATE) < WORDS).tocsr()
    met.eliminate_zeros()
    found = scores(joined(model()), LATE_TEXTS)[:, LABELS:]
    np.testing.assert_allclose(found[:, 0], scores(alone, LATE_TEXTS)[:, 0], atol=1e-6)
    np.testing.assert_allclose(found[:, 1], scores(alone, met)[:, 1], atol=1e-6)
    assert np.abs(found[:, 1] - scores(alone, LATE_TEXTS)[:, 1]).max() > 0.01


def test_what_new_labels_lack():
    with pytest.raises(ParameterError, match="give vectors of the new ones"):
        model().add_labels(MORE, LATE_NAMES[:2])
    with pytest.raises(ShapeError, match="30 words are known"):
        model().add_labels(MORE, NAMES[:2, :9], vectors=OWN[:2])
    without = model(definitions=False)
    more = without.add_labels(MORE, NAMES[:2], vectors=OWN[:2], definitions=DEFINED[:2])
    assert not more.definitions_[:LABELS].any()
    # a folder that was written before labels could join: they lose what others lose on average
    old = ByText(**WEIGHTS)
    old.restore({k: v for k, v in without.learned().items() if k != "middle_"})
    hubs = old.add_labels(MORE, NAMES[:2], vectors=OWN[:2]).hubs_
    np.testing.assert_allclose(hubs[LABELS:], without.hubs_.mean(), rtol=1e-6)


def test_saved_and_loaded(tmp_path):
    for number, made in enumerate((model(), model(vectors=False))):
        store.save(made, tmp_path / str(number))
        loaded = store.load(tmp_path / str(number), verify=True)
        X = [VECTORS, TEXTS] if number == 0 else [TEXTS]
        np.testing.assert_array_equal(loaded.rank(X, 5).ids, made.rank(X, 5).ids)


def test_rows_of_another_width():
    with pytest.raises(ShapeError, match="31"):
        model().rank([VECTORS, csr_matrix((40, 31), dtype=np.float32)], 1)
    with pytest.raises(ShapeError, match="4"):
        model().rank([VECTORS[:, :4], TEXTS], 1)


@pytest.mark.parametrize(
    ("learned", "told"),
    [
        ({"name_starts_": np.append(STARTS[:-1], 15)}, "name_starts_ of ByText must rise from 0"),
        ({"word_starts_": np.zeros(15, np.int64)}, "word_starts_ of ByText must rise from 0 to"),
        ({"name_words_": np.full(NAMES.nnz, WORDS, np.int32)}, "outside its width"),
        ({"idf_": np.full(WORDS, np.inf, np.float32)}, "idf_ of ByText must be finite"),
        ({"idf_": -IDF}, "idf_ of ByText must be finite"),
        ({"hubs_": None}, "must have hubs_ of its vectors_"),
        ({"vectors_": None, "hubs_": None}, "must come with vectors_ of names"),
    ],
)
def test_what_a_folder_brings_is_checked(learned, told):
    made = model()
    with pytest.raises(ValueError, match=told):
        ByText().restore(made.learned() | learned)


def test_learns_nothing_by_itself():
    with pytest.raises(ParameterError, match="part of a trained tagger"):
        ByText().fit(TEXTS, csr_matrix(np.ones((40, 1))))
