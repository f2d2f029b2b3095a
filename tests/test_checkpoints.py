"""A fit that was killed goes on where it was and ends in the same model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import checkpoints
from megalabel.labels import LabelTree
from megalabel.linear import OneVsAll, TreeClassifier, one_vs_all

FIT = """
import sys, numpy as np
from scipy.sparse import random
from megalabel import checkpoints
from megalabel.linear import OneVsAll, TreeClassifier, one_vs_all, training
one_vs_all.LABELS_AT_ONCE = 16
training.SLICE_WORK, training.SLICE_BLOCKS = 1, 4
X = random(3000, 400, 0.1, format="csr", dtype=np.float32, random_state=0)
Y = random(3000, 1600, 0.01, format="csr", dtype=np.float32, random_state=1)
Y.data[:] = 1
with checkpoints.kept_in(sys.argv[2]):
    if sys.argv[1] == "OneVsAll":
        weights = OneVsAll().fit(X, Y).weights_
    else:
        weights = TreeClassifier(arity=8, max_leaf=4).fit(X, Y).levels_[0][-1]
np.save(sys.argv[3], weights.entry_weights_)
"""


def steps_in(folder):
    return sorted(folder.glob("*/*.npz"))


@pytest.mark.parametrize(("kind", "steps"), [("OneVsAll", 100), ("TreeClassifier", 147)])
def test_killed_and_started_again(kind, steps, tmp_path):
    start = [sys.executable, "-c", FIT, kind]
    command = [*start, str(tmp_path / "work"), str(tmp_path / "first.npy")]
    killed = subprocess.Popen(command)
    while len(steps_in(tmp_path / "work")) < 0.3 * steps and killed.poll() is None:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    kept = {file: file.stat().st_mtime_ns for file in steps_in(tmp_path / "work")}
    assert 0.3 * steps <= len(kept) < steps
    damaged = list(kept)[3]
    damaged.write_bytes(damaged.read_bytes()[:100])
    subprocess.run(command, check=True)
    assert all(file.stat().st_mtime_ns == then for file, then in kept.items() if file != damaged)
    assert len(steps_in(tmp_path / "work")) == steps
    fresh = [*start, str(tmp_path / "elsewhere"), str(tmp_path / "second.npy")]
    subprocess.run(fresh, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "first.npy"), np.load(tmp_path / "second.npy"))


@pytest.mark.parametrize("kind", [OneVsAll, TreeClassifier])
def test_steps_of_another_fit_are_not_taken(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(one_vs_all, "LABELS_AT_ONCE", 2)
    X = csr_matrix(np.eye(6, dtype=np.float32))
    Y = csr_matrix(np.eye(6, dtype=np.float32)[:, [0, 1, 2, 0, 1, 2]])
    with checkpoints.kept_in(tmp_path):
        first = kind(cost=1.0).fit(X, Y).rank(X, 2)
        count = len(steps_in(tmp_path))
        assert count >= 1
        assert (kind(cost=1.0).fit(X, Y).rank(X, 2).scores == first.scores).all()
        assert len(steps_in(tmp_path)) == count
        kind(cost=9.0).fit(X, Y)
        assert len(steps_in(tmp_path)) == 2 * count
    kind().fit(2 * X, Y)
    assert len(steps_in(tmp_path)) == 2 * count


def test_steps_of_another_tree_are_not_taken(tmp_path):
    X = csr_matrix(np.eye(4, dtype=np.float32))
    Y = csr_matrix(np.eye(4, dtype=np.float32))
    for parents in ([0, 0, 1, 1], [0, 1, 0, 1]):
        tree = LabelTree.from_parents([-1, -1, *parents], [-1, -1, 0, 1, 2, 3])
        with checkpoints.kept_in(tmp_path):
            kept = TreeClassifier(tree=tree).fit(X, Y)
        fresh = TreeClassifier(tree=tree).fit(X, Y)
        for level, other in zip(kept.levels_[0], fresh.levels_[0], strict=True):
            np.testing.assert_array_equal(level.to_csr().toarray(), other.to_csr().toarray())


def test_arrays_among_the_parameters_count_in_full(tmp_path):
    """NumPy prints the ends of a long array only."""
    X = csr_matrix(np.eye(3, dtype=np.float32))
    costs = [np.ones(1_500), np.ones(1_500)]
    costs[1][700] = 2
    with checkpoints.kept_in(tmp_path):
        folders = {checkpoints.Checkpoint(OneVsAll(positive_costs=c), X).file("x") for c in costs}
    assert len(folders) == 2


def test_what_changes_no_result_does_not_throw_steps_away(tmp_path):
    neural = pytest.importorskip("megalabel.neural")
    X = csr_matrix(np.eye(3, dtype=np.float32))

    def folder(**options):
        trainer = neural.Trainer(**options)
        owner = neural.FullClassifier(neural.BagEncoder(width=4), trainer)
        return checkpoints.Checkpoint(owner, X).file("x")

    with checkpoints.kept_in(tmp_path):
        assert folder(log="here") == folder(log="there", checkpoint_seconds=5)
        assert folder(seed=1) != folder(seed=2)
