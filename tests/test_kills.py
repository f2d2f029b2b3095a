"""Writers of models, checkpoints and single files: killed at any moment, old or new, whole."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.killing import in_child
from tests.store.test_replacing import number_of, numbered

from megalabel import checkpoints, store
from megalabel.linear import OneVsAll
from megalabel.outputs import filling_folder, replacing_file


class Model:
    """A model folder."""

    def write(self, place: Path, number: int) -> None:
        store.save(numbered(number), place / "model")

    def read(self, place: Path) -> int:
        return number_of(store.load(place / "model", verify=True))


class File:
    """A single file."""

    def write(self, place: Path, number: int) -> None:
        with replacing_file(place / "file") as fresh:
            fresh.write_text(f"{number}\n" * 1000)

    def read(self, place: Path) -> int:
        [number] = set((place / "file").read_text().split())
        return int(number)


class Files:
    """Files that belong together."""

    def write(self, place: Path, number: int) -> None:
        with filling_folder(place / "folder") as fresh:
            for name in "abc":
                (fresh / name).write_text(f"{number}\n" * 1000)

    def read(self, place: Path) -> int:
        with filling_folder(place / "folder"):  # goes on with what was cut short
            pass
        [number] = set("".join((place / "folder" / n).read_text() for n in "abc").split())
        return int(number)


class Snapshot:
    """The state of a neural training."""

    def write(self, place: Path, number: int) -> None:
        import torch

        from megalabel.neural.snapshots import save_snapshot

        save_snapshot(place / "state", {"weights": torch.full((100,), number)}, {"at": number})

    def read(self, place: Path) -> int:
        import torch

        from megalabel.neural.snapshots import load_snapshot

        tensors, about = load_snapshot(place / "state", torch.device("cpu"))
        assert (tensors["weights"] == about["at"]).all()
        return int(about["at"])


class Writer(NamedTuple):
    kind: object
    place: Path

    def write(self, number: int) -> None:
        self.kind.write(self.place, number)

    def read(self) -> int:
        return self.kind.read(self.place)

    def left(self) -> list[Path]:
        """What killed writers left behind."""
        return [path for path in self.place.rglob("*") if path.name.startswith(".")]


@pytest.fixture(params=[Model, File, Files, Snapshot])
def writer(request, tmp_path):
    if request.param is Snapshot:
        pytest.importorskip("torch")
    made = Writer(request.param(), tmp_path)
    made.write(1)
    return made


def test_killed_before_each_step(writer):
    states, killed = [], True
    while killed:
        writer.write(1)
        _, status = os.waitpid(in_child(lambda: writer.write(2), len(states)), 0)
        killed = os.WIFSIGNALED(status)
        states.append(writer.read())
        if killed:
            writer.write(2)
            assert writer.read() == 2
            assert writer.left() == []
    assert (states[0], states[-1]) == (1, 2)
    assert set(states) == {1, 2}
    assert len(states) > 3


@pytest.mark.slow
def test_killed_at_a_hundred_moments(writer):
    started = time.perf_counter()
    writer.write(2)
    lasts = time.perf_counter() - started
    moments, found = random.Random(0), set()
    for number in range(3, 103):

        def write_on(number: int = number) -> None:
            while True:
                writer.write(number)
                writer.write(-number)

        process = in_child(write_on)
        time.sleep(moments.uniform(0, 12 * lasts))  # a child takes its time to begin
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        found.add(writer.read())
    assert len(found) > 50
    writer.write(0)
    assert writer.left() == []


def test_a_step_of_a_fit_is_whole_or_made_anew(tmp_path):
    X = csr_matrix(np.eye(3, dtype=np.float32))
    states, killed = 0, True
    while killed:
        with checkpoints.kept_in(tmp_path / str(states)):
            steps = checkpoints.Checkpoint(OneVsAll(), X)

            def write() -> None:
                steps.done("first", lambda: 2 * X)  # noqa: B023

            _, status = os.waitpid(in_child(write, states), 0)
            killed = os.WIFSIGNALED(status)
            again = steps.done("first", lambda: 3 * X)
            assert (again != (2 * X if not killed else again)).nnz == 0
            assert again.nnz == 3
        states += 1
    assert states > 3
