import numpy as np
import pytest

from megalabel.errors import ParameterError
from megalabel.labels import JPV_CONSTANTS, jpv


def test_published_values():
    p = jpv([1, 25], 50)
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, [0.25562221863533147, 0.5571545100089221], rtol=1e-15)


@pytest.mark.parametrize(
    ("family", "n", "inverse"),
    [
        ("amazon", 490_449, [13.103, 8.730, 6.708, 2.622, 1.413]),
        ("wikipedia", 1_779_881, [14.392, 7.819, 5.914, 2.581, 1.501]),
        ("default", 15_449, [9.645, 6.111, 4.735, 2.127, 1.320]),
    ],
)
def test_published_constants(family, n, inverse):
    a, b = JPV_CONSTANTS[family]
    np.testing.assert_allclose(1 / jpv([1, 5, 10, 100, 1000], n, a, b), inverse, atol=5.1e-4)


def test_default_constants_are_the_mean_of_the_two_families():
    pairs = [JPV_CONSTANTS["wikipedia"], JPV_CONSTANTS["amazon"]]
    np.testing.assert_allclose(JPV_CONSTANTS["default"], np.mean(pairs, axis=0))


def test_rises_with_the_count_from_labels_never_seen():
    p = jpv(np.arange(1001), 1000)
    assert p[0] > 0
    assert p[-1] < 1
    assert (np.diff(p) > 0).all()


@pytest.mark.parametrize("n", [1, 2])
def test_a_corpus_too_small_for_the_model_misses_nothing(n):
    assert jpv([0, 1], n).tolist() == [1, 1]


def test_no_labels():
    assert jpv([], 10).shape == (0,)


@pytest.mark.parametrize(
    ("counts", "n", "constants", "message"),
    [
        ([1], 0, {}, "training rows"),
        ([-1], 10, {}, "from 0 to n = 10"),
        ([11], 10, {}, "from 0 to n = 10"),
        ([np.nan], 10, {}, "from 0 to n = 10"),
        ([[1]], 10, {}, "for each label"),
        ([1], 10, {"b": 0}, "b above 0"),
        ([1], 10, {"a": -1}, "at least 0"),
        ([1], 10, {"a": np.inf}, "at least 0"),
    ],
)
def test_bad_input_is_named(counts, n, constants, message):
    with pytest.raises(ParameterError, match=message):
        jpv(counts, n, **constants)
