"""Columns of any name, of any kind of file: text_column, label_column and their like."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from megalabel.data import Corpus, read, stream
from megalabel.data.texts import stream_texts
from megalabel.errors import DataError, ParameterError

COLUMNS = {
    "Nr": ["a1", "a2", "a3"],
    "Titel": ["Rotes Kleid", "Blaue Hose", "Roter Hut"],
    "Beschreibung": ["für den Abend", "aus Denim", "mit Band"],
    "Schlagworte": ["Kleid, rot", "Hose, blau", "Hut, rot"],
}
NAMES = [["Kleid", "rot"], ["Hose", "blau"], ["Hut", "rot"]]
OPTIONS = {
    "text_column": ["Titel:2", "Beschreibung"],
    "label_column": "Schlagworte",
    "label_separator": ", ",
    "id_column": "Nr",
}
KINDS = ["csv", "tsv", "txt", "jsonl", "json", "xlsx", "parquet", "arrow", "frame"]


def rows_of(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def source_of(kind, folder, columns=COLUMNS):
    """A file of the kind that holds the columns, or a frame."""
    path = folder / f"texts.{kind}"
    if kind in ("csv", "tsv", "txt"):
        mark = ";" if kind == "csv" else "\t"
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        path.write_text("".join(mark.join(map(str, row)) + "\n" for row in rows))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(columns)))
    elif kind == "json":
        path.write_text(json.dumps(rows_of(columns)))
    elif kind == "parquet":
        pyarrow.parquet.write_table(pa.table(columns), path)
    elif kind == "arrow":
        pyarrow.feather.write_feather(pa.table(columns), path)
    elif kind == "xlsx":
        write_sheets(path, {"Tabelle1": columns})
    else:
        return pa.table(columns)
    return path


def write_sheets(path, sheets):
    pytest.importorskip("python_calamine", reason="the extra excel is not installed")
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, columns in sheets.items():
        sheet = book.create_sheet(name)
        for row in [list(columns), *zip(*columns.values(), strict=True)]:
            sheet.append(row)
    book.save(path)


def names_of(corpus: Corpus) -> list[list[str]]:
    ids = corpus.labels.ids.to_pylist()
    return [sorted(ids[j] for j in row.indices) for row in corpus.targets]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_by_name(kind, tmp_path):
    corpus = read(source_of(kind, tmp_path), **OPTIONS)
    assert corpus.texts[0].as_py() == "Rotes Kleid Rotes Kleid für den Abend"
    assert corpus.ids.to_pylist() == COLUMNS["Nr"]
    assert names_of(corpus) == [sorted(names) for names in NAMES]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_as_a_mapping_and_names_in_any_case(kind, tmp_path):
    text = {"Titel": 1, "Beschreibung": 2}
    corpus = read(source_of(kind, tmp_path), text_column=text, label_column="Schlagworte")
    assert corpus.texts[1].as_py() == "Blaue Hose aus Denim aus Denim"
    if kind not in ("jsonl", "json"):  # fields of JSON are written as they are
        assert len(read(source_of(kind, tmp_path), text_column=" titel")) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_zeros_and_ones(kind, tmp_path):
    columns = {"text": ["ein Lauf", "eine Wahl", "beides"], "Jahr": [1999, 2001, 2024]}
    columns |= {"Sport": [1, 0, 1], "Politik": [0, 1, 1]}
    source = source_of(kind, tmp_path, columns)
    expected = [["Sport"], ["Politik"], ["Politik", "Sport"]]
    assert names_of(read(source, label_column="*")) == expected
    assert names_of(read(source, label_column=["Sport", "Politik"])) == expected
    assert names_of(read(source, label_column="*ort")) == [["Sport"], [], ["Sport"]]


def test_several_columns_of_names(tmp_path):
    columns = {"text": ["a", "b"], "first": ["x;y", "y"], "second": ["z", ""], "n": ["7", "8"]}
    corpus = read(
        source_of("csv", tmp_path, {**columns, "first": ["x|y", "y"]}),
        label_column=["first", "second", "n"],
    )
    assert names_of(corpus) == [["7", "x", "y", "z"], ["8", "y"]]


def test_a_mark_that_is_neither_zero_nor_one(tmp_path):
    marks = ["0", "1"] * 200 + ["2"]
    columns = {"text": ["x"] * 401, "a": marks, "b": ["1"] * 401}
    with pytest.raises(DataError, match="column a: expected 0 or 1, found '2'"):
        read(source_of("csv", tmp_path, columns), label_column="*")


def test_numbers_as_labels_of_json(tmp_path):
    columns = {"text": ["a", "b", "c"], "codes": [[7, 8], 9, "x; y"]}
    corpus = read(source_of("jsonl", tmp_path, columns), label_column="codes")
    assert names_of(corpus) == [["7", "8"], ["9"], ["x", "y"]]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_batches(kind, tmp_path):
    batches = list(stream(source_of(kind, tmp_path), batch_rows=1, **OPTIONS))
    assert [names_of(batch)[0] for batch in batches] == [sorted(names) for names in NAMES]
    options = {"text_column": "Titel", "id_column": "Nr"}
    [batch] = stream_texts(source_of(kind, tmp_path), **options)
    assert batch.texts.to_pylist() == COLUMNS["Titel"]
    assert batch.ids.to_pylist() == COLUMNS["Nr"]


def test_a_column_whose_name_ends_like_a_weight(tmp_path):
    columns = {"title:2": ["a", "b"], "title": ["c", "d"]}
    source = source_of("csv", tmp_path, columns)
    assert read(source, text_column="title:2").texts.to_pylist() == ["a", "b"]
    assert read(source, text_column="title:3").texts.to_pylist() == ["c c c", "d d d"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig", "shift-jis"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "b.txt", "a.tsv"])
def test_encodings(encoding, name, tmp_path):
    text = "日本" if encoding == "shift-jis" else "Größe"
    content = {
        "a.csv": f"text,labels\n{text},x\n",
        "a.jsonl": f'{{"text": "{text}", "labels": ["x"]}}\n',
        "a.txt": f"__label__x {text}\n",
        "b.txt": f"text\tlabels\n{text}\tx\n",
        "a.tsv": f"{text}\t<x>\n",
    }[name]
    (tmp_path / name).write_bytes(content.encode(encoding))
    for corpus in (read(tmp_path / name, encoding=encoding), read(tmp_path, encoding=encoding)):
        assert corpus.texts.to_pylist() == [text]
        assert names_of(corpus) == [["x"]]


def test_plain_texts_in_an_encoding(tmp_path):
    data = "Größe\nMaß\n".encode("cp1252")
    (tmp_path / "a.txt").write_bytes(data)
    for source in (tmp_path / "a.txt", data.splitlines()):
        [batch] = stream_texts(source, encoding="cp1252")
        assert batch.texts.to_pylist() == ["Größe", "Maß"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "klingon"}, "there is no encoding 'klingon'"),
        ({"label_separator": ""}, "must not be empty"),
        ({"text_column": "text:0"}, "the weight of a column must be at least 1"),
    ],
)
def test_options_that_mean_nothing(options, message, tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\nx,a\n")
    with pytest.raises(ParameterError, match=message):
        read(tmp_path / "a.csv", **options)


def test_a_wrong_encoding_is_said(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,labels\nx,a\nGröße,b\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.csv: the file is not in the encoding ascii"):
        read(tmp_path / "a.csv", encoding="ascii")


def test_formats_without_columns(tmp_path):
    (tmp_path / "a.txt").write_text("__label__x some text\n")
    with pytest.raises(ParameterError, match="read as fasttext, which has no columns"):
        read(tmp_path / "a.txt", text_column="text")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "xlsx", "frame"])
def test_a_column_that_is_not_there(kind, tmp_path):
    with pytest.raises(DataError, match=r"Text.*there are Nr, Titel, Beschreibung, Schlagworte"):
        read(source_of(kind, tmp_path), text_column="Text")


class TestExcel:
    def test_sheets(self, tmp_path):
        path = tmp_path / "a.xlsx"
        other = {"text": ["x"], "labels": ["a; b"], "id": [7]}
        write_sheets(path, {"Erste": COLUMNS, "Zweite": other})
        corpus = read(f"{path}#Zweite")
        assert names_of(corpus) == [["a", "b"]]
        assert corpus.ids.to_pylist() == ["7"]
        assert corpus.source["format"] == "excel"
        with pytest.raises(DataError, match="there is no sheet 'Dritte'; there are Erste, Zweite"):
            read(f"{path}#Dritte")
        [batch] = stream_texts(f"{path}#Zweite")
        assert batch.texts.to_pylist() == ["x"]

    def test_bad_rows_are_named_by_line(self, tmp_path):
        path = tmp_path / "a.xlsx"
        write_sheets(path, {"a": {"text": ["x", "y", "z"], "target_ind": ["0", "1", "-1"]}})
        with pytest.raises(DataError, match="line 4: expected label numbers"):
            read(path)
        assert len(read(path, skip_bad=True)) == 2

    def test_files_that_are_none(self, tmp_path):
        pytest.importorskip("python_calamine")
        (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04 no workbook")
        with pytest.raises(DataError, match=r"a\.xlsx: the workbook cannot be read"):
            read(tmp_path / "a.xlsx")

    def test_without_the_extra(self, tmp_path, monkeypatch):
        (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
        monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
        with pytest.raises(ImportError, match=r"pip install 'megalabel\[excel\]'"):
            read(tmp_path / "a.xlsx")


class TestAnnif:
    VOCABULARY = "<u:1>\tHats\n<u:2>\tRed\n<u:3>\tBlue\n"

    def documents(self, folder):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("a red hat\n")
        (folder / "a.key").write_text("Hats\nRed\n")
        (folder / "b.txt").write_text("blue")
        (folder / "b.tsv").write_text("<u:3>\tBlue\n")
        (folder / "c.txt").write_text("nothing")
        return folder

    def test_a_folder_of_documents(self, tmp_path):
        folder = self.documents(tmp_path / "docs")
        corpus = read(folder)
        assert corpus.texts.to_pylist() == ["a red hat", "blue", "nothing"]
        assert corpus.ids.to_pylist() == ["a", "b", "c"]
        assert names_of(corpus) == [["Hats", "Red"], ["u:3"], []]
        assert corpus.source["format"] == "annif-folder"
        assert [len(batch) for batch in stream(folder, batch_rows=2)] == [2, 1]

    @pytest.mark.parametrize("where", ["docs/v.tsv", "v.tsv"])
    def test_with_a_vocabulary(self, where, tmp_path):
        folder = self.documents(tmp_path / "docs")
        (tmp_path / where).write_text(self.VOCABULARY)
        corpus = read(folder)
        assert corpus.labels.names.to_pylist() == ["Hats", "Red", "Blue"]
        assert names_of(corpus) == [["u:1", "u:2"], ["u:3"], []]

    def test_parts_in_folders(self, tmp_path):
        for name in ("train", "test"):
            self.documents(tmp_path / name)
        assert len(read(tmp_path, "test")) == 3

    def test_a_document_that_is_not_utf8(self, tmp_path):
        folder = self.documents(tmp_path / "docs")
        (folder / "b.txt").write_bytes(b"caf\xe9")
        with pytest.raises(DataError, match=r"b\.txt, line 1: expected UTF-8 .*encoding='cp1252'"):
            read(folder)
        assert read(folder, skip_bad=True).ids.to_pylist() == ["a", "c"]
        assert read(folder, encoding="latin-1").texts[1].as_py() == "café"

    @pytest.mark.parametrize("mark", ["<{}>", "{}"])
    def test_csv_with_uris(self, mark, tmp_path):
        one, two, three = (mark.format(f"u:{n}") for n in (1, 2, 3))
        rows = f"text,subject_uris\na red hat,{one} {two}\nblue,{three}\nnothing,\n"
        (tmp_path / "train.csv").write_text(rows)
        assert names_of(read(tmp_path / "train.csv")) == [["u:1", "u:2"], ["u:3"], []]
        (tmp_path / "v.csv").write_text("uri,label_en\nu:1,Hats\nu:2,Red\nu:3,Blue\n")
        corpus = read(tmp_path, "train")
        assert corpus.labels.names.to_pylist() == ["Hats", "Red", "Blue"]

    def test_identifiers_in_brackets_in_any_column(self, tmp_path):
        (tmp_path / "a.csv").write_text("text,labels\na,<u:1> <u:2>\nb,<u:3>\n")
        assert names_of(read(tmp_path / "a.csv")) == [["u:1", "u:2"], ["u:3"]]
        (tmp_path / "a.csv").write_text("text,labels\na,<u:1>\nb,a < b\n")
        assert names_of(read(tmp_path / "a.csv")) == [["<u:1>"], ["a < b"]]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["['a', 'b; c']", "[]", ""], [["a", "b; c"], [], []]),
        (['["a", "it\\\'s"]', "['d' 'e']", "[7, 8]"], [["a", "it's"], ["d", "e"], ["7", "8"]]),
        (["['a', 'b']", "plain"], [["['a', 'b']"], ["plain"]]),
        (["[a, b]", "[c]"], [["[a, b]"], ["[c]"]]),
    ],
)
def test_lists_as_python_writes_them(cells, expected, tmp_path):
    table = pa.table({"text": ["x"] * len(cells), "labels": cells})
    assert names_of(read(table)) == expected
