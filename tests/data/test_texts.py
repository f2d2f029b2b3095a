"""Texts to tag: what a file is taken for, and what becomes of its bad lines."""

from __future__ import annotations

import io

import pytest

from megalabel.data.texts import stream_texts
from megalabel.errors import DataError, ParameterError


def texts(source, **options):
    return [text for batch in stream_texts(source, **options) for text in batch.texts.to_pylist()]


@pytest.mark.parametrize(
    "lines",
    [
        ["10:30", "The train leaves", "And is late"],
        ["3 10 5", "Numbers of a lottery", "of last week"],
        ["{braces} in a text", '{"text": "a text"} and more', "a third line", "a fourth"],
        ["Text, images and links", "A red gown", "Blue jeans"],
        ["Title; a subtitle", "The story begins", "and ends"],
    ],
)
def test_plain_text_whose_first_line_looks_like_a_corpus(lines, tmp_path):
    file = tmp_path / "x.txt"
    file.write_text("\n".join(lines) + "\n")
    assert texts(file) == lines


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("text\tlabels\nred gown\tred\nblue jeans\tblue\n", ["red gown", "blue jeans"]),
        ('text,labels\n"a gown,\nin red",red\nblue,blue\n', ["a gown,\nin red", "blue"]),
        ('{"text": "red gown"}\n{"text": "blue jeans"}\n', ["red gown", "blue jeans"]),
        ("__label__red red gown\n", ["red gown"]),
    ],
)
def test_a_corpus_in_a_text_file(content, found, tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(content)
    assert texts(file) == found


@pytest.mark.parametrize("content", ["2 3 2\n0,1 0:0.5 2:1\n1 1:2\n", "0,1 0:0.5\n1 1:2\n"])
def test_vectors_in_a_text_file(content, tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(content)
    [batch] = stream_texts(file)
    assert batch.features is not None
    assert texts(file, format="plain") == content.splitlines()


BAD = b'red gown\ncaf\xe9\n{"uid": "a2"}\nblue jeans\n'


@pytest.mark.parametrize("piped", [True, False])
def test_bad_lines_of_plain_text_are_said_or_skipped(piped, tmp_path, caplog):
    file = tmp_path / "x.txt"
    file.write_bytes(BAD)

    def source():
        return io.BytesIO(BAD) if piped else file

    with pytest.raises(
        DataError, match=f"{'stdin' if piped else 'x.txt'}, line 2, column 4: .*UTF"
    ):
        texts(source())
    assert texts(source(), skip_bad=True) == ["red gown", "blue jeans"]
    assert "skipped 2 bad rows" in caplog.text


def test_nothing_but_bad_lines(tmp_path):
    file = tmp_path / "x.txt"
    file.write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match="all 1 rows are bad; the first: expected UTF-8"):
        texts(file, skip_bad=True)
    file.write_bytes(b"")
    with pytest.raises(DataError, match=r"x.txt: the file is empty"):
        texts(file)


def test_formats_and_places_that_are_not_there(tmp_path):
    with pytest.raises(ParameterError, match="plain, jsonl"):
        texts(tmp_path / "x.txt", format="word")
    with pytest.raises(DataError, match="no such file"):
        texts(tmp_path / "x.txt")
    with pytest.raises(DataError, match="is a folder"):
        texts(tmp_path)


def test_a_first_batch_comes_at_once():
    sizes = [len(batch) for batch in stream_texts([b"a"] * 100, batch_rows=50)]
    assert sizes == [16, 50, 34]
