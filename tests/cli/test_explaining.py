"""`megalabel explain`: the words for a label and against it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from megalabel import systems
from megalabel.cli.app import app
from megalabel.errors import ParameterError, UnknownLabelError

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


def test_words_for_and_against(model):
    reasons = json.loads(run("explain", model, "a blue dress", "dress", "--json"))
    for reason in reasons:
        shares = dict(reason["words"])
        assert shares.keys() == {"blue", "dress"}
        assert shares["dress"] > 0 > shares["blue"]
        assert sum(shares.values()) + reason["bias"] == pytest.approx(reason["margin"], abs=1e-5)
    shown = run("explain", model, "a blue dress", "dress", "--words", 1)
    assert "dress" in shown
    assert "margin" in shown
    assert shown.count("(bias)") == len(reasons)


def test_all_trees_are_explained(tmp_path):
    made = systems.create("parabel", trees=2, max_leaf=2, calibrate=False)
    labels = [["dress", "red"], ["dress", "evening"], ["jeans", "blue"], ["jeans", "faded"]]
    made.fit(TEXTS, labels).save(tmp_path / "model")
    reasons = json.loads(run("explain", tmp_path / "model", "a blue dress", "dress", "--json"))
    assert [reason["tree"] for reason in reasons] == sorted(reason["tree"] for reason in reasons)
    assert {reason["tree"] for reason in reasons} == {0, 1}
    shown = run("explain", tmp_path / "model", "a blue dress", "dress")
    depth = sum(reason["tree"] == 1 for reason in reasons)
    assert f"dress, tree 2 of 2, step {depth} of {depth} down the tree" in shown


def test_what_cannot_be_explained_is_told(model, tmp_path):
    with pytest.raises(UnknownLabelError, match="did you mean"):
        run("explain", model, "a blue dress", "dres")
    systems.create("knn").fit(TEXTS, LABELS).save(tmp_path / "knn")
    with pytest.raises(ParameterError, match="no words to explain by"):
        run("explain", tmp_path / "knn", "a blue dress", "dress")
