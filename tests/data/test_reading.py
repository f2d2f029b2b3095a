"""Reading: every format by its looks, folders with parts, label files, exclusions, streams."""

import gzip
import json
import logging
import os
import sys
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from megalabel.data import Corpus, Problems, read, splits_of, stream
from megalabel.errors import DataError, ParameterError

TEXTS = ["a red dress", "blue jeans", "a red hat"]
NAMES = [["dress", "red"], ["jeans"], ["hat", "red"]]
FASTTEXT = """__label__dress __label__red a red dress
__label__jeans blue jeans
__label__hat a red __label__red hat
"""
ANNIF = "a red dress\t<u:dress> <u:red>\nblue jeans\t<u:jeans>\na red hat\t<u:hat> <u:red>\n"


def jsonl(rows, **more):
    return "".join(json.dumps(row | more) + "\n" for row in rows)


def put(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        name = name.replace("__", ".")
        data = content.encode() if isinstance(content, str) else content
        if name.endswith(".gz"):
            data = gzip.compress(data)
        elif name.endswith(".zst"):
            data = pa.compress(data, "zstd", asbytes=True)
        (folder / name).write_bytes(data)
    return folder


def names_of(corpus: Corpus) -> list[list[str]]:
    ids = corpus.labels.ids.to_pylist()
    return [[ids[j] for j in row.indices] for row in corpus.targets]


def check(corpus: Corpus, format: str, prefix: str = "") -> None:
    assert corpus.texts.to_pylist() == TEXTS
    assert names_of(corpus) == [[prefix + name for name in row] for row in NAMES]
    assert corpus.labels.ids.to_pylist() == [prefix + n for n in ["dress", "hat", "jeans", "red"]]
    assert corpus.source["format"] == format
    assert corpus.source["skipped"] == 0


def table(**more):
    return pa.table({"text": TEXTS, "labels": NAMES, **more})


class TestFormats:
    @pytest.mark.parametrize(
        "name", ["a.jsonl", "a.json", "a.ndjson", "a.jsonl.gz", "a.json.zst", "a.txt"]
    )
    def test_jsonl(self, tmp_path, name):
        rows = [{"text": t, "labels": n} for t, n in zip(TEXTS, NAMES, strict=True)]
        put(tmp_path, **{name: jsonl(rows)})
        check(read(tmp_path / name), "jsonl")
        check(read(tmp_path), "jsonl")

    def test_text_fields_are_joined_in_order(self, tmp_path):
        rows = [
            {"text": "c", "content": "b", "title": "a", "id": 7},
            {"content": "", "title": "a", "text": None, "uid": "x", "id": 8},
            {"title": "", "other": {"title": 5}},
        ]
        corpus = read(put(tmp_path, a__jsonl=jsonl(rows)))
        assert corpus.texts.to_pylist() == ["a b c", "a", ""]
        assert corpus.ids.to_pylist() == ["7", "x", ""]
        assert len(corpus.labels) == 0

    def test_labels_as_a_string_are_split_the_same_everywhere(self, tmp_path):
        strings = ["b; a|b ", "c, d", "", " ;", "e"]
        expected = [["a", "b"], ["c, d"], [], [], ["e"]]
        rows = [{"text": "x", "labels": labels} for labels in strings]
        cells = "".join(f'x,"{labels}"\n' for labels in strings)
        table = pa.table({"text": ["x"] * 5, "labels": strings})
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        for corpus in (
            read(put(tmp_path, a__jsonl=jsonl(rows)) / "a.jsonl"),
            read(put(tmp_path, b__jsonl=" " + jsonl(rows)) / "b.jsonl"),  # line by line
            read(put(tmp_path, a__csv="text,labels\n" + cells) / "a.csv"),
            read(tmp_path / "a.parquet"),
            read(table),
            Corpus(["x"] * 5, targets=strings),
        ):
            assert names_of(corpus) == expected

    def test_what_stands_in_a_list_is_not_split(self, tmp_path):
        rows = [{"text": "x", "labels": ["a;b", "c|d"]}]
        assert names_of(read(put(tmp_path, a__jsonl=jsonl(rows)))) == [["a;b", "c|d"]]
        assert names_of(Corpus(["x"], targets=[["a;b", "c|d"]])) == [["a;b", "c|d"]]

    @pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
    def test_columns_are_known_in_any_case(self, tmp_path, ending):
        columns = {" Text ": TEXTS, "LABELS": ["dress;red", "jeans", "hat;red"]}
        if ending == "csv":
            rows = zip(*columns.values(), strict=True)
            lines = [",".join(columns), *(",".join(row) for row in rows)]
            put(tmp_path, a__csv="\n".join(lines))
        elif ending == "parquet":
            pyarrow.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
        else:
            pyarrow.feather.write_feather(pa.table(columns), tmp_path / "a.arrow")
        check(read(tmp_path), ending)

    def test_label_numbers_without_a_label_file(self, tmp_path):
        rows = [{"text": "x", "target_ind": [2, 0], "target_rel": [0.5, 2]}, {"text": "y"}]
        corpus = read(put(tmp_path, a__jsonl=jsonl(rows)))
        assert corpus.targets.toarray().tolist() == [[2, 0, 0.5], [0, 0, 0]]
        assert corpus.labels.names.to_pylist() == ["0", "1", "2"]

    @pytest.mark.parametrize("name", ["lbl.jsonl", "lbl.json.gz", "labels.jsonl.zst"])
    def test_label_file(self, tmp_path, name):
        labels = [{"uid": "Q1", "title": "cat", "content": "meows"}, {"uid": "Q2", "title": "dog"}]
        put(
            tmp_path, trn__jsonl=jsonl([{"title": "x", "target_ind": [1]}]), **{name: jsonl(labels)}
        )
        corpus = read(tmp_path, "train")
        assert corpus.labels.ids.to_pylist() == ["Q1", "Q2"]
        assert corpus.labels.names.to_pylist() == ["cat", "dog"]
        assert corpus.labels.texts.to_pylist() == ["cat meows", "dog"]
        assert corpus.targets.toarray().tolist() == [[0, 1]]

    def test_names_are_looked_up_in_the_label_file(self, tmp_path):
        labels = jsonl([{"uid": "Q1", "title": "cat"}, {"uid": "Q2", "title": "dog"}])
        rows = [{"text": "x", "labels": ["dog", "Q1"]}, {"text": "y", "target_ind": [1]}]
        corpus = read(put(tmp_path, a__jsonl=jsonl(rows), lbl__jsonl=labels))
        assert corpus.targets.toarray().tolist() == [[1, 1], [0, 1]]

    def test_fasttext(self, tmp_path):
        check(read(put(tmp_path, train__txt=FASTTEXT), "train"), "fasttext")

    def test_fasttext_that_starts_without_a_label_or_has_tabs(self, tmp_path):
        corpus = read(put(tmp_path, train__txt="no label\n__label__red\ta hat\n__label__bare\n"))
        assert corpus.texts.to_pylist() == ["no label", "a hat", ""]
        assert names_of(corpus) == [[], ["red"], ["bare"]]

    def test_annif_without_vocabulary(self, tmp_path):
        check(read(put(tmp_path, train__tsv=ANNIF)), "annif", "u:")

    @pytest.mark.parametrize(
        ("name", "vocabulary"),
        [
            ("v.tsv", "<u:red>\tRed\n<u:hat>\tHat\n<u:dress>\tDress\n<u:jeans>\tJeans\t12\n"),
            (
                "v.csv",
                "label_fi,uri,label_en\nx,u:red,Red\ny,u:hat,Hat\nz,u:dress,Dress\n,u:jeans,Jeans\n",
            ),
        ],
    )
    def test_annif_with_vocabulary(self, tmp_path, name, vocabulary):
        put(tmp_path, train__tsv=ANNIF, test__tsv__gz=ANNIF, **{name: vocabulary})
        assert splits_of(tmp_path) == ["train", "test"]
        corpus = read(tmp_path, "test")
        assert corpus.labels.names.to_pylist() == ["Red", "Hat", "Dress", "Jeans"]
        assert names_of(corpus)[0] == ["u:red", "u:dress"]

    @pytest.mark.parametrize("separator", [",", "\t", ";"])
    @pytest.mark.parametrize("ending", ["csv", "tsv.gz", "txt"])
    def test_csv(self, tmp_path, separator, ending):
        lines = [
            "Title|content|labels",
            "a|red dress|dress/red",
            '"blue"|jeans|jeans',
            "a red|hat|red/ hat",
        ]
        mark = "|" if separator == ";" else ";"
        text = "\r\n".join(lines).replace("|", separator).replace("/", mark)
        if separator == ";":
            text = text.replace("dress|red", '"dress|red"')
        path = put(tmp_path, **{f"a.{ending}": text}) / f"a.{ending}"
        check(read(path), "csv")

    def test_csv_with_columns_of_a_vocabulary(self, tmp_path):
        assert read(put(tmp_path, a__csv="uri,labels,text\nu:a,x,some text\n")).ids is None

    def test_csv_keeps_quoted_line_ends_and_words_like_na(self, tmp_path):
        put(tmp_path, a__csv='text,target_ind\n"one\ntwo, ""three""",1;0\nNA,\n')
        corpus = read(tmp_path)
        assert corpus.texts.to_pylist() == ['one\ntwo, "three"', "NA"]
        assert corpus.targets.toarray().tolist() == [[1, 1], [0, 0]]

    @pytest.mark.parametrize("ending", ["parquet", "arrow", "feather", "ipc"])
    def test_columnar(self, tmp_path, ending):
        path = tmp_path / f"a.{ending}"
        kind = "parquet" if ending == "parquet" else "arrow"
        if ending == "parquet":
            pyarrow.parquet.write_table(table(), path)
        elif ending == "feather":
            pyarrow.feather.write_feather(table(), path)
        else:
            make = pa.ipc.new_file if ending == "arrow" else pa.ipc.new_stream
            with pa.OSFile(str(path), "wb") as sink, make(sink, table().schema) as writer:
                writer.write_table(table(), max_chunksize=2)
        check(read(path), kind)
        path.rename(tmp_path / "noending")
        check(read(tmp_path / "noending"), kind)
        batches = list(stream(tmp_path / "noending", batch_rows=1))
        assert [names_of(b)[0] for b in batches] == NAMES

    def test_columnar_with_label_numbers_and_strings(self, tmp_path):
        numbers = pa.array([[1], [0, 1], None], pa.list_(pa.uint16()))
        pyarrow.parquet.write_table(
            pa.table({"text": TEXTS, "target_ind": numbers}), tmp_path / "a.parquet"
        )
        assert read(tmp_path).targets.toarray().tolist() == [[0, 1], [1, 1], [0, 0]]
        strings = pa.table({"text": TEXTS, "labels": ["red| dress", "jeans", "hat;red"]})
        pyarrow.parquet.write_table(strings, tmp_path / "a.parquet")
        check(read(tmp_path), "parquet")

    def test_an_arrow_file_is_mapped_not_read(self, tmp_path):
        texts = pa.array(["some text"] * 200_000, pa.large_string())
        table = pa.table({"text": texts})
        path = str(tmp_path / "a.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        before = pa.total_allocated_bytes()
        corpus = read(tmp_path)
        assert pa.total_allocated_bytes() - before < texts.nbytes / 10
        assert corpus.texts.equals(texts)

    def test_format_can_be_told(self, tmp_path):
        put(tmp_path, notes__md="no labels here\n__label__red a hat\n")
        assert names_of(read(tmp_path / "notes.md", format="fasttext")) == [[], ["red"]]
        with pytest.raises(ParameterError, match="jsonl"):
            read(tmp_path / "notes.md", format="word")


@pytest.fixture
def sparse_formats(monkeypatch):
    """Stand-ins for the readers of formats with features."""
    import megalabel.data.formats as formats

    def corpus(*_):
        return Corpus(features=np.eye(2), targets=[[1, 0], [0, 1]])

    def bad(path, problems, limits):
        problems.add("expected feature:value", file=path, line=2)
        return corpus()

    text = types.ModuleType("megalabel.data.formats.sparse_text")
    text.looks_like_xc = lambda line: line.count(" ") == 2 and ":" not in line
    text.looks_like_svmlight = lambda line: ":" in line
    text.read_xc, text.read_svmlight = corpus, bad
    npz = types.ModuleType("megalabel.data.formats.npz")
    npz.find_splits = lambda folder: {"train"}
    npz.read_pecos = corpus
    for name, module in (("sparse_text", text), ("npz", npz)):
        monkeypatch.setitem(sys.modules, f"megalabel.data.formats.{name}", module)
        monkeypatch.setattr(formats, name, module, raising=False)


@pytest.mark.usefixtures("sparse_formats")
class TestFeatureFormats:
    def test_by_first_line(self, tmp_path):
        put(tmp_path, train__txt="2 2 2\n0 0:1\n1 1:1\n", test__txt="0 0:1\n")
        assert read(tmp_path, "train").source["format"] == "xc"
        problems = Problems(skip=True)
        corpus = read(tmp_path, "test", problems=problems)
        assert corpus.source["format"] == "svmlight"
        assert corpus.source["skipped"] == problems.count == 1

    def test_pecos_folder(self, tmp_path):
        put(
            tmp_path,
            **{
                "X.trn.npz": b"PK",
                "Y.trn.npz": b"PK",
                "X.trn.txt": "__label__a\n",
                "output-items.txt": "a\n",
            },
        )
        assert splits_of(tmp_path) == ["train"]
        corpus = read(tmp_path)
        assert corpus.source == {
            "path": tmp_path.name,
            "format": "pecos",
            "split": "train",
            "skipped": 0,
        }

    def test_names_and_exclusions_from_files_beside(self, tmp_path):
        put(tmp_path, train__txt="2 2 2\n", lbl__jsonl=jsonl([{"uid": "a"}, {"uid": "b"}]))
        put(tmp_path, filter_labels_train__txt="1 0\n")
        corpus = read(tmp_path)
        assert corpus.labels.ids.to_pylist() == ["a", "b"]
        assert corpus.excluded.toarray().tolist() == [[0, 0], [1, 0]]
        put(tmp_path, lbl__jsonl=jsonl([{"uid": "a"}]))
        with pytest.raises(DataError, match="2 labels, the label file beside it 1"):
            read(tmp_path)

    def test_texts_are_preferred_to_features(self, tmp_path):
        put(tmp_path, train__txt="2 2 2\n", trn__jsonl=jsonl([{"text": "x"}]))
        assert read(tmp_path).source["format"] == "jsonl"
        assert read(tmp_path, format="xc").source["format"] == "xc"

    def test_two_files_of_one_part(self, tmp_path):
        put(tmp_path, train__txt="2 2 2\n", trn__txt="2 2 2\n")
        with pytest.raises(DataError, match=r"train\.txt, trn\.txt"):
            read(tmp_path)

    def test_features_cannot_be_streamed(self, tmp_path):
        with pytest.raises(DataError, match="cannot be streamed"):
            stream(put(tmp_path, train__txt="2 2 2\n"))


class TestFolders:
    def test_parts(self, tmp_path):
        row = jsonl([{"text": "x"}])
        put(
            tmp_path,
            **{
                "my-dev.jsonl": row,
                "tst.json.gz": row,
                "big_train.jsonl.zst": row,
                "README.txt": "hello",
            },
        )
        put(
            tmp_path,
            **{"notes.txt": "free text", "extra.jsonl": row, "dataset_info.json": '{\n"a": 1\n}'},
        )
        assert splits_of(tmp_path) == ["train", "test", "validation"]
        assert read(tmp_path, "trn").source == {
            "path": f"{tmp_path.name}/big_train.jsonl.zst",
            "format": "jsonl",
            "split": "train",
            "skipped": 0,
        }
        assert len(read(tmp_path, "valid")) == 1
        with pytest.raises(ParameterError, match="several parts: train, test, validation; say"):
            read(tmp_path)

    def test_vectors_without_a_row(self, tmp_path):
        put(tmp_path, **{"train.txt": "0 3 2\n"})
        with pytest.raises(DataError, match="expected at least one text"):
            read(tmp_path)

    def test_a_model_folder_is_no_corpus(self, tmp_path):
        put(tmp_path, **{"megalabel.json": "{}", "train.jsonl": jsonl([{"text": "x"}])})
        with pytest.raises(DataError, match="this is a model folder, not a corpus"):
            read(tmp_path, "train")

    def test_a_part_that_is_not_there(self, tmp_path):
        put(tmp_path, train__jsonl=jsonl([{"text": "x"}]))
        with pytest.raises(DataError, match="no test part; there is train"):
            read(tmp_path, "test")
        assert len(read(tmp_path)) == 1

    def test_a_lone_file_is_any_part(self, tmp_path):
        put(tmp_path, stuff__jsonl=jsonl([{"text": "x"}]))
        assert splits_of(tmp_path) == ["stuff"]
        assert len(read(tmp_path, "train")) == len(read(tmp_path / "stuff.jsonl", "test")) == 1

    def test_a_file_that_is_another_part(self, tmp_path):
        put(tmp_path, test__jsonl=jsonl([{"text": "x"}]))
        with pytest.raises(
            DataError, match="asked for the train part, but the file's name says test"
        ):
            read(tmp_path / "test.jsonl", "train")

    def test_shards_are_one_part(self, tmp_path):
        for i in range(3):
            pyarrow.parquet.write_table(
                pa.table({"text": [f"{i}"]}), tmp_path / f"train-0000{i}-of-00003.parquet"
            )
        corpus = read(tmp_path, "train")
        assert corpus.texts.to_pylist() == ["0", "1", "2"]
        assert corpus.source["path"] == tmp_path.name
        assert [b.texts.to_pylist() for b in stream(tmp_path, batch_rows=2)] == [["0", "1"], ["2"]]

    def test_nothing_readable(self, tmp_path):
        put(tmp_path, **{"photo.png": b"\x89PNG", "notes.txt": "hello"})
        with pytest.raises(DataError, match=r"holds notes\.txt, photo\.png; expected") as error:
            read(tmp_path)
        assert "fastText" in str(error.value)
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="holds nothing"):
            read(tmp_path / "empty")

    def test_missing(self, tmp_path):
        put(tmp_path, train__jsonl="")
        with pytest.raises(DataError, match=r"did you mean train\.jsonl\?"):
            read(tmp_path / "trian.jsonl")
        with pytest.raises(DataError, match="does not exist either"):
            read(tmp_path / "no" / "where")
        with pytest.raises(DataError, match="no such folder"):
            splits_of(tmp_path / "nowhere")

    def test_label_feature_layout(self, tmp_path):
        rows = [
            {"uid": "a", "title": "x", "content": "y", "target_ind": [1], "target_rel": [1.0]},
            {"uid": "b", "title": "z", "target_ind": [0]},
        ]
        put(
            tmp_path,
            trn__json__gz=jsonl(rows),
            tst__json__gz=jsonl(rows),
            lbl__json__gz=jsonl([{"uid": "A", "title": "a"}, {"uid": "B", "title": "b"}]),
        )
        put(tmp_path, filter_labels_train__txt="", filter_labels_test__txt="0 0\n1 1\n1 1\n")
        train, test = read(tmp_path, "train"), read(tmp_path, "test")
        assert train.texts.to_pylist() == ["x y", "z"]
        assert train.excluded.nnz == 0
        assert test.excluded.toarray().tolist() == [[1, 0], [0, 1]]
        assert [b.excluded.toarray().tolist() for b in stream(tmp_path, "test", 1)] == [
            [[1, 0]],
            [[0, 1]],
        ]

    def test_exclusions_follow_their_rows_past_skipped_ones(self, tmp_path):
        put(
            tmp_path,
            tst__jsonl='{"text":"a","target_ind":[0]}\nbroken\n{"text":"c","target_ind":[1]}\n',
        )
        put(tmp_path, filter_labels_test__txt="1 0\n2 0\n")
        corpus = read(tmp_path, skip_bad=True)
        assert corpus.excluded.toarray().tolist() == [[0, 0], [1, 0]]

    @pytest.mark.parametrize("cell", ["2 0", "0 9", "-1 0", "0", "x y"])
    def test_bad_exclusions(self, tmp_path, cell):
        put(tmp_path, tst__jsonl=jsonl([{"text": "a", "target_ind": [0]}]))
        put(tmp_path, filter_labels_test__txt=f"0 0\n{cell}\n")
        with pytest.raises(DataError, match=r"filter_labels_test\.txt, line 2"):
            read(tmp_path)

    def test_provenance_holds_no_place_on_the_machine(self, tmp_path, monkeypatch):
        put(tmp_path, a__jsonl=jsonl([{"text": "x"}]))
        monkeypatch.chdir(tmp_path)
        assert read("a.jsonl").source["path"] == f"{tmp_path.name}/a.jsonl"


class TestStream:
    @pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.tsv", "a.csv", "a.parquet", "a.arrow"])
    def test_gives_what_read_gives_again_and_again(self, tmp_path, name):
        texts = [f"text {i}" for i in range(23)]
        names = [[f"l{i % 5}"] for i in range(23)]
        ending = name.partition(".")[2]
        if ending in ("parquet", "arrow"):
            data = pa.table({"text": texts, "labels": names})
            if ending == "parquet":
                pyarrow.parquet.write_table(data, tmp_path / name)
            else:
                with (
                    pa.OSFile(str(tmp_path / name), "wb") as sink,
                    pa.ipc.new_file(sink, data.schema) as writer,
                ):
                    writer.write_table(data, max_chunksize=7)
        else:
            line = {
                "jsonl": '{{"text": "{}", "labels": ["{}"]}}\n',
                "txt": "__label__{1} {0}\n",
                "tsv": "{}\t<{}>\n",
                "csv": "{},{}\n",
            }[ending]
            body = "".join(line.format(t, n[0]) for t, n in zip(texts, names, strict=True))
            put(tmp_path, **{name: ("text,labels\n" if ending == "csv" else "") + body})
        batches = stream(tmp_path, batch_rows=10)
        for _ in range(2):
            parts = list(batches)
            assert [len(p) for p in parts] == [10, 10, 3]
            assert [t for p in parts for t in p.texts.to_pylist()] == texts
            assert [n for p in parts for n in names_of(p)] == names
        assert names_of(read(tmp_path)) == names

    def test_shares_the_labels_of_a_label_file(self, tmp_path):
        put(tmp_path, a__jsonl=jsonl([{"text": "x", "target_ind": [i]} for i in range(3)]))
        put(tmp_path, lbl__jsonl=jsonl([{"uid": str(i)} for i in range(3)]))
        batches = stream(tmp_path, batch_rows=1)
        assert all(batch.labels is batches.labels for batch in batches)

    def test_counts_problems_once_an_iteration(self, tmp_path):
        put(tmp_path, a__jsonl='{"text":"x"}\nbad\n')
        batches = stream(tmp_path, skip_bad=True)
        for _ in range(2):
            assert sum(map(len, batches)) == 1
            assert batches.problems.count == 1
        with pytest.raises(DataError, match="line 2"):
            list(stream(tmp_path))
        with pytest.raises(ParameterError, match="batch_rows"):
            stream(tmp_path, batch_rows=0)

    def test_rows_longer_than_a_block(self, tmp_path):
        texts = ["x" * 9_000_000, "y", "z" * 17_000_000]
        corpora = list(
            stream(put(tmp_path, a__jsonl=jsonl([{"text": t} for t in texts])), batch_rows=2)
        )
        assert [t for c in corpora for t in c.texts.to_pylist()] == texts


def test_what_was_skipped_is_said(tmp_path, caplog):
    put(tmp_path, a__jsonl='{"text":"x"}\nbad\n')
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path, skip_bad=True).source["skipped"] == 1
    assert "skipped 1 bad rows" in caplog.text
    assert "line 2" in caplog.text


DATA = Path(os.environ.get("MEGALABEL_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.parametrize(
    ("name", "texts", "labels"),
    [
        ("eurlex-titles", (26567, 6695), 4181),
        ("reuters21578", (13124, 5771), 405),
        ("debian-depends", (65673, 16101), 47772),
    ],
)
def test_real_corpora(name, texts, labels):
    if not (DATA / name).is_dir():
        pytest.skip(f"needs the corpus {name}; set MEGALABEL_DATA to the folder that holds it")
    for split, count in zip(("train", "test"), texts, strict=True):
        corpus = read(DATA / name, split)
        assert len(corpus) == count
        assert len(corpus.labels) == labels
        assert (np.diff(corpus.targets.indptr) > 0).all()
