"""Label vectors against their definition in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_csr

from megalabel import _native
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import label_vectors


def unit(rows):
    rows = np.asarray(rows, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)


def twin(X, Y, scale_rows):
    X, Y = X.toarray().astype(np.float64), Y.toarray().astype(np.float64)
    return unit((unit(Y) if scale_rows else Y).T @ X)


def matrix(n, width, density, seed):
    rng = np.random.default_rng(seed)
    return csr_matrix(random_csr(n, width, density, "csr", np.float32, rng))


X = matrix(200, 80, 0.1, 0)
Y = matrix(200, 30, 0.08, 1)
Y.data[:] = 1
Y = csr_matrix(Y.multiply(np.arange(30) != 7), dtype=np.float32)  # nobody carries label 7
TEXT = matrix(30, 80, 0.05, 2)


@pytest.mark.parametrize("method", ["pifa", "pifa-paper"])
def test_is_the_normalised_sum_of_the_rows_that_carry_the_label(method):
    Z = label_vectors(X, Y, method)
    assert Z.dtype == np.float32
    assert Z.shape == (30, 80)
    assert Z.has_canonical_format
    np.testing.assert_allclose(Z.toarray(), twin(X, Y, method == "pifa"), atol=1e-6)


def test_vectors_have_unit_length_and_unseen_labels_are_zero():
    lengths = np.linalg.norm(label_vectors(X, Y).toarray(), axis=1)
    np.testing.assert_allclose(np.delete(lengths, 7), 1, atol=1e-6)
    assert lengths[7] == 0


def test_with_one_label_a_row_both_forms_agree():
    labels = np.random.default_rng(3).integers(0, 9, 200)
    single = csr_matrix((np.ones(200, np.float32), labels, np.arange(201)), shape=(200, 9))
    code, paper = (label_vectors(X, single, m) for m in ("pifa", "pifa-paper"))
    np.testing.assert_allclose(code.toarray(), paper.toarray(), atol=1e-6)
    several = label_vectors(X, Y), label_vectors(X, Y, "pifa-paper")
    assert abs(several[0] - several[1]).max() > 1e-3


def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(4).permutation(200)
    np.testing.assert_allclose(
        label_vectors(X[order], Y[order]).toarray(), label_vectors(X, Y).toarray(), atol=1e-7
    )


@pytest.mark.parametrize("method", ["pifa", "pifa-paper"])
def test_sparse_and_dense_rows_give_the_same(method):
    dense = label_vectors(X.toarray(), Y, method)
    np.testing.assert_allclose(dense.toarray(), label_vectors(X, Y, method).toarray(), atol=1e-6)


def test_relevances_are_weights():
    soft = Y.copy()
    soft.data[:] = np.random.default_rng(5).random(soft.nnz, np.float32)
    for method in ("pifa", "pifa-paper"):
        Z = label_vectors(X, soft, method).toarray()
        np.testing.assert_allclose(Z, twin(X, soft, method == "pifa"), atol=1e-6)


@pytest.mark.parametrize("keep", [1, 5, 79, 1000])
def test_keep_leaves_the_heaviest_entries(keep):
    full, cut = twin(X, Y, True), label_vectors(X, Y, keep=keep)
    assert np.diff(cut.indptr).max() <= keep
    expected = full.copy()
    for row in expected:
        row[np.lexsort((np.arange(80), -np.abs(row)))[keep:]] = 0
    np.testing.assert_allclose(cut.toarray(), unit(expected), atol=1e-6)


def test_by_text():
    Z = label_vectors(None, None, "text", TEXT)
    np.testing.assert_allclose(Z.toarray(), unit(TEXT.toarray()), atol=1e-6)
    dense = label_vectors(None, None, "text", TEXT.toarray())
    np.testing.assert_array_equal(dense.toarray(), Z.toarray())


def test_both_side_by_side():
    Z = label_vectors(X, Y, "pifa+text", TEXT[:, :11]).toarray()
    expected = unit(np.hstack([twin(X, Y, True), unit(TEXT[:, :11].toarray())]))
    np.testing.assert_allclose(Z, expected, atol=1e-6)


@pytest.mark.parametrize("mix", [0, 0.3, 1])
def test_both_mixed(mix):
    Z = label_vectors(X, Y, "pifa+text", TEXT, mix=mix).toarray()
    expected = unit(mix * twin(X, Y, True) + (1 - mix) * unit(TEXT.toarray()))
    np.testing.assert_allclose(Z, expected, atol=1e-6)


def test_the_number_of_threads_does_not_matter(threads):
    answers = []
    for count in (1, 2, 5):
        threads(count)
        answers.append(label_vectors(X, Y))
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer.data, answers[0].data)
        np.testing.assert_array_equal(answer.indices, answers[0].indices)


def test_read_only_arrays_are_left_as_they_are():
    for matrix in (X, Y, TEXT):
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.flags.writeable = False
    try:
        assert label_vectors(X, Y, "pifa+text", TEXT, mix=0.5).shape == (30, 80)
        assert label_vectors(X.toarray(), Y).shape == (30, 80)
    finally:
        for matrix in (X, Y, TEXT):
            for array in (matrix.data, matrix.indices, matrix.indptr):
                array.flags.writeable = True


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_small_matrix(data):
    n, width, labels = (data.draw(st.integers(0, high)) for high in (8, 5, 5))
    cells = st.integers(-2, 2)  # sums that cancel
    rows = data.draw(st.lists(cells, min_size=n * width, max_size=n * width))
    carried = data.draw(st.lists(st.integers(0, 1), min_size=n * labels, max_size=n * labels))
    A = csr_matrix(np.array(rows, np.float32).reshape(n, width))
    B = csr_matrix(np.array(carried, np.float32).reshape(n, labels))
    np.testing.assert_allclose(
        label_vectors(A, B, "pifa-paper").toarray(), twin(A, B, False), atol=1e-6
    )


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"method": "tfidf"}, ParameterError, "method must be one of"),
        ({"method": "text"}, ParameterError, "needs label_features"),
        ({"X": None}, ParameterError, "needs X and Y"),
        ({"mix": 0.5}, ParameterError, r"mix is for the method 'pifa\+text'"),
        ({"mix": 2, "method": "pifa+text"}, ParameterError, "mix must be"),
        ({"keep": 0}, ParameterError, "keep must be"),
        ({"keep": 3, "X": X.toarray()}, ParameterError, "keep is for a sparse X"),
        ({"X": X[:5]}, ShapeError, r"X is \(5, 80\) but Y is \(200, 30\)"),
        (
            {"method": "pifa+text", "label_features": TEXT[:4]},
            ShapeError,
            r"label_features are \(4, 80\)",
        ),
        (
            {"method": "pifa+text", "label_features": TEXT[:, :4], "mix": 0.5},
            ShapeError,
            "the same columns",
        ),
        ({"X": np.full((200, 2), np.nan)}, DataError, "not a finite number"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value,
)
def test_wrong_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        label_vectors(**{"X": X, "Y": Y, **arguments})


def weighted_sums(starts, rows, columns, width=3):
    ones = np.ones(3, np.float32)
    return _native.weighted_sums(
        weights=_native.SparseRows(starts=starts, columns=rows, values=ones, width=width),
        rows=_native.SparseRows(starts=np.arange(4), columns=columns, values=ones, width=3),
        keep=3,
    )


@pytest.mark.parametrize(("array", "value"), [(0, -1), (0, 99), (1, -1), (1, 99), (2, -1), (2, 99)])
def test_damaged_numbers_give_an_error(array, value):
    arrays = [np.array([0, 2, 3]), np.int32([0, 1, 2]), np.int32([0, 1, 2])]
    arrays[array][1] = value
    with pytest.raises(ValueError, match="outside"):
        weighted_sums(*arrays)


def test_weights_of_more_rows_than_there_are_give_an_error():
    with pytest.raises(ValueError, match="another number of rows"):
        weighted_sums(np.array([0, 2, 3]), np.int32([0, 1, 2]), np.int32([0, 1, 2]), width=4)
