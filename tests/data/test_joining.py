import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel.data import Concept, Corpus, LabelSet, Vocabulary, read
from megalabel.data.joining import Joining, join, of_concepts
from megalabel.errors import ParameterError, UnknownLabelError

PETS = "http://x.org/pets/"


@pytest.fixture(scope="module")
def pets() -> Vocabulary:
    return Vocabulary.of(
        [
            Concept(f"{PETS}p1", {"en": "animal", "fi": "eläin"}, notations=["A"]),
            Concept(
                f"{PETS}p2",
                {"en": "dog", "fi": "koira"},
                {"en": ["hound"]},
                broader=[f"{PETS}p1"],
                notations=["A.1"],
            ),
            Concept(f"{PETS}p3", {"en": "cat", "fi": "kissa"}, broader=[f"{PETS}p1"]),
            Concept(f"{PETS}p4", {"en": "puss"}, deprecated=True, replaced_by=f"{PETS}p5"),
            Concept(f"{PETS}p5", {"en": "pussy cat"}, deprecated=True, replaced_by=f"{PETS}p3"),
            Concept(f"{PETS}p6", {"en": "dodo"}, deprecated=True),
            Concept(f"{PETS}p7", {"en": "bank", "fi": "gift"}),
            Concept(f"{PETS}p8", {"en": "bank"}),
            Concept(f"{PETS}p9", {"en": "present"}, {"en": ["gift"]}),
        ]
    )


@pytest.mark.parametrize(
    ("ids", "rule"),
    [
        ([f"{PETS}p1", f"{PETS}p2"], "id"),
        (["p1", "p2"], "part"),
        (["https://elsewhere.org/p1", "urn:pets:p2"], "part"),
        (["A", "A.1"], "notation"),
        (["Animal", "hound"], "name"),
        (["eläin", "KOIRA"], "name"),
    ],
)
def test_labels_find_their_concepts_and_have_their_identifiers(pets, ids, rule):
    labels, numbers, joining = join(LabelSet(ids), pets)
    assert labels.concepts.tolist() == [0, 1]
    assert labels.ids.to_pylist() == [f"{PETS}p1", f"{PETS}p2"]
    assert (joining.by, numbers.tolist()) == ({rule: 2}, [0, 1])
    assert (labels.name(1, "fi"), labels.name(1, "en")) == ("koira", "dog")
    assert labels.notation(1) == "A.1"


def test_the_rule_that_finds_the_most_labels_goes_first_and_others_follow(pets):
    both = Vocabulary.of(
        [
            Concept("u/1", {"en": "A"}, notations=["dog"]),
            Concept("u/2", {"en": "dog"}),
            Concept("u/3", {"en": "cat"}, notations=["x"]),
            Concept("u/4", {"en": "cow"}),
        ]
    )
    labels, _, joining = join(LabelSet(["dog", "cat", "cow", "x", "u/1"]), both)
    assert labels.concepts.tolist() == [1, 2, 3, 0]  # "dog" is not the notation, "x" is
    assert [*joining.by.items()] == [("id", 1), ("name", 3), ("notation", 1)]
    assert (joining.found, joining.merged) == (5, 1)


def test_a_last_part_of_several_concepts_joins_none():
    two = Vocabulary.of([Concept("a/p1"), Concept("b/p1")])
    labels, _, joining = join(LabelSet(["p1", "p2"]), two)
    assert labels.concepts.tolist() == [-1, -1]
    assert (joining.ambiguous, joining.ambiguous_examples, joining.unknown) == (1, ["p1"], 1)


def test_labels_with_names_keep_them_and_their_own_identifiers_if_found_by_name(pets):
    labels, _, joining = join(LabelSet(["17", "18"], names=["Dog", "Unicorn"]), pets)
    assert labels.ids.to_pylist() == ["17", "18"]
    assert labels.names.to_pylist() == ["Dog", "Unicorn"]
    assert (labels.concepts.tolist(), labels.language) == ([1, -1], "en")
    assert (joining.unknown, joining.unknown_examples) == (1, ["Unicorn"])
    assert labels.names_in("fi").to_pylist() == ["koira", "Unicorn"]


def test_names_are_in_the_language_asked_for(pets):
    labels = LabelSet(["p2", "zzz", "p7"]).joined(pets, "fi")
    assert (labels.names.to_pylist(), labels.language) == (["koira", "zzz", "gift"], "fi")
    assert LabelSet(["p8"]).joined(pets, "fi").names.to_pylist() == ["bank"]
    with pytest.raises(ParameterError, match="'de'; there are en, fi"):
        LabelSet(["p2"]).joined(pets, "de")


def test_a_name_in_the_language_of_the_labels_wins(pets):
    assert join(LabelSet(["gift"]), pets, "fi").labels.concepts.tolist() == [6]
    assert join(LabelSet(["gift"]), pets, "en").labels.concepts.tolist() == [8]
    # without one, that of most labels
    assert join(LabelSet(["gift", "dog", "cat"]), pets).labels.concepts.tolist() == [8, 1, 2]
    assert join(LabelSet(["gift", "koira", "kissa"]), pets).labels.concepts.tolist() == [6, 1, 2]
    _, _, joining = join(LabelSet(["bank"]), pets)
    assert (joining.ambiguous, joining.found) == (1, 0)


def test_deprecated_concepts_are_replaced_by_current_ones_or_kept(pets):
    labels, numbers, joining = join(LabelSet(["puss", "dog", "cat", "dodo"]), pets)
    assert labels.names.to_pylist() == ["cat", "dog", "dodo"]
    assert numbers.tolist() == [0, 1, 0, 2]
    assert (joining.replaced, joining.deprecated, joining.merged) == (1, 1, 1)
    labels, _, joining = join(LabelSet(["p4", "p6"]), pets, keep_deprecated=True)
    assert labels.names.to_pylist() == ["puss", "dodo"]
    assert (joining.replaced, joining.deprecated) == (0, 2)


def test_replacements_in_a_ring_stay_where_they_are():
    ring = Vocabulary.of(
        [
            Concept("a", deprecated=True, replaced_by="b"),
            Concept("b", deprecated=True, replaced_by="a"),
        ]
    )
    assert join(LabelSet(["a", "b"]), ring).labels.concepts.tolist() == [0, 1]


def test_all_current_concepts_may_be_labels(pets):
    labels, numbers, joining = join(LabelSet(["p6", "dog", "x"]), pets, all_concepts=True)
    assert labels.names.to_pylist()[:3] == ["dodo", "dog", "x"]
    assert labels.ids.to_pylist()[3:] == [f"{PETS}p{i}" for i in (1, 3, 7, 8, 9)]
    assert (numbers.tolist(), joining.added) == ([0, 1, 2], 5)
    assert labels.concepts.tolist() == [5, 1, -1, 0, 2, 6, 7, 8]
    everything = of_concepts(pets, None, "fi")
    assert len(everything) == 6
    assert everything.name(1) == "koira"
    assert join(LabelSet([]), pets, all_concepts=True).labels == everything


def test_what_was_joined_is_said_with_counts():
    said = str(Joining(5, {"id": 2, "name": 1}, 1, 1, 1, 1, 1, 7, ["x"], ["bank"]))
    assert said == (
        "3 of 5 labels are joined to the vocabulary: 2 by whole identifier, 1 by name; "
        "1 is not in it, such as 'x'; 1 is joined to none of several concepts, such as 'bank'; "
        "1 is deprecated and replaced; 1 is deprecated and kept; "
        "1 is the same concept as another; 7 concepts are labels without a text"
    )


def test_cells_of_labels_that_become_one_are_joined(pets):
    targets = csr_matrix(np.array([[0.5, 1, 0], [1, 0, 0], [0, 0, 2]], np.float32))
    corpus = Corpus(["a", "b", "c"], targets=targets, labels=["hound", "dog", "cat"])
    corpus.excluded = targets
    joined = corpus.joined(pets)
    assert joined.targets.toarray().tolist() == [[1, 0], [1, 0], [0, 2]]
    assert joined.excluded.toarray().tolist() == [[1, 0], [1, 0], [0, 2]]
    assert joined.labels.names.to_pylist() == ["dog", "cat"]
    assert joined[0].labels == ("dog",)


@given(st.data())
def test_joining_keeps_what_texts_carry(data):
    vocabulary = Vocabulary.of(
        Concept(f"u/{i}", {"en": f"n{i}"}, deprecated=i > 5, replaced_by=f"u/{i % 6}")
        for i in range(9)
    )
    spellings = [f"u/{i}" for i in range(9)] + [str(i) for i in range(9)]
    spellings += [f"N{i}" for i in range(9)] + ["other", "more"]
    texts = data.draw(st.lists(st.lists(st.sampled_from(spellings), max_size=5), min_size=1))
    corpus = Corpus(["x"] * len(texts), targets=texts)

    def concept(name):
        if name in ("other", "more"):
            return name
        number = int(name[-1])
        return f"u/{number % 6}"

    joined = corpus.joined(vocabulary)
    for row, names in enumerate(texts):
        carried = joined.targets[row].indices
        assert sorted(joined.labels.ids[int(i)].as_py() for i in carried) == sorted(
            {concept(name) for name in names}
        )


def test_a_corpus_is_joined_as_it_is_read(pets, tmp_path, caplog):
    file = tmp_path / "train.txt"
    file.write_text("__label__koira it barks\n__label__kissa it meows\n__label__x who knows\n")
    with caplog.at_level(logging.INFO):
        corpus = read(file, vocabulary=pets, language="en")
    assert corpus.labels.names.to_pylist() == ["cat", "dog", "x"]
    assert Joining(**corpus.source["vocabulary"]).unknown == 1
    assert "2 of 3 labels are joined to the vocabulary: 2 by name" in caplog.text
    assert caplog.records[-1].levelno == logging.INFO
    with pytest.raises(ParameterError, match=r"language, all_concepts say what .* --vocabulary"):
        read(file, language="en", all_concepts=True)


def test_a_corpus_of_which_most_labels_are_not_found_is_warned_of(pets, caplog):
    Corpus(["a"], targets=[["x", "y", "dog"]]).joined(pets)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_empty_vocabulary_and_no_labels():
    none = Vocabulary.of([])
    assert join(LabelSet(["a"]), none).labels.concepts.tolist() == [-1]
    assert len(join(LabelSet([]), none, all_concepts=True).labels) == 0


def test_labels_are_found_by_whatever_finds_their_concept(pets):
    labels = LabelSet(["p3", "own", "p2"]).joined(pets)
    for word in ("dog", f"{PETS}p2", "A.1", "koira", "Hound", "p2"):
        assert labels.index(word) == 2
    assert labels.index("own") == 1
    with pytest.raises(UnknownLabelError):
        labels.index("animal")  # a concept that is no label
    with pytest.raises(UnknownLabelError, match="unknown label 'dgo'; did you mean 'dog'"):
        labels.index("dgo")
    assert labels.numbers_of(LabelSet(["kissa", "zzz", "hound", "own"])).tolist() == [0, -1, 2, 1]


def test_corpora_are_aligned_by_their_concepts(pets):
    labels = LabelSet(["p3", "p2"]).joined(pets)
    corpus = Corpus(["a", "b", "c"], targets=[["hound", "koira"], ["new"], ["cat", "dog"]])
    aligned = corpus.aligned(labels)
    assert aligned.labels.names.to_pylist() == ["cat", "dog", "new"]
    assert aligned.targets.toarray().tolist() == [[0, 1, 0], [0, 0, 1], [1, 1, 0]]
    joined = corpus.joined(pets, "fi").aligned(labels)
    assert joined.labels.names.to_pylist() == ["cat", "dog", "new"]
    assert joined.targets.toarray().tolist() == aligned.targets.toarray().tolist()
