"""Bad input: each kind says file, line and what was expected, and can be skipped and counted."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from megalabel.data import Problems, read, statistics
from megalabel.data.limits import FEW_LABELS
from megalabel.errors import DataError

GOOD = '{"text": "good", "target_ind": [0]}'


def lines(*more: str) -> str:
    return "\n".join([GOOD, *more, GOOD]) + "\n"


def file(folder, content, name="a.jsonl"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


BAD_LINES = {
    "broken": ('{"text": "x"', r"line 2, column 13: expected a JSON object"),
    "two objects": ('{"text": "x"} {"text": "y"}', r"line 2, column 15: expected a JSON object"),
    "no object": ("[1]", r"line 2: expected a JSON object, found \[1\]"),
    "null": ("null", r"line 2: expected a JSON object, found null"),
    "no text": ('{"labels": []}', r"line 2: expected a title, content or text"),
    "text of another type": ('{"text": 5}', r"line 2: expected text to be a string, found 5"),
    "half a surrogate pair": ('{"text": "\\ud800"}', r"line 2: expected text to be a string"),
    "a field twice": ('{"text": "x", "text": "y"}', r"line 2: expected each field once"),
    "labels of another type": (
        '{"text": "x", "labels": 5}',
        r"line 2: expected labels to be a list of strings, found 5",
    ),
    "a label of another type": (
        '{"text": "x", "labels": [5]}',
        r"line 2: expected labels to be a list of strings",
    ),
    "null label": (
        '{"text": "x", "target_ind": [null]}',
        r"line 2: expected a label number, found null",
    ),
    "fraction": (
        '{"text": "x", "target_ind": [1.5]}',
        r"line 2: expected target_ind to be a list of label numbers",
    ),
    "negative": (
        '{"text": "x", "target_ind": [0, -1]}',
        r"line 2: expected label numbers from 0 to \d+.*found -1",
    ),
    "past 32 bits": (
        '{"text": "x", "target_ind": [4294967296]}',
        r"line 2: expected label numbers .*found 4294967296",
    ),
    "past 64 bits": (
        '{"text": "x", "target_ind": [99999999999999999999]}',
        r"line 2: expected target_ind to be",
    ),
    "NaN": (
        '{"text": "x", "target_ind": [0], "target_rel": [NaN]}',
        r"line 2: expected relevances that are finite",
    ),
    "too large": (
        '{"text": "x", "target_ind": [0], "target_rel": [1e300]}',
        r"line 2: expected relevances that are finite",
    ),
    "negative relevance": (
        '{"text": "x", "target_ind": [0], "target_rel": [-1]}',
        r"line 2: expected relevances",
    ),
    "relevances do not match": (
        '{"text": "x", "target_ind": [0], "target_rel": [1, 1]}',
        r"line 2: expected as many relevances as labels \(1\), found 2",
    ),
    "names and numbers": (
        '{"text": "x", "target_ind": [0], "labels": ["a"]}',
        r"line 2: expected labels or target_ind, found both",
    ),
    "names among numbers": (
        '{"text": "x", "labels": ["a"]}',
        r"line 2: expected target_ind as in rows before, found labels",
    ),
}


class TestLines:
    @pytest.mark.parametrize(("line", "message"), BAD_LINES.values(), ids=BAD_LINES.keys())
    def test_is_said(self, tmp_path, line, message):
        with pytest.raises(DataError, match=rf"a\.jsonl, .*{message}"):
            read(file(tmp_path, lines(line)))

    @pytest.mark.parametrize("line", [line for line, _ in BAD_LINES.values()], ids=BAD_LINES.keys())
    def test_is_skipped_and_counted(self, tmp_path, line):
        problems = Problems(skip=True)
        corpus = read(file(tmp_path, lines(line)), problems=problems)
        assert corpus.texts.to_pylist() == ["good", "good"]
        assert corpus.targets.toarray().tolist() == [[1], [1]]
        assert problems.count == corpus.source["skipped"] == 1
        assert problems.kept[0].line == 2

    def test_not_utf8(self, tmp_path):
        path = file(tmp_path, lines("?").encode().replace(b"?", b'{"text": "\xff"}'))
        with pytest.raises(
            DataError, match=r"line 2, column 11: expected UTF-8 text, found the byte 0xff"
        ):
            read(path)
        assert len(read(path, skip_bad=True)) == 2

    def test_all_bad(self, tmp_path):
        with pytest.raises(
            DataError, match="all 2 rows are bad; the first: expected a JSON object"
        ):
            read(file(tmp_path, "x\ny\n"), skip_bad=True)

    def test_outside_the_label_file(self, tmp_path):
        file(tmp_path, '{"uid": "a"}\n{"uid": "b"}\n', "lbl.jsonl")
        path = file(tmp_path, lines('{"text": "x", "target_ind": [1, 2]}'))
        with pytest.raises(DataError, match=r"line 2: expected label numbers from 0 to 1.*found 2"):
            read(path)
        assert len(read(path, skip_bad=True)) == 2

    def test_not_in_the_label_file(self, tmp_path):
        file(tmp_path, '{"uid": "apple"}\n', "lbl.jsonl")
        path = file(tmp_path, lines('{"text": "x", "labels": ["aple"]}'))
        with pytest.raises(
            DataError, match=r"line 2: unknown label 'aple'; did you mean 'apple'\?"
        ):
            read(path)
        problems = Problems(skip=True)
        assert len(read(path, problems=problems)) == 2
        assert problems.kept[0].message == "unknown label 'aple'"

    def test_many_lines_into_the_file(self, tmp_path):
        content = (GOOD + "\n") * 30_000 + "\n\nbad\n" + (GOOD + "\n") * 30_000
        path = file(tmp_path, content)
        with pytest.raises(DataError, match="line 30003"):
            read(path)
        (tmp_path / "filter_labels_a.txt").write_text("30001 0\n")
        corpus = read(path, skip_bad=True)
        assert len(corpus) == 60_000
        assert corpus.excluded.nonzero()[0].tolist() == [30_000]


class TestHarmless:
    def test_windows_line_ends_byte_order_mark_and_blank_lines(self, tmp_path):
        path = file(tmp_path, b"\xef\xbb\xbf" + lines("", "  ").replace("\n", "\r\n").encode())
        assert read(path).texts.to_pylist() == ["good", "good"]
        path = file(tmp_path, b"\xef\xbb\xbf__label__a x\r\n__label__b y\r\n", "b.txt")
        corpus = read(path)
        assert corpus.texts.to_pylist() == ["x", "y"]
        assert corpus.labels.ids.to_pylist() == ["a", "b"]

    def test_no_last_line_end(self, tmp_path):
        assert len(read(file(tmp_path, lines().rstrip()))) == 2

    def test_empty_and_duplicate_texts_are_kept_and_counted(self, tmp_path):
        figures = statistics(read(file(tmp_path, lines('{"text": ""}', '{"title": "  "}'))))
        assert (figures.texts, figures.empty_texts, figures.duplicate_texts) == (4, 2, 1)

    def test_a_label_twice_counts_once(self, tmp_path):
        rows = '{"text": "x", "target_ind": [1, 0, 1], "target_rel": [2, 1, 3]}\n'
        assert read(file(tmp_path, rows)).targets.toarray().tolist() == [[1, 3]]
        assert read(
            file(tmp_path, '{"text": "x", "labels": ["a", "a"]}')
        ).targets.data.tolist() == [1]

    def test_relevance_zero_is_no_label(self, tmp_path):
        rows = '{"text": "x", "target_ind": [1, 0], "target_rel": [1, 0]}\n'
        assert read(file(tmp_path, rows)).targets.nnz == 1

    def test_relevance_for_some(self, tmp_path):
        weighted = '{"text": "x", "target_ind": [0], "target_rel": [0.5]}'
        rows = '{"text": "x", "target_ind": [1]}\n' + weighted
        assert read(file(tmp_path, rows)).targets.toarray().tolist() == [[0, 1], [0.5, 0]]


class TestFiles:
    @pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.csv", "a.parquet"])
    def test_empty(self, tmp_path, name):
        with pytest.raises(DataError, match="empty"):
            read(file(tmp_path, b"", name))

    @pytest.mark.parametrize("content", [b"\n\n", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf"])
    def test_no_lines(self, tmp_path, content):
        with pytest.raises(DataError, match="empty"):
            read(file(tmp_path, content))

    @pytest.mark.parametrize(
        "name", ["a.jsonl.gz", "a.txt.gz", "a.csv.gz", "a.tsv.gz", "a.jsonl.zst"]
    )
    def test_truncated(self, tmp_path, name):
        line = {
            "jsonl": '{{"text": "text {}"}}\n',
            "txt": "__label__a text {}\n",
            "csv": "text,{}\n",
            "tsv": "text {}\t<a>\n",
        }[name.split(".")[1]]
        data = "".join(line.format(hash(str(i))) for i in range(50_000)).encode()
        whole = (
            gzip.compress(data) if name.endswith("gz") else pa.compress(data, "zstd", asbytes=True)
        )
        with pytest.raises(DataError, match="truncated: it ends early"):
            read(file(tmp_path, whole[: len(whole) // 2], name))
        with pytest.raises(DataError, match="truncated: it ends early"):
            read(file(tmp_path, whole[:-3], name), skip_bad=True)

    def test_damaged_gz(self, tmp_path):
        whole = bytearray(gzip.compress(np.random.default_rng(0).bytes(1 << 17).hex().encode()))
        whole[len(whole) // 2] ^= 255
        with pytest.raises(DataError, match="damaged"):
            read(file(tmp_path, bytes(whole), "a.jsonl.gz"))

    def test_utf16(self, tmp_path):
        with pytest.raises(DataError, match="found UTF-16"):
            read(file(tmp_path, lines().encode("utf-16")))

    def test_unknown_format(self, tmp_path):
        with pytest.raises(DataError, match="starts with 'just prose'; expected one of"):
            read(file(tmp_path, "just prose\n", "a.txt"))

    @pytest.mark.parametrize("ending", ["parquet", "arrow"])
    def test_damaged_tables(self, tmp_path, ending):
        path = tmp_path / f"a.{ending}"
        table = pa.table({"text": [str(i) for i in range(1000)]})
        if ending == "parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(DataError, match=f"a.{ending}: the .* is damaged"):
            read(path)

    def test_tables_not_utf8(self, tmp_path):
        text = pa.array([b"\xff"]).view(pa.string())
        pyarrow.parquet.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
        with pytest.raises(DataError, match="UTF8"):
            read(tmp_path)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"name": ["x"]}, "expected a column title, content or text; the columns are name"),
            ({"text": [5]}, "column text: expected strings, found int64"),
            ({"text": ["x"], "labels": [5.5]}, "column labels: expected lists of strings"),
            (
                {"text": ["x"], "target_ind": [[0.5]]},
                "column target_ind: expected lists of numbers",
            ),
            ({"text": ["x"], "target_ind": [[2**63]]}, "column target_ind: expected"),
            ({"text": ["x"], "target_ind": [[-1]]}, "row 1: expected label numbers"),
            (
                {"text": ["x"], "target_ind": [[1]], "target_rel": [["a"]]},
                "row 1: expected a relevance, found 'a'",
            ),
            ({"text": [None]}, "row 1: expected a title"),
        ],
    )
    def test_tables(self, tmp_path, columns, message):
        types = (
            {"target_ind": pa.list_(pa.uint64())} if columns.get("target_ind") == [[2**63]] else {}
        )
        arrays = {k: pa.array(v, types.get(k)) for k, v in columns.items()}
        pyarrow.parquet.write_table(pa.table(arrays), tmp_path / "a.parquet")
        with pytest.raises(DataError, match=f"a.parquet: {message}"):
            read(tmp_path)


class TestLabelFiles:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('{"uid": "a"}\n{"uid": "a"}\n', "line 2: the label 'a' is already on line 1"),
            ('{"uid": "a"}\n{"title": "b"}\n', "line 2: expected a uid"),
            ('{"uid": "a"}\nbroken\n', "line 2, column 1: expected a JSON object"),
            ("", "the label file is empty"),
        ],
    )
    def test_bad(self, tmp_path, content, message):
        path = file(tmp_path, lines())
        file(tmp_path, content, "lbl.jsonl")
        with pytest.raises(DataError, match=f"lbl.jsonl.*{message}"):
            read(path, skip_bad=True)  # a label cannot be skipped: its line is its number

    def test_several(self, tmp_path):
        path = file(tmp_path, lines())
        for name in ("lbl.jsonl", "labels.jsonl"):
            file(tmp_path, '{"uid": "a"}\n', name)
        with pytest.raises(DataError, match=r"several files .*: labels\.jsonl, lbl\.jsonl"):
            read(path)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("v.tsv", "<u:a>\tA\n<u:a>\tB\n", "line 2: the label 'u:a' is already on line 1"),
            ("v.tsv", "<u:a>\tA\n<u:b>\n", "line 2: expected <uri>, a tab and a label"),
            ("v.csv", "uri,label_en\nu:a\n", "line 2: expected 2 columns, found 1"),
            (
                "v.csv",
                "uri,label_en\nu:a,A\nu:a,B\n",
                "line 3: the label 'u:a' is already on line 2",
            ),
        ],
    )
    def test_bad_vocabulary(self, tmp_path, name, content, message):
        path = file(tmp_path, "text\t<u:a>\n", "train.tsv")
        file(tmp_path, content, name)
        with pytest.raises(DataError, match=f"{name}, {message}"):
            read(path)


class TestOtherText:
    def test_fasttext_label_without_name(self, tmp_path):
        path = file(tmp_path, "__label__a x\n__label__b y __label__ z\n", "a.txt")
        with pytest.raises(DataError, match="line 2, column 14: expected a name after __label__"):
            read(path)
        assert len(read(path, skip_bad=True)) == 1

    def test_annif_without_tab(self, tmp_path):
        path = file(tmp_path, "text\t<u:a>\nno tab\nnone\t\n", "a.tsv")
        with pytest.raises(DataError, match="line 2, column 7: expected a text, a tab"):
            read(path)
        corpus = read(path, skip_bad=True)
        assert np.diff(corpus.targets.indptr).tolist() == [1, 0]

    def test_annif_unknown_subject(self, tmp_path):
        path = file(tmp_path, "text\t<u:a>\ntext\t<u:b>\n", "a.tsv")
        file(tmp_path, "<u:a>\tA\n", "v.tsv")
        with pytest.raises(DataError, match=r"a\.tsv, line 2: unknown label 'u:b'"):
            read(path)

    def test_csv(self, tmp_path):
        content = 'text,target_ind\n"two\nlines",1\nok,0\n\none\nx,0,1\n?,0\nx,1;a\ny,-4\nok,1\n'
        path = file(tmp_path, content.encode().replace(b"?", b"\xff"), "a.csv")
        with pytest.raises(DataError, match=r"a\.csv, line 6: expected 2 columns, found 1"):
            read(path)
        problems = Problems(skip=True)
        corpus = read(path, problems=problems)
        assert corpus.texts.to_pylist() == ["two\nlines", "ok", "ok"]
        found = sorted((p.line, p.message) for p in problems.kept)
        assert [line for line, _ in found] == [6, 7, 8, 9, 10]
        assert [m.split(",")[0] for _, m in found] == [
            "expected 2 columns",
            "expected 2 columns",
            "column text: expected UTF-8 text",
            "expected a label number",
            f"expected label numbers from 0 to {FEW_LABELS - 1}",
        ]

    def test_csv_without_known_columns(self, tmp_path):
        with pytest.raises(
            DataError, match=r"expected a column title, content or text; the columns are a, b$"
        ):
            read(file(tmp_path, "a,b\n1,2\n", "a.csv"))

    def test_csv_rows_that_are_bad_and_not_utf8(self, tmp_path, capfd):
        content = b"text,labels\nx,a\n\xe9,b,c\n\xc3,\xe9\ny,b\n"
        path = file(tmp_path, content, "a.csv")
        with pytest.raises(DataError, match=r"line 3: expected 2 columns, found 3"):
            read(path)
        problems = Problems(skip=True)
        assert read(path, problems=problems).texts.to_pylist() == ["x", "y"]
        assert sorted(problem.line for problem in problems.kept) == [3, 4]
        assert "0xc3" in problems.kept[1].message
        assert capfd.readouterr().err == ""

    def test_vocabulary_fields_longer_than_usual(self, tmp_path):
        path = file(tmp_path, "text\t<u:a>\n", "a.tsv")
        file(tmp_path, f"uri,label_en\nu:a,{'x' * 200_000}\n", "v.csv")
        assert len(read(path).labels.name(0)) == 200_000

    def test_csv_fields_longer_than_usual(self, tmp_path):
        text = "x" * 300_000
        path = file(tmp_path, f"text,labels\n{text},a\nbad\n", "a.csv")
        with pytest.raises(DataError, match="line 3"):
            read(path)
        assert read(path, skip_bad=True).texts.to_pylist() == [text]

    def test_fasttext_label_without_anything(self, tmp_path):
        path = file(tmp_path, "__label__a x\n__label__\n__label__b\n", "a.txt")
        with pytest.raises(DataError, match="line 2, column 1: expected a name after __label__"):
            read(path)
        assert read(path, skip_bad=True).texts.to_pylist() == ["x", ""]

    def test_csv_lines_that_end_with_cr(self, tmp_path):
        path = file(tmp_path, "text,labels\rx,a\ry,b\r", "a.csv")
        assert read(path).texts.to_pylist() == ["x", "y"]

    @pytest.mark.parametrize("header", ["te\rxt,labels", '"text,labels', "text,text", "\0,text\0"])
    def test_csv_headers_that_are_broken(self, tmp_path, header):
        with pytest.raises(DataError, match=r"a\.csv"):
            read(file(tmp_path, f"{header}\nx,a\n", "a.csv"))

    def test_tables_with_names_that_are_not_utf8(self, tmp_path):
        path = tmp_path / "a.parquet"
        pyarrow.parquet.write_table(pa.table({"text": ["x"], "naïve": [1]}), path)
        path.write_bytes(path.read_bytes().replace("naïve".encode(), b"na\xff\xffve"))
        with pytest.raises(DataError, match=r"a\.parquet: the Parquet file is damaged"):
            read(path)

    @pytest.mark.parametrize("labels", ['[""]', '["a", ""]'])
    def test_label_without_name(self, tmp_path, labels):
        path = file(tmp_path, f'{{"text": "x", "labels": {labels}}}\n')
        with pytest.raises(DataError, match="line 1: expected label names, found an empty one"):
            read(path)


class TestEncodings:
    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("a.jsonl", '{{"text": "{}", "labels": ["{}"]}}\n'),
            ("a.txt", "__label__{1} {0}\n"),
            ("a.tsv", "{}\t<u:{}>\n"),
            ("a.csv", "{},{}\n"),
        ],
    )
    def test_latin1_names_the_first_line_and_says_how_to_convert(self, tmp_path, name, line):
        rows = [("tea", "a"), ("tea", "thé"), ("café", "a"), ("café", "b")]
        head = "text,labels\n" if name == "a.csv" else ""
        content = head + "".join(line.format(*row) for row in rows)
        path = file(tmp_path, content.encode("latin-1"), name)
        number = 3 if head else 2
        with pytest.raises(
            DataError,
            match=rf"line {number}.*found the byte 0xe9, which is 'é' in Windows-1252; .*iconv -f",
        ):
            read(path)
        assert len(read(path, skip_bad=True)) == 1

    def test_files_beside_the_corpus_may_be_in_any_encoding(self, tmp_path):
        path = file(tmp_path, "text\t<u:a>\n", "annif.tsv")
        file(tmp_path, "notes\tnotes\n".encode("utf-16"), "notes.tsv")
        file(tmp_path, gzip.compress(b"x" * 99)[:20], "other.csv")
        assert len(read(path)) == len(read(tmp_path)) == 1

    @pytest.mark.parametrize("name", ["train.tsv", "notes.tsv"])
    def test_the_corpus_itself_may_not(self, tmp_path, name):
        file(tmp_path, "text\t<u:a>\n".encode("utf-16"), name)
        with pytest.raises(DataError, match=rf"{name}: expected UTF-8 text, found UTF-16"):
            read(tmp_path)


def test_problems_are_listed_up_to_a_limit(tmp_path):
    path = file(tmp_path, "\n".join([GOOD, *["bad"] * 500, json.dumps({"text": "last"})]))
    problems = Problems(skip=True)
    assert len(read(path, problems=problems)) == 2
    assert (problems.count, len(problems.kept)) == (500, 100)


def test_a_header_in_another_encoding(tmp_path):
    (tmp_path / "texts.csv").write_bytes("Titel;Schlagwörter\nein Hut;Hut\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"texts.csv, line 1: .*'ö' in Windows-1252.*cp1252"):
        read(tmp_path / "texts.csv")
    columns = {"text_column": "Titel", "label_column": "Schlagwörter"}
    assert len(read(tmp_path / "texts.csv", encoding="cp1252", **columns)) == 1
