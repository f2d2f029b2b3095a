import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.base import clone
from megalabel.data.synthetic import generate
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import (
    JPV_CONSTANTS,
    PROPENSITIES,
    Jpv,
    Richards,
    direct_propensities,
    jpv,
    label_propensities,
)
from megalabel.labels.plot import propensity_plot

COUNTS = np.array([0, 1, 2, 5, 10, 50, 100, 1000])


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


# ---------------------------------------------------------------- models
@pytest.mark.parametrize(
    "model", [Jpv(0.7, 3.0), Jpv(1.2, 0.2), Richards(5.0, 0.6, 1.7), Richards(0.5, 1.1, 0.4)]
)
def test_a_curve_is_found_again_from_its_points(model):
    known = model.propensities(COUNTS, 5000)
    found = type(model).fit_to(COUNTS, 5000, known)
    np.testing.assert_allclose(found.propensities(COUNTS, 5000), known, atol=1e-5)
    assert (np.diff(known) > 0).all()


def test_jpv_is_a_case_of_richards():
    scale = (np.log(5000) - 1) * (1.5 + 1) ** 0.55
    curve = Richards(scale, 0.55, nu=1.0, shift=1.5)
    np.testing.assert_allclose(curve.propensities(COUNTS, 5000), jpv(COUNTS, 5000), rtol=1e-12)


def test_richards_lies_between_its_ends():
    p = Richards(1e6, 5.0, 0.01, lower=0.1, upper=0.8).propensities([0, 10**6], 10**6)
    np.testing.assert_allclose(p, [0.1, 0.8], atol=1e-6)
    assert Richards(1e6, 5.0, 0.01).propensities([0], 1)[0] > 0


def test_weights_say_what_a_fit_relies_on():
    known = np.where(COUNTS == 50, 0.0, Jpv(0.7, 3.0).propensities(COUNTS, 5000))
    found = Jpv.fit_to(COUNTS, 5000, known, weights=COUNTS != 50)
    np.testing.assert_allclose([found.a, found.b], [0.7, 3.0], rtol=1e-4)
    unknown = np.where(COUNTS == 50, np.nan, known)
    assert Jpv.fit_to(COUNTS, 5000, unknown).a == pytest.approx(0.7, rel=1e-4)


def test_models_are_values():
    model = Richards(5.0, 0.6)
    assert clone(model) == model == Richards(5.0, 0.6)
    assert model != Richards(5.0, 0.7)
    assert Jpv() != model
    assert len({Jpv(), Jpv(), model}) == 2
    assert repr(model) == "Richards(scale=5.0, growth=0.6)"


def test_what_stands_for_propensities():
    np.testing.assert_array_equal(label_propensities(None, COUNTS, 5000), jpv(COUNTS, 5000))
    for name, model in PROPENSITIES.items():
        found = label_propensities(name, COUNTS, 5000)
        np.testing.assert_array_equal(found, label_propensities(model, COUNTS, 5000))
    amazon = jpv(COUNTS, 5000, *JPV_CONSTANTS["amazon"])
    np.testing.assert_array_equal(label_propensities("jpv-amazon", COUNTS, 5000), amazon)
    assert label_propensities([1, 0.5], [3, 4], 5).tolist() == [1, 0.5]
    for error, message, given in (
        (ParameterError, "jpv-wikipedia", "pareto"),
        (ShapeError, "of 3 labels, but there are 2", [1, 1, 1]),
        (ParameterError, "label 1 has 0.0", [1, 0]),
        (ParameterError, "label 0 has 1.5", [1.5, 1]),
        (ParameterError, "label 0 has nan", [np.nan, 1]),
        (ParameterError, "one number a label", [[1.0], [1.0]]),
        (ParameterError, "b of Jpv", Jpv(b=0.0)),
        (ParameterError, "lower=0.5 must be below", Richards(lower=0.5, upper=0.5)),
    ):
        with pytest.raises(error, match=message):
            label_propensities(given, [3, 4], 5)


@pytest.mark.parametrize("kind", [Jpv, Richards])
def test_fits_that_cannot_be(kind):
    for error, message, arguments in (
        (DataError, "two frequencies", ([3, 3], 10, [0.1, 0.2])),
        (ShapeError, r"\(2,\), propensities \(3,\)", ([3, 4], 10, [0.1, 0.2, 0.3])),
        (ParameterError, "from 0 to 1", ([3, 4], 10, [0.1, 1.2])),
        (ParameterError, "weights", ([3, 4], 10, [0.1, 0.2], [1, -1])),
        (ParameterError, "from 0 to n", ([3, 40], 10, [0.1, 0.2])),
    ):
        with pytest.raises(error, match=message):
            kind.fit_to(*arguments)
    with pytest.raises(ParameterError, match="below 3 training rows"):
        Jpv.fit_to([1, 2], 2, [0.1, 0.2])


# ---------------------------------------------------------------- measured
@pytest.fixture(scope="module")
def shop():
    return generate(texts=6000, labels=400, removal=0.5)


def test_measured_on_the_corpus_of_known_truth(shop):
    """Within three standard errors for nearly every label, and so by rates of other rows."""
    observed, complete = shop.corpus.targets, shop.complete
    relevant = np.asarray(complete.sum(axis=0)).ravel()
    p = direct_propensities(observed, complete, smoothing=0)
    assert np.isnan(p[relevant == 0]).all()
    known = relevant >= 30
    error = np.sqrt(shop.propensities * (1 - shop.propensities) / np.maximum(relevant, 1))
    assert (np.abs(p - shop.propensities)[known] <= 3 * error[known]).mean() > 0.98
    rates = direct_propensities(observed[:3000], complete[3000:], same_rows=False)
    often = relevant >= 300
    np.testing.assert_allclose(rates[often], shop.propensities[often], atol=0.25)
    assert np.abs(rates - shop.propensities)[often].mean() < 0.06
    assert ((rates > 0) & (rates <= 1)).all()


def test_curves_fitted_to_a_sample_come_near_the_truth(shop):
    counts, n = shop.corpus.label_counts, len(shop)
    sample = slice(0, 1500)
    observed, complete = shop.corpus.targets[sample], shop.complete[sample]
    known = direct_propensities(observed, complete, smoothing=0)
    weights = np.asarray(complete.sum(axis=0)).ravel()
    error = {"jpv": np.abs(jpv(counts, n) - shop.propensities).mean()}
    for kind in (Jpv, Richards):
        fitted = kind.fit_to(counts, n, known, weights)
        error[kind.__name__] = np.abs(fitted.propensities(counts, n) - shop.propensities).mean()
    assert error["Richards"] < error["Jpv"] < error["jpv"]
    assert error["Richards"] < 0.06


def test_labels_that_are_rare_in_a_sample_lean_on_the_prior():
    complete = csr_matrix([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]])
    observed = csr_matrix([[1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(direct_propensities(observed, complete), [3.6 / 5, 0.3, 0.6])
    leaning = direct_propensities(observed, complete, smoothing=3, prior=[0.5, 0.5, 0.5])
    np.testing.assert_allclose(leaning, [4.5 / 7, 1.5 / 4, 0.5])


def test_samples_that_do_not_fit():
    a, b = csr_matrix(np.eye(3)), csr_matrix(np.eye(4))
    for error, message, call in (
        (ShapeError, r"\(3, 3\) but complete is \(4, 4\)", lambda: direct_propensities(a, b)),
        (ShapeError, r"\(3, 3\)", lambda: direct_propensities(a, b[:, :3])),
        (ParameterError, "smoothing", lambda: direct_propensities(a, a, smoothing=-1)),
        (ShapeError, "prior is of 2", lambda: direct_propensities(a, a, prior=[1, 1])),
        (DataError, "no label", lambda: direct_propensities(a * 0, a)),
    ):
        with pytest.raises(error, match=message):
            call()


# ---------------------------------------------------------------- drawn
def test_the_plot_is_an_image_of_each_curve(tmp_path):
    curves = {"a < b": Jpv(), "by name": "jpv-amazon", "default": None, "measured": [0.5] * 8}
    image = propensity_plot(curves, COUNTS, 5000, tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text(encoding="utf-8") == image
    root = ElementTree.fromstring(image)
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{name}polyline")) == 3
    assert len(root.findall(f"{name}g/{name}circle")) == len(COUNTS)
    written = [text.text for text in root.iter(f"{name}text")]
    assert {"a < b", "measured", "1,000", "0.2"} <= set(written)
    for point in root.find(f"{name}polyline").get("points").split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= 640
        assert 0 <= y <= 400
    assert propensity_plot({"p": None}, [0], 10)  # nothing seen yet
    with pytest.raises(ParameterError, match="nothing to draw"):
        propensity_plot({}, COUNTS, 5000)
