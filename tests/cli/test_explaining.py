"""`megalabel explain`: what spoke for a label and against it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from megalabel import systems
from megalabel.cli.app import app
from megalabel.errors import DataError, UnknownLabelError

TEXTS = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
LABELS = [["dress"], ["dress"], ["jeans"], ["jeans"]]


def run(*args):
    done = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "160"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture(params=["dismec", "parabel"])
def model(request, tmp_path):
    systems.create(request.param, calibrate=False).fit(TEXTS, LABELS).save(tmp_path / "model")
    return tmp_path / "model"


def told(model, *args):
    return json.loads(run("explain", model, *args, "--json"))


def test_words_for_and_against(model):
    found = told(model, "a blue dress", "--label", "dress")
    assert found["label"] == "dress"
    for reason in found["reasons"]:
        shares = {word["text"]: word["share"] for word in reason["evidence"]}
        assert shares.keys() == {"blue", "dress"}
        assert shares["dress"] > 0 > shares["blue"]
        assert sum(shares.values()) + reason["bias"] == pytest.approx(reason["share"], abs=1e-5)
    shown = run("explain", model, "a blue dress", "--label", "dress", "--words", 1)
    assert f"dress: {found['probability']:.1%}" in shown
    assert "margin" in shown
    assert shown.count("(others)") == len(found["reasons"])


def test_all_trees_are_explained(tmp_path):
    made = systems.create("parabel", trees=2, max_leaf=2, calibrate=False)
    labels = [["dress", "red"], ["dress", "evening"], ["jeans", "blue"], ["jeans", "faded"]]
    made.fit(TEXTS, labels).save(tmp_path / "model")
    reasons = told(tmp_path / "model", "a blue dress", "--label", "dress")["reasons"]
    steps = [x.tree for x in made.classifier_.explain(made.features_.transform(TEXTS[:1]), 0)]
    assert [reason["title"].split(", ")[1] for reason in reasons] == [
        f"tree {tree + 1} of 2" for tree in steps
    ]
    shown = run("explain", tmp_path / "model", "a blue dress", "--label", "dress")
    depth = steps.count(1)
    assert f"By words, tree 2 of 2, step {depth} of {depth} down the tree" in shown


def test_neighbours_and_words_left_out(tmp_path):
    for system, column in (("knn", "similarity"), ("prior", "left out")):
        systems.create(system).fit(TEXTS, LABELS).save(tmp_path / system)
        found = told(tmp_path / system, "red dress")
        assert found["label"] == "dress"
        shown = run("explain", tmp_path / system, "red dress")
        assert column in shown
        assert "dress: " in shown
        assert all(item["text"] in shown for item in found["reasons"][0]["evidence"])


def test_what_cannot_be_explained_is_told(model):
    with pytest.raises(UnknownLabelError, match="did you mean"):
        run("explain", model, "a blue dress", "--label", "dres")
    with pytest.raises(DataError, match="nothing in the text is known"):
        run("explain", model, "qwertz")
