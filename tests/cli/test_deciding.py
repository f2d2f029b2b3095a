"""decide on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from megalabel import Tagger, data, systems


@pytest.fixture(scope="module")
def paths(corpus, tmp_path_factory):
    where = tmp_path_factory.mktemp("deciding")
    train, test = data.split(corpus, test=0.3)
    data.write(test, where / "tst.jsonl")
    systems.create("knn").fit(train).save(where / "model")
    return where / "model", where / "tst.jsonl"


def decide(*args, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "megalabel", "decide", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "160"},
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_decides_and_says_what_it_is_worth(paths, tmp_path):
    found = json.loads(decide(*paths, "--metric", "macro-f1", "--k", 2, "--json"))
    assert found["ascent"]["expected macro-f1"] >= found["top"]["expected macro-f1"]
    assert found["ascent"]["macro-f1"] > 0.5
    shown = decide(*paths, "--metric", "macro-recall", "--out", tmp_path / "labels.jsonl", "-k", 1)
    assert "expected macro-recall" in shown
    lines = (tmp_path / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(data.read(paths[1]))
    assert len(json.loads(lines[0])["labels"]) == 1


def test_the_curve(paths):
    found = json.loads(decide(*paths, "--pareto", "--k", 1, "--json"))
    points = found["points"]
    assert points[0]["expected_precision"] >= points[-1]["expected_precision"]
    assert points[0]["expected_metric"] <= points[-1]["expected_metric"]
    assert "weight" in decide(*paths, "--pareto", "--k", 1)


def test_a_model_that_decides_so_from_now_on(paths, tmp_path):
    decide(*paths, "--method", "frank-wolfe", "--k", 1, "--save", tmp_path / "m", "--json")
    tagger = Tagger.load(tmp_path / "m")
    assert type(tagger.decision_).__name__ == "FrankWolfe"
    assert len(tagger.tag("A red dress", k=1)) == 1
    decide(*paths, "--method", "weighted", "--weights", "inverse-propensity", "--budget", "at-most")


def test_mistakes_are_explained(paths):
    assert "metric" in decide(*paths, "--metric", "accuracy", code=2)
    assert "--method" in decide(*paths, "--method", "best", code=2)
    assert "budget" in decide(*paths, "--budget", "some", code=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "top", "--budget", "at-most"], "--budget is for --method ascent or"),
        (["--method", "weighted", "--weight", 0.5], "--weight is for --method ascent or"),
        (["--weights", "logarithm"], "--weights is for --method weighted, not for ascent"),
        (["--threshold", 0.5], "--threshold is for --method top, not for ascent"),
        (["--method", "online", "--pareto"], "--pareto is for --method ascent"),
        (["--pareto", "--weight", 0.5], "without --weight"),
    ],
)
def test_no_option_is_silently_ignored(paths, options, message):
    assert message in decide(*paths, *options, code=2)
