"""Candidates: made on the device, all of them or some."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random_array

from megalabel.neural.shortlists import Candidates, children
from megalabel.neural.targets import Targets

CPU = torch.device("cpu")


def tree(seed: int, rows: int, parents: int) -> tuple[csr_matrix, np.ndarray]:
    """Rows' parents with scores, and parents' children, of any number."""
    random = np.random.default_rng(seed)
    found = random_array((rows, parents), density=0.4, rng=random, dtype=np.float32)
    return csr_matrix(found), np.append(0, np.cumsum(random.integers(0, 5, parents)))


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 7))
def test_all_candidates_are_the_children_of_the_parents(seed, rows, parents):
    matrix, starts = tree(seed, rows, parents)
    order = np.random.default_rng(seed).permutation(rows)
    names = np.random.default_rng(seed).permutation(int(starts[-1]) + 1)
    numbers, above = Candidates(matrix, starts, CPU).all_of(order)
    np.testing.assert_array_equal(numbers, children(matrix, starts, order))
    named, _ = Candidates(matrix, starts, CPU, names).all_of(order)
    for i, row in enumerate(order):
        there = numbers[i] >= 0
        of = np.searchsorted(starts, numbers[i][there], side="right") - 1
        np.testing.assert_array_equal(above[i][there], matrix[[row]].toarray()[0, of])
        assert not above[i][~there].any()
        np.testing.assert_array_equal(named[i][there], names[numbers[i][there]])
        assert (named[i][~there] == -1).all()


@given(st.integers(0, 10_000), st.integers(1, 30))
def test_some_candidates(seed, most):
    random = np.random.default_rng(seed)
    starts = np.array([0, 9, 25, 40])
    parents = csr_matrix((random.random((5, 3)) < 0.7).astype(np.float32))
    everything = children(parents, starts)
    truth = np.zeros((5, 40), np.float32)
    for row, numbers in enumerate(everything):
        real = numbers[numbers >= 0]
        truth[row, random.permutation(real)[: random.integers(0, 4)]] = 0.5
    targets = Targets.from_csr(csr_matrix(truth))
    candidates = Candidates(parents, starts, CPU)
    torch.manual_seed(seed)
    found = candidates.some_of(np.arange(5), targets, most)
    torch.manual_seed(seed)
    assert torch.equal(found, candidates.some_of(np.arange(5), targets, most))
    for row, numbers in enumerate(found.tolist()):
        chosen = [number for number in numbers if number >= 0]
        assert len(set(chosen)) == len(chosen) <= max(most, targets.most)
        assert set(np.flatnonzero(truth[row])) <= set(chosen) <= set(everything[row].tolist())


def test_every_other_candidate_is_drawn_as_often():
    parents, starts = csr_matrix(np.ones((2000, 1), np.float32)), np.array([0, 30])
    truth = csr_matrix(np.eye(1, 30, 4, dtype=np.float32).repeat(2000, 0))
    torch.manual_seed(0)
    found = Candidates(parents, starts, CPU).some_of(
        np.arange(2000), Targets.from_csr(truth), most=11
    )
    counts = np.bincount(found[found >= 0], minlength=30)
    assert counts[4] == 2000
    others = np.delete(counts, 4)
    # 10 of 30 are drawn, a third of all, within four standard deviations
    assert abs(others - 2000 / 3).max() < 4 * np.sqrt(2000 * 2 / 9)


def test_rows_without_parents():
    candidates = Candidates(csr_matrix((3, 2), dtype=np.float32), np.array([0, 2, 4]), CPU)
    numbers, above = candidates.all_of(np.array([0, 2]))
    assert numbers.tolist() == [[-1], [-1]]
    assert above.tolist() == [[0], [0]]
