"""Two parsers of JSON lines, one answer: whenever the fast one has an answer it is the same."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from megalabel.data import Problems, read, stream
from megalabel.data.formats.jsonl import parse_carefully, parse_fast
from megalabel.data.formats.lines import Block
from megalabel.errors import DataError

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


class TestLongLines:
    TEXT = "word " * 100_000

    def test_with_a_blank_before_it(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text(f" {json.dumps({'text': self.TEXT})}\n")
        assert read(path).texts.to_pylist() == [self.TEXT]

    def test_that_is_bad(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text(f'{{"text": "x"}}\n{{"text": "{self.TEXT}}}\n{{"text": "y"}}\n')
        with pytest.raises(DataError, match="line 2"):
            read(path)
        assert read(path, skip_bad=True).texts.to_pylist() == ["x", "y"]


class TestArrays:
    ROWS = ({"text": "a", "labels": ["x"]}, {"text": "b", "target_ind": None}, {"text": "c"})

    @pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz", "a.txt"])
    @pytest.mark.parametrize("indent", [None, 0, 2])
    def test_is_read_as_lines_are(self, tmp_path, name, indent):
        data = json.dumps(self.ROWS, indent=indent).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else b"\xef\xbb\xbf \n" + data)
        for corpus in (read(path), read(tmp_path)):
            assert corpus.texts.to_pylist() == ["a", "b", "c"]
            assert corpus.labels.ids.to_pylist() == ["x"]
        assert [len(batch) for batch in stream(path, batch_rows=2)] == [2, 1]

    def test_of_a_megabyte(self, tmp_path):
        path = tmp_path / "a.json"
        path.write_text(json.dumps([{"text": f"{'word ' * 10}{i}"} for i in range(20_001)]))
        corpus = read(path)
        assert (len(corpus), corpus.texts[20_000].as_py()[-5:]) == (20_001, "20000")

    def test_of_labels(self, tmp_path):
        (tmp_path / "lbl.json").write_text(json.dumps([{"uid": "p"}, {"uid": "q"}], indent=1))
        (tmp_path / "train.json").write_text('[{"text": "a", "target_ind": [1]}]')
        assert read(tmp_path).labels.ids.to_pylist() == ["p", "q"]

    def test_bad_items_are_skipped(self, tmp_path):
        path = tmp_path / "a.json"
        path.write_text(
            '[{"text": "a"},\n{"text": 5},\n7,\n{"text": "b", "labels": [null]},\n{"text": "c"}]'
        )
        with pytest.raises(DataError, match="line 2: expected text to be a string, found 5"):
            read(path)
        problems = Problems(skip=True)
        assert read(path, problems=problems).texts.to_pylist() == ["a", "c"]
        assert [problem.line for problem in problems.kept] == [2, 3, 4]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('[{"text": "a"},\n{"text": "b"}', "line 2, column 14: .*Expecting ','"),
            ('[{"text": "a"}\n{"text": "b"}]', "line 2, column 1: .*Expecting ','"),
            ('[{"text": "a"},\n]', "line 2, column 1: .*Expecting value"),
            ('[{"text": "a"}]\n{"text": "b"}', "line 2, column 1: .*Extra data"),
            ('[{"text": ' + "[" * 100_000, "line 1: .*recursion"),
            ('[{"text": ' + "9" * 10_000 + "}]", "line 1: .*digits"),
        ],
    )
    def test_that_is_not_whole(self, tmp_path, content, message):
        path = tmp_path / "a.json"
        path.write_text(content)
        for skip_bad in (False, True):
            with pytest.raises(DataError, match=message):
                read(path, skip_bad=skip_bad)

    def test_not_utf8(self, tmp_path):
        path = tmp_path / "a.json"
        path.write_bytes(b'[{"text": "a"},\n{"text": "caf\xe9"}]')
        with pytest.raises(DataError, match=r"a\.json, line 2: expected UTF-8.*Latin-1"):
            read(path)

    def test_settings_are_no_corpus(self, tmp_path):
        (tmp_path / "train.jsonl").write_text('{"text": "a"}\n')
        (tmp_path / "settings.json").write_text("[\n 1,\n 2\n]\n")
        assert len(read(tmp_path)) == 1
