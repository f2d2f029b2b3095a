"""The labels of a batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel.neural import targets as targets_module  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402


@given(
    st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=5),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_dense_and_shortlisted(rows, a, b):
    flat = [label for row in rows for label in row]
    indptr = torch.tensor([0, *np.cumsum([len(row) for row in rows])])
    values = torch.linspace(0.1, 1, len(flat))
    targets = Targets(indptr, torch.tensor(flat, dtype=torch.long), values, 9)
    whole = np.zeros((len(rows), 9), np.float32)
    at = iter(values.tolist())
    for i, row in enumerate(rows):
        for label in row:
            whole[i, label] = max(whole[i, label], next(at))
    first, last = min(a, b), max(a, b)
    assert len(targets) == len(rows)
    np.testing.assert_allclose(targets.dense(first, last), whole[:, first:last])
    shortlist = torch.arange(-1, 10).expand(len(rows), 11)
    for dense in (0, 64):  # a search, or all labels
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(targets_module, "_DENSE", dense)
            np.testing.assert_allclose(targets.of(shortlist)[:, 1:-1], whole)
            assert not targets.of(shortlist)[:, [0, -1]].any()
    labels, padded, mask = targets.padded()
    assert mask.sum() == (whole > 0).sum()
    np.testing.assert_allclose(padded[mask], whole[whole > 0])
    assert torch.equal(labels[mask], targets.indices)


def test_from_a_sparse_matrix_and_in_a_row():
    matrix = csr_matrix(np.array([[0, 1, 0.5], [0, 0, 0], [1, 0, 0]], np.float32))
    targets = Targets.from_csr(matrix)
    both = Targets.concatenate([targets, targets])
    np.testing.assert_array_equal(both.dense(0, 3), np.vstack([matrix.toarray()] * 2))


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="there are 3"):
        Targets(torch.tensor([0, 1]), torch.tensor([3]), torch.ones(1), 3)
    with pytest.raises(ValueError, match="2 labels and 1 values"):
        Targets(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.ones(1), 3)


@given(st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=5))
def test_groups_of_labels(rows):
    flat = [label for row in rows for label in row]
    indptr = torch.tensor([0, *np.cumsum([len(row) for row in rows])])
    targets = Targets(
        indptr, torch.tensor(flat, dtype=torch.long), torch.linspace(0.1, 1, len(flat)), 9
    )
    group = torch.tensor([2, 0, 1, 1, 0, 2, 2, 3, 0])
    whole, expected = targets.dense(0, 9).numpy(), np.zeros((len(rows), 4), np.float32)
    for label, number in enumerate(group.tolist()):
        expected[:, number] = np.maximum(expected[:, number], whole[:, label])
    grouped = targets.grouped(group, 4)
    np.testing.assert_array_equal(grouped.dense(0, 4), expected)
    everything = torch.arange(4).expand(len(rows), 4)
    for dense in (0, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(targets_module, "_DENSE", dense)
            np.testing.assert_array_equal(grouped.of(everything), expected)


def test_a_matrix_in_any_order_gives_the_same():
    indices, data = np.array([3, 1, 2, 2]), np.array([1, 0.5, 1, 0.25], np.float32)
    matrix = csr_matrix((data, indices, np.array([0, 2, 2, 4])), (3, 4))
    targets = Targets.from_csr(matrix)
    assert targets.indices.tolist() == [1, 3, 2]
    assert targets.values.tolist() == [0.5, 1, 1]
    assert targets.most == 2
