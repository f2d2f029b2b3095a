"""`megalabel tag --file`: what `train` reads, by the same readers; else a text a line."""

from __future__ import annotations

import gzip
import json
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from typer.testing import CliRunner

from megalabel import data, systems
from megalabel.cli.app import app
from megalabel.data import Corpus
from megalabel.errors import DataError, ParameterError

TEXTS = ["red evening gown", "blue denim, with rivets"]


def run(*args, stdin=None):
    done = CliRunner().invoke(app, [str(a) for a in args], input=stdin)
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    where = tmp_path_factory.mktemp("tagging") / "model"
    systems.create("knn").fit(corpus).save(where)
    return where


@pytest.fixture
def tag(model):
    def answers(file, *options):
        return [json.loads(x) for x in run("tag", model, "--file", file, *options).splitlines()]

    return answers


def written(folder, name, content):
    file = folder / name
    file.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return file


TABLE = 'uid{0}text{0}labels\na1{0}red evening gown{0}red\na2{0}"blue denim, with rivets"{0}blue\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", TABLE.format(",")),
        ("x.csv.gz", TABLE.format(",")),
        ("x.tsv", TABLE.format("\t")),
        ("x.txt", TABLE.format("\t")),
        (
            "x.jsonl",
            '{"uid": "a1", "title": "red", "content": "evening gown", "labels": ["red"]}\n'
            '{"id": "a2", "text": "blue denim, with rivets", "target_ind": []}\n',
        ),
    ],
)
def test_a_corpus_is_read_as_train_reads_it(name, content, tag, tmp_path):
    found = tag(written(tmp_path, name, content), "-k", 2)
    assert [answer["uid"] for answer in found] == ["a1", "a2"]
    assert [answer["text"] for answer in found] == TEXTS
    assert {label["label"] for label in found[0]["labels"]} == {"red", "dress"}


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.jsonl.zst"])
def test_what_is_written_is_read(name, tag, tmp_path):
    corpus = Corpus(TEXTS, targets=[["a label unknown to the model"], []], ids=["a1", "a2"])
    data.write(corpus, tmp_path / name)
    assert [(answer["uid"], answer["text"]) for answer in tag(tmp_path / name)] == [
        ("a1", TEXTS[0]),
        ("a2", TEXTS[1]),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", "__label__red red evening gown\n__label__blue blue denim, with rivets\n"),
        ("x.tsv", "red evening gown\t<http://x/1>\nblue denim, with rivets\t<http://x/2>\n"),
        ("x.txt", "red evening gown\nblue denim, with rivets\n"),
        ("x", "red evening gown\r\nblue denim, with rivets"),
        ("x.txt.gz", "\ufeffred evening gown\nblue denim, with rivets\n"),
    ],
)
def test_texts_without_ids(name, content, tag, tmp_path):
    found = tag(written(tmp_path, name, content))
    assert [answer["text"] for answer in found] == TEXTS
    assert "uid" not in found[0]


def test_each_line_of_plain_text_is_answered(tag, model, tmp_path):
    lines = 'red gown\n\n{"id": 7, "title": "Blue", "content": "denim"}\n{not json\n'
    found = tag(written(tmp_path, "x.txt", lines))
    assert [answer["text"] for answer in found] == ["red gown", "", "Blue denim", "{not json"]
    assert [answer.get("uid") for answer in found] == [None, None, "7", None]
    table = "uid,text\na1,red gown\n"  # what is piped in is lines, whatever it looks like
    piped = [json.loads(x)["text"] for x in run("tag", model, stdin=table).splitlines()]
    assert piped == ["uid,text", "a1,red gown"]


def test_what_is_not_known_is_not_answered(model, monkeypatch):
    lines = "red evening gown\nqwertz\n\n"
    found = [json.loads(x) for x in run("tag", model, stdin=lines).splitlines()]
    assert [(len(answer["labels"]), answer.get("known")) for answer in found] == [
        (5, None),
        (0, False),
        (0, False),
    ]
    likely = json.loads(run("tag", model, "red evening gown", "--threshold", 0.3))["labels"]
    assert likely == [x for x in found[0]["labels"] if x["probability"] >= 0.3] != []
    none = json.loads(run("tag", model, "red evening gown", "--threshold", 1))
    assert none == {"text": "red evening gown", "labels": []}
    monkeypatch.setattr("megalabel.cli.tagging.sys", Mock())  # a terminal
    assert "nothing known" in run("tag", model, "qwertz")
    assert "no label is probable enough" in run("tag", model, "red gown", "--threshold", 1)


def test_vectors(tmp_path):
    vectors = csr_matrix(np.eye(6)[np.arange(60) % 6])
    corpus = Corpus(features=vectors, targets=csr_matrix(np.eye(3)[np.arange(60) % 3]))
    systems.create("knn").fit(corpus).save(tmp_path / "model")
    data.write(corpus[:3], tmp_path / "x.txt")
    shown = run("tag", tmp_path / "model", "--file", tmp_path / "x.txt", "-k", 1)
    found = [json.loads(line) for line in shown.splitlines()]
    assert [answer["labels"][0]["label"] for answer in found] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "", "x.txt: the file is empty"),
        ("x.csv", "", "x.csv: the file is empty"),
        ("x.csv", "uid,text\n", "x.csv: the file is empty: expected at least one text"),
        ("x.csv", "uid,words\na1,red gown\n", "the columns are uid, words; .*'words'"),
        ("x.tsv", "uid\twords\na1\tred gown\n", "the columns are uid, words; .*'words'"),
        ("x.json", '{\n"text": "red gown"\n}\n', "x.json: the format is not known"),
        ("x.jsonl", '{"text": "red gown"}\n{"uid": "a2"}\n', "line 2: expected a title, content"),
        ("x.txt", 'red gown\n{"uid": "a2"}\n', "line 2: expected a title, content or text"),
        ("x.csv", "uid,text\na1,red gown\na2\n", "line 3: expected 2 columns, found 1"),
    ],
)
def test_what_cannot_be_tagged_is_said(name, content, message, tag, tmp_path):
    with pytest.raises(DataError, match=message):
        tag(written(tmp_path, name, content))


def test_bad_lines_are_left_out_if_asked(tag, tmp_path, caplog):
    file = written(tmp_path, "x.csv", "uid,text\na1,red gown\na2\na3,blue denim\n")
    assert [answer["uid"] for answer in tag(file, "--skip-bad")] == ["a1", "a3"]
    assert "skipped 1 bad row" in caplog.text


def test_bad_lines_of_plain_text_are_left_out_if_asked(tag, model, tmp_path, caplog):
    lines = b"red gown\ncaf\xe9\nblue denim\n"
    (tmp_path / "x.txt").write_bytes(lines)
    with pytest.raises(DataError, match=r"x.txt, line 2, column 4"):
        tag(tmp_path / "x.txt")
    found = tag(tmp_path / "x.txt", "--skip-bad")
    assert [answer["text"] for answer in found] == ["red gown", "blue denim"]
    assert "skipped 1 bad row" in caplog.text
    piped = run("tag", model, "--skip-bad", stdin=lines)
    assert len(piped.splitlines()) == 2


def test_a_format_that_looking_does_not_tell(tag, model, tmp_path):
    file = written(tmp_path, "x.txt", "text\tlabels\nred gown\tred\n")
    assert [answer["text"] for answer in tag(file)] == ["red gown"]
    plain = ["text\tlabels", "red gown\tred"]
    assert [answer["text"] for answer in tag(file, "--format", "plain")] == plain
    with pytest.raises(ParameterError, match="--format is for --file"):
        run("tag", model, "red gown", "--format", "plain")


def test_labels_of_the_texts_do_not_matter(tag, tmp_path):
    written(tmp_path, "lbl.jsonl", '{"uid": "red"}\n')
    found = tag(written(tmp_path, "x.csv", TABLE.format(",")))
    assert [answer["uid"] for answer in found] == ["a1", "a2"]


def test_texts_or_a_file(model, tmp_path):
    with pytest.raises(ParameterError, match="not both"):
        run("tag", tmp_path / "no model", "red gown", "--file", tmp_path / "x.csv")
