"""Views of vectors: against torch, and what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel.errors import ParameterError, ShapeError
from megalabel.features import Precomputed, Projected

RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(5, 4)).astype(np.float32)
WEIGHT, BIAS = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((3, 4), (3,)))
AS_IT_IS = {"weight": None, "bias": None, "tanh": False, "unit": False}


def over(*views):
    return Projected.of(Precomputed(norm=None).fit(VECTORS), views)


@given(linear=st.booleans(), shifted=st.booleans(), tanh=st.booleans(), unit=st.booleans())
def test_views_are_those_of_the_definition(linear, shifted, tanh, unit):
    weight, bias = WEIGHT if linear else None, BIAS if linear and shifted else None
    found = over({"weight": weight, "bias": bias, "tanh": tanh, "unit": unit}).transform(VECTORS)
    wanted = VECTORS.astype(np.float64)
    wanted = wanted @ WEIGHT.T.astype(np.float64) if linear else wanted
    wanted = wanted if bias is None else wanted + bias
    wanted = np.tanh(wanted) if tanh else wanted
    wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True) if unit else wanted
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_views_stand_side_by_side():
    narrow = {"weight": WEIGHT, "bias": BIAS, "tanh": True, "unit": True}
    both = over(narrow, AS_IT_IS)
    assert both.n_features == 7
    np.testing.assert_array_equal(both.transform(VECTORS)[:, 3:], VECTORS)
    nothing = both.transform(np.zeros((1, 4)))
    assert np.isfinite(nothing).all()
    assert both.onnx_twin(int8=False) is both


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"weight": None}, "must hold bias, tanh, unit, weight"),
        (AS_IT_IS | {"tanh": 1}, "must hold"),
        (AS_IT_IS | {"weight": WEIGHT.astype(np.float64)}, "weight"),
        (AS_IT_IS | {"weight": WEIGHT[0]}, "weight"),
        (AS_IT_IS | {"bias": BIAS}, "bias"),
        (AS_IT_IS | {"weight": WEIGHT, "bias": BIAS[:2]}, "bias"),
    ],
)
def test_strange_views_are_refused(view, message):
    with pytest.raises(ValueError, match=message):
        over(view)


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match="at least one view"):
        over()
    with pytest.raises(ShapeError, match=r"vectors are \(5, 4\), but a view is of 2 numbers"):
        over(AS_IT_IS | {"weight": WEIGHT[:, :2].copy()}).transform(VECTORS)
    with pytest.raises(ParameterError, match="part of a trained tagger"):
        over(AS_IT_IS).fit(VECTORS)
