import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import expit

from megalabel import _native
from megalabel.calibration import Isotonic
from megalabel.data import LabelSet, Ranking
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.metrics import evaluate


def case(scores, hits):
    """A ranking with these scores (None: padding) and the truth that makes these hits."""
    scores = np.array(scores, dtype=object)
    k = scores.shape[1]
    absent = scores == None  # noqa: E711 - elementwise
    values = np.where(absent, -np.inf, scores).astype(np.float32)
    ids = np.where(absent, k, np.arange(k))
    return Ranking(ids, values, LabelSet.numbered(k)), csr_matrix(np.array(hits) & ~absent)


def slow(scores, hits):
    """Isotonic regression at the distinct scores by its min-max formula, in float64."""
    distinct = sorted(set(scores))
    points = [[h for s, h in zip(scores, hits, strict=True) if s == d] for d in distinct]

    def mean(i, j):
        pooled = [h for point in points[i : j + 1] for h in point]
        return sum(pooled) / len(pooled)

    m = len(distinct)
    fitted = [max(min(mean(i, j) for j in range(at, m)) for i in range(at + 1)) for at in range(m)]
    return dict(zip(distinct, fitted, strict=True))


pairs = st.lists(
    st.tuples(st.integers(-4, 4).map(lambda v: v / 2), st.booleans()), min_size=1, max_size=14
)


@given(pairs)
@settings(max_examples=200, deadline=None)
def test_agrees_with_the_min_max_formula(pairs):
    ranking, truth = case([[s] for s, _ in pairs], [[h] for _, h in pairs])
    calibrator = Isotonic().fit(ranking, truth)
    found = calibrator.apply(ranking).scores[:, 0]
    expected = slow([s for s, _ in pairs], [h for _, h in pairs])
    np.testing.assert_allclose(found, [expected[s] for s, _ in pairs], atol=1e-6)
    assert found.mean(dtype=float) == pytest.approx(np.mean([h for _, h in pairs]), abs=1e-6)


@given(pairs, st.lists(st.floats(width=32, allow_nan=False), max_size=20))
@settings(max_examples=200, deadline=None)
def test_the_map_never_falls_and_stays_within_0_and_1(pairs, new):
    ranking, truth = case([[s] for s, _ in pairs], [[h] for _, h in pairs])
    calibrator = Isotonic().fit(ranking, truth)
    scores = np.sort(np.array([*new, -1.3, 0.1, 0.25], np.float32))[::-1]
    ids = np.arange(len(scores))[None]
    out = calibrator.apply(Ranking(ids, scores[None], LabelSet.numbered(len(scores)))).scores[0]
    assert out.dtype == np.float32
    assert ((out >= 0) & (out <= 1)).all()
    assert (np.diff(out) <= 0).all()


def test_rounding_never_makes_the_map_fall():
    rng = np.random.default_rng(0)
    scores = rng.random((3000, 1))
    ranking, truth = case(scores, rng.random((3000, 1)) < scores)
    calibrator = Isotonic().fit(ranking, truth)
    knots = calibrator.thresholds_
    near = np.unique([knots, np.nextafter(knots, -1), np.nextafter(knots, 2)]).astype(np.float32)
    labels = LabelSet.numbered(len(near))
    out = calibrator.apply(Ranking(np.arange(len(near))[None], near[None, ::-1], labels)).scores[0]
    assert (np.diff(out) <= 0).all()


def test_only_breakpoints_are_kept():
    scores = np.linspace(0, 1, 1000)[:, None]
    ranking, truth = case(scores, scores > 0.5)
    calibrator = Isotonic().fit(ranking, truth)
    assert len(calibrator.thresholds_) == len(calibrator.values_) == 4
    assert calibrator.values_.tolist() == [0, 0, 1, 1]


def test_between_blocks_the_map_is_linear():
    ranking, truth = case([[0.0], [1.0]], [[False], [True]])
    calibrator = Isotonic().fit(ranking, truth)
    new, _ = case([[9.0, 0.75, -9.0]], [[False] * 3])
    assert calibrator.apply(new).scores.tolist() == [[1, 0.75, 0]]


def test_learns_from_the_first_k_only():
    ranking, truth = case([[2.0, 1.0], [2.0, 1.0]], [[True, False], [True, False]])
    assert Isotonic(k=1).fit(ranking, truth).values_.tolist() == [1]
    assert Isotonic(k=2).fit(ranking, truth).values_.tolist() == [0, 1]
    assert Isotonic(k=50).fit(ranking, truth).values_.tolist() == [0, 1]


def test_calibrates_and_keeps_the_ranking():
    rng = np.random.default_rng(1)
    n, m = 20_000, 8
    eta = rng.random((n, m)) ** 3
    truth = csr_matrix(rng.random((n, m)) < eta)
    raw = 4 * np.log(eta / (1 - eta)) - 3  # the right order, the wrong numbers
    ids = np.argsort(-raw, axis=1, kind="stable")
    ranking = Ranking(ids, np.take_along_axis(raw, ids, 1), LabelSet.numbered(m))
    boastful = Ranking(ids, expit(ranking.scores), ranking.labels)
    half = n // 2
    calibrated = Isotonic(k=5).fit(ranking[:half], truth[:half]).apply(ranking[half:])
    before = evaluate(boastful[half:], truth[half:], probabilities=True)
    after = evaluate(calibrated, truth[half:], probabilities=True)
    assert after["ECE@5"] < before["ECE@5"] / 5
    assert after["P@5"] == before["P@5"]
    np.testing.assert_array_equal(calibrated.ids, ranking.ids[half:])
    assert (np.diff(calibrated.scores, axis=1) <= 0).all()


def test_padding_stays_padding():
    ranking, truth = case([[0.9, None], [0.1, None]], [[True, True], [False, True]])
    calibrator = Isotonic().fit(ranking, truth)
    assert calibrator.apply(ranking).scores.tolist() == [[1, -np.inf], [0, -np.inf]]


@pytest.mark.parametrize(
    ("scores", "hits", "expected"),
    [
        ([[0.2], [0.7]], [[True], [True]], [1, 1]),
        ([[0.2], [0.7]], [[False], [False]], [0, 0]),
        ([[0.5], [0.5]], [[True], [False]], [0.5, 0.5]),
        ([[-np.inf], [np.inf]], [[False], [True]], [0, 1]),
    ],
    ids=["all hits", "all misses", "one score", "infinite scores"],
)
def test_degenerate_pairs(scores, hits, expected):
    ranking, truth = case(scores, hits)
    assert Isotonic().fit(ranking, truth).apply(ranking).scores[:, 0].tolist() == expected


@pytest.mark.parametrize("rows", [0, 2])
def test_nothing_to_learn_from_is_said_and_leaves_scores(rows, caplog):
    ranking = Ranking(np.full((rows, 1), 3), np.full((rows, 1), -np.inf), LabelSet.numbered(3))
    with caplog.at_level(logging.WARNING):
        calibrator = Isotonic().fit(ranking, csr_matrix((rows, 3)))
    assert "no ranked label" in caplog.text
    new, _ = case([[7.0, 0.25, -1.0]], [[False] * 3])
    assert calibrator.apply(new).scores.tolist() == [[1, 0.25, 0]]


def test_labels_unknown_to_the_ranking_cannot_be_hit():
    ranking, _ = case([[0.9]], [[True]])
    assert Isotonic().fit(ranking, csr_matrix([[0, 1]])).values_.tolist() == [0]


def test_errors():
    ranking, truth = case([[0.9]], [[True]])
    with pytest.raises(NotFittedError):
        Isotonic().apply(ranking)
    with pytest.raises(ParameterError, match="k of Isotonic"):
        Isotonic(k=0).fit(ranking, truth)
    with pytest.raises(ShapeError):
        Isotonic().fit(ranking, csr_matrix((2, 1)))
    with pytest.raises(DataError, match="not a number"):
        Isotonic().fit(Ranking([[0]], [[np.nan]], ranking.labels), truth)


def knots(*values):
    return np.array(values, np.float32)


def test_restores_read_only_knots():
    ranking, truth = case([[0.9], [0.1]], [[True], [False]])
    fitted = Isotonic().fit(ranking, truth)
    learned = fitted.learned()
    for array in learned.values():
        array.flags.writeable = False
    restored = Isotonic()
    restored.restore(learned)
    np.testing.assert_array_equal(restored.apply(ranking).scores, fitted.apply(ranking).scores)


@pytest.mark.parametrize(
    "learned",
    [
        {},
        {"thresholds_": knots(0, 1)},
        {"thresholds_": knots(0, 1), "values_": knots(0, 1), "more_": 1},
        {"thresholds_": knots(0, 1), "values_": knots(0)},
        {"thresholds_": knots(), "values_": knots()},
        {"thresholds_": knots(1, 0), "values_": knots(0, 1)},
        {"thresholds_": knots(0, 0), "values_": knots(0, 1)},
        {"thresholds_": knots(0, np.nan), "values_": knots(0, 1)},
        {"thresholds_": knots(0, np.inf), "values_": knots(0, 1)},
        {"thresholds_": knots(0, 1), "values_": knots(1, 0)},
        {"thresholds_": knots(0, 1), "values_": knots(0, 2)},
        {"thresholds_": knots(0, 1), "values_": knots(-1, 1)},
        {"thresholds_": knots(0, 1)[None], "values_": knots(0, 1)[None]},
        {"thresholds_": np.array([0.0, 1.0]), "values_": knots(0, 1)},
        {"thresholds_": [0.0, 1.0], "values_": knots(0, 1)},
        {"thresholds_": "01", "values_": knots(0, 1)},
        {"thresholds_": knots(-3e38, 3e38), "values_": knots(1, 0)},
    ],
)
def test_refuses_knots_that_were_tampered_with(learned):
    with pytest.raises(ValueError, match="Isotonic"):
        Isotonic().restore(learned)


# --- many pairs, and weights

weighted = st.lists(
    st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=12
)


@given(weighted)
@settings(max_examples=200, deadline=None)
def test_a_weight_is_so_many_copies(rows):
    ranking, truth = case([[s] for s, _, _ in rows], [[h] for _, h, _ in rows])
    copies = [(s, h) for s, h, w in rows for _ in range(w)]
    if not copies:
        return
    by_weight = Isotonic().fit(ranking, truth, weights=[w for _, _, w in rows])
    by_copies = Isotonic().fit(*case([[s] for s, _ in copies], [[h] for _, h in copies]))
    np.testing.assert_array_equal(by_weight.thresholds_, by_copies.thresholds_)
    np.testing.assert_allclose(by_weight.values_, by_copies.values_, rtol=1e-6)


def random_case(n, seed=0, scale=1.0):
    random = np.random.default_rng(seed)
    scores = (scale * random.standard_normal(n)).astype(np.float32)
    hit = random.random(n) < expit(scores)
    ids = np.zeros((n, 1), np.int32)
    return Ranking(ids, scores[:, None], LabelSet.numbered(1)), csr_matrix(hit[:, None]), hit


@pytest.mark.parametrize("rounded", [False, True])
def test_agrees_with_scipy_on_many_pairs(rounded):
    from scipy.optimize import isotonic_regression

    ranking, truth, hit = random_case(1_300_000)  # more than one piece of work
    if rounded:
        ranking = Ranking(ranking.ids, ranking.scores.round(2), ranking.labels)
    scores = ranking.scores[:, 0] + np.float32(0)
    distinct, where, weights = np.unique(scores, return_inverse=True, return_counts=True)
    expected = isotonic_regression(np.bincount(where, hit) / weights, weights=weights).x
    found = Isotonic().fit(ranking, truth).probabilities(distinct)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_number_of_threads_changes_nothing(threads):
    ranking, truth, _ = random_case(2_200_000, scale=3)
    weights = np.random.default_rng(1).random(len(ranking))
    found = []
    for count in (1, 3):
        threads(count)
        for some in (None, weights):
            fitted = Isotonic().fit(ranking, truth, weights=some)
            found.append([fitted.thresholds_, fitted.values_, fitted.apply(ranking).scores])
    for one, other in zip(found[0] + found[1], found[2] + found[3], strict=True):
        np.testing.assert_array_equal(one, other)


def test_zeros_are_one_score_whatever_their_sign():
    ranking, truth = case([[-0.0], [0.0]], [[1], [0]])
    assert Isotonic().fit(ranking, truth).values_.tolist() == [0.5]


def test_weights_that_are_none(caplog):
    ranking, truth = case([[2], [1]], [[1], [0]])
    with pytest.raises(ShapeError, match=r"\(3,\) for 2"):
        Isotonic().fit(ranking, truth, weights=[1, 1, 1])
    for bad in (-1, np.nan, np.inf):
        with pytest.raises(ParameterError, match="weights"):
            Isotonic().fit(ranking, truth, weights=[1, bad])
    with caplog.at_level(logging.WARNING):
        assert Isotonic().fit(ranking, truth, weights=[0, 0]).values_.tolist() == [0, 1]
    assert "no ranked label" in caplog.text


def test_the_native_core_checks_its_arrays():
    f, u = np.zeros(2, np.float32), np.zeros(2, np.uint8)
    none = np.zeros(0, np.float32)
    for bad in ((f, u[:1], none), (f, u, f[:1]), (f, u, -f - 1), (f * np.nan, u, none)):
        with pytest.raises(ValueError, match=r"must be|not a number"):
            _native.isotonic_fit(**dict(zip(("scores", "hits", "weights"), bad, strict=True)))
    for bad in ((f, none, none), (f, f, f[:1])):
        scores, thresholds, values = bad
        with pytest.raises(ValueError, match="thresholds"):
            _native.isotonic_apply(scores=scores, thresholds=thresholds, values=values)
    mapped = _native.isotonic_apply(scores=f * np.nan, thresholds=f[:1], values=f[:1])
    assert np.isnan(mapped).all()
