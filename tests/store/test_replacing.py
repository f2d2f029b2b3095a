"""A model that is replaced while it is read, and folders that cannot be written."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import kept, store
from megalabel.errors import StoreError
from megalabel.kept import Folder
from megalabel.linear import Prior

ARRAYS = ("label_counts_", "frequencies_")


def numbered(number: int) -> Prior:
    """A model of which each part says by which save it was written."""
    prior = Prior(smoothing=float(number)).fit(csr_matrix((1, 1)), csr_matrix((1, 512)))
    for name in ARRAYS:
        setattr(prior, name, np.full(512, number, getattr(prior, name).dtype))
    prior.rows_ = prior.n_features_ = number
    return prior


def number_of(prior: Prior) -> int:
    """The save that all parts agree on."""
    numbers = {float(getattr(prior, name)[i]) for name in ARRAYS for i in (0, -1)}
    assert numbers | {prior.rows_, prior.n_features_} == {prior.smoothing}
    return int(prior.smoothing)


def race(path: Path, loads: int, saves: int) -> None:
    """Load a model so often, and until so many saves of another process were seen, each whole."""
    store.save(numbered(0), path)
    saver = os.fork()
    if saver == 0:
        try:
            os.fsync = lambda _: None  # more saves in the same time
            for number in itertools.count(1):
                store.save(numbered(number), path)
        finally:
            os._exit(1)
    seen = set()
    try:
        while loads > 0 or len(seen) < saves:
            seen.add(number_of(store.load(path, verify=loads % 2 == 0)))
            loads -= 1
    finally:
        os.kill(saver, signal.SIGKILL)
        os.waitpid(saver, 0)


def test_a_load_sees_one_model_while_another_process_saves(tmp_path):
    race(tmp_path / "m", loads=100, saves=10)


@pytest.mark.slow
def test_two_thousand_loads_while_another_process_saves(tmp_path):
    race(tmp_path / "m", loads=2_000, saves=200)


def test_what_is_read_is_of_the_folder_that_was_opened(tmp_path):
    store.save(numbered(1), tmp_path / "m")
    with Folder(tmp_path / "m") as opened:
        assert not opened.replaced()
        first = opened.array("frequencies_.npy", "<f4", (512,))
        store.save(numbered(2), tmp_path / "m")
        assert opened.replaced()
        assert first[0] == 1
        with pytest.raises(
            StoreError, match=r"label_counts_\.npy is missing"
        ):  # never that of the new one
            opened.array("label_counts_.npy", "<f8", (512,))


def test_a_load_begun_before_a_save_reads_the_new_model(tmp_path, monkeypatch):
    store.save(numbered(1), tmp_path / "m")
    check, saved = store.check_files, []

    def save_between(folder, manifest, budget):
        if not saved:
            saved.append(True)
            store.save(numbered(2), tmp_path / "m")
        check(folder, manifest, budget)

    monkeypatch.setattr(store, "check_files", save_between)
    assert number_of(store.load(tmp_path / "m")) == 2


def test_between_two_renames_a_load_waits(tmp_path, monkeypatch):
    """Where folders cannot be exchanged in one step, there is none for a moment."""
    store.save(numbered(1), tmp_path / "m")
    aside = (tmp_path / "m").rename(tmp_path / ".m.replaced-0")
    monkeypatch.setattr(kept.time, "sleep", lambda _: aside.rename(tmp_path / "m"))
    assert number_of(store.load(tmp_path / "m")) == 1
    monkeypatch.undo()
    monkeypatch.setattr(kept, "_PATIENCE", 2)
    (tmp_path / "m").rename(aside)
    with pytest.raises(StoreError, match="no model folder"):
        store.load(tmp_path / "m")


@pytest.mark.parametrize(
    "code", [errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.ENOSPC, errno.EDQUOT]
)
def test_what_the_system_refuses_is_said_in_words(tmp_path, monkeypatch, code):
    store.save(numbered(1), tmp_path / "m")

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(kept.os, "fsync", refuse)
    with pytest.raises(StoreError, match="m was not written: "):
        store.save(numbered(2), tmp_path / "m")
    monkeypatch.undo()
    assert number_of(store.load(tmp_path / "m")) == 1
    assert os.listdir(tmp_path) == ["m"]


def test_what_killed_saves_left_is_cleared_and_what_others_write_stays(tmp_path):
    """By a lock, which ends with its process, not by process numbers: those come again."""
    own, other = os.getpid(), tmp_path / ".n.saving-0"
    (tmp_path / f".m.saving-{own}-0").mkdir()  # of a process that had our number
    other.mkdir()
    with kept.replacing(tmp_path / "m") as writing:
        assert sorted(tmp_path.iterdir()) == sorted([writing, other])
        store.save(numbered(1), tmp_path / "m")
        assert writing.exists()
        (writing / "megalabel.json").write_text("{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".n.saving-0", "m"]


def test_a_file_where_a_folder_should_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="was not written: a part of its path is a file"):
        store.save(numbered(1), tmp_path / "file" / "m")
