"""`megalabel vocabulary`: show, search, convert, check."""

from __future__ import annotations

import importlib.util
import json

import pytest
from typer.testing import CliRunner

from megalabel.cli.app import app
from megalabel.data import Concept, Corpus, LabelSet, Vocabulary, read_vocabulary, write_vocabulary
from megalabel.errors import DataError, ParameterError, UnknownConceptError
from megalabel.features import Tfidf
from megalabel.linear import Prior
from megalabel.tagger import Tagger

HOUSE = "http://x.org/house"


def run(*args, code=0):
    done = CliRunner().invoke(app, ["vocabulary", *map(str, args)], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code
    return done.stdout


def of_json(*args, code=0):
    return json.loads(run(*args, "--json", code=code))


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pets") / "pets"
    some = [
        Concept("http://x.org/Q1", {"en": "animal", "fi": "eläin"}, notations=["A"]),
        Concept(
            "http://x.org/Q2",
            {"en": "dog", "fi": "koira"},
            {"en": ["hound"]},
            broader=["http://x.org/Q1"],
            collections=[HOUSE],
            descriptions={"en": ["It barks."]},
            notations=["A.1"],
        ),
        Concept("http://x.org/Q3", {"en": "doggy"}, deprecated=True, replaced_by="http://x.org/Q2"),
    ]
    write_vocabulary(Vocabulary.of(some), folder)
    return folder


@pytest.fixture
def odd(tmp_path):
    file = tmp_path / "odd.jsonl"
    file.write_text('{"id": "a", "names": {"": "a"}, "broader": ["b"]}\n')
    return file


def test_show_sums_up(pets):
    found = of_json("show", pets)
    assert (found["concepts"], found["deprecated"], found["levels"]) == (3, 1, 2)
    assert found["languages"] == {"en": 3, "fi": 2}
    assert found["collections"] == {HOUSE: 1}
    assert (found["other names"], found["notations"], found["descriptions"]) == (1, 2, 1)
    assert found["links to broader concepts"] == 1
    assert found["notes"]["deprecated"]["count"] == 1
    shown = run("show", pets)
    for text in ("concepts", "levels", "fi", HOUSE, "deprecated"):
        assert text in shown


@pytest.mark.parametrize("asked", ["koira", "A.1", "Q2", "http://x.org/Q2"])
def test_show_gives_all_of_a_concept(pets, asked):
    found = of_json("show", pets, asked, "--language", "fi")
    assert found["name"] == "koira"
    assert found["others"] == {"en": ["hound"]}
    assert found["linked"] == {"http://x.org/Q1": "eläin"}
    shown = run("show", pets, asked)
    for text in ("dog", "koira", "hound", "animal (http://x.org/Q1)", "It barks.", HOUSE):
        assert text in shown


def test_show_suggests_what_was_meant(pets):
    with pytest.raises(UnknownConceptError, match="koira"):
        run("show", pets, "koirra")


def test_search_finds_words_and_their_beginnings(pets):
    assert [one["name"] for one in of_json("search", pets, "dog")] == ["dog", "doggy"]
    assert [one["deprecated"] for one in of_json("search", pets, "dog")] == [False, True]
    assert [one["name"] for one in of_json("search", pets, "ko", "--language", "fi")] == ["koira"]
    assert of_json("search", pets, "dog", "-k", "1")[0]["notations"] == ["A.1"]
    assert "http://x.org/Q2" in run("search", pets, "hou")
    assert "nothing found" in run("search", pets, "cow")


def test_convert_writes_any_format(pets, tmp_path):
    names = ["a.jsonl", "a.csv", "a.tsv.gz"]
    names += ["a.ttl", "a.nt"] if importlib.util.find_spec("pyoxigraph") else []
    for name in names:
        assert of_json("convert", pets, tmp_path / name)["concepts"] == 3
        assert read_vocabulary(tmp_path / name).find("dog") == 1
    run("convert", pets, tmp_path / "fi.tsv", "--language", "fi")
    assert (tmp_path / "fi.tsv").read_text().startswith("<http://x.org/Q1>\teläin\tA\n")
    shown = run("convert", tmp_path / "a.csv", tmp_path / "fi.tsv", tmp_path / "both")
    assert "Wrote 3 concepts" in shown
    assert len(read_vocabulary(tmp_path / "both")) == 3


def test_convert_replaces_nothing_unasked(pets, tmp_path):
    run("convert", pets, tmp_path / "a")
    for name in ("a", "a.csv"):
        (tmp_path / "a.csv").touch()
        with pytest.raises(ParameterError, match="--overwrite"):
            run("convert", pets, tmp_path / name)
        run("convert", pets, tmp_path / name, "--overwrite")
    assert len(read_vocabulary(tmp_path / "a.csv")) == 3


def test_convert_takes_the_language_and_the_format_of_files(tmp_path):
    (tmp_path / "a.txt").write_text("<http://x.org/1>\thund\n")
    options = ["--from", "tsv", "--from-language", "sv"]
    run("convert", tmp_path / "a.txt", tmp_path / "a.jsonl", *options)
    assert read_vocabulary(tmp_path / "a.jsonl").languages == ("sv",)


def test_check_tells_errors_by_its_exit_code(pets, odd):
    found = of_json("check", odd, code=3)
    assert not found["sound"]
    assert found["notes"]["dangling link"] == {
        "level": "error",
        "count": 1,
        "what": "links to what is no concept here, left out",
        "examples": ["a → b"],
    }
    shown = run("check", odd, code=3)
    assert "a → b" in shown
    assert "there are errors" in shown
    assert "sound" in run("check", pets)
    assert of_json("check", pets)["sound"]


def test_check_takes_warnings_for_errors_where_asked(tmp_path):
    (tmp_path / "a.tsv").write_text("<http://x.org/1>\tdog\n")
    assert of_json("check", tmp_path / "a.tsv")["sound"]
    assert not of_json("check", tmp_path / "a.tsv", "--strict", code=3)["sound"]


def test_a_model_shows_the_vocabulary_of_its_labels(pets, tmp_path):
    some = read_vocabulary(pets)
    for name, labels in (
        ("with", LabelSet(["d"], vocabulary=some, concepts=[1])),
        ("without", LabelSet(["d"])),
    ):
        corpus = Corpus(["a dog"], targets=[["d"]], labels=labels)
        Tagger(Prior(), Tfidf(), None).fit(corpus).save(tmp_path / name)
    assert of_json("show", tmp_path / "with", "koira")["name"] == "dog"
    with pytest.raises(ParameterError, match="have no vocabulary"):
        run("show", tmp_path / "without")


def test_info_sends_people_here(pets):
    done = CliRunner().invoke(app, ["info", str(pets)])
    assert "megalabel vocabulary show" in str(done.exception)


def test_files_that_cannot_be_read_or_written_say_so(pets, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        run("show", tmp_path / "none.ttl")
    (tmp_path / "a.csv").write_text("uri,label\n")
    with pytest.raises(DataError, match="expected a header"):
        run("check", tmp_path / "a.csv")
    with pytest.raises(ParameterError, match="are written as folder"):
        run("convert", pets, tmp_path / "a.pdf")
