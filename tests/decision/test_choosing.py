"""Rules by name, and what they are worth."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.decision import METHODS, FrankWolfe, TopK, create, tried
from megalabel.errors import ParameterError

LABELS = LabelSet(["common", "rare"])
COUNTS = (np.array([2, 1]), 3)


def shortlists():
    return Ranking([[0, 1], [0, 1]], [[0.6, 0.5], [0.6, 0.1]], LABELS)


def test_a_rule_takes_what_is_usual_and_must_take_what_is_given():
    usual = {"metric": "macro-f1", "k": 3, "candidates": 50, "seed": 7}
    for method in METHODS:
        rule = create(method, usual)
        assert (
            rule.get_params().items()
            >= {
                name: value for name, value in usual.items() if name in rule.parameter_names()
            }.items()
        )
    assert create("frank-wolfe", usual, k=1).k == 1


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("best", {}, "method must be one of ascent, frank-wolfe, online, weighted, top, not"),
        ("top", {"budget": "at-most"}, "budget is for method ascent or .*, not for top"),
        ("ascent", {"exponent": 1}, "exponent is for method weighted, not for ascent"),
        ("ascent", {"speed": 1}, "has no parameter 'speed'"),
        ("ascent", {"budget": "some"}, "budget of BlockCoordinateAscent must be"),
    ],
)
def test_no_parameter_is_silently_ignored(method, given, message):
    with pytest.raises(ParameterError, match=message):
        create(method, **given)


def test_a_rule_is_tried_beside_the_most_probable_labels():
    corpus = Corpus(["a", "b"], targets=[["rare"], ["common"]])
    rule = create("ascent", {"metric": "macro-recall", "k": 1})
    decided, worth, top = tried(rule, shortlists(), 1, "macro-recall", corpus, COUNTS)
    assert decided.ids.tolist() == [[1], [0]]
    assert worth["P@1"] == worth["coverage"] == worth["macro-recall"] == 1
    assert top["P@1"] == top["coverage"] == 0.5
    assert top["expected P@1"] == pytest.approx(0.6)
    assert worth["expected P@1"] == pytest.approx(0.55)


def test_labels_that_were_learned_from_measure_nothing():
    corpus = Corpus(["a", "b"], targets=[["rare"], ["common"]])
    rule = FrankWolfe("macro-recall", k=1, truth="labels")
    _, worth, _ = tried(rule, shortlists(), 1, "macro-recall", corpus, COUNTS)
    assert set(worth) == {"expected P@1", "expected macro-recall"}
    bare = Corpus(["a", "b"])
    assert set(tried(TopK(), shortlists(), 1, "coverage", bare, COUNTS)[1]) == {
        "expected P@1",
        "expected coverage",
    }
    with pytest.raises(ParameterError, match="needs the labels"):
        tried(rule, shortlists(), 1, "macro-recall", bare, COUNTS)
