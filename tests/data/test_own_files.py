"""Files as people have them: one sentence says what is wrong, and what to do; which works."""

from __future__ import annotations

import logging
import re

import pytest
from tests.own_files import FILES, MARKED, NAMES, ROWS, UNCLOSED

from megalabel.data import Corpus, Problems, read
from megalabel.errors import DataError


def names_of(corpus: Corpus) -> list[list[str]]:
    ids = corpus.labels.ids.to_pylist()
    return [sorted(ids[j] for j in row.indices) for row in corpus.targets]


@pytest.mark.parametrize("name", FILES)
def test_the_sentence_is_said_and_mends_the_file(name, tmp_path):
    case, path = FILES[name], tmp_path / "texts.csv"
    path.write_bytes(case.content)
    problems = Problems()
    try:
        read(path, problems=problems, labelled=True)
        [error] = problems.notes
    except DataError as raised:
        error = raised
    assert case.said in error.on_command_line()
    assert "--" not in str(error).replace("(--encoding", "")  # keywords, not options
    options = dict(error.advice)
    if said := re.search(r"encoding='([^']+)'", str(error)):
        options["encoding"] = said[1]
    path.write_bytes(case.header.encode() + case.content)
    corpus = read(path, labelled=True, **options)
    assert corpus.texts.to_pylist() == [text for text, *_ in ROWS]
    assert names_of(corpus) == NAMES


def test_a_byte_order_mark_is_no_matter(tmp_path):
    (tmp_path / "a.csv").write_bytes(MARKED)
    for encoding in (None, "utf-8", "utf-8-sig"):
        assert names_of(read(tmp_path / "a.csv", encoding=encoding)) == NAMES


@pytest.mark.parametrize("content", UNCLOSED)
def test_a_quote_that_is_not_closed(content, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError) as raised:
        read(path)
    assert UNCLOSED[content] in str(raised.value)
    path.write_text(content.replace('"Rotes', "Rotes").replace('"Kleid', "Kleid"))
    assert read(path).texts[0].as_py() == "Rotes Kleid"


def test_a_quote_within_a_text_is_no_matter(tmp_path):
    (tmp_path / "a.csv").write_text('text,labels\n5" nails,a\n"a ""good"" nail",b\n')
    assert read(tmp_path / "a.csv").texts.to_pylist() == ['5" nails', 'a "good" nail']


def test_notes_are_logged_in_python(tmp_path, caplog):
    (tmp_path / "a.csv").write_bytes(FILES["labels-with-commas"].content)
    with caplog.at_level(logging.WARNING):
        corpus = read(tmp_path / "a.csv")
    assert len(corpus) == 4
    assert "most hold ', ': give label_separator=', '" in caplog.text
    caplog.clear()
    read({"train": __import__("pyarrow").table({"text": ["some words"], "Tags": ["a;b"]})})
    assert "labels look to be in Tags: give label_column='Tags'" in caplog.text


@pytest.mark.parametrize(
    "rows",
    [
        ["x,a", "y,b", "z,a"],  # one label a text, and that is what they are
        ['x,"Paris, Texas"', "y,b;c"],
    ],
)
def test_what_is_right_is_not_doubted(rows, tmp_path, caplog):
    (tmp_path / "a.csv").write_text("\n".join(["text,labels", *rows]))
    read(tmp_path / "a.csv")
    assert not caplog.records


def test_names_with_commas_in_a_list_are_not_doubted(tmp_path, caplog):
    rows = '{"text": "x", "labels": ["Smith, J"]}\n{"text": "y", "labels": ["Doe, J"]}\n'
    (tmp_path / "a.jsonl").write_text(rows)
    read(tmp_path / "a.jsonl")
    assert not caplog.records


def test_a_corpus_without_labels_and_columns(tmp_path):
    (tmp_path / "a.txt").write_text("__label__x a\n")
    assert len(read(tmp_path / "a.txt", labelled=True)) == 1
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(DataError, match="no labels were read; the columns are text; expected a co"):
        read(tmp_path / "b.jsonl", labelled=True)
