"""Losses under missing labels: against enumeration, known truth, and finite differences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel.data.synthetic import generate
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import label_costs
from megalabel.labels.losses import (
    BINARY_LOSSES,
    pick_all_labels,
    pick_all_weights,
    sub_labelings,
    unbiased,
    weighted,
)

SMOOTH = ["logistic", "squared-hinge", "squared-error"]


def over_what_goes_missing(complete, p):
    """Every labeling that may be observed of a complete one, with its probability."""
    for kept in product([0, 1], repeat=len(complete)):
        kept = np.array(kept)
        if (kept <= complete).all():
            relevant = complete > 0
            yield np.prod(np.where(kept, p, 1 - p)[relevant]), kept[None]


def expected(estimator, complete, p):
    return sum(chance * estimator(seen)[0] for chance, seen in over_what_goes_missing(complete, p))


def normalised(scores, labels):
    return pick_all_labels(scores, labels, normalised=True)


def any_hit(scores, labels):
    """Of no use but to be a loss that does not decompose, where no label is a case of its own."""
    values = np.where(labels.any(axis=1), (labels.sum(axis=1) - 1) ** 2 + 0.5, 7.0)
    return values * scores[:, 0], np.outer(values, np.eye(scores.shape[1])[0])


# ---------------------------------------------------------------- exactly, by enumeration
labelings = st.lists(st.booleans(), min_size=4, max_size=4)
scores_of_four = st.lists(st.floats(-3, 3), min_size=4, max_size=4)
propensities_of_four = st.lists(st.floats(0.1, 1), min_size=4, max_size=4)


@settings(max_examples=25, deadline=None)
@given(labelings, scores_of_four, propensities_of_four, st.sampled_from(sorted(BINARY_LOSSES)))
def test_one_versus_all_is_unbiased(complete, scores, p, loss):
    complete, s, p = np.array(complete, float), np.array([scores]), np.array(p)
    found = expected(lambda seen: unbiased(loss, s, seen, p), complete, p)
    np.testing.assert_allclose(found, BINARY_LOSSES[loss](s, complete[None])[0], atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(labelings, scores_of_four, propensities_of_four)
def test_pick_all_labels_is_unbiased_and_normalised_a_bound(complete, scores, p):
    complete, s, p = np.array(complete, float), np.array([scores]), np.array(p)
    found = expected(lambda seen: pick_all_labels(s, seen, p), complete, p)
    np.testing.assert_allclose(found, pick_all_labels(s, complete[None])[0], atol=1e-9)
    bound = expected(lambda seen: pick_all_labels(s, seen, p, normalised=True), complete, p)
    assert bound >= normalised(s, complete[None])[0] - 1e-9


@settings(max_examples=25, deadline=None)
@given(
    labelings,
    scores_of_four,
    propensities_of_four,
    st.sampled_from([pick_all_labels, normalised, any_hit]),
)
def test_sub_labelings_are_unbiased_for_any_loss(complete, scores, p, loss):
    complete, s, p = np.array(complete, float), np.array([scores]), np.array(p)
    found = expected(lambda seen: sub_labelings(loss, s, seen, p), complete, p)
    np.testing.assert_allclose(found, loss(s, complete[None])[0], rtol=1e-7, atol=1e-7)


def test_where_nothing_goes_missing_all_are_the_plain_losses():
    rng = np.random.default_rng(0)
    s, y, p = rng.normal(size=(6, 5)), rng.random((6, 5)) < 0.4, np.ones(5)
    for name, loss in BINARY_LOSSES.items():
        for found in (unbiased(name, s, y, p), weighted(loss, s, y, 2 / p - 1, p)):
            for a, b in zip(found, loss(s, y.astype(float)), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-12)
    for loss in (pick_all_labels, normalised):
        for found in (sub_labelings(loss, s, y, p), sub_labelings(loss, s, y, p, exact=0)):
            for a, b in zip(found, loss(s, y), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_the_surrogate_is_above_the_unbiased_zero_one_loss(loss):
    rng = np.random.default_rng(1)
    s, y, p = rng.normal(size=(500, 20)) * 2, rng.random((500, 20)) < 0.3, rng.uniform(0.05, 1, 20)
    positive, negative = label_costs("propensity", np.full(20, 5), 1000, p)
    scale = np.log(2) if loss == "logistic" else 1  # of bits
    surrogate = weighted(loss, s, y, positive, negative)[0] / scale
    shift = np.where(y, 1 / p - 1, 0)
    assert (surrogate >= unbiased("zero-one", s, y, p)[0] + shift - 1e-9).all()


def test_the_published_toy():
    s, y = [[3.0, 2.0, 1.0]], [[1, 0, 1]]
    bound, _ = pick_all_labels(s, y, [0.9, 0.7, 0.6], normalised=True)
    np.testing.assert_allclose(bound, 2.07058, atol=5e-6)
    np.testing.assert_allclose(normalised(s, y)[0], 1.40761, atol=5e-6)


def test_weights_of_other_losses_bound_recall():
    rng = np.random.default_rng(2)
    p, complete = rng.uniform(0.2, 1, 4), np.array([1, 1, 0, 1])
    missed = np.array([0, 1, 1, 1])  # outside the top k
    found = sum(
        chance * (pick_all_weights(seen, p, normalised=True) * missed).sum()
        for chance, seen in over_what_goes_missing(complete, p)
    )
    assert found >= 2 / 3
    assert (pick_all_weights([complete], normalised=True) * missed).sum() == pytest.approx(2 / 3)


# ---------------------------------------------------------------- on the corpus of known truth
@pytest.fixture(scope="module")
def draws():
    """1,000 draws of what goes missing from forty texts, and scores that know something."""
    shop = generate(texts=40, labels=200, removal=1.0)
    rng = np.random.default_rng(3)
    complete = shop.complete.toarray()
    scores = 4 * shop.probabilities.toarray() - 2 + rng.normal(size=complete.shape) / 2
    masks = (rng.random((1000, *complete.shape)) < shop.propensities) & (complete > 0)
    return complete, scores, shop.propensities, masks


def within_three_standard_errors(values, truth):
    values = np.asarray(values)
    error = values.std(ddof=1) / np.sqrt(len(values))
    return abs(values.mean() - truth) <= 3 * error


@pytest.mark.parametrize("loss", sorted(BINARY_LOSSES))
def test_one_versus_all_over_a_thousand_draws(draws, loss):
    complete, scores, p, masks = draws
    truth = BINARY_LOSSES[loss](scores, complete)[0].sum()
    found = [unbiased(loss, scores, seen, p)[0].sum() for seen in masks]
    assert within_three_standard_errors(found, truth)
    # which the loss of what is observed is not
    naive = [BINARY_LOSSES[loss](scores, seen.astype(float))[0].sum() for seen in masks]
    assert not within_three_standard_errors(naive, truth)


def test_pick_all_labels_over_a_thousand_draws(draws):
    complete, scores, p, masks = draws
    found = [pick_all_labels(scores, seen, p)[0].sum() for seen in masks]
    assert within_three_standard_errors(found, pick_all_labels(scores, complete)[0].sum())
    bounds = [pick_all_labels(scores, seen, p, normalised=True)[0].sum() for seen in masks]
    assert np.mean(bounds) > normalised(scores, complete)[0].sum()


@pytest.mark.parametrize("exact", [20, 1])
def test_sub_labelings_over_a_thousand_draws(draws, exact):
    complete, scores, p, masks = draws
    rows = np.flatnonzero((complete.sum(axis=1) >= 3) & (complete.sum(axis=1) <= 6))[:3]
    assert len(rows) == 3
    used = np.flatnonzero(complete[rows].any(axis=0))
    s, whole = scores[np.ix_(rows, used)], complete[np.ix_(rows, used)]
    found = [
        sub_labelings(normalised, s, seen, p[used], exact=exact, samples=16, seed=draw)[0].sum()
        for draw, seen in enumerate(masks[:, rows][:, :, used])
    ]
    assert within_three_standard_errors(found, normalised(s, whole)[0].sum())


def test_subsets_drawn_have_the_mean_of_all_and_less_variance_than_fair_coins():
    rng = np.random.default_rng(4)
    s, p = rng.normal(size=(1, 5)), rng.uniform(0.3, 0.9, 5)
    y = np.ones((1, 5))
    whole = sub_labelings(normalised, s, y, p)[0][0]
    drawn = np.array(
        [sub_labelings(normalised, s, y, p, exact=0, seed=i)[0][0] for i in range(1000)]
    )
    assert within_three_standard_errors(drawn, whole)
    coins = rng.random((1000, 32, 5)) < 0.5
    weights = 2**5 * np.where(coins, 1 / p, 1 - 1 / p).prod(axis=2)
    losses = normalised(np.tile(s, (32_000, 1)), coins.reshape(-1, 5))[0].reshape(1000, 32)
    assert drawn.var() < (weights * losses).mean(axis=1).var()


def test_subsets_are_fixed_by_the_seed_and_cut_by_the_clip():
    s, y, p = np.zeros((2, 8)), np.ones((2, 8)), np.full(8, 0.3)
    first, again, other = (
        sub_labelings(normalised, s, y, p, exact=2, seed=seed)[0] for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    assert first[0] != first[1]
    cut = sub_labelings(normalised, s, y, p, exact=2, clip=100)[0]
    assert (np.abs(cut) <= 100 * np.log(8)).all()


# ---------------------------------------------------------------- gradients
def losses_with_gradients():
    rng = np.random.default_rng(6)
    y, p = csr_matrix(rng.random((5, 7)) < 0.4), rng.uniform(0.3, 1, 7)
    for name in SMOOTH:
        yield name, lambda s, name=name: unbiased(name, s, y, p)
        yield name, lambda s, name=name: weighted(name, s, y, 2 / p - 1, np.ones(7))
    yield "hinge", lambda s: unbiased("hinge", s, y, p)
    yield "pick all", lambda s: pick_all_labels(s, y, p)
    yield "normalised", lambda s: pick_all_labels(s, y, p, normalised=True)
    yield "subsets", lambda s: sub_labelings(normalised, s, y, p)
    yield "drawn subsets", lambda s: sub_labelings(normalised, s, y, p, exact=1)


@pytest.mark.parametrize(("name", "loss"), losses_with_gradients())
def test_gradients_are_differences(name, loss):
    s = np.random.default_rng(7).normal(size=(5, 7))
    _, gradients = loss(s)
    assert gradients.dtype == np.float64
    for row, label in product(range(5), range(7)):
        step = np.zeros_like(s)
        step[row, label] = 1e-5
        slope = (loss(s + step)[0].sum() - loss(s - step)[0].sum()) / 2e-5
        np.testing.assert_allclose(gradients[row, label], slope, rtol=1e-5, atol=1e-7)


def test_large_scores_do_not_overflow():
    s, y = np.array([[1e4, -1e4]]), np.array([[0, 1]])
    with np.errstate(all="raise", under="ignore"):
        for values, gradients in (unbiased("logistic", s, y, [0.5, 0.5]), pick_all_labels(s, y)):
            assert np.isfinite(values).all()
            assert np.isfinite(gradients).all()


# ---------------------------------------------------------------- errors
def test_bad_input_is_named():
    s, y, p = np.zeros((2, 3)), np.ones((2, 3)), np.ones(3)
    for error, message, call in (
        (ShapeError, r"\(2, 3\).*\(2, 2\)", lambda: unbiased("hinge", s, y[:, :2], p)),
        (ShapeError, r"propensities \(2,\)", lambda: unbiased("hinge", s, y, p[:2])),
        (ShapeError, r"propensities are \(2,\)", lambda: pick_all_labels(s, y, p[:2])),
        (ShapeError, r"costs are \(2,\)", lambda: weighted("hinge", s, y, p[:2], p)),
        (ShapeError, r"\(3,\)", lambda: pick_all_weights([1, 0, 1])),
        (ParameterError, "label 1 has 0.0", lambda: unbiased("hinge", s, y, [1, 0, 1])),
        (ParameterError, "squared-hinge", lambda: unbiased("huber", s, y, p)),
        (ParameterError, "0 to 20", lambda: sub_labelings(normalised, s, y, p, exact=21)),
        (ParameterError, "samples", lambda: sub_labelings(normalised, s, y, p, samples=0)),
        (ParameterError, "clip", lambda: sub_labelings(normalised, s, y, p, clip=0)),
        (
            DataError,
            "row 0 has 3 labels, so 2^3".replace("^", r"\^"),
            lambda: sub_labelings(normalised, s, y, p, exact=2, samples=None),
        ),
    ):
        with pytest.raises(error, match=message):
            call()
