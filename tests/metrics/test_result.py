import io
import json

import pytest
from rich.console import Console

from megalabel.errors import ParameterError
from megalabel.metrics import Evaluation


@pytest.fixture
def evaluation():
    values = {"P@1": 0.8213456, "P@10": 0.5, "P@5": 1.0, "PSP-raw@5": 2.5, "micro-F1": 1 / 3}
    return Evaluation(values, rows=12345)


def test_is_a_mapping(evaluation):
    assert evaluation["P@5"] == 1
    assert list(evaluation) == ["P@1", "P@10", "P@5", "PSP-raw@5", "micro-F1"]
    assert "P@7" not in evaluation
    assert evaluation.get("P@7") is None
    with pytest.raises(KeyError, match="was not measured"):
        evaluation["P@7"]


def test_prints_a_table(evaluation):
    assert str(evaluation.table()).splitlines() == [
        "in %, 12,345 texts            @1      @5    @10",
        "P                          82.13  100.00  50.00",
        "PSP-raw                           250.00",
        "micro-F1            33.33",
        "PSP-raw@5 is 250.0 %: above 100 %, propensities do not fit the data",
    ]
    assert str(evaluation.table("P")).splitlines() == [
        "in %, 12,345 texts     @1      @5    @10",
        "P                   82.13  100.00  50.00",
    ]
    with pytest.raises(ParameterError, match="MRR"):
        evaluation.table("MRR")


def test_says_first_what_values_mean(evaluation):
    assert str(evaluation).splitlines() == [
        "measured on 12,345 texts                       in %           that is",
        "Is the first suggestion right? (P@1)           82.1  10,140 of 12,345",
        "Of 10 suggestions, how many are right? (P@10)  50.0         5.0 of 10",
    ]


def test_what_answers_no_question_is_shown_by_name():
    assert "MRR" in str(Evaluation({"MRR@3": 0.5}, rows=2))


def test_an_error_below_zero_is_none():
    shown = str(Evaluation({"ECE-debiased@5": -0.01}, rows=100)).splitlines()[1]
    assert shown.split()[-3:] == ["0.0", "within", "chance"]


def test_what_is_not_in_percent_says_so():
    evaluation = Evaluation({"P@1": 0.5, "log-loss@1": 1.25}, rows=2)
    assert "log-loss (not in %)   1.25" in str(evaluation.table())
    assert "log-loss@1 (not in %)" in str(evaluation.compare(evaluation).table())


@pytest.mark.parametrize("width", [80, 120])
def test_shows_the_same_table_in_a_terminal(evaluation, width):
    out = io.StringIO()
    Console(file=out, width=width).print(evaluation)
    for cell in ("12,345 texts", "in %", "Is the first suggestion right? (P@1)", "5.0 of 10"):
        assert cell in out.getvalue()


def test_shows_the_same_table_in_a_notebook(evaluation):
    shown = evaluation._repr_html_()
    for cell in ("12,345 texts", "in %", "Is the first suggestion right? (P@1)", "5.0 of 10"):
        assert cell in shown
    assert "PSP-raw@5 is 250.0 %" in evaluation.table()._repr_html_()


def test_gives_data_frames(evaluation):
    assert evaluation.to_arrow().to_pylist()[::4] == [
        {"metric": "P", "k": 1, "value": 0.8213456},
        {"metric": "micro-F1", "k": None, "value": 1 / 3},
    ]
    pytest.importorskip("pandas")
    frame = evaluation.to_pandas()
    assert list(frame.columns) == ["metric", "k", "value"]
    assert len(frame) == len(evaluation)


def test_repr_is_short(evaluation):
    assert repr(evaluation).startswith("Evaluation(P@1=0.8213, ")


def test_goes_through_json(evaluation):
    back = Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict())))
    assert back == evaluation
    assert back.rows == evaluation.rows


def test_percent_is_rounded(evaluation):
    percent = evaluation.to_dict(percent=True)
    assert percent["P@1"] == 82.135
    assert percent["rows"] == 12345


def test_compares(evaluation):
    other = Evaluation({"P@5": 0.75, "R@5": 0.5}, rows=12345)
    comparison = evaluation.compare(other)
    assert dict(comparison) == {"P@5": 0.25}
    assert str(comparison).splitlines() == [
        "in %                                          first  second  difference",
        "Of 5 suggestions, how many are right? (P@5)  100.00   75.00      +25.00",
    ]
    assert repr(comparison) == "Comparison(P@5=+0.2500)"


def test_compares_only_what_both_have(evaluation):
    with pytest.raises(ParameterError, match="in common"):
        evaluation.compare(Evaluation({"R@5": 0.5}, rows=1))
