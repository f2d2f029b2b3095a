"""A newcomer's CSV on the command line: what is said is done, and works."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys

import pyarrow.parquet
import pytest
from tests.own_files import FILES, NAMES, ROWS

from megalabel import cli, data, systems
from megalabel.data import Corpus, LabelSet
from megalabel.tagger import Tagger


@pytest.fixture
def megalabel(monkeypatch, capsys):
    def run(*args, code=0):
        monkeypatch.setattr(sys, "argv", ["megalabel", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            cli.run()
        shown = capsys.readouterr()
        assert (ended.value.code or 0) == code, shown.err
        return shown

    return run


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    """A model whose labels have identifiers."""
    where = tmp_path_factory.mktemp("own") / "model"
    labels = LabelSet([f"Q{i}" for i in range(len(corpus.labels))], corpus.labels.names)
    named = Corpus(corpus.texts, targets=corpus.targets, labels=labels)
    systems.create("knn").fit(named).save(where)
    return where


@pytest.mark.parametrize("name", FILES)
def test_following_the_sentence(name, megalabel, tmp_path):
    case, path = FILES[name], tmp_path / "texts.csv"
    path.write_bytes(case.content)
    noted = name == "labels-with-commas"
    said = megalabel("info", path, code=0 if noted else 3).err.replace("\n", " ")
    assert case.said in said
    _, _, advice = said.partition("(--encoding" if "(--encoding" in said else ": give --")
    path.write_bytes(case.header.encode() + case.content)
    options = ""
    if not case.header:
        options = f"--encoding{advice.partition(')')[0]}" if "(--enc" in said else f"--{advice}"
    facts = json.loads(megalabel("info", path, *shlex.split(options), "--json").out)["texts.csv"]
    assert facts["texts"] == len(ROWS)
    assert facts["labels"] == len({label for names in NAMES for label in names})
    out = tmp_path / "parts" / "all.csv"
    megalabel("convert", path, out, *shlex.split(options))
    assert data.read(out).texts.to_pylist() == [text for text, *_ in ROWS]


def test_every_command_takes_the_options(megalabel, corpus, tmp_path):
    rows = zip(corpus.texts.to_pylist(), corpus.targets, strict=True)
    names = corpus.labels.names.to_pylist()
    path, model = tmp_path / "a.csv", tmp_path / "model"
    with path.open("w", encoding="latin-1", newline="") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(["Titel", "Größe", "Tags"])
        table.writerows([text, "M", ", ".join(names[j] for j in row.indices)] for text, row in rows)
    options = ["--text-column", "Titel:2", "--text-column", "Größe", "--label-column", "Tags"]
    options += ["--label-separator", ", ", "--encoding", "latin-1"]
    trained = megalabel("train", path, "--out", model, *options, "--json").out
    assert json.loads(trained)["labels"] == 9
    assert "peak memory" in megalabel("plan", path, *options).out
    shown = megalabel("evaluate", model, path, *options, "--json")
    assert json.loads(shown.out)["trained_on"] == 300
    megalabel("split", path, tmp_path / "parts", *options)
    assert data.splits_of(tmp_path / "parts") == ["train", "test"]
    for command in ("calibrate", "decide"):
        megalabel(command, model, path, *options, "-k", 2, "--json")
    megalabel("propensities", path, *options, "--json")
    megalabel("report", model, path, *options, "--out", tmp_path / "r.html", "--json")
    found = megalabel("tag", model, "--file", path, *options[:6], *options[-2:]).out.splitlines()
    assert len(found) == 300
    assert json.loads(found[0])["text"].endswith(" M")


def test_train_says_how_many_texts_are_empty(megalabel, corpus, tmp_path):
    texts = ["", "  ", *corpus.texts[2:].to_pylist()]
    data.write(Corpus(texts, targets=corpus.targets, labels=corpus.labels), tmp_path / "c.jsonl")
    arguments = ("train", tmp_path / "c.jsonl", "--system", "knn", "--out", tmp_path / "m")
    said = " ".join(megalabel(*arguments).err.split())
    assert said.count("empty") == 1
    assert f"2 texts are empty, of {len(corpus)}" in said


def test_info_says_on_which_texts_a_mix_was_learned(megalabel, model, corpus, tmp_path):
    data.write(corpus[:250], tmp_path / "c.jsonl")
    one = systems.create("dismec").fit(corpus[:100])
    one.save(tmp_path / "one")
    new = Corpus(
        [f"{text} again" for text in corpus.texts.to_pylist()],
        targets=corpus.targets,
        labels=corpus.labels,
    )
    data.write(new, tmp_path / "new.jsonl")
    models = (model, tmp_path / "one", "--on", tmp_path / "new.jsonl")
    megalabel("mix", *models, "--form", "means", "--out", tmp_path / "m")
    shown = " ".join(megalabel("info", tmp_path / "m").out.split())
    assert "texts that members were trained on 300, 100" in shown
    assert "texts that the mix was learned on 300" in shown
    assert "texts of training" not in shown


def test_evaluate_says_that_labels_are_not_known(megalabel, model, corpus, tmp_path):
    path, known = tmp_path / "t.jsonl", corpus.labels.names[0].as_py()
    for names, told in (([known], False), (["unheard of", "nor this"], True)):
        rows = [{"text": "a dress", "labels": [known]}, {"text": "a hat", "labels": names}]
        path.write_text("\n".join(map(json.dumps, rows)))
        said = " ".join(megalabel("evaluate", model, path).err.split())
        assert ("2 of the 3 labels that these texts carry are not known" in said) == told


@pytest.mark.parametrize("checkpoint", [True, False])
def test_an_interrupted_train_says_what_is_kept(checkpoint, corpus, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    data.write(corpus, tmp_path / "c.jsonl")
    command = ["megalabel", "train", "c.jsonl", "--system", "knn", "--out", "m"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Tagger, "fit", interrupted)
    monkeypatch.setattr(sys, "argv", command + ["--checkpoint", "steps"] * checkpoint)
    with pytest.raises(KeyboardInterrupt):
        cli.run()
    told = "steps keeps finished steps" if checkpoint else "nothing is kept"
    assert told in capsys.readouterr().err


def test_systems_says_what_all_of_them_take(megalabel):
    assert megalabel("systems").out.count("rerank=true") == 1


def test_evaluate_says_which_texts_were_trained_on(model, corpus, tmp_path):
    test = Corpus(
        [*corpus.texts[:3].to_pylist(), "a new one"],
        targets=corpus.targets[:4],
        labels=corpus.labels,
    )
    data.write(test, tmp_path / "test.jsonl")
    command = [sys.executable, "-m", "megalabel", "evaluate", model, tmp_path / "test.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "note: 3 of the 4 texts (75.0%) were in the training data" in done.stderr


class TestAnswers:
    @pytest.fixture
    def texts(self, tmp_path):
        path = tmp_path / "new.csv"
        path.write_text("id,text\na1,red evening gown\na2,blue denim\n")
        return path

    def test_csv(self, model, texts, megalabel, tmp_path):
        megalabel("tag", model, "--file", texts, "-k", 2, "--out", tmp_path / "out.csv")
        with (tmp_path / "out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["uid"] for row in rows] == ["a1", "a2"]
        assert set(rows[0]["labels"].split("; ")) == {"dress", "red"}
        assert all(label.startswith("Q") for label in rows[0]["label_ids"].split("; "))
        assert len(rows[0]["probabilities"].split("; ")) == 2

    def test_json_lines_as_on_the_screen(self, model, texts, megalabel, tmp_path):
        megalabel("tag", model, "--file", texts, "--out", tmp_path / "out.jsonl")
        shown = megalabel("tag", model, "--file", texts).out
        assert (tmp_path / "out.jsonl").read_text() == shown
        first = json.loads(shown.splitlines()[0])
        assert {*first["labels"][0]} == {"label", "probability", "id"}

    def test_parquet_and_a_name_that_does_not_tell(self, model, texts, megalabel, tmp_path):
        for name, more in (("out.parquet", ()), ("out", ("--to", "parquet"))):
            megalabel("tag", model, "--file", texts, "--out", tmp_path / name, *more)
            table = pyarrow.parquet.read_table(tmp_path / name)
            columns = ["uid", "text", "labels", "label_ids", "probabilities"]
            assert table.column_names == columns
            assert table["uid"].to_pylist() == ["a1", "a2"]

    def test_what_cannot_be_written_is_said_at_once(self, model, texts, megalabel, tmp_path):
        command = ("tag", model, "--file", texts, "--out", tmp_path / "out.doc")
        assert "give one of csv, jsonl, parquet" in megalabel(*command, code=2).err
        assert "--to is for --out" in megalabel("tag", model, "x", "--to", "csv", code=2).err


def test_standard_input_is_answered_as_it_comes(model):
    command = [sys.executable, "-m", "megalabel", "tag", model, "-", "-k", "1"]
    with subprocess.Popen(
        [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    ) as running:
        for line in (b"red gown\n", b'{"id": 7, "text": "blue denim"}\n', b"green lamp\n"):
            running.stdin.write(line)
            running.stdin.flush()
            answer = json.loads(running.stdout.readline())  # before the end of the input
            assert answer["text"] in line.decode()
        running.stdin.close()
        assert running.stdout.read() == b""
    assert running.returncode == 0
