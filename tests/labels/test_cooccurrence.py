"""Labels that come together, against float64 and dense."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random
from scipy.sparse.csgraph import connected_components

import megalabel
from megalabel import _native
from megalabel.errors import ParameterError
from megalabel.labels import cooccurrence, random_walks, symmetric_cooccurrence

HAND = csr_matrix(np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]]))


def twin(Y: np.ndarray, threshold: float) -> np.ndarray:
    """Shares of co-occurrence by a dense product in float64."""
    carried = (Y > 0).astype(np.float64)
    counts = carried.T @ carried  # counts[i, j]
    own = np.diag(counts)
    shares = np.divide(counts, own[None], out=np.zeros_like(counts), where=own[None] > 0)
    shares[shares <= threshold] = 0
    np.fill_diagonal(shares, 1)
    return shares.T  # a row a label, whose texts are looked at


def some_targets(seed: int, texts: int = 60, labels: int = 40) -> csr_matrix:
    return csr_matrix(random(texts, labels, 0.1, random_state=seed, format="csr"), dtype=np.float32)


def test_a_case_by_hand() -> None:
    assert cooccurrence(HAND).toarray().tolist() == [[1, 0.5, 0], [0.5, 1, 0.5], [0, 1, 1]]


def test_shares_are_of_the_label_whose_text_is_the_row() -> None:
    shares = cooccurrence(HAND, 0.0).toarray()
    assert shares[2, 1] == 1
    assert shares[1, 2] == 0.5


def test_the_threshold_is_strict_and_never_takes_the_label_itself() -> None:
    assert (cooccurrence(HAND, 1.0) != csr_matrix(np.eye(3))).nnz == 0
    assert cooccurrence(HAND, 0.5).toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    ten = np.zeros((10, 2))
    ten[:, 0], ten[:3, 1] = 1, 1
    assert cooccurrence(csr_matrix(ten), 0.3)[0, 1] == 0  # 3 of 10 is not above 0.3


def test_a_label_of_no_text_has_itself_alone() -> None:
    shares = cooccurrence(csr_matrix(np.array([[1, 0, 1], [1, 0, 0]])))
    assert shares[1].toarray().tolist() == [[0, 1, 0]]
    assert cooccurrence(csr_matrix((0, 2))).toarray().tolist() == [[1, 0], [0, 1]]
    assert cooccurrence(csr_matrix((3, 0))).shape == (0, 0)


def test_relevances_count_as_one() -> None:
    Y = csr_matrix(np.array([[0.2, 7, 0], [3, 0, 0], [0, 0.1, 2]]))
    assert (cooccurrence(Y) != cooccurrence(HAND)).nnz == 0
    Y.data[0] = 0  # stored, but not carried
    assert cooccurrence(Y)[0].toarray().tolist() == [[1, 0, 0]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.999, 1.0]))
def test_what_is_pruned_label_by_label_is_the_dense_product(seed: int, threshold: float) -> None:
    Y = some_targets(seed)
    expected = twin(Y.toarray(), threshold)
    found = cooccurrence(Y, threshold)
    assert np.array_equal(found.toarray() > 0, expected > 0)
    assert np.allclose(found.toarray(), expected, rtol=1e-7, atol=0)
    assert found.has_sorted_indices
    assert found.diagonal().tolist() == [1] * Y.shape[1]
    assert found.data.min(initial=1) > 0
    assert found.data.max(initial=1) <= 1


def test_many_blocks_of_labels_and_any_number_of_threads() -> None:
    Y = csr_matrix(random(900, 1500, 0.004, random_state=5, format="csr"), dtype=np.float32)
    expected = twin(Y.toarray(), 0.1)
    before, found = megalabel.get_threads(), []
    try:
        for threads in (1, 2, 5):
            megalabel.set_threads(threads)
            found.append(cooccurrence(Y))
    finally:
        megalabel.set_threads(before)
    assert np.allclose(found[0].toarray(), expected, rtol=1e-7, atol=0)
    for other in found[1:]:
        for array in ("data", "indices", "indptr"):
            assert np.array_equal(getattr(found[0], array), getattr(other, array))


def test_arrays_that_do_not_fit_are_refused() -> None:
    def rows(starts: list[int], columns: list[int], width: int) -> _native.SparseRows:
        return _native.SparseRows(
            starts=np.array(starts, np.int64),
            columns=np.array(columns, np.int32),
            values=np.ones(len(columns), np.float32),
            width=width,
        )

    texts = rows([0, 1], [0], 2)
    for labels in (
        rows([0, 1], [0], 1),  # one label, not two
        rows([0, 1, 2], [0, 0], 3),  # of three texts
        rows([0, 1, 2], [0, 5], 1),  # a text that is not there
        rows([0, 1, 7], [0], 1),  # a line outside the arrays
    ):
        with pytest.raises(ValueError, match=r"shape|outside"):
            _native.cooccurrence(texts=texts, labels=labels, threshold=0.1)


def test_a_threshold_outside_its_bounds_is_refused() -> None:
    with pytest.raises(ParameterError, match="threshold must be a number"):
        cooccurrence(HAND, 1.5)


def test_symmetric_targets_are_logistic_on_their_support_alone() -> None:
    Y = some_targets(3)
    shares = twin(Y.toarray(), 0.0)
    both = (shares + shares.T) / 2
    expected = np.where(both > 0, 1 / (1 + np.exp(-both)), 0)
    found = symmetric_cooccurrence(Y)
    assert np.allclose(found.toarray(), expected, rtol=1e-6, atol=0)
    assert (found != found.T).nnz == 0
    pruned = symmetric_cooccurrence(Y, 0.2).toarray()
    assert np.array_equal(pruned > 0, both.astype(np.float32) > np.float32(0.2))


def test_random_walks_stay_among_labels_that_texts_join() -> None:
    Y = some_targets(7, texts=30)
    walks = random_walks(Y, seed=1)
    component = connected_components(csr_matrix(twin(Y.toarray(), 0.0)))[1]
    rows, columns = walks.nonzero()
    assert np.array_equal(component[rows], component[columns])
    assert walks.diagonal().tolist() == [1] * Y.shape[1]
    assert np.diff(walks.indptr).max() <= 11
    assert walks.data.min() > 0
    assert walks.data.max() <= 1
    assert (walks != random_walks(Y, seed=1)).nnz == 0
    assert (walks != random_walks(Y, seed=2)).nnz > 0


def test_random_walks_come_by_near_labels_as_often_as_expected() -> None:
    # from label 0 a step away is to itself or to label 1, each from one text of two labels
    Y = csr_matrix(np.array([[1, 1]] * 3))
    away = 0.2
    chain = np.array([[1 - away / 2, away / 2], [1 - away / 2, away / 2]])
    here = np.linalg.matrix_power(chain, 50)[0]
    found = random_walks(Y, length=20_000, restart=0.8, seed=0)[0, 1]
    assert found == pytest.approx(here[1] / here[0], rel=0.1)


def test_head_labels_are_no_neighbours_but_have_some() -> None:
    Y = csr_matrix(np.array([[1, 1]] * 4 + [[1, 0]] * 4))
    walks = random_walks(Y, head=5, seed=0).toarray()
    assert walks[1, 0] == 0
    assert walks[0, 1] > 0
