"""Two parsers of JSON lines, one answer: whenever the fast one has an answer it is the same."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from megalabel.data import Problems
from megalabel.data.formats.jsonl import parse_carefully, parse_fast
from megalabel.data.formats.lines import Block

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.lists(st.integers(-3, 10) | st.none() | st.just(2**62), max_size=4)
weights = st.lists(st.floats(width=32) | st.integers(-5, 5) | st.none(), max_size=4)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
good = st.fixed_dictionaries(
    {},
    optional={
        "uid": text | st.none() | st.integers(),
        "id": text | st.none(),
        "title": text | st.none(),
        "content": text | st.none(),
        "text": text | st.none(),
        "labels": st.lists(text | st.none(), max_size=3) | text | st.none(),
        "target_ind": numbers | st.none(),
        "target_rel": weights | st.none(),
        "other": anything,
    },
)
known = ["uid", "title", "text", "labels", "target_ind", "target_rel"]
odd = st.dictionaries(st.sampled_from(known) | text, anything, max_size=4)
line = st.builds(json.dumps, good | odd | anything, ensure_ascii=st.booleans()) | st.text(
    '{}[]",: \t\\u0ntitledex1.-\ufeff\0', max_size=20
)


def agree(data: bytes) -> None:
    problems = Problems(skip=True)
    slow = parse_carefully(Block(data, 1), Path("a.jsonl"), problems)
    fast = parse_fast(Block(data, 1))
    if fast is not None:
        assert problems.count == 0
        assert slow.total == fast.num_rows
        assert str(slow.table.to_pydict()) == str(fast.to_pydict())  # as strings, for NaN


@settings(max_examples=300, deadline=None)
@given(st.lists(line, min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]))
@example(['{"text": "a"} {"text": "b"}'], "\n")
@example(['{"text": "a"} null {"text": "b"}'], "\n")
@example(['{"text": "a"}{', '"text": "b"}'], "\n")
@example(['{"text": "a"} {"text": "b"}', '{"text":', '"b"}'], "\n")
@example(['{"labels": [null, "a"]}'], "\n")
@example(["null"], "\n")
def test_agree_on_any_line(lines, end):
    agree(end.join(lines).encode())


@settings(max_examples=200, deadline=None)
@given(st.lists(good, min_size=1, max_size=5))
def test_agree_on_good_lines(rows):
    agree("\n".join(map(json.dumps, rows)).encode())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_agree_on_damaged_bytes(data):
    rows = data.draw(st.lists(good, min_size=1, max_size=3))
    damaged = bytearray("\n".join(json.dumps(r, ensure_ascii=False) for r in rows).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    agree(bytes(damaged))


@pytest.mark.parametrize(
    "lines",
    [
        [{"uid": "a", "title": "x", "content": "y", "target_ind": [1, 2], "target_rel": [0.5, 1]}],
        [{"text": "x", "labels": ["a", "b"]}, {"text": "y", "labels": []}, {"text": "z"}],
        [{"id": 3, "text": "x", "labels": "a"}, {"id": 4, "text": "x"}],
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_usual_files_take_the_fast_way(lines, end):
    data = end.join(map(json.dumps, lines)).encode() + end.encode()
    assert parse_fast(Block(data, 1)) is not None
    agree(data)
