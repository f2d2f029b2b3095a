"""The solver against a slow twin in float64, scikit-learn and closed forms."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csc_matrix, csr_matrix, eye, hstack, kron, random, save_npz, vstack

from megalabel.errors import ShapeError
from megalabel.linear import training
from megalabel.linear.training import LOSSES

# --- the twin


def augmented(X, bias=1.0):
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return np.hstack([X.astype(np.float64), np.full((len(X), 1), bias)])


def objective(X, t, costs, w, loss):
    margins = t * (X @ w)
    if loss == "squared-hinge":
        losses = np.maximum(0, 1 - margins) ** 2
    else:
        losses = np.logaddexp(0, -margins)
    return w @ w / 2 + costs @ losses


def derivatives(X, t, costs, w, loss):
    margins = t * (X @ w)
    if loss == "squared-hinge":
        gaps = np.maximum(0, 1 - margins)
        slopes, curvatures = -2 * costs * t * gaps, 2 * costs * (gaps > 0)
    else:
        wrong = np.exp(-np.logaddexp(0, margins))
        slopes, curvatures = -costs * t * wrong, costs * wrong * np.exp(-np.logaddexp(0, -margins))
    return w + X.T @ slopes, np.eye(len(w)) + X.T @ (curvatures[:, None] * X)


def minimiser(X, t, costs, loss):
    """Newton with exact steps, from zero."""
    w = np.zeros(X.shape[1])
    for _ in range(200):
        gradient, hessian = derivatives(X, t, costs, w, loss)
        if np.linalg.norm(gradient) <= 1e-11 * (1 + costs.sum()):
            break
        step = -np.linalg.solve(hessian, gradient)
        length, value = 1.0, objective(X, t, costs, w, loss)
        while (
            length > 1e-12
            and objective(X, t, costs, w + length * step, loss)
            > value + 1e-4 * length * gradient @ step
        ):
            length /= 2
        w = w + length * step
    return w


def signs(targets, column):
    return np.where(targets[:, [column]].toarray()[:, 0] > 0, 1.0, -1.0)


def train(X, targets, cost=1.0, *, positive=None, loss="squared-hinge", eps=1e-4, **more):
    costs = np.broadcast_to(np.asarray(cost, np.float64), targets.shape[1])
    return training.train(
        csr_matrix(X, dtype=np.float32),
        csc_matrix(targets),
        positive_costs=costs if positive is None else positive,
        negative_costs=costs,
        loss=loss,
        eps=eps,
        **{"bias": 1.0, "prune": 0.0} | more,
    )


def problem(n=300, width=50, labels=20, seed=0, unit=True):
    """Rows of unit length; labels from rare to frequent that rows speak for, with noise."""
    rng = np.random.default_rng(seed)
    X = random(n, width, 0.15, format="csr", dtype=np.float32, random_state=seed)
    if unit:
        lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        X = csr_matrix(X.multiply(1 / np.maximum(lengths, 1e-9)[:, None]), dtype=np.float32)
    S = X @ rng.normal(size=(width, labels)) + 0.3 * rng.normal(size=(n, labels))
    shares = np.linspace(0.01, 0.5, labels)
    bars = [np.quantile(S[:, j], 1 - share) for j, share in enumerate(shares)]
    return X, csc_matrix((bars < S).astype(np.float32))


def excess(X, targets, W, loss, cost=1.0, positive=None, bias=1.0, rounded=False):
    """How far the objective of each label is above the least there is, relatively.

    `rounded`: beyond ten times what rounding the best weights to float32 costs.
    """
    A, result = augmented(csr_matrix(X, dtype=np.float32), bias), []
    for label in range(targets.shape[1]):
        t = signs(targets, label)
        own = cost if positive is None else positive[label]
        costs = np.where(t > 0, own, cost) * np.ones(len(t))
        w = minimiser(A, t, costs, loss)
        best = objective(A, t, costs, w, loss)
        ours = objective(A, t, costs, W[label].toarray()[0].astype(np.float64), loss)
        if rounded:
            near = w.astype(np.float32).astype(np.float64)
            ours -= 10 * (objective(A, t, costs, near, loss) - best)
        result.append((ours - best) / best)
    return np.array(result)


# --- at the optimum


@pytest.mark.parametrize("loss", LOSSES)
def test_the_twin_has_its_derivatives_right(loss):
    X, targets = problem(40, 8, 1)
    A, t, costs = augmented(X), signs(targets, 0), np.linspace(0.5, 2, 40)
    w = np.random.default_rng(1).normal(size=9) / 3
    gradient, hessian = derivatives(A, t, costs, w, loss)
    for q in range(9):
        e = 1e-6 * np.eye(9)[q]
        slope = (objective(A, t, costs, w + e, loss) - objective(A, t, costs, w - e, loss)) / 2e-6
        assert slope == pytest.approx(gradient[q], abs=1e-6)
        up, down = (derivatives(A, t, costs, w + s * e, loss)[0] for s in (1, -1))
        np.testing.assert_allclose((up - down) / 2e-6, hessian[q], atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
def test_the_twin_finds_the_optimum(loss, cost):
    X, targets = problem(80, 12, 3)
    A, costs = augmented(X), np.full(80, cost)
    for label in range(3):
        t = signs(targets, label)
        found = minimize(
            lambda w, t=t: (
                objective(A, t, costs, w, loss),
                derivatives(A, t, costs, w, loss)[0],
            ),
            np.zeros(13),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-10},
        )
        best = objective(A, t, costs, minimiser(A, t, costs, loss), loss)
        assert best == pytest.approx(found.fun, rel=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("eps", "limit"), [(0.01, 1e-3), (1e-4, 1e-5), (1e-6, 1e-9)])
def test_objective_values(loss, eps, limit):
    X, targets = problem()
    found = excess(X, targets, train(X, targets, loss=loss, eps=eps), loss)
    assert found.max() < limit
    assert found.min() > -1e-9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("eps", "limit"), [(0.01, 1e-3), (1e-4, 1e-5), (1e-6, 1e-9)])
def test_so_many_rows_that_steps_come_from_samples(loss, eps, limit):
    X, targets = problem(24_000, 20, 2)
    found = excess(X, targets, train(X, targets, loss=loss, eps=eps), loss)
    assert found.max() < limit
    assert found.min() > -1e-9


@pytest.mark.parametrize(
    ("loss", "dense"), [*((loss, False) for loss in LOSSES), ("squared-hinge", True)]
)
def test_so_many_rows_that_margins_are_not_kept(loss, dense):
    n = 132_000
    X, targets = problem(n, 12, 18)
    if dense:
        X = csr_matrix(hstack([X, np.cos(np.arange(n * 16)).reshape(n, 16) / 9]), dtype="f4")
    W = train(X, targets, loss=loss, eps=1e-3)
    found = excess(X, targets[:, :3], W[:3], loss)
    assert found.max() < 1e-4
    assert found.min() > -1e-9
    np.testing.assert_array_equal(grouped(X, targets, (1, 7), loss=loss, eps=1e-3), W.toarray())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cost", [1e-6, 1e-3, 0.1, 10])
def test_costs_from_tiny_to_large(loss, cost):
    X, targets = problem(200, 40, 18)
    W = train(X, targets, cost, loss=loss)
    assert excess(X, targets, W, loss, cost).max() < 1e-5
    W = train(X, targets, cost, loss=loss, eps=1e-6)
    assert excess(X, targets, W, loss, cost).max() < 1e-9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("cost", "eps"), [(1e3, 1e-6), (1e4, 1e-8), (1e6, 1e-10)])
def test_costs_that_leave_the_ridge_little_to_say(loss, cost, eps):
    """The tolerance is against the gradient at zero, which grows with the cost."""
    X, targets = problem(200, 40, 18)
    W = train(X, targets, cost, loss=loss, eps=eps)
    found = excess(X, targets, W, loss, cost)
    assert found.max() < 1e-6
    assert found.min() > -1e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_positives_that_cost_more(loss):
    X, targets = problem(200, 40, 18)
    positive = np.linspace(0.2, 20, 18)
    W = train(X, targets, positive=positive, loss=loss)
    assert excess(X, targets, W, loss, positive=positive).max() < 1e-5


def mixed(n=301, seed=0, missing=0.0):
    """Sparse columns, and 37 that (nearly) all rows have, as of an embedding, between them."""
    X, targets = problem(n, 50, 20, seed)
    rng = np.random.default_rng(seed)
    dense = 0.1 * rng.normal(size=(n, 37)) * (rng.random((n, 37)) >= missing)
    return csr_matrix(hstack([X[:, :20], dense, X[:, 20:]]), dtype=np.float32), targets


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("missing", [0.0, 0.05])
def test_columns_that_nearly_all_rows_have(loss, missing):
    X, targets = mixed(missing=missing)
    W = train(X, targets, loss=loss)
    assert excess(X, targets, W, loss).max() < 1e-5


@pytest.mark.parametrize("loss", LOSSES)
def test_dense_rows_alone(loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(203, 33)).astype(np.float32) / 6
    targets = csc_matrix((X @ rng.normal(size=(33, 18)) > 1.2).astype(np.float32))
    assert excess(X, targets, train(X, targets, loss=loss), loss).max() < 1e-5


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [0.0, 0.5, 3.0])
def test_the_value_of_the_bias(loss, bias):
    X, targets = problem(200, 40, 8)
    W = train(X, targets, loss=loss, bias=bias)
    assert excess(X, targets, W, loss, bias=bias).max() < 1e-5
    if bias == 0:
        assert not W[:, -1].toarray().any()


@settings(max_examples=25)
@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 20),
    st.integers(0, 1000),
    st.sampled_from(list(LOSSES)),
)
def test_any_shape(n, width, labels, seed, loss):
    rng = np.random.default_rng(seed)
    X = random(n, width, 0.4, format="csr", dtype=np.float32, random_state=seed)
    X.data = rng.normal(size=X.nnz).astype(np.float32)
    targets = csc_matrix((rng.random((n, labels)) < rng.random(labels)).astype(np.float32))
    W = train(X, targets, loss=loss)
    used = np.flatnonzero(np.diff(targets.indptr))
    if len(used):
        assert excess(X, targets[:, used], W[used], loss).max() < 2e-5


def test_agrees_with_scikit_learn():
    from sklearn.svm import LinearSVC

    X, targets = problem()
    A = augmented(X)
    W = train(X, targets).toarray().astype(np.float64)
    for label in range(0, targets.shape[1], 3):
        t = signs(targets, label)
        peer = LinearSVC(loss="squared_hinge", dual=False, fit_intercept=False, C=1, tol=1e-8)
        other = peer.fit(A, t).coef_[0]
        ones = np.ones(len(t))
        ours, theirs = (objective(A, t, ones, w, "squared-hinge") for w in (W[label], other))
        assert ours == pytest.approx(theirs, rel=1e-5)
        np.testing.assert_allclose(W[label], other, atol=5e-3)


def test_ridge_where_no_row_passes_its_margin():
    """With a small cost all margins stay below 1, and least squares has a closed form."""
    X, targets = problem(60, 12, 5)
    A, C = augmented(X), 1e-3
    W = train(X, targets, C, eps=1e-6).toarray()
    for label in range(5):
        t = signs(targets, label)
        closed = np.linalg.solve(2 * C * A.T @ A + np.eye(13), 2 * C * A.T @ t)
        assert (t * (A @ closed) < 1).all()
        np.testing.assert_allclose(W[label], closed, atol=1e-5)


# --- the start


@pytest.mark.parametrize("bias", [1.0, 0.0, 2.0])
def test_the_start_separates_the_means(bias):
    """With a tolerance that anything meets, what comes back is where the solver begins."""
    X, targets = problem(200, 40, 18)
    W = train(X, targets, eps=1e12, bias=bias).toarray().astype(np.float64)
    A = augmented(X, bias)
    for label in range(18):
        t = signs(targets, label)
        assert W[label] @ A[t > 0].mean(axis=0) == pytest.approx(1, abs=2e-6)
        assert W[label] @ A[t < 0].mean(axis=0) == pytest.approx(-2, abs=2e-6)
        # in the span of the two means
        means = np.stack([A[t > 0].mean(axis=0), A.mean(axis=0)])
        inside = means.T @ np.linalg.lstsq(means.T, W[label], rcond=None)[0]
        np.testing.assert_allclose(inside, W[label], atol=1e-5)


def test_the_start_leaves_few_rows_inside_the_margin():
    X, targets = problem(300, 50, 18)
    W = train(X, targets, eps=1e12).toarray()
    for label in range(6):  # the rare ones
        t = signs(targets, label)
        assert (t * (augmented(X) @ W[label]) < 1).mean() < 0.25


def test_the_start_where_the_means_are_at_right_angles():
    X = np.diag([1.0, 2, 3])
    W = train(X, np.eye(3), eps=1e12, bias=0.0).toarray()
    np.testing.assert_allclose((W[:, :3] * [1, 2, 3]).diagonal(), 1, atol=1e-6)
    opposed = np.array([[1.0], [-1]])  # the mean of all rows is zero
    W = train(opposed, np.array([[1.0], [0]]), bias=0.0)
    assert excess(opposed, csc_matrix([[1.0], [0]]), W, "squared-hinge", bias=0.0).max() < 1e-6


# --- margins far out


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [30, 300, 1e4])
def test_rows_that_start_far_on_the_wrong_side(loss, size):
    """Outliers whose slope is full but whose curvature is nothing still pull."""
    X = np.zeros((40, 3))
    X[:, 0] = np.linspace(0.1, 1, 40)
    X[:20, 1] = 1
    X[0] = [size, 0, 0]  # one row that speaks against its kind, loudly
    X[39] = [-size, 0, 1]
    targets = csc_matrix((np.arange(40) >= 20).astype(float)[:, None])
    for cost in (1.0, 0.01):
        # the tolerance is against the gradient at zero, which the outliers make large
        W = train(X, targets, cost, loss=loss, eps=1e-3 / size)
        assert excess(X, targets, W, loss, cost).max() < 1e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_wrong_rows_do_not_depend_on_neighbouring_labels(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * np.geomspace(0.1, 5000, 60)[:, None]
    targets = csc_matrix((rng.random((60, 16)) < 0.4).astype(float))
    together = train(X, targets, 0.01, loss=loss, eps=1e12)  # only the start
    assert abs(augmented(X) @ together.toarray().T).max() > 100
    together = train(X, targets, 0.01, loss=loss)
    alone = vstack([train(X, targets[:, [j]], 0.01, loss=loss) for j in range(16)])
    np.testing.assert_array_equal(together.toarray(), alone.toarray())
    assert excess(X, targets, together, loss, 0.01).max() < 1e-3
    tight = train(X, targets, 0.01, loss=loss, eps=1e-12)
    alone = vstack([train(X, targets[:, [j]], 0.01, loss=loss, eps=1e-12) for j in range(16)])
    np.testing.assert_array_equal(tight.toarray(), alone.toarray())
    assert excess(X, targets, tight, loss, 0.01, rounded=True).max() < 1e-6


def test_one_row_over_the_whole_range_of_margins():
    """One feature, one weight, one row: the optimum solves w = c x sigmoid(-w x) exactly."""
    for x in np.geomspace(1e-3, 1e4, 15):
        for cost in (1e-3, 1.0, 1e3):
            X, targets = csr_matrix([[x], [0.0]]), csc_matrix([[1.0], [0]])
            W = train(X, targets, cost, loss="logistic", bias=0.0, eps=1e-7)
            w = float(W[0, 0])
            # the row without features pulls nothing
            low, high = 0.0, cost * x
            for _ in range(200):
                middle = (low + high) / 2
                above = middle > cost * x * np.exp(-np.logaddexp(0, middle * x))
                low, high = (low, middle) if above else (middle, high)
            A, t, costs = np.array([[x], [0.0]]), np.array([1.0, -1]), np.full(2, cost)
            best = objective(A, t, costs, np.array([low]), "logistic")
            ours = objective(A, t, costs, np.array([w]), "logistic")
            assert ours <= best * (1 + 1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("scale", "cost"), [(1e4, 1.0), (1e4, 1e-6), (1e-4, 1.0), (1.0, 1e6), (1e-10, 1e6)]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_and_costs_of_any_size(loss, scale, cost, seed):
    X, targets = problem(100, 20, 17, seed=seed, unit=False)
    assert np.isfinite(train(X * scale, targets, cost, loss=loss).data).all()
    W = train(X * scale, targets, cost, loss=loss, eps=1e-12)
    assert excess(X * scale, targets, W, loss, cost, rounded=True).max() < 1e-6


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("own", [221, 400])  # with 16 bits some numbers do not fit, or half do not
def test_more_features_than_16_bits_can_number(loss, own):
    """Features of one row alone are as good as a single one of their length."""
    X, targets = problem(300, 50, 5)
    many = kron(eye(300), np.full((1, own), 0.5 / np.sqrt(own)), format="csr")
    W = train(hstack([X, many]), targets, loss=loss, eps=1e-5).toarray()
    twin = train(hstack([X, 0.5 * eye(300)]), targets, loss=loss, eps=1e-5).toarray()
    assert W.shape[1] > 65_536
    np.testing.assert_allclose(W[:, :50], twin[:, :50], atol=1e-3)
    margins = W[:, 50:-1].reshape(5, 300, own).sum(axis=2) / np.sqrt(own)
    np.testing.assert_allclose(margins, twin[:, 50:-1], atol=1e-3)


# --- what must not matter


def grouped(X, targets, sizes, **more):
    """The same labels, so many at a time, put together again."""
    parts, at = [], 0
    while at < targets.shape[1]:
        size = sizes[len(parts) % len(sizes)]
        parts.append(train(X, targets[:, at : at + size], **more))
        at += size
    return vstack(parts).toarray()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dense", [False, True])
def test_the_same_bits_for_any_threads_order_and_grouping(loss, dense, threads):
    X, targets = problem(250, 60, 50)
    if dense:
        X = csr_matrix(hstack([X, np.cos(np.arange(250 * 37)).reshape(250, 37) / 9]), dtype="f4")
    threads(1)
    W = train(X, targets, loss=loss, eps=0.01).toarray()
    for count in (2, 5):
        threads(count)
        np.testing.assert_array_equal(train(X, targets, loss=loss, eps=0.01).toarray(), W)
    for sizes in ((1,), (16,), (3, 17, 5), (40,)):
        np.testing.assert_array_equal(grouped(X, targets, sizes, loss=loss, eps=0.01), W)
    order = np.random.default_rng(1).permutation(50)
    shuffled = train(X, targets[:, order], loss=loss, eps=0.01).toarray()
    np.testing.assert_array_equal(shuffled, W[order])


def test_the_same_bits_where_steps_come_from_samples():
    X, targets = problem(24_000, 30, 20)
    W = train(X, targets, eps=0.01).toarray()
    for sizes in ((1,), (4, 9)):
        np.testing.assert_array_equal(grouped(X, targets, sizes, eps=0.01), W)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_same_bits_where_single_precision_is_not_enough(loss):
    """More labels than are solved at once all wait for the end in double precision."""
    X, targets = problem(200, 40, 50)
    W = train(X, targets, loss=loss, eps=1e-9)
    assert excess(X, targets, W, loss, rounded=True).max() < 1e-9
    for sizes in ((1,), (3, 17)):
        alone = grouped(X, targets, sizes, loss=loss, eps=1e-9)
        np.testing.assert_array_equal(alone, W.toarray())


def test_the_same_bits_with_a_copy_of_the_rows_on_each_memory_node(tmp_path):
    code = f"""
import numpy as np, megalabel
from scipy.sparse import load_npz, save_npz
from megalabel.linear import OneVsAll, TreeClassifier
megalabel.set_threads(2)
X, Y = load_npz("{tmp_path}/X.npz"), load_npz("{tmp_path}/Y.npz")
weights = [OneVsAll().fit(X, Y).weights_]
weights += TreeClassifier(arity=4, max_leaf=5).fit(X, Y).levels_[0]
np.save("{tmp_path}/out.npy", np.concatenate([level.to_csr().data for level in weights]))
"""
    X, targets = problem(400, 60, 100)
    save_npz(tmp_path / "X.npz", X)
    save_npz(tmp_path / "Y.npz", csr_matrix(targets))
    found = []
    for nodes in ("1", "2"):
        environment = os.environ | {"MEGALABEL_NODES": nodes}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        found.append(np.load(tmp_path / "out.npy"))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_order_of_features(loss):
    X, targets = problem(250, 60, 17)
    W = train(X, targets, loss=loss, eps=1e-6).toarray()
    order = np.random.default_rng(1).permutation(60)
    back = train(X[:, order], targets, loss=loss, eps=1e-6)[:, [*np.argsort(order), 60]]
    np.testing.assert_allclose(back.toarray(), W, atol=1e-4)  # sums in another order
    assert excess(X, targets, back, loss).max() < 1e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_features_that_no_row_has(loss):
    """A wide matrix takes another way to renumber its features; the weights are the same."""
    X, targets = problem(50, 20, 17)
    W = train(X, targets, loss=loss)
    places = np.sort(np.random.default_rng(0).choice(100_000, 20, replace=False))
    wide = csr_matrix((X.data, places[X.indices], X.indptr), shape=(50, 100_000))
    spread = train(wide, targets, loss=loss)
    np.testing.assert_array_equal(spread[:, [*places, 100_000]].toarray(), W.toarray())
    assert spread.nnz == W.nnz


@pytest.mark.parametrize("loss", LOSSES)
def test_scaled_costs_and_features(loss):
    """Costs c/s² on rows s·x have the minimiser w/s: the ridge is all that sets a scale."""
    X, targets = problem(200, 40, 17)
    W = train(X, targets, loss=loss, eps=1e-6).toarray()
    for s in (0.5, 2.0):
        scaled = train(X * s, targets, 1 / s**2, loss=loss, bias=s, eps=1e-6).toarray()
        np.testing.assert_allclose(s * scaled, W, atol=1e-4)


def test_dearer_positives_and_cheaper_negatives():
    """Positives at 2/p - 1 against negatives at p/(2 - p), the ridge scaled along."""
    X, targets = problem(200, 40, 17)
    p = 0.3
    dear = train(X, targets, 1.0, positive=np.full(17, 2 / p - 1), eps=1e-6).toarray()
    ratio = p / (2 - p)
    s = ratio**-0.5
    # costs times ratio on rows x: the ridge weighs 1/ratio as much, which rows s·x undo
    cheap = train(X * s, targets, ratio * 1.0, positive=np.ones(17), bias=s, eps=1e-6)
    np.testing.assert_allclose(s * cheap.toarray(), dear, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_twice_is_a_row_at_twice_the_cost(loss):
    X, targets = problem(100, 30, 17)
    twice = train(vstack([X, X]), vstack([targets, targets]), 0.5, loss=loss, eps=1e-6)
    W = train(X, targets, 1.0, loss=loss, eps=1e-6)
    np.testing.assert_allclose(twice.toarray(), W.toarray(), atol=1e-4)


# --- a cost for each positive


@pytest.mark.parametrize("loss", LOSSES)
def test_positives_with_factors_of_their_own(loss):
    X, targets = problem(200, 40, 20)
    targets = targets.tolil()
    targets[:, 0] = 0  # a label without positives, whose block has factors all the same
    targets = csc_matrix(targets)
    targets.data[:] = np.random.default_rng(0).uniform(0.1, 5, targets.nnz)
    W = train(X, targets, 0.7, positive=np.linspace(0.5, 2, 20), weighed=True, loss=loss)
    A = augmented(X)
    for label in range(1, 20):
        t, own = signs(targets, label), slice(*targets.indptr[label : label + 2])
        costs = np.full(len(t), 0.7)
        costs[targets.indices[own]] = np.linspace(0.5, 2, 20)[label] * targets.data[own]
        best = objective(A, t, costs, minimiser(A, t, costs, loss), loss)
        ours = objective(A, t, costs, W[label].toarray()[0].astype(np.float64), loss)
        assert ours - best < 1e-4 * best
    # no other label matters, and factors of one are none
    costs = np.linspace(0.5, 2, 20)[[7]]
    found = train(X, targets[:, [7]], 0.7, positive=costs, weighed=True, loss=loss)
    np.testing.assert_array_equal(found.toarray(), W[7].toarray())
    targets.data[:] = 1
    ones = train(X, targets, weighed=True, loss=loss)
    np.testing.assert_array_equal(ones.toarray(), train(X, targets, loss=loss).toarray())


@pytest.mark.parametrize("loss", LOSSES)
def test_a_factor_of_two_is_the_positive_twice(loss):
    X, targets = problem(100, 30, 1)
    t = signs(targets, 0) > 0
    factors = np.where(np.arange(t.sum()) % 2, 2.0, 1.0)
    again = np.flatnonzero(t)[factors == 2]
    twice = train(vstack([X, X[again]]), vstack([targets, targets[again]]), loss=loss, eps=1e-6)
    targets.data[:] = factors
    once = train(X, targets, weighed=True, loss=loss, eps=1e-6)
    np.testing.assert_allclose(once.toarray(), twice.toarray(), atol=1e-4)


# --- groups


def test_a_group_is_its_rows_alone():
    X, targets = problem(200, 40, 40)
    rng = np.random.default_rng(0)
    starts = np.array([0, 3, 3, 25, 40])
    inside = rng.random((200, 4)) < 0.5
    for g in range(4):
        inside[:, g] |= targets[:, starts[g] : starts[g + 1]].toarray().any(axis=1)
    inside[:, 1] = False  # no label, no row
    W = train(X, targets, group_starts=starts, reach=csc_matrix(inside.astype(float)))
    for g in range(4):
        rows, columns = np.flatnonzero(inside[:, g]), slice(starts[g], starts[g + 1])
        if columns.start < columns.stop:
            own = train(X[rows], targets[rows][:, columns])
            np.testing.assert_array_equal(W[columns].toarray(), own.toarray())


def test_a_group_of_all_rows_beside_small_ones(threads):
    X, targets = problem(300, 40, 13)
    starts = np.array([0, 10, 11, 12, 13])
    reach = csc_matrix(hstack([np.ones((300, 1)), targets[:, 10:]]))
    whole = train(X, targets[:, :10]).toarray()
    for count in (1, 2, 7, 40):  # its labels are solved at once, or by many threads
        threads(count)
        W = train(X, targets, group_starts=starts, reach=reach)
        np.testing.assert_array_equal(W[:10].toarray(), whole)


def test_labels_without_positives_are_a_low_bias_alone():
    X, targets = problem(60, 20, 20)
    targets = targets.tolil()
    targets[:, [0, 7, 19]] = 0
    for loss in LOSSES:
        W = train(X, csc_matrix(targets), loss=loss)
        for label in (0, 7, 19):
            assert W[label].indices.tolist() == [20]
            assert W[label].data.tolist() == [-8]
        others = np.setdiff1d(np.arange(20), [0, 7, 19])
        np.testing.assert_array_equal(
            W[others].toarray(), train(X, csc_matrix(targets)[:, others], loss=loss).toarray()
        )


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("bias", [1.0, 2.0, 0.0])
def test_what_pruning_takes_from_own_rows_the_bias_gets(bias, dense):
    X, targets = problem(100, 30, 17)
    if dense:
        X = csr_matrix(hstack([X, np.cos(np.arange(100 * 20)).reshape(100, 20) / 9]), dtype="f4")
    whole = train(X, targets, bias=bias).toarray()
    counts = np.asarray(targets.sum(axis=0)).ravel()
    share = targets.multiply(1 / counts)  # of each own row in the mean of its label
    for prune in (0.05, 0.5, 100.0):
        pruned = train(X, targets, prune=prune, bias=bias)
        assert pruned.has_sorted_indices
        kept = np.where(np.abs(whole[:, :-1]) <= np.float32(prune), 0, whole[:, :-1])
        np.testing.assert_array_equal(pruned.toarray()[:, :-1], kept)
        biases = pruned.toarray()[:, -1]
        if not bias:
            assert not biases.any()
            continue
        lost = (X @ (whole[:, :-1] - kept).T * share.toarray()).sum(axis=0)
        expected = whole[:, -1] + lost * (1 - 1 / counts) / bias
        np.testing.assert_allclose(biases, expected, atol=1e-6)
    assert pruned.getnnz(axis=0)[:-1].sum() == 0  # no more than the biases stay


def test_arrays_that_do_not_fit_are_refused():
    X, targets = problem(30, 10, 4)
    with pytest.raises(ShapeError, match=r"\(30, 10\) but the targets are \(29, 4\)"):
        train(X, targets[:29])
    with pytest.raises(ValueError, match="differ in their sizes"):
        train(X, targets, positive=np.ones(3))
    reach = csc_matrix(np.ones((30, 2)))
    for starts in ([0, 4], [0, 5, 4], [1, 2, 4], [0, 2, 3], [0, -1, 4], []):
        with pytest.raises(ValueError, match="differ in their sizes"):
            train(X, targets, group_starts=np.array(starts), reach=reach)
    with pytest.raises(ValueError, match="not in its group"):
        train(X, targets, group_starts=np.array([0, 2, 4]), reach=csc_matrix((30, 2)))
    outside = csc_matrix((np.ones(1), [35], [0, 1]), shape=(36, 1))
    with pytest.raises(ValueError, match="outside the matrix"):
        train(X, targets, group_starts=np.array([0, 4]), reach=outside)
