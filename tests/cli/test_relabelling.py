"""`megalabel labels`: a label is added and found the same minute, renamed, and removed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from megalabel import Corpus, Tagger, systems
from megalabel.cli.app import app
from megalabel.data.labelfiles import read_label_file
from megalabel.errors import DataError, MegalabelError

TEXTS = ["red summer dress", "red evening dress", "blue jeans", "faded blue jeans"] * 6
LABELS = [["dresses"], ["dresses"], ["jeans"], ["jeans"]] * 6


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model"
    systems.create("dismec").fit(TEXTS, LABELS).save(path)
    return path


def run(*args: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in args])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_a_label_is_added_and_found_then_renamed_then_removed(model):
    said = json.loads(run("labels", "add", model, "evening things", "--json"))
    assert (said["added"], said["labels"]) == (1, 3)
    assert "evening things" in run("tag", model, "something for the evening", "--json")
    run("labels", "rename", model, "evening things=evening wear")
    assert Tagger.load(model).labels.name(2) == "evening wear"
    less = model.parent / "less"
    assert "Removed 1 label," in run("labels", "remove", model, "evening wear", "--out", less)
    assert len(Tagger.load(model).labels) == 3
    assert len(Tagger.load(less).labels) == 2


@pytest.mark.parametrize("name", ["lexical", "zeroshot"])
def test_a_concept_is_found_in_a_text_that_names_it(name, tmp_path):
    path = tmp_path / "model"
    made = systems.create(name, **{"language": "en"} if name == "zeroshot" else {})
    made.fit(Corpus(TEXTS, targets=LABELS)).save(path)
    run("labels", "add", path, "fishing boats")
    found = json.loads(run("tag", path, "a boat that fishes, and blue jeans", "--json"))["labels"]
    assert {tag["label"] for tag in found[:2]} == {"fishing boats", "jeans"}


def test_labels_of_a_file(model, tmp_path):
    path = tmp_path / "new.tsv"
    path.write_text("# new ones\n<http://x/1>\tevening wear\n\nhats\n", "utf-8")
    assert read_label_file(path) == [("http://x/1", "evening wear"), "hats"]
    run("labels", "add", model, "--file", path)
    assert Tagger.load(model).labels.ids.to_pylist()[2:] == ["http://x/1", "hats"]
    path.write_text("http://x/1\tgowns\n", "utf-8")
    run("labels", "rename", model, "--file", path)
    assert Tagger.load(model).labels.name(2) == "gowns"


def test_positives_are_learned(model, tmp_path):
    path = tmp_path / "more.jsonl"
    path.write_text('{"uid": "1", "text": "faded red hat", "labels": ["hats"]}\n', "utf-8")
    more = tmp_path / "more"
    run("labels", "add", model, "hats", "--positives", path, "--on", path, "--out", more)
    more = Tagger.load(tmp_path / "more")
    assert more.label_counts_[-1] == 1
    assert "hats" in [tag.label for tag in more.tag("faded red", k=3)]


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("add", [], r"which labels\?"),
        ("add", ["jeans"], "label 'jeans' is there already"),
        ("remove", ["jean"], "unknown label 'jean'; did you mean 'jeans'"),
        ("rename", ["jeans"], "as LABEL=NAME, not 'jeans'"),
        ("add", ["--file", "none.tsv"], "there is no such file"),
        ("add", ["hats", "--how", "magic"], "how must be one of"),
    ],
)
def test_errors(model, command, given, message):
    before = Tagger.load(model).labels
    with pytest.raises(MegalabelError, match=message):
        run("labels", command, model, *given)
    assert Tagger.load(model).labels == before


def test_bad_files(tmp_path):
    bad = tmp_path / "bad.tsv"
    bad.write_text("ok\n\tname\n")
    with pytest.raises(DataError, match="expected an identifier, a tab and a name"):
        read_label_file(bad)
    bad.write_bytes(b"ok\n\xff\n")
    with pytest.raises(DataError, match="expected UTF-8"):
        read_label_file(bad)


def test_seen_and_unseen_labels_are_shown(model, tmp_path):
    path = tmp_path / "test.jsonl"
    lines = [("red dress", ["dresses"]), ("hats", ["hats"]), ("blue jeans", ["jeans"])]
    path.write_text("".join(json.dumps({"text": t, "labels": y}) + "\n" for t, y in lines))
    run("labels", "add", model, "hats")
    found = json.loads(run("evaluate", model, path, "-k", 1, "--unseen", "--json"))
    seen, unseen, both, _ = found["seen_and_unseen"]
    assert (seen["labels"], unseen["labels"], both["positives"]) == (2, 1, 3)
    assert seen["R@1"] == 1
    assert "harmonic mean" in run("evaluate", model, path, "-k", 1, "--unseen")
