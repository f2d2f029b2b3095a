"""What judges say is kept, and held to a budget."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.judges.fakes import Faulty, Oracle, Scripted

from megalabel.errors import BudgetError, JudgeError, ParameterError, ShapeError
from megalabel.judges import Answer, Cost, Judge, Judgements, judgements
from megalabel.judges.judgements import FILE

PAIRS = {("a whale", "sea"): 1.0, ("a whale", "desert"): 0.25, ("a camel", "sea"): math.nan}
TEXTS, LABELS = (list(column) for column in zip(*PAIRS, strict=True))


def test_grades_in_the_order_of_the_pairs():
    judge = Scripted(PAIRS)
    grades = Judgements(judge).grades([*TEXTS, TEXTS[0]], [*LABELS, LABELS[0]])
    assert grades.dtype == np.float32
    assert grades.tolist() == [1.0, 0.25, 0.0, 1.0]
    assert judge.asked == list(PAIRS)  # each once


def test_no_pair_is_asked_about_twice(tmp_path):
    first = Judgements(Scripted(PAIRS), tmp_path)
    grades = first.grades(TEXTS, LABELS)
    silent = Scripted({})  # would fail for any pair
    again = Judgements(silent, tmp_path)
    assert again.cost(TEXTS, LABELS) == Cost(3, 3, 0)
    np.testing.assert_array_equal(again.grades(TEXTS, LABELS), grades)
    assert (again.spent.calls, again.spent.known) == (0, first.spent.calls)
    assert silent.asked == []


def test_answers_belong_to_a_judge(tmp_path):
    Judgements(Scripted(PAIRS), tmp_path).grades(TEXTS, LABELS)
    other = Scripted(dict.fromkeys(PAIRS, 0.0), "another model")
    assert Judgements(other, tmp_path).grades(TEXTS, LABELS).tolist() == [0, 0, 0]
    assert len((tmp_path / FILE).read_text().splitlines()) == 6


def test_where_a_text_ends_and_a_label_begins_matters():
    judge = Scripted({("ab", "c"): 1.0, ("a", "bc"): 0.0})
    assert Judgements(judge).grades(["ab", "a"], ["c", "bc"]).tolist() == [1, 0]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(), st.text(), st.floats(0, 1)), max_size=20))
def test_what_is_kept_is_read_back(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("kept")
    script = {(text, label): grade for text, label, grade in pairs}
    texts, labels = [t for t, _ in script], [label for _, label in script]
    grades = Judgements(Scripted(script), folder).grades(texts, labels)
    again = Judgements(Scripted({}), folder).grades(texts, labels)
    np.testing.assert_array_equal(again, grades)
    assert np.allclose(grades, list(script.values()), atol=1e-6)


@pytest.mark.parametrize("cut", [1, 9, 30, 41])
def test_a_line_that_was_cut_off_is_passed_over(tmp_path, cut, caplog):
    Judgements(Scripted(PAIRS), tmp_path).grades(TEXTS, LABELS)
    file = tmp_path / FILE
    data = file.read_bytes()
    file.write_bytes(data[:-cut])
    judge = Scripted(PAIRS)
    said = Judgements(judge, tmp_path)
    assert said.grades(TEXTS, LABELS).tolist() == [1.0, 0.25, 0.0]
    assert said.spent.calls == (1 if cut < len(data) // 3 else 2)
    again = Judgements(Scripted({}), tmp_path)
    again.grades(TEXTS, LABELS)
    assert (again.spent.calls, again.spent.known_tokens) == (0, 30)


def test_damaged_lines_are_counted(tmp_path, caplog):
    Judgements(Scripted(PAIRS), tmp_path).grades(TEXTS, LABELS)
    with open(tmp_path / FILE, "ab") as out:
        out.write(b"nonsense\n\xff\xfe\n" + b"0" * 32 + b" 7.000000\n")
    said = Judgements(Scripted({}), tmp_path)
    assert said.cost(TEXTS, LABELS).calls == 0
    assert "3 damaged lines" in caplog.text


ASKS = """
import os, signal, sys
from tests.judges.fakes import Scripted
from megalabel.judges import Judgements, judgements
judgements._KEPT_AT = 1
class Dying(Scripted):
    def answers(self, texts, labels):
        for answer in super().answers(texts, labels):
            if answer.place == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            yield answer
pairs = [(f"text {i}", "label") for i in range(5)]
Judgements(Dying(dict.fromkeys(pairs, 1.0)), sys.argv[1]).grades(*zip(*pairs))
"""


def test_a_killed_process_is_taken_up(tmp_path):
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(tmp_path)], cwd=root, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == -signal.SIGKILL
    pairs = [(f"text {i}", "label") for i in range(5)]
    judge = Scripted(dict.fromkeys(pairs, 1.0))
    said = Judgements(judge, tmp_path)
    assert said.grades(*(list(x) for x in zip(*pairs, strict=True))).tolist() == [1] * 5
    assert judge.asked == pairs[2:]


def test_answers_before_an_error_are_kept(tmp_path):
    script = dict(PAIRS)
    del script[TEXTS[2], LABELS[2]]
    with pytest.raises(KeyError):
        Judgements(Scripted(script), tmp_path).grades(TEXTS, LABELS)
    assert Judgements(Scripted({}), tmp_path).cost(TEXTS, LABELS).known == 2


def test_the_cost_is_said_before_the_first_call():
    judge = Scripted(PAIRS)
    judge.price = lambda tokens: tokens / 10  # type: ignore[method-assign]
    cost = Judgements(judge).cost(TEXTS, LABELS)
    assert judge.asked == []
    assert str(cost) == (
        "3 pairs, 0 of them judged before: 3 calls, about 30 tokens, about 3.00 at the price given"
    )
    assert cost + cost == Cost(6, 0, 60, 6.0)


@pytest.mark.parametrize("budget", [{"calls": 2}, {"tokens": 29}])
def test_what_is_over_budget_is_refused_before_the_first_call(budget):
    judge = Scripted(PAIRS)
    with pytest.raises(BudgetError, match=r"3 pairs .* budget .* left: allow more, or judge fewer"):
        Judgements(judge, **budget).grades(TEXTS, LABELS)
    assert judge.asked == []


def test_a_budget_is_of_all_calls():
    said = Judgements(Scripted(PAIRS), calls=3)
    said.grades(TEXTS[:2], LABELS[:2])
    said.grades(TEXTS, LABELS)
    with pytest.raises(BudgetError, match="of the budget of 3 calls 0 are left"):
        said.grades(["new"], ["new"])


@pytest.mark.parametrize(
    ("judge", "budget"),
    [
        (Scripted, {"calls": 4}),
        (Scripted, {"tokens": 45}),
        (Oracle, {"tokens": 45}),  # which foresees none: it is stopped on the way
    ],
)
def test_what_goes_on_has_the_budget_it_had(tmp_path, judge, budget):
    script = {(f"text {i}", "label"): 1.0 for i in range(6)}
    texts, labels = [text for text, _ in script], ["label"] * 6
    asked = []
    for _ in range(2):
        one = judge(script)
        said = Judgements(one, tmp_path, **budget)
        assert said.grades(texts[:3], labels[:3]).tolist() == [1, 1, 1]
        said.grades(texts[:2], labels[:2])  # counts once
        with pytest.raises(BudgetError):
            said.grades(texts[2:], labels[2:])
        asked.append(len(one.asked))
    assert asked == [5 if judge is Oracle else 3, 0]


def test_lines_without_tokens_are_read(tmp_path):
    Judgements(Faulty(), tmp_path).grades(["a"], ["b"])
    assert (tmp_path / FILE).read_text().split()[1:] == ["1.000000"]
    said = Judgements(Faulty(), tmp_path)
    assert said.grades(["a"], ["b"]).tolist() == [1]
    assert said.spent.calls == 0


def test_tokens_are_counted_as_they_are_spent(tmp_path):
    judge = Oracle(set(PAIRS))  # which foresees none, and takes ten a pair
    with pytest.raises(BudgetError, match="budget of 15 tokens is spent after 2 pairs"):
        Judgements(judge, tmp_path, tokens=15).grades(TEXTS, LABELS)
    assert len(judge.asked) == 2
    assert len((tmp_path / FILE).read_text().splitlines()) == 2


def test_what_is_no_answer_counts_as_no_and_is_said(caplog, tmp_path):
    texts = [f"text {i}" for i in range(15)]
    said = Judgements(Faulty(), tmp_path)
    grades = said.grades(texts, ["label"] * 15)
    assert grades.tolist() == [1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0]
    assert (said.spent.unread, said.spent.lost) == (4, 3)
    assert "4 answers were neither yes nor no and count as no" in caplog.text
    assert "3 questions got no answer and count as no" in caplog.text
    # those that got no answer are asked again, unlike those whose answer cannot be read
    assert Judgements(Faulty(), tmp_path).cost(texts, ["label"] * 15).calls == 3


def test_a_judge_that_is_not_there():
    class Gone(Faulty):
        def answers(self, texts, labels):
            for answer in super().answers(texts, labels):
                yield answer._replace(lost="connection refused")

    judge = Gone()
    with pytest.raises(JudgeError, match="10 questions in a row got no answer: connection refused"):
        Judgements(judge).grades(["a"] * 50, [str(i) for i in range(50)])
    assert judge.count == 10


class Refusing(Judge):
    """Has no answer to texts that begin with "bad"."""

    identity = "refusing"

    def answers(self, texts, labels):
        for place, text in enumerate(texts):
            yield Answer(place, 1.0, lost="too long" if text.startswith("bad") else "")


def test_a_pair_without_an_answer_does_not_end_what_goes_on(tmp_path):
    for _ in range(2):  # the second time it is asked about alone
        said = Judgements(Refusing(), tmp_path)
        assert said.grades(["a", "bad"], ["label"] * 2).tolist() == [1, 0]
        assert said.spent.lost == 1
    with pytest.raises(JudgeError, match="2 questions in a row got no answer: too long"):
        Judgements(Refusing()).grades(["bad 1", "bad 2"], ["label"] * 2)


def test_questions_in_a_row_may_be_of_several_calls():
    said = Judgements(Refusing())
    said.grades(["a"], ["label"])
    for number in range(9):
        said.grades([f"bad {number}"], ["label"])
    with pytest.raises(JudgeError, match="10 questions in a row"):
        said.grades(["bad"], ["label"])


def test_oracle_errs_by_pair():
    pairs = [(f"text {i}", "label") for i in range(2000)]
    texts, labels = (list(column) for column in zip(*pairs, strict=True))
    grades = Judgements(Oracle(set(pairs), rate=0.2)).grades(texts, labels)
    assert 0.76 < grades.mean() < 0.84
    turned = Judgements(Oracle(set(pairs), rate=0.2)).grades(texts[::-1], labels)
    np.testing.assert_array_equal(turned[::-1], grades)


def test_wrong_arguments():
    with pytest.raises(ShapeError, match="2 texts but 1 labels"):
        Judgements(Scripted({})).grades(["a", "b"], ["c"])
    with pytest.raises(ParameterError, match="calls must be an integer of at least 0 or None"):
        Judgements(Scripted({}), calls=-1)


def test_nothing_to_judge():
    assert Judgements(Scripted({})).grades([], []).shape == (0,)


def test_yes_and_no():
    assert judgements.says_yes(np.array([0.5, 0.49])).tolist() == [True, False]
