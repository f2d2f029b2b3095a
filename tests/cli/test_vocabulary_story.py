"""From the command line: a corpus in a vocabulary's identifiers is trained, and tagged in two
languages, among some of its concepts."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from tests.cli.test_tagging import run

from megalabel.data import Concept, Vocabulary, write_vocabulary
from megalabel.errors import ParameterError

PLACES, THINGS = "http://x.org/t/Place", "http://x.org/t/Thing"
CONCEPTS = [
    Concept("http://x.org/v/p1", {"en": "animals", "fi": "eläimet"}, types=[THINGS]),
    Concept(
        "http://x.org/v/p2",
        {"en": "dogs", "fi": "koirat"},
        {"en": ["hounds"]},
        broader=["http://x.org/v/p1"],
        types=[THINGS],
        notations=["636.7"],
        collections=["http://x.org/c/pets"],
    ),
    Concept(
        "http://x.org/v/p3",
        {"en": "cats", "fi": "kissat"},
        broader=["http://x.org/v/p1"],
        types=[THINGS],
        notations=["636.8"],
        collections=["http://x.org/c/pets"],
    ),
    Concept("http://x.org/v/p4", {"en": "Finland", "fi": "Suomi"}, types=[PLACES]),
    Concept("http://x.org/v/p5", {"en": "Sweden"}, types=[PLACES]),
    Concept("http://x.org/v/p6", {"en": "hounds (old)"}, deprecated=True),
    Concept("http://x.org/v/p7", {"en": "weather", "fi": "sää"}, types=[THINGS]),
]
CONCEPTS[5].replaced_by = CONCEPTS[1].id
WORDS = {
    "p2": "barks bone leash kennel",
    "p3": "purrs meows whiskers mouse",
    "p4": "helsinki lake sauna tampere",
    "p5": "stockholm malmo herring uppsala",
    "p7": "rain sunny cloud storm",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The vocabulary as SKOS-like JSON lines, and a corpus in last parts of its identifiers."""
    folder = tmp_path_factory.mktemp("story")
    write_vocabulary(Vocabulary.of(CONCEPTS), folder / "animals.jsonl")
    draw = np.random.default_rng(0)
    for split, texts in (("trn", 200), ("tst", 40)):
        with (folder / f"{split}.jsonl").open("w") as file:
            for i in range(texts):
                labels = draw.choice([*WORDS], 2, replace=False).tolist()
                words = [draw.choice(WORDS[label].split()) for label in labels for _ in range(3)]
                if "p2" in labels and i % 5 == 0:
                    labels[labels.index("p2")] = "p6"  # which is deprecated
                file.write(json.dumps({"text": " ".join(words), "labels": labels}) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    out = folder / "model"
    vocabulary = ("--vocabulary", folder / "animals.jsonl", "--language", "en")
    told = run("train", folder, "--system", "dismec", "--out", out, *vocabulary, "--json")
    assert json.loads(told)["vocabulary"] == {
        "labels": 6,
        "by": {"part": 6},
        "replaced": 1,
        "merged": 1,
    }
    return out


def tags(*args):
    return json.loads(run("tag", *args))["labels"]


def test_answers_have_identifiers_notations_and_names_in_the_language_asked_for(model):
    text = "barks purrs kennel whiskers"
    english, finnish = (tags(model, text, "-k", 2, "--language", tag) for tag in ("en", "fi"))
    assert {tag["label"]: (tag["id"], tag["notation"]) for tag in english} == {
        "dogs": ("http://x.org/v/p2", "636.7"),
        "cats": ("http://x.org/v/p3", "636.8"),
    }
    assert {tag["label"] for tag in finnish} == {"koirat", "kissat"}
    assert [tag["probability"] for tag in finnish] == [tag["probability"] for tag in english]
    assert tags(model, text, "-k", 2) == english
    # one that has no name in the language has its own
    [sweden] = tags(model, "stockholm herring", "-k", 1, "--language", "fi")
    assert (sweden["label"], "notation" in sweden) == ("Sweden", False)
    with pytest.raises(ParameterError, match="no name is in the language 'de'"):
        run("tag", model, text, "--language", "de")


def test_answers_are_among_some_concepts(model):
    text = "barks helsinki lake sauna"
    every = {tag["label"]: tag for tag in tags(model, text)}

    def among(*options):
        found = tags(model, text, *options)
        assert all(tag == every[tag["label"]] for tag in found)  # with the same probabilities
        return {tag["label"] for tag in found}

    assert among("--only", "subtree=animals") == {"dogs", "cats"}
    assert among("--only", "collection=pets", "--without", "cats") == {"dogs"}
    assert among("--only", "type=Place") == {"Finland", "Sweden"}
    assert among("--without", "type=Place", "--without", "subtree=p1") == {"weather"}
    assert among("--only", "dogs", "--only", "label=Finland") == {"dogs", "Finland"}
    assert [tag["label"] for tag in tags(model, text, "-k", 1, "--only", "p3")] == ["cats"]
    with pytest.raises(ParameterError, match="no label is allowed"):
        run("tag", model, text, "--only", "type=Place", "--only", "subtree=p1")


def test_a_file_is_tagged_in_a_language_among_some_concepts(model, folder):
    out = folder / "answers.csv"
    options = ("--language", "fi", "--only", "type=Place", "-k", 1, "--out", out)
    run("tag", model, "--file", folder / "tst.jsonl", *options)
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 40
    assert {row["labels"] for row in rows} <= {"Suomi", "Sweden"}
    assert {row["label_ids"] for row in rows} <= {"http://x.org/v/p4", "http://x.org/v/p5"}
    assert {row["label_notations"] for row in rows} == {""}
    run("tag", model, "--file", folder / "tst.jsonl", "--threshold", 0.99, "-k", 5, "--out", out)
    assert all(len(row["labels"].split("; ")) < 5 for row in csv.DictReader(out.open()))


def test_a_model_of_a_vocabulary_measures_corpora_in_whatever_its_concepts_are_called(
    model, folder, tmp_path
):
    with_vocabulary = ("--vocabulary", folder / "animals.jsonl")
    measured = json.loads(run("evaluate", model, folder, "--json", *with_vocabulary))
    assert json.loads(run("evaluate", model, folder, "--json"))["P@1"] == measured["P@1"]
    names = {concept.id[-2:]: concept.names["en"] for concept in CONCEPTS}
    names["p2"] = "Hounds"
    spoken = []
    for line in (folder / "tst.jsonl").open():
        row = json.loads(line)
        row["labels"] = [names[label] for label in row["labels"]]
        spoken.append(json.dumps(row))
    (tmp_path / "tst.jsonl").write_text("\n".join(spoken))
    assert json.loads(run("evaluate", model, tmp_path, "--json"))["P@1"] == measured["P@1"]
    assert measured["P@1"] > 90


def test_other_commands_read_corpora_in_a_vocabulary_too(folder, model, tmp_path):
    vocabulary = ("--vocabulary", folder / "animals.jsonl", "--language", "fi")
    told = json.loads(run("info", folder, *vocabulary, "--all-concepts", "--json"))
    assert told["train"]["labels"] == 6
    assert told["train"]["vocabulary"] == {
        "labels": 6,
        "by": {"part": 6},
        "replaced": 1,
        "merged": 1,
        "added": 1,
    }
    kept = json.loads(run("info", folder, *vocabulary, "--keep-deprecated", "--json"))
    assert kept["train"]["vocabulary"] == {"labels": 6, "by": {"part": 6}, "deprecated": 1}
    shown = run("info", folder, *vocabulary)
    assert "6 of 6 labels are joined" in " ".join(shown.split())
    assert "6 of 6 labels are joined" in " ".join(run("info", model).split())
    run("convert", folder, tmp_path / "spoken.jsonl", "--split", "test", *vocabulary)
    lines = (tmp_path / "lbl.jsonl").read_text().splitlines()
    assert {"uid": "http://x.org/v/p2", "title": "koirat"} in map(json.loads, lines)
    with pytest.raises(ParameterError, match="language say what to take of a vocabulary"):
        run("info", folder, "--language", "fi")


def test_tables_pages_and_explanations_are_in_the_language_asked_for(model, folder, tmp_path):
    run("evaluate", model, folder, "--language", "fi", "--labels", tmp_path / "labels.csv")
    rows = list(csv.DictReader((tmp_path / "labels.csv").open()))
    assert {row["name"] for row in rows} == {"koirat", "kissat", "Suomi", "Sweden", "sää"}
    assert {row["label"] for row in rows} >= {"http://x.org/v/p2"}
    run("report", model, folder, "--language", "fi", "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "koirat" in page
    assert "dogs" not in page
    said = run("explain", model, "barks bone", "--label", "636.7", "--language", "fi", "--json")
    assert json.loads(said)["label"] == "koirat"
    out = tmp_path / "decided.jsonl"
    run("decide", model, folder, "--language", "fi", "--k", 1, "--out", out)
    assert any("koirat" in line for line in out.open())
