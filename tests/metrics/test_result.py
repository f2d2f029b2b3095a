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
        "% of 12,345 rows            @1      @5    @10",
        "P                        82.13  100.00  50.00",
        "PSP-raw                         250.00",
        "micro-F1          33.33",
        "PSP-raw@5 is 250.0 %: above 100 %, propensities do not fit the data",
    ]
    assert "micro-F1" not in str(evaluation)  # the headline
    assert str(evaluation.table("P")).splitlines() == [
        "% of 12,345 rows     @1      @5    @10",
        "P                 82.13  100.00  50.00",
    ]
    with pytest.raises(ParameterError, match="MRR"):
        evaluation.table("MRR")


def test_shows_the_same_table_in_a_terminal(evaluation):
    out = io.StringIO()
    Console(file=out, width=80).print(evaluation)
    for cell in ("12,345", "@10", "82.13", "250.00"):
        assert cell in out.getvalue()


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
        "%     first  second  difference",
        "P@5  100.00   75.00      +25.00",
    ]
    assert repr(comparison) == "Comparison(P@5=+0.2500)"


def test_compares_only_what_both_have(evaluation):
    with pytest.raises(ParameterError, match="in common"):
        evaluation.compare(Evaluation({"R@5": 0.5}, rows=1))
