import numpy as np
import pytest

from megalabel.data import Concept, Corpus, LabelSet, Ranking, Vocabulary
from megalabel.data.answers import write_answers
from megalabel.data.ranking import Tag
from megalabel.data.selecting import among
from megalabel.errors import ParameterError, UnknownConceptError, UnknownLabelError

X = "http://x.org/"


@pytest.fixture(scope="module")
def labels() -> LabelSet:
    vocabulary = Vocabulary.of(
        [
            Concept(f"{X}p1", {"en": "animal", "fi": "eläin"}, types=[f"{X}t/Class"]),
            Concept(
                f"{X}p2",
                {"en": "dog", "fi": "koira"},
                broader=[f"{X}p1"],
                types=[f"{X}t/Species"],
                collections=[f"{X}c/pets"],
                notations=["A.2", "D"],
            ),
            Concept(
                f"{X}p3",
                {"en": "poodle"},
                broader=[f"{X}p2"],
                types=[f"{X}t/Breed", f"{X}t/Species"],
                collections=[f"{X}c/pets", f"{X}d/pets"],
            ),
            Concept(f"{X}p4", {"en": "rain"}, types=[f"{X}t/Class"], notations=["R"]),
        ]
    )
    return LabelSet(["p4", "poodle", "other", "dog"]).joined(vocabulary)


def names(labels: LabelSet, mask: np.ndarray) -> set[str]:
    return {labels.name(i) for i in np.flatnonzero(mask)}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"subtree": "animal"}, {"dog", "poodle"}),
        ({"subtree": f"{X}p3"}, {"poodle"}),
        ({"subtree": ["poodle", "rain"]}, {"poodle", "rain"}),
        ({"type": "Species"}, {"dog", "poodle"}),
        ({"type": f"{X}t/Breed"}, {"poodle"}),
        ({"type": ["Class", "Breed"]}, {"rain", "poodle"}),
        ({"collection": f"{X}c/pets"}, {"dog", "poodle"}),
        ({"collection": f"{X}d/pets"}, {"poodle"}),
        ({"label": ["other", "dog"]}, {"other", "dog"}),
        ({"subtree": "animal", "type": "Breed"}, {"poodle"}),
        ({}, {"dog", "poodle", "rain", "other"}),
    ],
)
def test_labels_are_selected_by_subtree_type_collection_and_name(labels, given, found):
    assert names(labels, labels.select(**given)) == found


def test_words_select_labels_too(labels):
    assert names(labels, among(labels, ["subtree=animal"], ["type=Breed"])) == {"dog"}
    assert names(labels, among(labels, ["type=Class", "type=Breed"])) == {"rain", "poodle"}
    assert names(labels, among(labels, ["dog", "label=rain"], ["rain"])) == {"dog"}
    odd = LabelSet(["a=b", "type"])
    assert among(odd, ["a=b"]).tolist() == [True, False]


def test_what_is_not_in_the_vocabulary_is_said(labels):
    with pytest.raises(ParameterError, match="no type 'Specie'; did you mean 'Species'"):
        labels.select(type="Specie")
    with pytest.raises(ParameterError, match="no collection 'zzz'; there are http"):
        labels.select(collection="zzz")
    with pytest.raises(ParameterError, match=r"'pets' may be any of the collections .*c/pets, "):
        labels.select(collection="pets")
    with pytest.raises(UnknownConceptError):
        labels.select(subtree="zzz")
    with pytest.raises(UnknownLabelError):
        labels.select(label="animal")  # a concept, and no label
    with pytest.raises(ParameterError, match="not joined to a vocabulary"):
        LabelSet(["dog"]).select(subtree="dog")
    with pytest.raises(ParameterError, match="has no types, so no type 'a'"):
        LabelSet(["dog"]).joined(Vocabulary.of([Concept("dog")])).select(type="a")


def test_answers_have_identifiers_and_notations_and_names_in_a_language(labels, tmp_path):
    ranking = Ranking([[3, 0, 2]], [[0.9, 0.5, 0.1]], labels)
    assert ranking.tags()[0] == [
        Tag("dog", 0.9, f"{X}p2", "A.2"),
        Tag("rain", 0.5, f"{X}p4", "R"),
        Tag("other", 0.1, "other"),
    ]
    spoken = ranking.in_language("fi")
    assert [tag.label for tag in spoken.tags()[0]] == ["koira", "rain", "other"]
    assert ranking.in_language("fi").labels is spoken.labels  # names are looked up once
    assert spoken.in_language("en").tags() == ranking.tags()
    [row] = spoken.rows(Corpus(["It barks."]))
    assert row["labels"][0] == {
        "label": "koira",
        "probability": 0.9,
        "id": f"{X}p2",
        "notation": "A.2",
    }
    assert row["labels"][2] == {"label": "other", "probability": 0.1, "id": "other"}
    table = spoken.to_arrow()
    assert table["label_notations"].to_pylist() == [["A.2", "R", None]]
    write_answers([(Corpus(["It barks."]), spoken)], tmp_path / "answers.csv")
    assert (tmp_path / "answers.csv").read_text().splitlines() == [
        "uid,text,labels,label_ids,label_notations,probabilities",
        f",It barks.,koira; rain; other,{X}p2; {X}p4; other,A.2; R; ,0.9; 0.5; 0.1",
    ]
    write_answers([(Corpus(["It barks."]), spoken)], tmp_path / "answers.parquet")


def test_labels_without_notations_have_no_column_of_them():
    plain = LabelSet(["dog"]).joined(Vocabulary.of([Concept("u/1", {"en": "dog"})]))
    assert plain.notations is None
    assert plain.notation(0) is None
    assert Ranking([[0]], [[1.0]], plain).to_arrow().column_names == [
        "labels",
        "label_ids",
        "scores",
    ]
    with pytest.raises(ParameterError, match="not joined to a vocabulary"):
        Ranking([[0]], [[1.0]], LabelSet(["dog"])).in_language("fi")
