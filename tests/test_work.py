"""Units of work: the same result whoever runs them, in whatever order."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_matrix

from megalabel import checkpoints, work
from megalabel.linear import OneVsAll, TreeClassifier, one_vs_all, training
from megalabel.work import Job, Unit

X = random_matrix(300, 60, 0.1, "csr", dtype=np.float32, random_state=0)
Y = random_matrix(300, 90, 0.03, "csr", dtype=np.float32, random_state=1)
Y.data[:] = 1
MODELS = [
    OneVsAll(),
    TreeClassifier(arity=4, max_leaf=8),
    TreeClassifier(arity=4, max_leaf=8, negatives="teacher+matcher", trees=2),
]


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    monkeypatch.setattr(one_vs_all, "LABELS_AT_ONCE", 16)
    monkeypatch.setattr(training, "SLICE_WORK", 1)
    monkeypatch.setattr(training, "SLICE_BLOCKS", 2)


class Elsewhere:
    """An executor that sends each unit as a file of plain arrays, and runs the last one first."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, job: Job, units: Sequence[Unit]) -> Iterator[csr_matrix]:
        parts = {}
        for unit in reversed(units):
            self.names.append(unit.name)
            file = io.BytesIO()
            np.savez(file, **unit.arrays)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                sent = Unit(unit.name, unit.size, dict(arrays), dict(unit.numbers))
            parts[unit.name] = job.run(job.rows, sent)
        return (parts[unit.name] for unit in units)


def fitted(model):
    return type(model)(**model.get_params(deep=False)).fit(X, Y)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_any_executor_gives_the_same_model(model):
    executor = Elsewhere()
    with work.using(executor):
        there = fitted(model)
    here = fitted(model)
    assert len(executor.names) == len(set(executor.names)) > 3
    for ours, theirs in zip(weights(here), weights(there), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_units_that_a_checkpoint_keeps_are_not_run(tmp_path):
    with checkpoints.kept_in(tmp_path):
        with work.using(_until(2)), pytest.raises(RuntimeError, match="half way"):
            fitted(MODELS[0])
        rest = Elsewhere()
        with work.using(rest):
            model = fitted(MODELS[0])
    assert "labels-0" not in rest.names
    assert "labels-32" in rest.names
    for ours, theirs in zip(weights(model), weights(fitted(MODELS[0])), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_damaged_part_is_run_again_and_others_stay_in_their_places(tmp_path):
    with checkpoints.kept_in(tmp_path):
        whole = fitted(MODELS[0])
        files = sorted(tmp_path.glob("*/*.npz"))
        files[0].write_bytes(files[0].read_bytes()[:50])
        files[1].unlink()
        again = fitted(MODELS[0])
        third = fitted(MODELS[0])
    for other in (again, third):
        for ours, theirs in zip(weights(whole), weights(other), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def _until(units: int) -> work.Executor:
    """An executor that fails after some units."""

    def executor(job: Job, all_units: Sequence[Unit]) -> Iterator[csr_matrix]:
        yield from work.in_turn(job, all_units[:units])
        raise RuntimeError("half way")

    return executor


def weights(model) -> list[np.ndarray]:
    levels = (
        [model.weights_] if isinstance(model, OneVsAll) else [w for t in model.levels_ for w in t]
    )
    return [array for level in levels for array in level.learned().values() if np.ndim(array)]
