import io
import pickle
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix, save_npz

from megalabel.data import Corpus, LabelSet
from megalabel.data.formats.npz import find_splits, read_pecos, write_npz
from megalabel.data.problems import Problems
from megalabel.errors import DataError, ParameterError

X = csr_matrix(np.array([[0.5, 0, 1], [0, 2, 0]], np.float32))
Y = csr_matrix(np.array([[1, 0], [1, 1]], np.float32))
TEXTS = ["a café\u2028table", "  \ttwo "]
LABELS = LabelSet(["7", "9"], ["red", "blue"])


def corpus(texts=TEXTS, features=X):
    return Corpus(texts, features, Y, LABELS)


def test_round_trip(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    back = read_pecos(tmp_path, "train", Problems())
    assert back.texts.to_pylist() == TEXTS
    assert (back.features != X).nnz == 0
    assert (back.targets != Y).nnz == 0
    assert back.features.dtype == np.float32
    assert back.labels.names.to_pylist() == ["red", "blue"]
    assert back.labels.ids.to_pylist() == ["0", "1"]
    assert back.source == {"path": str(tmp_path), "format": "pecos", "split": "train"}


def test_texts_or_features_alone(tmp_path):
    write_npz(corpus(features=None), tmp_path, "train")
    assert read_pecos(tmp_path, "train", Problems()).features is None
    write_npz(corpus(texts=None), tmp_path, "train")
    back = read_pecos(tmp_path, "train", Problems())
    assert back.texts is None
    assert (back.features != X).nnz == 0


def test_splits(tmp_path):
    assert find_splits(tmp_path) == set()
    for split in ("train", "test", "validation"):
        write_npz(corpus(), tmp_path, split)
        assert split in find_splits(tmp_path)
    assert (tmp_path / "Y.val.npz").is_file()
    assert len(read_pecos(str(tmp_path), "test", Problems())) == 2
    with pytest.raises(ParameterError, match="train, test, validation, not 'trn'"):
        read_pecos(tmp_path, "trn", Problems())


def test_labels_without_names_are_numbered(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    (tmp_path / "output-items.txt").unlink()
    assert read_pecos(tmp_path, "train", Problems()).labels == LabelSet.numbered(2)


def test_other_sparse_formats_and_types(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    save_npz(tmp_path / "Y.trn.npz", csc_matrix(Y, dtype=np.int8))
    save_npz(tmp_path / "X.trn.npz", csr_matrix(X, dtype=np.float64), compressed=False)
    back = read_pecos(tmp_path, "train", Problems())
    assert (back.targets != Y).nnz == 0
    assert (back.features != X).nnz == 0


def test_texts_of_other_systems(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    (tmp_path / "X.trn.txt").write_bytes(b"\xef\xbb\xbfone\r\n\r\n")
    assert read_pecos(tmp_path, "train", Problems()).texts.to_pylist() == ["one", ""]
    (tmp_path / "X.trn.txt").write_bytes(b"one\ntwo")
    assert read_pecos(tmp_path, "train", Problems()).texts.to_pylist() == ["one", "two"]


def test_line_breaks_in_texts_become_blanks(tmp_path):
    write_npz(corpus(texts=["a\nb\r\nc", ""]), tmp_path, "train")
    assert read_pecos(tmp_path, "train", Problems()).texts.to_pylist() == ["a b  c", ""]


def test_labels_of_splits_must_agree(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    other = Corpus(TEXTS, X, Y, LabelSet(["red", "green"]))
    with pytest.raises(
        DataError, match=r"output-items\.txt: expected the labels of the train split"
    ):
        write_npz(other, tmp_path, "test")
    write_npz(other, tmp_path, "train")
    write_npz(other, tmp_path, "test")


def test_missing_files(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    for name in ("X.trn.npz", "X.trn.txt"):
        (tmp_path / name).unlink()
    with pytest.raises(
        DataError, match=r"X\.trn\.npz: expected features .* or texts in X\.trn\.txt"
    ):
        read_pecos(tmp_path, "train", Problems())
    with pytest.raises(DataError, match=r"Y\.tst\.npz: expected the labels"):
        read_pecos(tmp_path, "test", Problems())


def test_sizes_that_differ(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    (tmp_path / "X.trn.txt").write_text("one\ntwo\nthree\n")
    with pytest.raises(DataError, match=r"X\.trn\.txt: expected 2 rows as in Y\.trn\.npz, found 3"):
        read_pecos(tmp_path, "train", Problems(skip=True))
    (tmp_path / "X.trn.txt").unlink()
    save_npz(tmp_path / "X.trn.npz", X[:1])
    with pytest.raises(DataError, match=r"X\.trn\.npz: expected 2 rows as in Y\.trn\.npz, found 1"):
        read_pecos(tmp_path, "train", Problems())
    save_npz(tmp_path / "X.trn.npz", X)
    (tmp_path / "output-items.txt").write_text("red\n")
    with pytest.raises(DataError, match=r"output-items\.txt: expected 2 names, .* found 1"):
        read_pecos(tmp_path, "train", Problems())


def test_bad_rows_are_raised_or_skipped(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    save_npz(tmp_path / "X.trn.npz", csr_matrix(np.array([[1.0, 1e300, np.nan], [1, 2, 3]])))
    with pytest.raises(DataError, match=r"X\.trn\.npz: expected finite numbers in row 0"):
        read_pecos(tmp_path, "train", Problems())
    (tmp_path / "X.trn.txt").write_bytes(b"a\nb\xff\n")
    problems = Problems(skip=True)
    assert len(read_pecos(tmp_path, "train", problems)) == 0
    assert [(error.line, error.column) for error in problems.kept] == [(None, None), (2, 2)]
    save_npz(tmp_path / "X.trn.npz", X)
    with pytest.raises(
        DataError, match=r"line 2, column 2: expected UTF-8 text, found the byte 0xff"
    ):
        read_pecos(tmp_path, "train", Problems())
    problems = Problems(skip=True)
    back = read_pecos(tmp_path, "train", problems)
    assert back.texts.to_pylist() == ["a"]
    assert problems.count == 1


def archive(**arrays):
    """An npz file of the given arrays, which may be none that a matrix could be made of."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def bad_archives():
    csr = {"format": np.array("csr"), "shape": np.array([2, 2]), "data": np.ones(2, np.float32)}
    good = csr | {"indices": np.array([0, 1]), "indptr": np.array([0, 1, 2])}
    yield archive(**good | {"indices": np.array([0, 7])})
    yield archive(**good | {"indices": np.array([0, -1])})
    yield archive(**good | {"indptr": np.array([0, 9, 2])})
    yield archive(**good | {"indptr": np.array([0, 1, 99])})
    yield archive(**good | {"indptr": np.array([0, 1])})
    yield archive(**good | {"indptr": np.array([0, 1, 0])})
    yield archive(**good | {"format": np.array("csc"), "indices": np.array([0, 10**6])})
    yield archive(**good | {"format": np.array("zzz")})
    yield archive(**good | {"data": np.array(["a", "b"])})
    yield archive(**good | {"data": np.array([1j, 2])})
    yield archive(**good | {"data": np.array([pickle.loads, "b"], dtype=object)})
    yield archive(**good | {"shape": np.array([2, 10**12])})
    yield archive(**csr)
    yield archive()
    yield b""
    yield b"no archive at all"
    yield archive(**good)[:-30]


@pytest.mark.parametrize("content", bad_archives())
def test_damaged_archives_are_named(tmp_path, content):
    write_npz(corpus(), tmp_path, "train")
    (tmp_path / "Y.trn.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"Y\.trn\.npz: expected "):
        read_pecos(tmp_path, "train", Problems(skip=True))


def test_a_format_that_is_not_read_is_named(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    save_npz(tmp_path / "Y.trn.npz", coo_matrix(Y))
    with pytest.raises(DataError, match="found coo of float32, not numbers in csr or csc"):
        read_pecos(tmp_path, "train", Problems())


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_changed_bytes_never_crash(position, patch):
    with tempfile.TemporaryDirectory() as folder:
        write_npz(corpus(), folder, "train")
        path = Path(folder, "Y.trn.npz")
        save_npz(path, Y, compressed=False)
        content = path.read_bytes()
        position %= len(content)
        path.write_bytes(content[:position] + patch + content[position + len(patch) :])
        try:
            back = read_pecos(folder, "train", Problems())
        except DataError:
            return
        back.targets.check_format(full_check=True)


def test_nothing_is_unpickled(tmp_path):
    write_npz(corpus(), tmp_path, "train")
    with zipfile.ZipFile(tmp_path / "Y.trn.npz") as stored:
        members = {name: stored.read(name) for name in stored.namelist()}
    content = io.BytesIO()
    np.save(content, np.array([{}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "Y.trn.npz", "w") as changed:
        for name, member in (members | {"data.npy": content.getvalue()}).items():
            changed.writestr(name, member)
    with pytest.raises(DataError, match="allow_pickle=False"):
        read_pecos(tmp_path, "train", Problems())
