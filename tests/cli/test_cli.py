"""The command line as a person or a script uses it."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console
from scipy.sparse import csr_matrix

import megalabel.cli.app as cli_app
from megalabel import data, labels, store
from megalabel.cli import output
from megalabel.data.synthetic import generate
from megalabel.errors import NotEnoughMemoryError
from megalabel.tagger import Tagger


def megalabel(*args, stdin="", code=0, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "megalabel", *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "120"} | environment,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    """The corpus as files: a training and a test part."""
    where = tmp_path_factory.mktemp("cli") / "things"
    train, test = data.split(corpus, test=0.3)
    data.write(train, where / "trn.jsonl.gz")
    data.write(test, where / "tst.jsonl.gz")
    return where


@pytest.fixture(scope="module")
def model(folder):
    where = folder.parent / "model"
    megalabel("train", folder, "--system", "knn", "--out", where, "--threads", 2, "--seed", 1)
    return where


def test_train_says_what_it_did(folder, tmp_path):
    done = megalabel("train", folder, "--system", "knn", "--out", tmp_path / "m", "--json")
    facts = json.loads(done.stdout)
    assert facts["labels"] == 10
    assert facts["texts"] > 150
    assert facts["bytes"] > 0
    options = ("--system", "knn", "--set", "neighbours=5")
    shown = megalabel("train", folder, "--out", tmp_path / "m", *options).stdout
    assert "Trained" in shown


def test_train_races_where_no_system_is_named(folder, tmp_path):
    command = ("train", folder, "--out", tmp_path / "m", "--budget", "30s", "--memory", "20G")
    facts = json.loads(megalabel(*command, "--json").stdout)
    assert facts["system"] in {trial["system"] for trial in facts["race"]["trials"]}
    assert facts["race"]["budget"] == 30
    assert "nDCG@10" in megalabel(*command).stdout
    shown = megalabel("info", tmp_path / "m").stdout
    assert "Race" in shown
    assert "dismec" in shown
    assert json.loads(megalabel("plan", folder, "--json").stdout)["seconds"] == 120


def test_what_a_race_says_is_noted_for_people(monkeypatch, capsys):
    logger = logging.getLogger("megalabel.systems.trials")
    monkeypatch.setattr(output, "notes", Console(file=sys.stderr, highlight=False))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with output.telling("megalabel.systems"):
        logger.info("knn on 100 texts")
    logger.info("not this")
    assert capsys.readouterr().err.split("\n")[:-1] == ["knn on 100 texts"]


def test_a_gpu_that_is_not_there(folder, tmp_path):
    pytest.importorskip("torch", reason="neural systems need torch")
    command = ("train", folder, "--system", "astec", "--out", tmp_path / "m")
    told = megalabel(*command, "--set", "device=cuda", code=2, CUDA_VISIBLE_DEVICES="").stderr
    assert "device='cuda' asks for a GPU" in told


def test_memory_that_does_not_suffice(monkeypatch, capsys):
    from megalabel import cli

    def train(**_):
        raise NotEnoughMemoryError("take a smaller batch")

    monkeypatch.setattr(cli_app, "app", train)
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 5
    assert "take a smaller batch" in capsys.readouterr().err


def test_evaluate_gives_percent(model, folder):
    values = json.loads(megalabel("evaluate", model, folder, "--json").stdout)
    for name in ("P@1", "P@3", "P@5", "R@5", "nDCG@5", "PSP@5"):
        assert 0 <= values[name] <= 100
    assert values["P@1"] > 60
    shown = megalabel("evaluate", model, folder, "-k", "1,2").stdout
    assert "@2" in shown
    assert "nDCG" in shown


def test_tag_a_text(model):
    line = json.loads(megalabel("tag", model, "red evening gown", "-k", 2, "--json").stdout)
    assert line["text"] == "red evening gown"
    assert {tag["label"] for tag in line["labels"]} == {"red", "dress"}
    assert all(0 <= tag["probability"] <= 1 for tag in line["labels"])


def test_tag_lines_from_stdin_and_file(model, tmp_path):
    lines = 'red gown\n\n{"title": "Blue", "content": "denim"}\n{not json\n'
    out = [json.loads(x) for x in megalabel("tag", model, "-k", 1, stdin=lines).stdout.splitlines()]
    assert [x["text"] for x in out] == ["red gown", "", "Blue denim", "{not json"]
    (tmp_path / "texts.txt").write_text(lines)
    assert len(megalabel("tag", model, "--file", tmp_path / "texts.txt").stdout.splitlines()) == 4
    assert "title" in megalabel("tag", model, stdin='{"name": "x"}\n', code=3).stderr


def test_info_of_corpus_and_model(model, folder):
    about = json.loads(megalabel("info", folder, "--json").stdout)
    assert set(about) == {"train", "test"}
    assert about["train"]["labels"] == 10
    assert "█" in megalabel("info", folder).stdout
    about = json.loads(megalabel("info", model, "--verify", "--json").stdout)
    assert about["system"] == "knn"
    assert about["verified"] is True
    assert "knn" in megalabel("info", model).stdout


def test_convert_and_split(folder, tmp_path):
    megalabel("convert", folder, tmp_path / "all.parquet", "--split", "train")
    converted = data.read(tmp_path / "all.parquet")
    assert len(converted) == len(data.read(folder, "train"))
    counts = json.loads(
        megalabel(
            "split", tmp_path / "all.parquet", tmp_path / "parts", "--test", 0.5, "--json"
        ).stdout
    )
    assert counts["train"] + counts["test"] == len(converted)
    assert data.splits_of(tmp_path / "parts") == ["train", "test"]


def test_systems_and_plan(folder):
    names = [s["name"] for s in json.loads(megalabel("systems", "--json").stdout)]
    assert {"knn", "prior"} <= set(names)
    assert "neighbours" in megalabel("systems", "knn").stdout
    plan = json.loads(megalabel("plan", folder, "--system", "knn", "--json").stdout)
    assert plan["fits"] is True
    assert {"memory", "disk", "seconds"} <= set(plan)


def test_what_the_number_of_labels_decides_is_said(folder, tmp_path):
    asked = ("--system", "xr-linear")
    plan = json.loads(megalabel("plan", folder, *asked, "--json").stdout)
    assert plan["settings"] == {"trees": 1, "max_leaf": 10, "cost": 0.7}
    assert re.search(r"max_leaf +10\b", megalabel("plan", folder, *asked).stdout)
    megalabel("train", folder, *asked, "--out", tmp_path / "model")
    assert re.search(r"max_leaf +10\b", megalabel("info", tmp_path / "model").stdout)


def test_labels_in_parts_make_one_model(folder, tmp_path):
    def train(out, *options):
        megalabel("train", folder, "--system", "dismec", "--out", tmp_path / out, *options)

    # the costs of labels are found for each part of them
    (tmp_path / "costs.tsv").write_text("red\t2\nlamp\t1.5\t0.5\n")
    parts = [tmp_path / f"part{i}" for i in (1, 2)]
    for i, part in enumerate(parts, 1):
        train(part, "--label-shard", f"{i}/2", "--costs", tmp_path / "costs.tsv")
    facts = json.loads(megalabel("merge", *parts, "--out", tmp_path / "all", "--json").stdout)
    assert facts["labels"] == 10
    assert facts["models"] == 2
    train("whole", "--costs", tmp_path / "costs.tsv", "--set", "calibrate=false")
    one, whole = (megalabel("tag", tmp_path / m, "red gown", "-k", 9) for m in ("all", "whole"))
    assert one.stdout == whole.stdout


def test_propensities_from_a_complete_sample_to_a_model(tmp_path):
    shop = generate(texts=600, labels=200)
    folder, whole, file, image = (tmp_path / name for name in ("c", "w", "p.tsv", "p.svg"))
    data.write(shop.corpus, folder / "trn.jsonl")
    texts, ids = shop.corpus.texts, shop.corpus.ids
    complete = data.Corpus(texts, None, shop.complete, shop.corpus.labels, ids=ids)
    data.write(complete[:300], whole / "same.jsonl")
    others = data.Corpus(texts, None, shop.complete, shop.corpus.labels)
    data.write(others, whole / "others.jsonl")
    published = json.loads(megalabel("propensities", folder, "--json").stdout)
    assert published["a"] == 0.55

    given = ["propensities", folder, "--out", file, "--plot", image, "--json"]
    for model, sample in (("richards", "same"), ("jpv-fitted", "others"), ("direct", "same")):
        sample_file = whole / f"{sample}.jsonl"
        done = megalabel(*given, "--model", model, "--complete", sample_file)
        facts = json.loads(done.stdout)
        if sample == "same":
            assert facts["texts annotated twice"] == 300
        else:
            assert facts["texts of the sample"] == 600
        assert 0 < facts["quartiles"][0] < facts["quartiles"][-1] <= 1
        assert image.read_text().startswith("<svg")
    assert "median" in megalabel("propensities", folder).stdout

    train = ["train", folder, "--system", "dismec", "--set", "weighting=propensity", "--out"]
    megalabel(*train, tmp_path / "one", "--propensities", file)
    measured = labels.direct_propensities(shop.corpus.targets[:300], shop.complete[:300])
    used = Tagger.load(tmp_path / "one").classifier.propensities
    np.testing.assert_allclose(used, measured, rtol=1e-5)
    megalabel(*train, tmp_path / "part", "--propensities", file, "--label-shard", "2/2")
    part = Tagger.load(tmp_path / "part").classifier.propensities
    np.testing.assert_array_equal(part, used[100:])
    megalabel(*train, tmp_path / "two", "--set", "propensities=jpv-amazon")
    assert Tagger.load(tmp_path / "two").classifier.propensities == "jpv-amazon"


def test_a_model_made_smaller(folder, tmp_path):
    megalabel("train", folder, "--system", "dismec", "--out", tmp_path / "large")
    made = ["prune", tmp_path / "large", "--out", tmp_path / "small", "--threshold", 0.5]
    facts = json.loads(megalabel(*made, "--max-per-label", 5, "--json").stdout)
    assert facts["bytes"] < facts["bytes_before"]
    assert "bytes before" in megalabel(*made).stdout
    assert "red" in megalabel("tag", tmp_path / "small", "red gown", "-k", 2).stdout


def test_a_model_is_calibrated_later(folder, tmp_path):
    plain, other = tmp_path / "plain", tmp_path / "other"
    options = ("--system", "dismec", "--set", "calibrate=false")
    megalabel("train", folder, "--out", plain, *options)
    assert json.loads(megalabel("info", plain, "--json").stdout)["reliability"] == {}
    made = ["calibrate", plain, folder, "--method", "beta", "--by", "rank", "--out", other]
    facts = json.loads(megalabel(*made, "--json").stdout)
    assert facts["reliability"]["after"]["ECE"] < facts["reliability"]["before"]["ECE"]
    assert json.loads(megalabel("info", plain, "--json").stdout)["reliability"] == {}
    found = json.loads(megalabel("info", other, "--json").stdout)
    assert found["reliability"] == facts["reliability"]
    assert found["provenance"]["calibrated"]["method"] == "ByRank(calibrator=Beta())"
    assert "texts of training" in megalabel("calibrate", plain, folder, "--split", "train").stderr
    shown = megalabel("info", plain).stdout
    assert "ECE@5 in %: before" in shown
    assert "93 to 100" in shown


def test_trees_of_another_model(folder, tmp_path):
    def train(out, *options):
        settings = ("--set", "max_leaf=2", "--set", "calibrate=false")
        options = ("--system", "parabel", *settings, "--out", tmp_path / out, *options)
        megalabel("train", folder, *options)

    train("first")
    train("second", "--tree", tmp_path / "first", "--seed", 5)
    tree = store.load(tmp_path / "first", part="classifier").trees_[0]
    store.save(tree, tmp_path / "tree")
    train("third", "--tree", tmp_path / "tree", "--set", "trees=1")
    answers = [megalabel("tag", tmp_path / m, "red gown").stdout for m in ("first", "second")]
    assert answers[0] == answers[1]
    classifier = store.load(tmp_path / "third", part="classifier")
    assert [made.level_sizes for made in classifier.trees_] == [tree.level_sizes]


def test_demo_leaves_something_to_look_at(tmp_path):
    shown = megalabel("demo", "--out", tmp_path / "demo", "--texts", 1500, "--labels", 1000).stdout
    assert "Is the first suggestion right? (P@1)" in shown
    assert "possible" in shown
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {
        "corpus",
        "model",
        "metrics.json",
        "index.html",
    }
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "://" not in page  # nothing is fetched from anywhere
    assert "P@1" in page


def test_demo_of_a_corpus_without_texts(tmp_path):
    random = np.random.default_rng(0)
    for part in ("trn", "tst"):
        truth = csr_matrix(random.random((60, 5)) < 0.3)
        vectors = csr_matrix(random.random((60, 8)) * (random.random((60, 8)) < 0.5))
        corpus = data.Corpus(features=vectors, targets=truth)
        data.write(corpus, tmp_path / "vectors" / f"{part}.txt")
    shown = megalabel("demo", "--data", tmp_path / "vectors", "--out", tmp_path / "out").stdout
    assert "no texts" in shown
    attempt = shown[shown.index("megalabel evaluate") :].split()[1:]
    assert "macro-F1@5" in megalabel(*attempt).stdout
    assert (tmp_path / "out" / "index.html").exists()


KNN = ("--system", "knn")
TREES = ("train", "--system", "xr-linear")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["train", "{folder}", "--system", "kn", "--out", "{out}"], 2, "did you mean 'knn'"),
        (["train", "{folder}", *KNN, "--set", "neighbours=0", "--out", "{out}"], 2, "at least 1"),
        (["train", "{folder}", *KNN, "--set", "neighbors=9", "--out", "{out}"], 2, "neighbours"),
        (["train", "{folder}", *KNN, "--budget", "1m", "--out", "{out}"], 2, "no parameter"),
        (["train", "{folder}", "--budget", "soon", "--out", "{out}"], 2, "'90s', '10m' or '2h'"),
        (["train", "{folder}", "--out", "{out}", "--costs", "{out}"], 2, "name a system"),
        (["train", "{folder}", "--out", "{out}", "--label-shard", "1/2"], 2, "name a system"),
        (["train", "{folder}", "--set", "nonsense", "--out", "{out}"], 2, "key=value"),
        (["train", "{folder}/nowhere", "--out", "{out}"], 3, "nowhere"),
        (["train", "{folder}"], 2, "--out"),
        (["train", "{folder}", "--out", "{folder}"], 4, "not a model folder"),
        (["evaluate", "{out}", "{folder}"], 4, "no model folder"),
        (["evaluate", "{model}", "{folder}", "-k", "0"], 2, "-k"),
        (["tag", "{model}", "--file", "{folder}/nowhere"], 3, "no such file"),
        (["tag", "{model}", "--file", "{folder}"], 3, "is a folder"),
        (["demo", "--out", "{folder}/trn.jsonl.gz"], 2, "is a file"),
        (["tag", "{folder}", "a text"], 4, "not a model folder"),
        (["train", "{folder}", "--out", "{out}", "--label-shard", "two"], 2, "like 2/8"),
        (["train", "{folder}", "--out", "{out}", "--label-shard", "3/2"], 2, "shard 3 of 2"),
        ([*TREES, "{folder}", "--out", "{out}", "--tree", "{model}"], 2, "has no label trees"),
        ([*TREES, "{folder}", "--out", "{out}", "--costs", "{out}"], 3, "no such file"),
        ([*TREES, "{folder}", "--out", "{out}", "--propensities", "{out}"], 3, "no such file"),
        (["propensities", "{folder}", "--model", "direct"], 2, "needs a complete sample"),
        (["propensities", "{folder}", "--complete", "{folder}"], 2, "does not look at a complete"),
        (["propensities", "{folder}", "--out", "{folder}"], 2, "is a folder, and a file was"),
        (["train", "{folder}", "--out", "{out}", "--checkpoint", "{file}"], 2, "gz was not"),
        (["evaluate", "{model}", "{folder}", "--propensities", "x"], 2, "jpv-wikipedia or a file"),
        (["convert", "{folder}", "{out}.jsonl"], 2, "several parts: train, test; say which"),
        (["demo", "--system", "kn", "--out", "{out}"], 2, "did you mean 'knn'"),
        (["propensities", "{folder}", "--model", "x"], 2, "jpv-wikipedia, jpv-fitted"),
        (["merge", "{model}", "--out", "{out}"], 2, "without calibration"),
        (["merge", "{folder}", "--out", "{out}"], 4, "not a model folder"),
        (["prune", "{model}", "--out", "{out}"], 2, "no weights to prune"),
        (["calibrate", "{model}", "{folder}", "--method", "plat"], 2, "isotonic, platt"),
        (["calibrate", "{model}", "{folder}", "--by", "size"], 2, "frequency or rank"),
        (["calibrate", "{folder}", "{folder}"], 4, "not a model folder"),
        (["nothing"], 2, "nothing"),
    ],
)
def test_mistakes_are_explained(args, code, message, folder, model, tmp_path):
    places = {"folder": folder, "model": model, "out": tmp_path / "out"}
    places["file"] = folder / "trn.jsonl.gz"
    done = megalabel(*(a.format(**places) for a in args), code=code)
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_bad_lines_are_named_or_skipped(folder, tmp_path):
    (tmp_path / "trn.jsonl").write_text(
        '{"title": "red gown", "labels": ["red"]}\n{"title": broken\n'
        '{"title": "blue", "labels": ["blue"]}\n'
    )
    done = megalabel("train", tmp_path, "--out", tmp_path / "m", code=3)
    assert "trn.jsonl, line 2" in done.stderr
    done = megalabel("train", tmp_path, "--out", tmp_path / "m", "--skip-bad", "--json")
    assert json.loads(done.stdout)["texts"] == 2
    assert json.loads(done.stdout)["skipped"] == 1
    assert "line 2" in done.stderr


def test_a_small_file_may_ask_for_more_memory_if_told_so(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("4000000 1:1\n")
    assert "give max_bytes=64000016 (--max-bytes)" in megalabel("info", path, code=3).stderr
    done = megalabel("info", path, "--max-bytes", 64000016, "--json")
    assert json.loads(done.stdout)["a.svm"]["labels"] == 4_000_001


def test_nothing_is_measured_or_lost_by_mistake(folder, model, tmp_path):
    only = tmp_path / "only"
    megalabel("convert", folder, only / "trn.jsonl", "--split", "train")
    assert "no test part" in megalabel("evaluate", model, only, code=3).stderr
    assert (
        "already"
        in megalabel("convert", folder, only / "trn.jsonl", "--split", "test", code=2).stderr
    )
    megalabel("convert", folder, only / "trn.jsonl", "--split", "test", "--overwrite")
    assert "model folder" in megalabel("train", model, "--out", tmp_path / "m", code=3).stderr
    again = megalabel("split", only, tmp_path / "again", "--test", 0.3, code=2)
    assert "another seed" in again.stderr


def test_a_split_is_of_texts_with_labels(tmp_path):
    file = tmp_path / "books.csv"
    file.write_text("title,subjects\n" + "".join(f"book {i},Cats; Dogs\n" for i in range(30)))
    wrong = megalabel("split", file, tmp_path / "parts", code=3).stderr
    assert "--label-column subjects" in " ".join(wrong.split())
    assert not (tmp_path / "parts").exists()
    megalabel("split", file, tmp_path / "parts", "--label-column", "subjects")


def test_settings_in_any_spelling(folder, tmp_path):
    for setting in (
        "ngram_range=(1,2)",
        "ngram_range=[1, 2]",
        "calibration_texts=50",
        "features.binary=true",
    ):
        megalabel("train", folder, *KNN, "--out", tmp_path / "m", "--set", setting)


def test_interrupt_is_quick_and_quiet(model):
    process = subprocess.Popen(
        [sys.executable, "-m", "megalabel", "tag", str(model)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_reader_that_goes_away_is_no_error(model):
    many = "red gown\n" * 20000
    done = subprocess.run(
        f"{sys.executable} -m megalabel tag {model} | head -n 1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="bash",
        input=many,
        capture_output=True,
        text=True,
        check=True,
    )
    line, status = done.stdout.splitlines()
    assert json.loads(line)["text"] == "red gown"
    assert int(status) in (0, 128 + signal.SIGPIPE)
    assert "Traceback" not in done.stderr


def test_version_and_help():
    assert megalabel("--version").stdout.startswith("megalabel ")
    shown = megalabel("--help").stdout
    for command in (
        "train",
        "tag",
        "explain",
        "evaluate",
        "merge",
        "prune",
        "info",
        "convert",
        "split",
        "systems",
        "plan",
        "demo",
    ):
        assert command in shown
    assert "--install-completion" in shown
