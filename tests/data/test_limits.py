"""Sizes are held against the size of a file before memory is taken."""

import gzip
import io
import json
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy.sparse import csc_matrix, csr_matrix, save_npz

from megalabel.data import LabelSet, from_frame, read
from megalabel.data.formats.ipc import unpacked_bytes
from megalabel.data.limits import FEW_BYTES, FEW_LABELS, Limits
from megalabel.errors import DataError

MANY = FEW_LABELS + 1


def numbered(folder, kind: str, labels: int):
    """A small corpus that speaks of so many labels."""
    last = labels - 1
    if kind == "pecos":
        (folder / "X.trn.txt").write_text("x\n")
        save_npz(folder / "Y.trn.npz", csr_matrix(([1.0], [0], [0, 1]), shape=(1, labels)))
        return folder
    path = folder / f"a.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.table({"text": ["x"], "target_ind": [[last]]}), path)
    else:
        path.write_text(
            {
                "svm": f"{last} 1:1\n",
                "txt": f"1 5 {labels}\n0 1:1\n",
                "jsonl": json.dumps({"text": "x", "target_ind": [last]}),
                "json": json.dumps([{"text": "x", "target_ind": [last]}]),
                "csv": f"text,target_ind\nx,{last}\n",
            }[kind]
        )
    return path


KINDS = ["svm", "txt", "jsonl", "json", "csv", "parquet", "pecos"]


@pytest.mark.parametrize("kind", KINDS)
def test_more_labels_than_a_file_can_be_about(tmp_path, kind):
    path = numbered(tmp_path, kind, MANY)
    with pytest.raises(
        DataError,
        match=rf"found '?({MANY - 1}|{MANY})'?; .*give max_bytes={16 * MANY} \(--max-bytes",
    ):
        read(path)
    assert len(read(path, max_bytes=16 * MANY).labels) == MANY


@pytest.mark.parametrize("kind", KINDS)
def test_some_million_labels_are_always_fine(tmp_path, kind):
    assert len(read(numbered(tmp_path, kind, FEW_LABELS)).labels) == FEW_LABELS


def test_a_frame():
    frame = pa.table({"text": ["x"], "labels": [[MANY]]})
    with pytest.raises(DataError, match="give max_bytes"):
        read(frame)
    assert len(from_frame(frame, max_bytes=10**9).labels) == MANY + 1


def test_a_large_file_may_number_more():
    assert Limits().labels(10**9) == 125_000_000
    assert Limits().unpacked(10**9) == 10**11


@pytest.mark.parametrize("n", [0, 1, 9, 10, 11, 99, 101, 1_000, 65_536, 123_456])
def test_numbered_labels(n):
    assert LabelSet.numbered(n).ids.to_pylist() == [str(i) for i in range(n)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.txt", "a.svm", "a.tsv", "b.txt"])
def test_text_that_unpacks_to_too_much(tmp_path, name):
    start = {
        "a.jsonl": b'{"text": "x"}\n',
        "a.json": b'[{"text": "x"}]',
        "a.csv": b"text\nx\n",
        "a.txt": b"__label__a x\n",
        "a.svm": b"1 1:1\n",
        "a.tsv": b"x\t<u:a>\n",
        "b.txt": b"1 5 5\n0 1:1\n",
    }[name]
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(start + bytes([10]) * (FEW_BYTES + 10), 1))
    with pytest.raises(DataError, match=r"unpack to more than 16,777,216; .* give max_bytes"):
        read(path)
    if name == "a.jsonl":
        assert len(read(path, max_bytes=2 * FEW_BYTES)) == 1


class TestMatrices:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "X.trn.txt").write_text("x\n")
        return tmp_path

    def test_that_unpack_to_too_much(self, folder):
        file = folder / "Y.trn.npz"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("data.npy", bytes(FEW_BYTES + 1))
        with pytest.raises(DataError, match=r"Y\.trn\.npz: its .* unpack to more than"):
            read(folder)

    def test_of_more_rows_than_the_file_can_hold(self, folder):
        save_npz(folder / "Y.trn.npz", csc_matrix(([1.0], [0], [0, 1]), shape=(10**9, 1)))
        with pytest.raises(DataError, match="1000000000 rows, more than the file can hold"):
            read(folder)

    def test_pickles_are_refused(self, folder):
        hostile = np.array([folder], dtype=object)
        packed = io.BytesIO()
        np.lib.format.write_array(packed, hostile, allow_pickle=True)
        with zipfile.ZipFile(folder / "Y.trn.npz", "w") as archive:
            for name in ("format", "shape", "data", "indices", "indptr"):
                archive.writestr(f"{name}.npy", packed.getvalue())
        with pytest.raises(DataError, match="allow_pickle=False"):
            read(folder)


def test_a_table_that_unpacks_to_too_much(tmp_path):
    path = tmp_path / "a.parquet"
    text = pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), ["x" * 1000])
    pyarrow.parquet.write_table(pa.table({"text": text.dictionary_decode()}), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(DataError, match=r"a\.parquet: its .* unpack to more than 16,777,216"):
        read(path)
    assert len(read(path, max_bytes=10**9)) == 50_000


def _views(text: str, count: int):
    """An array of the same long string, which is there once."""
    if not hasattr(pa, "string_view"):
        pytest.skip("this pyarrow has no string views")
    _, views, data = pa.array([text], pa.string_view()).buffers()
    return pa.Array.from_buffers(
        pa.string_view(), count, [None, pa.py_buffer(views.to_pybytes()[:16] * count), data]
    )


class TestArrow:
    """Buffers that unpack to much, in the formats of Arrow."""

    @pytest.fixture(params=["file", "stream"])
    def written(self, tmp_path, request):
        def write(table, compression=None):
            path = tmp_path / "a.arrow"
            new = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}[request.param]
            options = pa.ipc.IpcWriteOptions(compression=compression)
            with (
                pa.OSFile(str(path), "wb") as sink,
                new(sink, table.schema, options=options) as writer,
            ):
                writer.write_table(table)
            return path

        return write

    @pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
    @pytest.mark.parametrize("dictionary", [False, True])
    def test_the_size_is_known_before(self, written, compression, dictionary):
        text = pa.array(["a red dress, a red hat " * (i % 7) for i in range(3000)])
        text = text.dictionary_encode() if dictionary else text
        table = pa.table({"text": text, "target_ind": [[i % 3] for i in range(3000)]})
        path = written(table, compression)
        found = unpacked_bytes(memoryview(path.read_bytes()), path.read_bytes()[:1] == b"A")
        assert table.nbytes <= found <= 1.1 * table.nbytes + 4096
        assert len(read(path)) == 3000

    @pytest.mark.parametrize("dictionary", [False, True])
    def test_too_much(self, written, dictionary):
        text = pa.array(["x" * (FEW_BYTES + 1)])
        table = pa.table({"text": text.dictionary_encode() if dictionary else text})
        path = written(table, "zstd")
        with pytest.raises(DataError, match=r"a\.arrow: its .* unpack to more than 16,777,216"):
            read(path)
        assert len(read(path, max_bytes=10**8)) == 1

    @pytest.mark.parametrize("kind", ["dictionary", "view", "labels"])
    def test_strings_that_rows_share(self, written, kind):
        shared = pa.DictionaryArray.from_arrays(np.zeros(9, np.int32), ["x" * (FEW_BYTES // 8)])
        if kind == "view":
            table = pa.table({"text": _views("x" * (FEW_BYTES // 8), 9)})
        elif kind == "labels":
            lists = pa.ListArray.from_arrays(pa.array(np.arange(10, dtype=np.int32)), shared)
            table = pa.table({"text": ["x"] * 9, "labels": lists})
        else:
            table = pa.table({"text": shared})
        path = written(table, "zstd")
        with pytest.raises(DataError, match="unpack to more than 16,777,216"):
            read(path)
        assert len(read(path, max_bytes=10**8)) == 9

    def test_rows_that_take_nothing(self, written):
        nulls = pa.table({"text": pa.nulls(10**9), "labels": pa.nulls(10**9)})
        with pytest.raises(DataError, match="unpack to more than"):
            read(written(nulls))

    def test_a_length_that_is_wrong(self, written):
        """Arrow's own check of such a file ends the process."""
        path = written(pa.table({"text": ["a", "b"], "labels": [["x", "y"], ["z"]]}))
        content = path.read_bytes()
        node = struct.pack("<qq", 3, 0)  # the three strings in the lists
        assert content.count(node) == 1
        path.write_bytes(content.replace(node, struct.pack("<qq", 3 + 2**60, 0)))
        with pytest.raises(DataError, match=r"a\.arrow: its .* unpack to more than"):
            read(path)
        path.write_bytes(content.replace(node, struct.pack("<qq", 3, 4)))
        with pytest.raises(DataError, match=r"a\.arrow: the Arrow file is damaged"):
            read(path)
