"""Rows of matrices, and the texts they are made of."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random

from megalabel import _native
from megalabel.data.matrix import canonical, csr_of, products
from megalabel.data.strings import encoded
from megalabel.errors import DataError


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_matrix_made_without_checks_is_as_scipy_makes_it(rows: int) -> None:
    wanted = random(rows, 7, 0.4, "csr", dtype=np.float32, random_state=0)
    made = csr_of(wanted.data, wanted.indices, wanted.indptr.astype(np.int64), 7)
    assert made.data is wanted.data
    made.check_format(full_check=True)
    assert made.shape == (rows, 7)
    assert made.has_canonical_format
    assert made.indices.dtype == made.indptr.dtype == np.int32
    for same in (made, made.copy(), made[:], pickle.loads(pickle.dumps(made)), (made * 2) / 2):
        np.testing.assert_array_equal(same.toarray(), wanted.toarray())


def test_matrices_of_one_shape_share_nothing() -> None:
    one, other = (
        csr_of(np.full(1, v, np.float32), np.zeros(1, np.int32), np.arange(2), 3) for v in (1, 2)
    )
    one.has_canonical_format = False
    one.resize(1, 2)
    assert other.has_canonical_format
    assert other.toarray().tolist() == [[2, 0, 0]]


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "bc"], ["Straße", "é", "語", "🙂", "x"]])
def test_texts_become_offsets_and_utf8(texts: list[str]) -> None:
    offsets, data = encoded(texts)
    parts = [text.encode() for text in texts]
    assert data.tobytes() == b"".join(parts)
    assert np.diff(offsets).tolist() == [len(part) for part in parts]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 17, 99])
def test_values_that_are_not_finite_are_found(value: float, place: int) -> None:
    matrix = csr_matrix(np.full((10, 10), np.finfo(np.float32).max, np.float32))
    assert canonical(matrix) is matrix
    matrix.data[place] = value
    with pytest.raises(DataError, match=f"in row {place // 10}"):
        canonical(matrix)


def rows_and_weights(rows: int, width: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X, weights = (generator.normal(size=(n, width)).astype(np.float32) for n in (rows, labels))
    return X, weights


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("width", "labels"), [(32, 10), (96, 4), (3, 1), (300, 900), (768, 256)])
def test_products_of_a_row_do_not_depend_on_the_rows_beside_it(width, labels, dtype):
    X, weights = rows_and_weights(150, width, labels)
    weights = weights.astype(dtype)
    whole = products(X, weights)
    np.testing.assert_allclose(whole, X.astype(float) @ weights.T.astype(float), atol=1e-4)
    for rows in (slice(0, 0), slice(5, 6), slice(3, 10), slice(70, 149)):
        np.testing.assert_array_equal(products(X[rows], weights), whole[rows])


def test_products_of_a_label_do_not_depend_on_the_labels_beside_it():
    X, weights = rows_and_weights(5, 70, 600)
    whole = products(X, weights)
    for labels in (slice(0, 0), slice(16, 17), slice(3, 14), slice(7, 327), slice(0, 592)):
        np.testing.assert_array_equal(products(X, weights[labels]), whole[:, labels])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(1, 48, 9000), (700, 300, 470), (33, 17, 5000), (3, 70000, 20)])
def test_products_do_not_depend_on_threads(shape, dtype, threads):
    X, weights = rows_and_weights(*shape)
    weights = weights.astype(dtype)
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(products(X, weights))
    tolerance = 1e-5 * np.sqrt(shape[1])  # of the size of such products
    twin = X.astype(float) @ weights.T.astype(float)
    np.testing.assert_allclose(found[0], twin, atol=tolerance)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 5, 0), (0, 0, 0)])
def test_products_of_nothing_are_empty(shape):
    X, weights = rows_and_weights(*shape)
    assert products(X, weights).shape == (shape[0], shape[2])


def test_products_of_no_columns_are_zero():
    X, weights = rows_and_weights(3, 0, 20)
    np.testing.assert_array_equal(products(X, weights), np.zeros((3, 20), np.float32))


def test_products_take_any_layout():
    X, weights = rows_and_weights(6, 40, 8)
    wanted = products(X, weights)
    np.testing.assert_array_equal(products(np.asfortranarray(X), weights.T.copy().T), wanted)
    np.testing.assert_array_equal(products(X.astype(float), weights.astype(float)), wanted)


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_products_know_all_numbers_of_float16(rows, width):
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = products(np.full((rows, width), 1 / width), np.repeat(numbers[:, None], width, axis=1))
    wanted = np.broadcast_to(numbers.astype(np.float32), found.shape)
    np.testing.assert_array_equal(found, wanted)


def test_products_of_shapes_that_do_not_fit_are_refused():
    X, weights = rows_and_weights(2, 5, 3)
    with pytest.raises(ValueError, match="rows have 4 columns but weights have 5"):
        products(X[:, :4], weights)
    with pytest.raises(ValueError, match="out must be 2 rows by 3 labels, not 3 by 2"):
        _native.products(rows=X, weights=weights, out=np.empty((3, 2), np.float32))
