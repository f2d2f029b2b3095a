"""A writer that is killed at any moment leaves the old corpus or the new one, whole."""

import os
import random
import shutil
import signal
import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.killing import in_child

from megalabel.data import Corpus, read, write
from megalabel.data.writing import write_parts
from megalabel.errors import DataError
from megalabel.files import replacing


def corpus(rows: int, texts: bool = True, features: bool = True, excluded: bool = False) -> Corpus:
    cells = np.eye(3, dtype=np.float32)[np.arange(rows) % 3]
    return Corpus(
        [f"{rows} texts, number {i}" for i in range(rows)] if texts else None,
        csr_matrix(cells + rows) if features else None,
        csr_matrix(cells),
        excluded=csr_matrix(np.roll(cells, rows, axis=1)) if excluded else None,
    )


def plain(rows: int, excluded: bool = False) -> Corpus:
    return corpus(rows, features=False, excluded=excluded)


def names_alone(folder) -> None:
    """A corpus without a label file, to which a new label file would give another meaning."""
    (folder / "train.jsonl").write_text('{"text": "by name", "labels": ["x", "y"]}\n')


# What is there, and what is written over it.
CASES = {
    "jsonl": ("train.jsonl", plain(4), plain(300)),
    "gz": ("train.jsonl.gz", plain(4), plain(300)),
    "excluded": ("train.jsonl", plain(4, excluded=True), plain(300, excluded=True)),
    "names": ("train.jsonl", names_alone, plain(300)),
    "nothing": ("train.jsonl", None, plain(300)),
    "parquet": ("train.parquet", plain(4, excluded=True), plain(300, excluded=True)),
    "arrow": ("train.arrow", plain(4), plain(300)),
    "xc": ("train.txt", corpus(4, texts=False), corpus(300, texts=False, excluded=False)),
    "npz": ("train.npz", corpus(4), corpus(300)),
    "npz without texts": ("train.npz", corpus(4), corpus(300, texts=False)),
    "npz without features": ("train.npz", corpus(4, excluded=True), plain(300, excluded=True)),
}


def seen(folder) -> object:
    """What a reader sees."""
    try:
        found = read(folder, "train")
    except DataError as error:
        if "nothing here can be read" not in str(error):
            raise
        return None
    matrices = (found.features, found.targets, found.excluded)
    return (
        None if found.texts is None else found.texts.to_pylist(),
        found.labels.ids.to_pylist(),
        *(None if m is None else (m.shape, m.indices.tolist(), m.data.tolist()) for m in matrices),
    )


def prepare(folder, name, old) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if callable(old):
        old(folder)
    elif old is not None:
        write(old, folder / name)


@pytest.mark.parametrize("case", CASES)
def test_killed_before_each_step(tmp_path, case):
    name, old, new = CASES[case]
    folder = tmp_path / "corpus"
    prepare(folder, name, old)
    before = seen(folder)
    if before is not None and not callable(old):
        write(new, folder / name)
    else:
        prepare(folder, name, None)
        write(new, folder / name)
    after = seen(folder)

    states = []
    killed = True
    while killed:
        prepare(folder, name, old)
        _, status = os.waitpid(in_child(lambda: write(new, folder / name), len(states)), 0)
        killed = os.WIFSIGNALED(status)
        states.append(seen(folder))
        assert states[-1] in (before, after), f"step {len(states)}"
        if killed:
            write(new, folder / name)
            assert seen(folder) == after
            assert not list(folder.glob(".*"))
    assert states[0] == before
    assert states[-1] == after
    assert len(states) > 4


def test_what_a_living_writer_has_aside_is_left_alone(tmp_path):
    with replacing(tmp_path) as first:
        (first.aside / "a").write_text("first")
        write(plain(2), tmp_path / "train.jsonl")
        assert (first.aside / "a").exists()
    assert (tmp_path / "a").read_text() == "first"
    assert not list(tmp_path.glob(".*"))


def test_a_stranger_cannot_have_files_removed_elsewhere(tmp_path):
    (tmp_path / "mine").write_text("precious")
    folder = tmp_path / "corpus"
    (folder / ".written-0").mkdir(parents=True)
    (folder / ".written-0" / ".removed").write_text("../mine\n")
    (folder / "train.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(DataError, match="names a file outside its folder"):
        read(folder)
    shutil.rmtree(folder / ".written-0")
    (folder / ".written-1").symlink_to(tmp_path, target_is_directory=True)
    assert len(read(folder)) == 1
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_folder_that_cannot_be_written_to_says_so(tmp_path, monkeypatch):
    (tmp_path / ".written-0").mkdir()
    (tmp_path / ".written-0" / "train.jsonl").write_text('{"text": "x"}\n')

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", refuse)
        with pytest.raises(DataError, match=r"a writer was killed here.*Permission denied"):
            read(tmp_path)
    assert len(read(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_killed_at_random_moments(tmp_path, case):
    """A hundred kills of each writer; `pytest -m slow tests/data/test_kills.py` runs them."""
    name, old, new = CASES[case]
    old = new[:150] if old is None or callable(old) else old
    folder = tmp_path / "corpus"
    prepare(folder, name, old)
    states = [seen(folder)]
    started = time.perf_counter()
    write(new, folder / name)
    lasts = time.perf_counter() - started
    states.append(seen(folder))
    moments = random.Random(case)
    found = []
    for _ in range(100):

        def both() -> None:
            while True:
                write(old, folder / name)
                write(new, folder / name)

        process = in_child(both)
        time.sleep(moments.uniform(0, 6 * lasts))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        found.append(seen(folder))
        assert found[-1] in states
    write(new, folder / name)
    assert not list(folder.glob(".*"))
    assert all(state in found for state in states)


def test_a_writer_that_was_killed_does_not_replace_a_later_one(tmp_path):
    for names in ("x", "xy"):
        for number in range(5):
            folder = tmp_path / f"{names}{number}"
            with replacing(folder) as new:
                for name in names:
                    (new.aside / name).write_text("later")
                earlier = folder / f".written-{number:x}"
                earlier.mkdir()
                (earlier / "x").write_text("earlier")
            with replacing(folder):
                pass
            assert (folder / "x").read_text() == "later"


def test_what_another_user_left_is_not_put_in_place(tmp_path, monkeypatch):
    (tmp_path / ".written-0").mkdir()
    (tmp_path / ".written-0" / "train.jsonl").write_text('{"text": "of a stranger"}\n')
    (tmp_path / "train.jsonl").write_text('{"text": "mine"}\n')
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert read(tmp_path).texts.to_pylist() == ["mine"]


def test_parts_with_other_labels_are_not_written_together(tmp_path):
    parts = {
        tmp_path / "train.jsonl": Corpus(["x"], targets=[["apple"]]),
        tmp_path / "test.jsonl": Corpus(["y"], targets=[["pear"]]),
    }
    with pytest.raises(DataError, match="the same labels"):
        write_parts(parts)
    assert list(tmp_path.iterdir()) == []
