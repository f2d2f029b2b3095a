"""A vocabulary as a folder, and label sets that keep one in a model folder."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.hostile.vocabularies import small

from megalabel import store
from megalabel.data import Concept, Corpus, LabelSet, Vocabulary
from megalabel.data.vocabularies import folder
from megalabel.errors import StoreError
from megalabel.features import Tfidf
from megalabel.files import VOCABULARY
from megalabel.linear import Prior
from megalabel.mixing import mix
from megalabel.sealed import seal
from megalabel.store.encoding import Deserialiser, Serialiser
from megalabel.tagger import Tagger


@pytest.fixture
def kept(tmp_path):
    folder.save(small(), tmp_path / "colours")
    return tmp_path / "colours"


def same(one: Vocabulary, other: Vocabulary) -> bool:
    assert len(one) == len(other)
    assert one.facts == other.facts
    return all(one[i] == other[i] for i in range(len(one)))


def test_a_folder_gives_the_same_vocabulary_mapped(kept):
    again = folder.load(kept)
    assert same(again, small())
    assert again.find("crimson") == 1
    assert not any(array.flags.writeable for array in again.arrays.values() if len(array))


def test_the_indexes_are_in_the_folder(kept):
    assert set(folder.load(kept).arrays) == set(small().indexed().arrays)


def test_an_older_vocabulary_is_replaced_and_anything_else_is_not(kept, tmp_path):
    folder.save(Vocabulary.of([Concept("a")]), kept)
    assert len(folder.load(kept)) == 1
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(StoreError, match="not a vocabulary folder"):
        folder.save(small(), tmp_path / "notes")
    store.save(Prior(), tmp_path / "model")
    with pytest.raises(StoreError, match="not a vocabulary folder"):
        folder.save(small(), tmp_path / "model")
    with pytest.raises(StoreError, match="not a model folder"):
        store.save(Prior(), kept)


def test_what_is_no_vocabulary_says_so(tmp_path):
    with pytest.raises(StoreError, match="no vocabulary folder"):
        folder.load(tmp_path / "none")
    with pytest.raises(StoreError, match=f"not a vocabulary folder: it has no {VOCABULARY}"):
        folder.load(tmp_path)
    assert not folder.is_folder(tmp_path)


def test_a_changed_byte_is_found(kept):
    file = kept / "names.bytes.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(StoreError, match=r"names\.bytes\.npy is damaged"):
        folder.load(kept)
    folder.load(kept, verify=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda kept: kept.update(format=2), "format 2.*convert it again"),
        (lambda kept: kept["facts"].update(languages=[1]), "its languages"),
        (lambda kept: kept["facts"].update(types=[["a"]]), "no type or collection"),
        (lambda kept: kept["facts"].update(notes={"cycle": 3}), "no note"),
        (lambda kept: kept["facts"].update(source=[]), "its source"),
        (lambda kept: kept["arrays"].update(ids=3), "damaged"),
        (lambda kept: kept.pop("arrays"), "no 'arrays'"),
        (lambda kept: kept["arrays"].pop("ids.offsets"), "no ids.offsets"),
    ],
)
def test_a_description_that_lies_is_refused(kept, change, message):
    described = json.loads((kept / VOCABULARY).read_text())
    del described["sha256"]
    change(described)
    described["sha256"] = seal(described)
    (kept / VOCABULARY).write_text(json.dumps(described))
    with pytest.raises(StoreError, match=message):
        folder.load(kept)


# ---------------------------------------------------------------- in a model folder
def trained(labels: LabelSet, targets: list[list[str]] | None = None) -> Tagger:
    corpus = Corpus(["a red hat", "blue"], targets=targets or [["r"], ["b"]], labels=labels)
    return Tagger(Prior(), Tfidf(), None).fit(corpus)


@pytest.fixture
def labels() -> LabelSet:
    return LabelSet(["r", "b", "x"], ["Red", "blue", "x"], None, small(), [1, 2, -1], "en")


def test_a_model_keeps_the_vocabulary_of_its_labels(labels, tmp_path):
    trained(labels).save(tmp_path / "m")
    again = Tagger.load(tmp_path / "m").labels
    assert again == labels
    assert same(again.known_vocabulary(), labels.known_vocabulary())
    assert again.concepts.tolist() == [1, 2, -1]
    assert again.language == "en"
    assert again.names_in("fi").equals(labels.names_in("fi"))
    assert again.all_names()[1].equals(labels.all_names()[1])
    assert (again.links("related") != labels.links("related")).nnz == 0
    store.save(Tagger.load(tmp_path / "m"), tmp_path / "again")
    assert store.fingerprint(again) == store.fingerprint(labels)
    store.verify(tmp_path / "again")


def test_looking_something_up_changes_no_fingerprint(labels):
    before = store.fingerprint(labels)
    labels.known_vocabulary().find("crimson")
    assert store.fingerprint(labels) == before
    other = LabelSet(labels.ids, labels.names, None, labels.vocabulary, [1, 2, 0], "en")
    assert store.fingerprint(other) != before


def test_labels_without_a_vocabulary_are_kept_as_before(tmp_path):
    trained(LabelSet(["r", "b"])).save(tmp_path / "m")
    kept = store.about(tmp_path / "m")["learned"]["classifier_"]["learned"]["labels_"]["$labels"]
    assert set(kept) == {"ids", "names", "texts"}


def test_a_vocabulary_that_several_label_sets_share_is_kept_once(labels):
    files: dict[str, np.ndarray] = {}

    def put(name: str, array: np.ndarray) -> str:
        files[name] = array
        return name

    both = [labels, labels.take([1])]
    encoded = json.loads(json.dumps(Serialiser(put).value(both, "both")))
    assert sum(name.endswith("by_name.hashes") for name in files) == 1
    one, other = Deserialiser(lambda file, dtype, shape: files[file]).value(encoded)
    assert one.vocabulary is other.vocabulary


def test_a_mix_keeps_the_vocabulary(labels, tmp_path):
    members = [trained(labels), trained(labels)]
    corpus = Corpus(["red", "blue"] * 20, targets=[["r"], ["b"]] * 20, labels=labels)
    mix(members, corpus).save(tmp_path / "mix")
    again = Tagger.load(tmp_path / "mix").labels
    assert again.names_in("fi").to_pylist() == labels.names_in("fi").to_pylist()
    names = [path.name for path in (tmp_path / "mix").iterdir()]
    assert sum(name.endswith("by_name.hashes.npy") for name in names) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": "x"}, "vocabulary of a label set"),
        ({"language": 3}, "language of a label set"),
        ({"concepts": None}, None),
        ({"concepts": "x"}, "numbers of 32 bits"),
    ],
)
def test_a_model_that_lies_of_its_vocabulary_is_refused(labels, tmp_path, change, message):
    path = tmp_path / "m"
    trained(labels).save(path)
    described = json.loads((path / "megalabel.json").read_text())
    del described["sha256"]
    described["learned"]["classifier_"]["learned"]["labels_"]["$labels"].update(change)
    described["sha256"] = seal(described)
    (path / "megalabel.json").write_text(json.dumps(described))
    if message is None:
        assert Tagger.load(path).labels.concepts.tolist() == [-1, -1, -1]
        return
    with pytest.raises(StoreError, match=message):
        Tagger.load(path)
