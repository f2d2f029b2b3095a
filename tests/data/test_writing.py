"""Writing: what is written reads back the same, and nothing half-written is left."""

import sys
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, LabelSet, read, stream, write
from megalabel.data.writing import check_table, write_split, write_table
from megalabel.errors import DataError, OutputError, ParameterError

ENDINGS = ["jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "parquet", "arrow"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def corpora(draw) -> Corpus:
    n, width = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    texts = draw(st.lists(text, min_size=n, max_size=n))
    ids = draw(st.none() | st.lists(text, min_size=n, max_size=n).filter(any))
    some = st.lists(text, min_size=width, max_size=width)
    labels = LabelSet(
        draw(st.lists(text, min_size=width, max_size=width, unique=True)),
        draw(st.none() | some),
        draw(st.none() | some) if width else None,
    )
    values = st.sampled_from([0, 0, 1, 1, 0.5, 3.25])
    cells = draw(st.lists(values, min_size=n * width, max_size=n * width))
    targets = csr_matrix(np.array(cells, np.float32).reshape(n, width))
    excluded = csr_matrix(np.array(cells[::-1], np.float32).reshape(n, width) > 0.9).astype("f4")
    excluded = excluded if width and draw(st.booleans()) else None
    return Corpus(texts, targets=targets, labels=labels, ids=ids, excluded=excluded)


def same(a: Corpus, b: Corpus) -> None:
    for name in ("texts", "ids"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        assert left is None or left.to_pylist() == right.to_pylist(), name
    assert a.labels.ids.to_pylist() == b.labels.ids.to_pylist()
    assert a.labels.names.to_pylist() == b.labels.names.to_pylist()
    assert (a.labels.texts is None) == (b.labels.texts is None)
    if a.labels.texts is not None:
        assert a.labels.texts.to_pylist() == b.labels.texts.to_pylist()
    assert a.targets.shape == b.targets.shape
    assert (a.targets != b.targets).nnz == 0
    assert (a.excluded is None) == (b.excluded is None)
    if a.excluded is not None:
        assert (a.excluded != b.excluded).nnz == 0


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(corpus=corpora())
def test_round_trip(tmp_path_factory, ending, corpus):
    path = tmp_path_factory.mktemp("written") / f"train.{ending}"
    write(corpus, path)
    same(corpus, read(path))
    same(corpus, read(path.parent, "train"))
    batches = list(stream(path, batch_rows=2))
    assert [t for b in batches for t in b.texts.to_pylist()] == corpus.texts.to_pylist()
    assert not list(path.parent.glob(".*"))


@pytest.fixture
def corpus() -> Corpus:
    labels = LabelSet(["Q1", "Q2"], ["cat", "dog"], ["cat that meows", "barks"])
    return Corpus(["a", "b"], targets=csr_matrix([[1, 0], [0, 1]]), labels=labels)


@pytest.mark.parametrize("ending", ENDINGS)
def test_parts_side_by_side(tmp_path, corpus, ending):
    for name in ("train", "test"):
        write(corpus, tmp_path / "new" / f"{name}.{ending}")
        write(corpus, tmp_path / "new" / f"{name}.{ending}")  # over itself
    same(corpus, read(tmp_path / "new", "test"))
    other = Corpus(["x"], targets=[["z"]])
    with pytest.raises(DataError, match=r"lbl\.jsonl: it describes other labels"):
        write(other, tmp_path / "new" / f"dev.{ending}")
    same(corpus, read(tmp_path / "new", "train"))


def test_label_file_as_others_write_it(tmp_path, corpus):
    write(corpus, tmp_path / "train.jsonl")
    assert (tmp_path / "lbl.jsonl").read_text() == (
        '{"uid": "Q1", "title": "cat", "content": "that meows"}\n'
        '{"uid": "Q2", "title": "dog", "text": "barks"}\n'
    )
    assert (tmp_path / "train.jsonl").read_text() == (
        '{"text": "a", "target_ind": [0]}\n{"text": "b", "target_ind": [1]}\n'
    )


def test_the_old_file_stays_when_writing_fails(tmp_path, corpus, monkeypatch):
    write(corpus, tmp_path / "train.jsonl")
    before = (tmp_path / "train.jsonl").read_bytes()

    def fail(corpus, sink):
        sink.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("megalabel.data.formats.jsonl.write_rows", fail)
    with pytest.raises(KeyboardInterrupt):
        write(corpus, tmp_path / "train.jsonl")
    assert (tmp_path / "train.jsonl").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lbl.jsonl", "train.jsonl"]


def test_exclusions_of_another_corpus(tmp_path, corpus):
    (tmp_path / "filter_labels_train.txt").write_text("0 0\n")
    with pytest.raises(DataError, match=r"filter_labels_train\.txt: it is of another corpus"):
        write(corpus, tmp_path / "train.jsonl")


def test_what_cannot_be_written(tmp_path, corpus):
    with pytest.raises(ParameterError, match="cannot tell the format"):
        write(corpus, tmp_path / "a.xlsx")
    with pytest.raises(ParameterError, match="name of a label file"):
        write(corpus, tmp_path / "lbl.jsonl")
    with pytest.raises(DataError, match="needs texts"):
        write(Corpus(features=np.eye(2)), tmp_path / "a.jsonl")
    write(corpus, tmp_path / "data", format="parquet")
    same(corpus, read(tmp_path / "data"))


def test_features_left_out_are_said(tmp_path, caplog):
    write(Corpus(["a"], features=np.eye(1)), tmp_path / "a.jsonl")
    assert "holds no features" in caplog.text


@pytest.fixture
def sparse_formats(monkeypatch):
    """Stand-ins for the writers of formats with features."""
    import megalabel.data.formats as formats

    def write_npz(corpus, folder, split):
        kinds = ["Y", *(["X"] if corpus.features is not None else [])]
        for name in kinds:
            (Path(folder) / f"{name}.{split}.npz").write_text("npz")
        (Path(folder) / "output-items.txt").write_text("".join(corpus.labels.names.to_pylist()))

    text = types.ModuleType("megalabel.data.formats.sparse_text")
    text.write_xc = lambda corpus, path: path.write_text("2 0 2\n")
    npz = types.ModuleType("megalabel.data.formats.npz")
    npz.write_npz = write_npz
    npz.find_splits = lambda folder: {p.name.split(".")[1] for p in folder.glob("Y.*.npz")}
    for name, module in (("sparse_text", text), ("npz", npz)):
        monkeypatch.setitem(sys.modules, f"megalabel.data.formats.{name}", module)
        monkeypatch.setattr(formats, name, module, raising=False)


def listed(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.usefixtures("sparse_formats")
class TestFormatsWithFeatures:
    def test_xc(self, tmp_path, corpus):
        write(corpus, tmp_path / "named" / "train.txt")
        assert listed(tmp_path / "named") == ["lbl.jsonl", "train.txt"]
        numbered = Corpus(features=np.eye(2), targets=np.eye(2))
        write(numbered, tmp_path / "numbered" / "train.txt")
        assert listed(tmp_path / "numbered") == ["train.txt"]

    def test_npz(self, tmp_path, corpus):
        corpus.excluded = corpus.targets
        files = ["Y.test.npz", "filter_labels_test.txt", "lbl.jsonl", "output-items.txt"]
        write(corpus, tmp_path / "a" / "tst.npz")
        assert listed(tmp_path / "a") == files
        corpus.source["split"] = "test"
        write(corpus, tmp_path / "b", format="npz")
        assert listed(tmp_path / "b") == files
        with pytest.raises(ParameterError, match="expected train, test or validation"):
            write(corpus, tmp_path / "b" / "data.npz")

    def test_npz_over_another_corpus(self, tmp_path):
        first = Corpus(features=np.eye(2), targets=np.eye(2))
        for name in ("train.npz", "test.npz"):
            write(first, tmp_path / name)
        with pytest.raises(DataError, match=r"output-items\.txt: it names other labels, .* train"):
            write(Corpus(["a"], targets=np.eye(1)), tmp_path / "test.npz")
        write(Corpus(["a", "b"], targets=np.eye(2)), tmp_path / "test.npz")
        assert listed(tmp_path) == ["X.train.npz", "Y.test.npz", "Y.train.npz", "output-items.txt"]


def test_a_split_is_written_as_its_parts_can_be(tmp_path):
    texts = Corpus(["a", "b"], targets=[["x"], ["y"]])
    vectors = Corpus(features=np.eye(2), targets=texts.targets)
    for name, corpus in (("texts", texts), ("vectors", vectors)):
        write_split(tmp_path / name, corpus[:1], corpus[1:])
        assert [len(read(tmp_path / name, part)) for part in ("train", "test")] == [1, 1]
    assert read(tmp_path / "vectors", "test").source["format"] == "xc"


def test_tables_by_their_ending(tmp_path):
    table = pa.table({"label": ["gown"], "hits": [3]})
    for ending in ("csv", "parquet", "jsonl"):
        write_table(table, tmp_path / f"t.{ending}")
    assert (tmp_path / "t.csv").read_text() == '"label","hits"\n"gown",3\n'
    assert (tmp_path / "t.jsonl").read_text() == '{"label": "gown", "hits": 3}\n'
    assert pa.parquet.read_table(tmp_path / "t.parquet") == table
    with pytest.raises(ParameterError, match=r"ends in .csv, .parquet, .jsonl, not .*t.xlsx"):
        write_table(table, tmp_path / "t.xlsx")
    with pytest.raises(OutputError, match="nowhere"):
        check_table(tmp_path / "nowhere" / "t.csv")


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match=r"file/x.jsonl was not written"):
        write(Corpus(["a"]), tmp_path / "file" / "x.jsonl")
