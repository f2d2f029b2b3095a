"""decide on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
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


def test_any_parameter_of_a_method(paths, tmp_path):
    decide(*paths, "--method", "frank-wolfe", "--set", "randomised=false", "--save", tmp_path / "m")
    rule = Tagger.load(tmp_path / "m").decision_
    assert rule.randomised is False
    assert rule.weights_.shape[1] == 1
    shown = decide(*paths, "--method", "frank-wolfe", "--set", "truth=labels", "-k", 1)
    assert "expected macro-f1" in shown
    assert "coverage" not in shown  # it has seen the labels that this would be measured by
    decide(*paths, "--pareto", "--set", "start=greedy", "--set", "passes=1")
    decide(*paths, "--method", "weighted", "--set", "exponent=0", "--save", tmp_path / "m")
    assert (Tagger.load(tmp_path / "m").decision_.weights_ == 1).all()


def given_to(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return Counter(tag["label"] for line in lines for tag in json.loads(line)["labels"])


def test_numbers_of_labels_from_files(paths, tmp_path):
    out = tmp_path / "labels.jsonl"
    decide(*paths, "-k", 1, "--out", out)
    (often, times), (other, _) = given_to(out).most_common(2)
    assert times > 2
    (tmp_path / "caps.tsv").write_text(f"{often}\t2\n", encoding="utf-8")
    for method in ("ascent", "top"):
        found = decide(
            *(*paths, "-k", 1, "--method", method, "--cap", tmp_path / "caps.tsv", "--out", out),
            *("--save", tmp_path / method),
        )
        assert method in found
        assert given_to(out)[often] == 2
        assert given_to(out)[other] > 2
        caps = Tagger.load(tmp_path / method).decision_.caps
        assert np.isfinite(caps).sum() == 1
    (tmp_path / "weights.tsv").write_text(f"{often}\t0\t-1\n", encoding="utf-8")
    weights = "--method", "weighted", "--weights", tmp_path / "weights.tsv"
    decide(*paths, *weights, "--budget", "at-most", "-k", 1, "--out", out)
    assert given_to(out)[often] == 0
    np.save(tmp_path / "p.npy", np.full(len(Tagger.load(paths[0]).labels), 0.5))
    by_propensity = "--method", "weighted", "--weights", "inverse-propensity", "-k", 1, "--json"
    even = json.loads(decide(*paths, *by_propensity, "--propensities", tmp_path / "p.npy"))
    assert even["weighted"] == even["top"]
    decide(*paths, *by_propensity, "--propensities", "jpv-amazon")


def test_mistakes_are_explained(paths, tmp_path):
    (tmp_path / "caps.tsv").write_text("no such label\t2\n", encoding="utf-8")
    said = decide(*paths, "--cap", tmp_path / "caps.tsv", code=3)
    assert "caps.tsv, line 1: expected a known label, found 'no such label'" in said
    assert "a number of texts or a file, not '-1'" in decide(*paths, "--cap", -1, code=2)
    assert "exponent is for method weighted" in decide(*paths, "--set", "exponent=1", code=2)
    assert "--set caps: there is --cap" in decide(*paths, "--set", "caps=3", code=2)
    assert "key=value" in decide(*paths, "--set", "exponent", code=2)
    assert "randomised" in decide(
        *paths, "--method", "frank-wolfe", "--set", "randomised=perhaps", code=2
    )
    np.save(tmp_path / "w.npy", np.ones(len(Tagger.load(paths[0]).labels)))
    weighted = (*paths, "--method", "weighted")
    said = decide(*weighted, "--weights", tmp_path / "w.npy", "--set", "offsets=1", code=2)
    assert "--set offsets: the file of --weights has them" in said
    said = decide(*weighted, "--weights", "logarithm", "--set", "exponent=2", code=2)
    assert 'exponent is for weights="power-law"' in said
    assert "metric" in decide(*paths, "--metric", "accuracy", code=2)
    assert "method must be one of ascent" in decide(*paths, "--method", "best", code=2)
    assert "budget" in decide(*paths, "--budget", "some", code=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "top", "--budget", "at-most"], "budget is for method ascent or"),
        (["--method", "weighted", "--weight", 0.5], "weight is for method ascent or"),
        (["--weights", "logarithm"], "weights is for method weighted, not for ascent"),
        (["--propensities", "jpv-amazon"], "propensities is for method weighted"),
        (
            ["--method", "weighted", "--propensities", "jpv-amazon"],
            'for weights="inverse-propensity"',
        ),
        (["--threshold", 0.5], "threshold is for method top, not for ascent"),
        (["--method", "online", "--pareto"], "--pareto is for --method ascent"),
        (["--pareto", "--weight", 0.5], "without --weight"),
    ],
)
def test_no_option_is_silently_ignored(paths, options, message):
    assert message in decide(*paths, *options, code=2)
