"""Platt, temperature and beta calibration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit, logit

from megalabel import _native
from megalabel.calibration import METHODS, Beta, Platt, Temperature, create
from megalabel.calibration.pooled import Pairs
from megalabel.data import LabelSet, Ranking
from megalabel.errors import DataError, NotFittedError, ParameterError

SIGMOIDS = [Platt, Temperature, Beta]


def fitted(kind, scores, hits, weights=None):
    pairs = Pairs(np.asarray(scores, np.float32), np.asarray(hits, bool), weights)
    return kind().fit_pairs(pairs)


def sample(n, chance, seed=0):
    """Scores that are spread over (0, 1), and hits with the chance of each."""
    random = np.random.default_rng(seed)
    scores = random.random(n).astype(np.float32)
    return scores, random.random(n) < chance(scores.astype(float))


@pytest.mark.parametrize(
    ("kind", "chance", "coefficients"),
    [
        (Platt, lambda p: expit(0.5 * logit(p) - 1), [0.5, -1]),
        (Temperature, lambda p: expit(logit(p) / 2.5), [0.4]),
        (Beta, lambda p: expit(0.4 * np.log(p) - 1.5 * np.log1p(-p) + 0.3), [0.4, 1.5, 0.3]),
    ],
)
def test_finds_the_map_that_made_the_hits(kind, chance, coefficients):
    scores, hits = sample(400_000, chance)
    calibrator = fitted(kind, scores, hits)
    np.testing.assert_allclose(calibrator.coefficients_, coefficients, atol=0.03)
    np.testing.assert_allclose(calibrator.probabilities(scores), chance(scores), atol=0.01)


def slow(kind, scores, hits, weights):
    """Coefficients by a general minimiser with bounds, in float64."""
    p = np.clip(np.asarray(scores, float), 1e-7, 1 - 1e-7)
    terms = {
        Platt: np.column_stack([logit(p), np.ones(len(p))]),
        Temperature: logit(p)[:, None],
        Beta: np.column_stack([np.log(p), -np.log1p(-p), np.ones(len(p))]),
    }[kind]
    n_hit, n_miss = weights[hits].sum(), weights[~hits].sum()
    targets = np.where(hits, (n_hit + 1) / (n_hit + 2), 1 / (n_miss + 2))

    def loss(c):
        m = terms @ c
        return (weights * (np.logaddexp(0, m) - targets * m)).sum() / weights.sum()

    slopes = {Platt: 1, Temperature: 1, Beta: 2}[kind]
    bounds = [(0, None)] * slopes + [(None, None)] * (terms.shape[1] - slopes)
    best = minimize(loss, np.ones(terms.shape[1]) / 2, bounds=bounds, tol=1e-14)
    return expit(terms @ best.x), loss(best.x), loss


@pytest.mark.parametrize("kind", SIGMOIDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_a_slow_minimiser(kind, weighted, seed):
    # the last two seeds have hits where scores are low: slopes end at 0
    random = np.random.default_rng(seed)
    scores = random.random(200).astype(np.float32)
    hits = random.random(200) < (scores if seed < 2 else 1 - scores**3)
    weights = random.random(200) if weighted else None
    calibrator = fitted(kind, scores, hits, weights)
    found = calibrator.probabilities(scores)
    ones = np.ones(200) if weights is None else weights
    expected, best, loss = slow(kind, scores, hits, ones)
    assert loss(calibrator.coefficients_) <= best + 1e-9
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert (np.diff(found[np.argsort(scores)]) >= 0).all()


@pytest.mark.parametrize("kind", SIGMOIDS)
@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=12),
    st.lists(st.floats(0, 1, width=32), max_size=10),
)
def test_the_map_never_falls_and_stays_within_0_and_1(kind, pairs, new):
    calibrator = fitted(kind, *zip(*pairs, strict=True))
    found = calibrator.probabilities(np.sort(np.array([0, 1, *new], np.float32)))
    assert np.isfinite(calibrator.coefficients_).all()
    assert (np.diff(found) >= 0).all()
    assert found[0] >= 0
    assert found[-1] <= 1


@pytest.mark.parametrize("kind", SIGMOIDS)
def test_scores_that_tell_everything_do_not_make_it_certain(kind):
    found = fitted(kind, [0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    low, high = found.probabilities(np.array([0.1, 0.9], np.float32))
    assert 0.01 < low < 0.4
    assert 0.6 < high < 0.99


@pytest.mark.parametrize("scores", [[3, -2, 8, -50], [np.inf, -np.inf, 0, 3e38]])
def test_margins_of_any_size(scores):
    calibrator = fitted(Platt, scores, [1, 0, 1, 0])
    assert not calibrator.of_probabilities_
    found = calibrator.probabilities(np.sort(np.array(scores, np.float32)))
    assert (np.diff(found) >= 0).all()
    assert np.isfinite(found).all()


def test_what_scores_are_taken_for():
    scores, hits = [0.2, 0.9, 0.6], [0, 1, 1]
    assert fitted(Platt, scores, hits).of_probabilities_
    pairs = Pairs(np.array(scores, np.float32), np.array(hits, bool), None)
    assert not Platt(scores="margins").fit_pairs(pairs).of_probabilities_
    outside = pairs._replace(scores=np.array([0.2, 1.5, 0.6], np.float32))
    for calibrator in (Beta(), Platt(scores="probabilities"), Temperature(scores="probabilities")):
        with pytest.raises(DataError, match=r"reach from 0.2.* to 1.5"):
            calibrator.fit_pairs(outside)
    with pytest.raises(ParameterError, match="scores of Platt"):
        Platt(scores="logits").check_parameters()


@pytest.mark.parametrize("kind", SIGMOIDS)
def test_nothing_to_learn_from_leaves_probabilities_alone(kind, caplog):
    calibrator = fitted(kind, [], [])
    assert "no ranked label" in caplog.text
    scores = np.array([0.001, 0.25, 0.999], np.float32)
    np.testing.assert_allclose(calibrator.probabilities(scores), scores, rtol=1e-5)


@pytest.mark.parametrize("kind", SIGMOIDS)
def test_batches_change_nothing(kind):
    scores, hits = sample(5_000, lambda p: p**2)
    calibrator = fitted(kind, scores, hits)
    whole = calibrator.probabilities(scores)
    parts = [calibrator.probabilities(scores[i : i + 7]) for i in range(0, 5_000, 7)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_a_ranking_keeps_its_order_and_padding():
    ranking = Ranking([[0, 1], [1, 2]], [[0.9, 0.2], [0.4, -np.inf]], LabelSet.numbered(2))
    out = Beta(k=2).fit(ranking, csr_matrix([[1, 0], [0, 1]])).apply(ranking)
    np.testing.assert_array_equal(out.ids, ranking.ids)
    assert out.scores[1, 1] == -np.inf
    with pytest.raises(NotFittedError):
        Beta().apply(ranking)


@pytest.mark.parametrize("kind", SIGMOIDS)
def test_taken_back_only_whole(kind):
    learned = fitted(kind, [0.1, 0.6, 0.7, 0.9], [0, 1, 0, 1]).learned()
    again = kind()
    again.restore(learned)
    assert again.learned() == learned
    coefficients = learned["coefficients_"]
    for change in (
        {"coefficients_": coefficients[:0]},
        {"coefficients_": coefficients.astype(np.float32)},
        {"coefficients_": coefficients * np.nan},
        {"coefficients_": -np.abs(coefficients) - 1},
        {"of_probabilities_": 1},
        {"more_": 1},
    ):
        with pytest.raises(ValueError, match=kind.__name__):
            kind().restore(learned | change)


def test_by_name():
    assert [type(create(name)).__name__ for name in METHODS] == [
        "Joint",
        "Isotonic",
        "Platt",
        "Temperature",
        "Beta",
    ]
    assert repr(create("platt", by="rank", k=3)) == "ByRank(calibrator=Platt(k=3))"
    with pytest.raises(ParameterError, match="isotonic, platt"):
        create("plat")
    with pytest.raises(ParameterError, match="frequency or rank"):
        create("platt", by="size")


def test_rows_fall_by_sharing_means():
    rows = np.array([[0.1, 0.5, 0.4, 0.9, 0.2], [0.9, 0.5, 0.5, -np.inf, -np.inf]], np.float32)
    found = _native.falling_rows(rows, 3)
    np.testing.assert_allclose(found[0], [1 / 3, 1 / 3, 1 / 3, 1 / 3, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(found[1], rows[1])
    assert _native.falling_rows(np.zeros((3, 0), np.float32), 2).shape == (3, 0)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=9))
def test_falling_rows_agree_with_isotonic_regression(row):
    from scipy.optimize import isotonic_regression

    found = _native.falling_rows(np.array([row], np.float32), 100)[0]
    np.testing.assert_allclose(found, isotonic_regression(row, increasing=False).x, atol=1e-6)
    assert (np.diff(found) <= 0).all()
