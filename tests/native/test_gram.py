"""Sums of weighted outer products."""

from __future__ import annotations

import numpy as np
import pytest

import megalabel
from megalabel import _native


@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 1), (7, 5), (5000, 12)])
def test_the_sum_of_outer_products(rows, width):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, width)) * (random.random((rows, width)) < 0.5)
    weights = random.random(rows)
    found = _native.weighted_gram(X, weights)
    np.testing.assert_allclose(found, (X * weights[:, None]).T @ X, rtol=1e-10, atol=1e-10)


def test_threads_change_nothing():
    X, weights = np.random.default_rng(0).normal(size=(9000, 7)), np.linspace(0, 1, 9000)
    before = megalabel.get_threads()
    found = []
    for threads in (1, 2, 3):
        megalabel.set_threads(threads)
        found.append(_native.weighted_gram(X, weights))
    megalabel.set_threads(before)
    assert all((one == found[0]).all() for one in found)


def test_a_weight_for_each_row():
    with pytest.raises(ValueError, match="a weight for each row"):
        _native.weighted_gram(np.ones((3, 2)), np.ones(2))
