"""Rows of matrices, and the texts they are made of."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random

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


@pytest.mark.parametrize(("width", "labels"), [(32, 10), (96, 4), (3, 1), (300, 900)])
def test_products_of_a_row_do_not_depend_on_the_rows_beside_it(width, labels):
    generator = np.random.default_rng(0)
    X, weights = (generator.normal(size=(n, width)).astype(np.float32) for n in (150, labels))
    whole = products(X, weights)
    np.testing.assert_allclose(whole, X.astype(float) @ weights.T.astype(float), atol=1e-4)
    for rows in (slice(0, 0), slice(5, 6), slice(3, 10), slice(70, 149)):
        np.testing.assert_array_equal(products(X[rows], weights), whole[rows])
