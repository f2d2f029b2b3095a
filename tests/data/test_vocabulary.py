import itertools

import numpy as np
import pyarrow as pa
import pytest

from megalabel.data import Concept, LabelSet, Vocabulary
from megalabel.data.oddities import Note
from megalabel.errors import (
    DataError,
    ParameterError,
    ShapeError,
    StoreError,
    UnknownConceptError,
)

ANIMAL, DOG, CAT, POODLE, FISH = (
    f"http://x.org/a/{name}" for name in ["Q1", "Q2", "Q3", "Q4", "Q5"]
)


@pytest.fixture(scope="module")
def animals() -> Vocabulary:
    pets = ["http://x.org/c/pets"]
    return Vocabulary.of(
        [
            Concept(ANIMAL, {"en": "animal", "fi": "eläin"}, notations=["A"]),
            Concept(
                DOG,
                {"en": "dog", "fi": "koira"},
                {"en": ["hound", "domestic dog"]},
                broader=[ANIMAL],
                related=[CAT],
                collections=pets,
                types=["http://x.org/t/Species"],
                notations=["A.1"],
                descriptions={"en": ["It barks."]},
            ),
            Concept(CAT, {"en": "cat"}, broader=[ANIMAL], collections=pets),
            Concept(POODLE, {"en": "poodle"}, hidden={"en": ["pudel"]}, broader=[DOG]),
            Concept(FISH, {"en": "cat"}, deprecated=True, replaced_by=ANIMAL),
        ]
    )


def test_a_concept_comes_back_as_it_was_given(animals):
    dog = animals[DOG]
    assert dog.names == {"en": "dog", "fi": "koira"}
    assert dog.others == {"en": ["hound", "domestic dog"]}
    assert (dog.broader, dog.narrower, dog.related) == ([ANIMAL], [POODLE], [CAT])
    assert (dog.notations, dog.descriptions) == (["A.1"], {"en": ["It barks."]})
    assert dog.collections == ["http://x.org/c/pets"]
    assert dog.types == ["http://x.org/t/Species"]
    assert animals[POODLE].hidden == {"en": ["pudel"]}
    assert (animals[FISH].deprecated, animals[FISH].replaced_by) == (True, ANIMAL)
    again = Vocabulary.of(animals[i] for i in range(len(animals)))
    assert [again[i] for i in range(len(again))] == [animals[i] for i in range(len(animals))]


@pytest.mark.parametrize(
    ("asked", "found"),
    [(DOG, 1), ("Q2", 1), ("A.1", 1), ("Hound", 1), (" koira ", 1), ("pudel", 3), (2, 2)],
)
def test_concepts_are_found_by_identifier_last_part_notation_and_name(animals, asked, found):
    assert animals.number(asked) == found


def test_a_current_concept_wins_over_a_deprecated_one_of_the_same_name(animals):
    assert animals.find("cat") == 2


def test_an_unknown_concept_suggests_names(animals):
    with pytest.raises(UnknownConceptError, match=r"unknown concept 'poodel'.*'poodle'"):
        animals.find("poodel")
    with pytest.raises(UnknownConceptError):
        animals.number(5)


def test_a_name_of_several_concepts_is_an_error_that_names_them():
    banks = Vocabulary.of([Concept("B1", {"en": "bank"}), Concept("B2", {"en": "bank"})])
    with pytest.raises(ParameterError, match=r"any of B1 \(bank\); B2 \(bank\)"):
        banks.find("bank")
    assert banks.notes["shared name"].count == 1


def test_names_fall_back_to_another_language_and_then_to_the_last_part():
    some = Vocabulary.of(
        [
            Concept("http://x/1", {"en": "one", "fi": "yksi"}),
            Concept("http://x/2", {"en": "two"}),
            Concept("http://x/3", {"sv-FI": "tre"}),
            Concept("http://x/4"),
        ]
    )
    names, spoken = some.named(None, "fi")
    assert names.to_pylist() == ["yksi", "two", "tre", "4"]
    assert [*some.languages] == ["en", "fi", "sv-fi"]
    assert spoken.tolist() == [1, 0, 2, -1]
    assert some.name("3", "SV") == "tre"
    assert some.names([3, 0], "en").to_pylist() == ["4", "one"]
    with pytest.raises(ParameterError, match="'de'; there are en, fi, sv-fi"):
        some.names(None, "de")


def test_subtrees_end_where_there_is_a_cycle():
    ring = Vocabulary.of(
        [Concept("a", broader=["b"]), Concept("b", broader=["a"]), Concept("c", broader=["b"])]
    )
    assert ring.subtree("a").tolist() == [0, 1, 2]
    assert ring.subtree("c").tolist() == [2]
    assert ring.notes["cycle"] == Note(1, ("a",))
    assert ring.notes["no name"].count == 3


def test_search_finds_words_of_names_best_first(animals):
    assert animals.search("dog").tolist() == [1]
    assert animals.search("dog domest").tolist() == [1]
    assert animals.search("cat").tolist() == [2, 4]  # the current one first
    assert animals.search("oodle").tolist() == []
    assert animals.search("koi", language="en").tolist() == []
    assert animals.search(" ").tolist() == []


def test_matches_are_pairs_of_texts_and_concepts(animals):
    texts, concepts = animals.matches("name", ["hound", "CAT", "none"])
    assert list(zip(texts.tolist(), concepts.tolist(), strict=True)) == [(0, 1), (1, 2), (1, 4)]
    texts, concepts = animals.matches("part", ["Q4", "Q"])
    assert (texts.tolist(), concepts.tolist()) == ([0], [3])
    assert animals.numbers([FISH, "Q5"]).tolist() == [4, -1]


def test_a_concept_twice_is_refused():
    with pytest.raises(DataError, match="'a' is there twice"):
        Vocabulary.of([Concept("a"), Concept("a")])


def test_more_languages_than_there_are_is_refused():
    names = {f"a-{i}": "a" for i in range(40_000)}
    with pytest.raises(DataError, match="names in 40,000 languages"):
        Vocabulary.of([Concept("a", names)])


def test_an_empty_vocabulary():
    none = Vocabulary.of([])
    assert len(none) == 0
    assert none.search("a").tolist() == []
    assert none.numbers(["a"]).tolist() == [-1]
    with pytest.raises(UnknownConceptError):
        none.find("a")


def damaged(vocabulary, **arrays):
    return Vocabulary(vocabulary.arrays | arrays, vocabulary.facts)


@pytest.mark.parametrize(
    ("name", "array", "use"),
    [
        ("names.offsets", np.array([0, 10**9], np.int64), lambda v: v.names()),
        ("names.starts", np.zeros(6, np.int64), lambda v: v.names()),
        ("names.languages", np.full(9, 7, np.int16), lambda v: v.names()),
        ("broader.concepts", np.full(3, 5, np.int32), lambda v: v.linked("broader")),
        ("replaced_by", np.full(5, -2, np.int32), lambda v: v.replaced_by),
        ("ids.bytes", np.zeros(3, np.float32), lambda v: v.ids),
        ("types.numbers", np.array([4], np.int32), lambda v: v.typed()),
    ],
)
def test_damage_is_noticed_when_it_matters(animals, name, array, use):
    with pytest.raises(StoreError, match="damaged"):
        use(damaged(animals, **{name: array}))


# ---------------------------------------------------------------- labels with a vocabulary
@pytest.fixture
def labels(animals) -> LabelSet:
    return LabelSet(
        ["p", "q", "r", "s"], ["Dogs", "poodle", "animal", "x"], None, animals, [1, 3, 0, -1], "en"
    )


def listed(starts, names) -> list[list[str]]:
    return [names[i:j].to_pylist() for i, j in itertools.pairwise(starts)]


def test_all_names_of_labels_their_own_first(labels):
    starts, names = labels.all_names()
    assert starts.dtype == np.int64
    assert isinstance(names, pa.LargeStringArray)
    assert listed(starts, names) == [
        ["Dogs", "dog", "hound", "domestic dog"],
        ["poodle", "pudel"],
        ["animal"],
        ["x"],
    ]
    assert listed(*labels.all_names("fi")) == [["koira"], ["poodle"], ["eläin"], ["x"]]


def test_all_names_of_labels_without_a_vocabulary():
    labels = LabelSet(["Q144", "Q146"], ["dog", "cat"])
    assert listed(*labels.all_names()) == [["dog"], ["cat"]]
    assert labels.links("narrower").shape == (2, 2)
    assert labels.links("collection").nnz == 0
    with pytest.raises(ParameterError, match="not joined to a vocabulary"):
        labels.all_names("fi")
    with pytest.raises(ParameterError, match="broader, narrower, related and collection"):
        labels.links("above")


def test_links_among_labels(labels, animals):
    assert labels.links("broader").toarray().tolist() == [
        [False, False, True, False],
        [True, False, False, False],
        [False] * 4,
        [False] * 4,
    ]
    assert (labels.links("narrower") != labels.links("broader").T).nnz == 0
    assert labels.links("broader").dtype == bool
    pets = LabelSet(["a", "b", "c"], None, None, animals, [2, 1, 0])
    assert pets.links("collection").nonzero()[0].tolist() == [0, 1]
    assert pets.links("related").nonzero()[1].tolist() == [1, 0]
    twins = LabelSet(["a", "b"], None, None, animals, [1, 1])
    assert twins.links("broader").nnz == 0


def test_names_in_a_language_and_notations(labels):
    assert [labels.name(i, "fi") for i in range(4)] == ["koira", "poodle", "eläin", "x"]
    assert labels.names_in("fi").to_pylist() == ["koira", "poodle", "eläin", "x"]
    assert labels.name(0) == "Dogs"
    assert [labels.notation(i) for i in range(4)] == ["A.1", None, "A", None]


def test_labels_keep_their_concepts_when_taken_and_extended(labels, animals):
    some = labels.take([2, 0])
    assert some.vocabulary is animals
    assert some.language == "en"
    assert some.concepts.tolist() == [0, 1]
    assert some.concepts.dtype == np.int32
    more = labels.extended(LabelSet([CAT, "y"]))
    assert more.concepts.tolist() == [1, 3, 0, -1, 2, -1]
    more = labels.extended(LabelSet(["z"], None, None, animals, [4]))
    assert more.concepts.tolist() == [1, 3, 0, -1, 4]


def test_concepts_that_do_not_fit_are_refused(animals):
    with pytest.raises(ShapeError, match="2 label ids but 1 concepts"):
        LabelSet(["a", "b"], vocabulary=animals, concepts=[0])
    with pytest.raises(ParameterError, match="from 0 to 4"):
        LabelSet(["a"], vocabulary=animals, concepts=[5])
