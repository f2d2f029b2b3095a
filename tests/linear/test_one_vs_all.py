"""OneVsAll: what it answers, and what must not change it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random, vstack

from megalabel import checkpoints, store
from megalabel.data import LabelSet
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import Richards, label_costs
from megalabel.labels.costs import WEIGHTINGS
from megalabel.linear import OneVsAll, training
from megalabel.linear.chunks import ChunkedWeights


@pytest.fixture(scope="module")
def data():
    """Two hundred rows of unit length with forty labels, of which two are never used."""
    rng = np.random.default_rng(0)
    X = random(200, 60, 0.2, format="csr", dtype=np.float32, random_state=0)
    X = csr_matrix(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))), dtype=np.float32)
    S = X @ rng.normal(size=(60, 40)) + 0.1 * rng.normal(size=(200, 40))
    Y = np.quantile(S, np.linspace(0.6, 0.99, 40), axis=0).diagonal() < S
    Y[:, [3, 39]] = False
    return X, csr_matrix(Y.astype(np.float32))


def weights(model):
    return model.weights_.to_csr().toarray()


def fitted(data, **parameters):
    return weights(OneVsAll(**parameters).fit(*data))


def assert_same(first, second):
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)


# --- answers


def test_scores_are_margins_as_probabilities(data):
    X, Y = data
    ranking = OneVsAll().fit(X, Y).rank(X, k=40)
    W = fitted(data)
    margins = np.hstack([X.toarray(), np.ones((200, 1))]) @ W.T
    ours = np.take_along_axis(margins, ranking.ids.astype(int), axis=1)
    np.testing.assert_allclose(ranking.scores, np.clip((ours + 1) / 2, 0, 1), atol=1e-5)
    assert (np.diff(ranking.scores) <= 0).all()
    hits = np.take_along_axis(Y.toarray(), ranking.ids.astype(int), axis=1)
    assert hits[:, 0].mean() > 0.9


def test_logistic_probabilities_are_near_the_true_ones():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)).astype(np.float32)
    true = rng.normal(size=(5, 3))
    P = 1 / (1 + np.exp(-np.hstack([X, np.ones((len(X), 1))]) @ true))
    Y = csr_matrix((rng.random(P.shape) < P).astype(np.float32))
    ranking = OneVsAll(loss="logistic", prune=0.0).fit(X, Y).rank(X, k=3)
    found = np.take_along_axis(P, ranking.ids.astype(int), axis=1)
    assert np.abs(ranking.scores - found).mean() < 0.01
    assert np.abs(ranking.scores - found).max() < 0.05


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_stored_precision_changes_scores_little(data, precision):
    X, Y = data
    W = fitted(data)
    stored = OneVsAll(precision=precision).fit(X, Y)
    assert stored.weights_.precision == precision
    limit = np.abs(W).max(axis=1, keepdims=True) / (2000 if precision == "float16" else 250)
    assert (np.abs(weights(stored) - W) <= limit).all()


# --- what must not matter


@pytest.mark.parametrize("loss", training.LOSSES)
def test_labels_are_independent(data, loss, threads):
    X, Y = data
    threads(1)
    W = fitted(data, loss=loss)
    for count in (2, 5):
        threads(count)
        np.testing.assert_array_equal(fitted(data, loss=loss), W)
    for chosen in ([5], [39, 0, 17], np.arange(40)[::-1], np.arange(20, 40)):
        part = OneVsAll(loss=loss).fit(X, Y[:, chosen])
        np.testing.assert_array_equal(weights(part), W[chosen])


def test_more_labels_than_are_solved_at_once(data, monkeypatch):
    W = fitted(data)
    monkeypatch.setattr("megalabel.linear.one_vs_all.LABELS_AT_ONCE", 7)
    np.testing.assert_array_equal(fitted(data), W)


def test_dense_rows_are_sparse_rows(data):
    X, Y = data
    W = fitted(data)
    np.testing.assert_array_equal(weights(OneVsAll().fit(X.toarray(), Y)), W)
    model = OneVsAll().fit(X, Y)
    sparse, full = model.rank(X, k=5), model.rank(X.toarray(), k=5)
    np.testing.assert_array_equal(sparse.ids, full.ids)
    np.testing.assert_allclose(sparse.scores, full.scores, atol=1e-6)


def test_arrays_are_only_read(data):
    X, Y = (matrix.copy() for matrix in data)
    for matrix in (X, Y):
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.flags.writeable = False
    np.testing.assert_array_equal(weights(OneVsAll().fit(X, Y)), fitted(data))
    unsorted = X.copy()
    unsorted.indices = unsorted.indices.copy()
    unsorted.data = unsorted.data.copy()
    for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        unsorted.indices[start:end] = X.indices[start:end][::-1]
        unsorted.data[start:end] = X.data[start:end][::-1]
    unsorted = csr_matrix((unsorted.data, unsorted.indices, X.indptr), shape=X.shape)
    before = unsorted.indices.copy()
    np.testing.assert_array_equal(weights(OneVsAll().fit(unsorted, Y)), fitted(data))
    np.testing.assert_array_equal(unsorted.indices, before)


def test_the_seed_does_not_matter(data):
    np.testing.assert_array_equal(fitted(data, seed=7), fitted(data))


# --- costs


def explicit(data, positive, negative, **more):
    X, Y = data
    options = {"loss": "squared-hinge", "eps": 0.01, "bias": 1.0, "prune": 0.05} | more
    W = training.train(X, Y.tocsc(), positive_costs=positive, negative_costs=negative, **options)
    return W.toarray()


@pytest.mark.parametrize("weighting", [w for w in WEIGHTINGS if w])
def test_weighting_is_explicit_costs(data, weighting):
    positive, negative = label_costs(weighting, np.diff(data[1].tocsc().indptr), 200)
    found = fitted(data, weighting=weighting, cost=2.0)
    np.testing.assert_array_equal(found, explicit(data, 2 * positive, 2 * negative))
    np.testing.assert_array_equal(
        found, fitted(data, positive_costs=positive, negative_costs=negative, cost=2.0)
    )
    assert not np.array_equal(found, fitted(data, cost=2.0))


def test_any_costs(data):
    rng = np.random.default_rng(0)
    positive, negative = rng.uniform(0.2, 5, 40), rng.uniform(0.2, 5, 40)
    ones = np.ones(40)
    for parameters, costs in (
        ({"positive_costs": positive}, (positive, ones)),
        ({"negative_costs": negative.tolist()}, (ones, negative)),
        ({"positive_costs": positive, "negative_costs": negative}, (positive, negative)),
    ):
        np.testing.assert_array_equal(fitted(data, **parameters), explicit(data, *costs))
    # a label's costs are its own
    X, Y = data
    part = OneVsAll(positive_costs=positive[[9, 2]]).fit(X, Y[:, [9, 2]])
    np.testing.assert_array_equal(weights(part), fitted(data, positive_costs=positive)[[9, 2]])


def test_any_propensities(data):
    X, Y = data
    counts, p = np.diff(Y.tocsc().indptr), np.linspace(0.2, 1, 40)
    for own in (p, p.tolist(), "jpv-amazon", Richards(4.0, 0.3)):
        found = fitted(data, weighting="propensity-rebalanced", propensities=own)
        costs = label_costs("propensity-rebalanced", counts, 200, own)
        np.testing.assert_array_equal(found, explicit(data, *costs))
    # a label's propensity is its own
    model = OneVsAll(weighting="propensity", propensities=p)
    part = model.for_labels(np.array([9, 2])).fit(X, Y[:, [9, 2]])
    np.testing.assert_array_equal(weights(part), weights(model.fit(X, Y))[[9, 2]])


def test_propensities_that_do_not_fit_are_told(data):
    X, Y = data
    for wrong in ("pareto", [0.0] * 40, [1.5] * 40, np.full((40, 1), 0.5), 0.5):
        with pytest.raises(ParameterError, match="propensities of OneVsAll must be one of None"):
            OneVsAll(weighting="propensity", propensities=wrong).fit(X, Y)
    with pytest.raises(ShapeError, match="propensities are of 3 labels, but there are 40"):
        OneVsAll(weighting="propensity", propensities=[1, 1, 1]).fit(X, Y)
    with pytest.raises(ParameterError, match="propensities are for weighting='propensity'"):
        OneVsAll(propensities="jpv").fit(X, Y)


def test_twice_the_cost_is_twice_all_costs(data):
    found = fitted(data, positive_costs=np.full(40, 2), negative_costs=np.full(40, 2.0))
    np.testing.assert_array_equal(found, fitted(data, cost=2.0))


def test_the_two_propensity_weightings_differ_in_the_ridge_alone(data):
    """Costs p/(2 - p) times as high, with as much less of a ridge, which larger rows bring."""
    X, Y = data
    dear = fitted(data, weighting="propensity", eps=1e-6, prune=0.0)
    _, ratios = label_costs("propensity-negatives", np.diff(Y.tocsc().indptr), 200)
    for label in (0, 20, 38):
        s = ratios[label] ** -0.5
        cheap = OneVsAll(weighting="propensity-negatives", eps=1e-6, prune=0.0, bias=s)
        found = weights(cheap.fit(X * s, Y[:, [label]]))[0]
        np.testing.assert_allclose(s * found, dear[label], atol=1e-4)


def test_costs_that_do_not_fit_are_told(data):
    X, Y = data
    with pytest.raises(ShapeError, match=r"positive_costs are of 3 labels but Y is \(200, 40\)"):
        OneVsAll(positive_costs=[1, 2, 3]).fit(X, Y)
    for wrong in ([0.0] * 40, [np.nan] * 40, np.ones((40, 2)), ["a"] * 40, 2.0):
        with pytest.raises(ParameterError, match="negative_costs of OneVsAll must be an array"):
            OneVsAll(negative_costs=wrong).fit(X, Y)
    with pytest.raises(ParameterError, match="either weighting='propensity', or positive_costs"):
        OneVsAll(weighting="propensity", positive_costs=np.ones(40)).fit(X, Y)


def test_costs_are_saved_and_part_of_a_checkpoint(data, tmp_path):
    X, Y = data
    costs = np.linspace(1, 3, 40)
    model = OneVsAll(positive_costs=costs).fit(X, Y)
    store.save(model, tmp_path / "model")
    np.testing.assert_array_equal(store.load(tmp_path / "model").positive_costs, costs)
    # an array of many labels is shown by its ends alone, and two with the same ends are not one
    wide = csr_matrix(np.tile(Y.toarray(), 30))
    first, second = np.ones(1200), np.ones(1200)
    second[600] = 5
    with checkpoints.kept_in(tmp_path / "steps"):
        found = [weights(OneVsAll(positive_costs=c).fit(X, wide)) for c in (first, second)]
    np.testing.assert_array_equal(found[1], weights(OneVsAll(positive_costs=second).fit(X, wide)))
    assert not np.array_equal(*found)


# --- relevance


def test_relevance_is_a_cost_of_each_positive(data):
    X, Y = data
    Y = csr_matrix((np.random.default_rng(0).uniform(0.5, 3, Y.nnz), Y.indices, Y.indptr), Y.shape)
    ones = np.ones(40)
    np.testing.assert_array_equal(weights(OneVsAll().fit(X, Y)), fitted(data))
    found = weights(OneVsAll(relevance="labels").fit(X, Y))
    np.testing.assert_array_equal(found, explicit((X, Y), ones, ones, weighed=True))
    np.testing.assert_array_equal(fitted(data, relevance="labels"), fitted(data))
    dense = Y.toarray()
    for norm, sizes in (
        ("l1", dense.sum(axis=1)),
        ("l2", np.sqrt((dense**2).sum(axis=1))),
        ("max", dense.max(axis=1)),
    ):
        scaled = csr_matrix(dense / np.maximum(sizes, 1e-9)[:, None])
        model = OneVsAll(relevance="labels", relevance_norm=norm, prune=0.0, eps=1e-4)
        wanted = explicit((X, scaled), ones, ones, weighed=True, prune=0.0, eps=1e-4)
        np.testing.assert_allclose(weights(model.fit(X, Y)), wanted, atol=2e-3)


def test_a_relevance_of_zero_is_no_label(data):
    X, Y = data
    with_zeros = Y.copy()
    with_zeros.data[::7] = 0
    without = with_zeros.copy()
    without.eliminate_zeros()
    for relevance in (None, "labels"):
        np.testing.assert_array_equal(
            weights(OneVsAll(relevance=relevance).fit(X, with_zeros)),
            weights(OneVsAll(relevance=relevance).fit(X, without)),
        )
    assert (with_zeros.data == 0).any()  # the caller's matrix is left alone


# --- pruning and the bias


def test_pruning(data):
    whole = fitted(data, prune=0.0)
    kept = np.where(np.abs(whole[:, :-1]) <= np.float32(0.3), 0, whole[:, :-1])
    np.testing.assert_array_equal(fitted(data, prune=0.3)[:, :-1], kept)


def test_no_bias(data):
    X, Y = data
    model = OneVsAll(bias=0).fit(X, Y)
    used = np.asarray(Y.sum(axis=0)).ravel() > 0
    assert not weights(model)[used, -1].any()
    empty = model.rank(csr_matrix((1, 60)), k=1)
    assert empty.scores[0, 0] == 0.5  # a margin of nothing


@pytest.mark.parametrize("bias", [0, 0.01, 10])
def test_labels_never_used_stay_behind_whatever_the_bias(data, bias):
    X, Y = data
    ranking = OneVsAll(bias=bias).fit(X, Y).rank(X, k=40)
    assert (ranking.scores[np.isin(ranking.ids, [3, 39])] < 0.3).all()


# --- strange corpora


def test_labels_never_used_come_last(data):
    X, Y = data
    model = OneVsAll().fit(X, Y)
    W = model.weights_.to_csr()
    for label in (3, 39):
        assert W[label].indices.tolist() == [60]
        assert W[label].data.tolist() == [-8]
    scores = model.rank(X, k=40)
    assert (scores.scores[np.isin(scores.ids, [3, 39])] == 0).all()


def test_a_label_of_all_rows(data):
    X, _ = data
    model = OneVsAll().fit(X, csr_matrix(np.ones((200, 1))))
    assert (model.rank(X, k=1).scores > 0.9).all()


@pytest.mark.parametrize("loss", training.LOSSES)
def test_the_smallest_corpora(loss):
    one = OneVsAll(loss=loss).fit(csr_matrix([[1.0, 0]]), csr_matrix([[1.0]]))
    assert one.rank(csr_matrix([[1.0, 0]]), k=3).ids.tolist() == [[0]]
    nothing = OneVsAll(loss=loss).fit(csr_matrix((3, 2)), csr_matrix((3, 2)))
    assert nothing.rank(csr_matrix((1, 2)), k=2).ids.tolist() == [[0, 1]]
    empty = OneVsAll(loss=loss).fit(csr_matrix((3, 2)), csr_matrix([[1.0], [0], [0]]))
    assert np.isfinite(empty.rank(csr_matrix((1, 2)), k=1).scores).all()
    unlabelled = OneVsAll(loss=loss).fit(csr_matrix([[1.0, 0]]), csr_matrix((1, 0)))
    assert not unlabelled.rank(csr_matrix((1, 2)), k=1).present.any()


def test_rows_without_labels_are_negatives(data):
    X, Y = data
    more = OneVsAll().fit(vstack([X, X]), vstack([Y, csr_matrix(Y.shape)]))
    assert more.rank(X, k=5).scores.mean() < OneVsAll().fit(X, Y).rank(X, k=5).scores.mean() - 0.05


def test_what_does_not_fit_is_told(data):
    X, Y = data
    with pytest.raises(ShapeError, match=r"\(200, 60\).*\(199, 40\)"):
        OneVsAll().fit(X, Y[:199])
    with pytest.raises(ShapeError, match=r"40\) but there are 2 labels"):
        OneVsAll().fit(X, Y, LabelSet(["a", "b"]))
    with pytest.raises(ShapeError, match="61"):
        OneVsAll().fit(X, Y).rank(csr_matrix((1, 61)), k=1)
    bad = X.copy()
    bad.data[0] = np.nan
    with pytest.raises(DataError, match="not a finite number in row 0"):
        OneVsAll().fit(bad, Y)
    for parameters in (
        {"loss": "hinge"},
        {"cost": 0},
        {"cost": float("inf")},
        {"eps": -1},
        {"bias": -1},
        {"prune": -0.1},
        {"weighting": "inverse"},
        {"precision": "float64"},
    ):
        with pytest.raises(ParameterError, match=next(iter(parameters))):
            OneVsAll(**parameters).fit(X, Y)


# --- the store


def test_saved_and_loaded(data, tmp_path):
    X, Y = data
    for precision in ("float32", "int8"):
        model = OneVsAll(precision=precision).fit(X, Y)
        store.save(model, tmp_path / precision)
        assert_same(store.load(tmp_path / precision).rank(X, k=7), model.rank(X, k=7))


def test_learned_parts_that_do_not_fit_are_refused(data):
    X, Y = data
    learned = OneVsAll().fit(X, Y).learned()
    for change in (
        {"weights_": None},
        {"labels_": ["a"]},
        {"labels_": LabelSet(["a"])},
        {"weights_": ChunkedWeights.build(csr_matrix((40, 61)), [0, 20, 40])},
    ):
        with pytest.raises(ValueError, match="OneVsAll"):
            OneVsAll().restore(learned | change)
    for missing in learned:
        with pytest.raises(ValueError, match=missing):
            OneVsAll().restore({k: v for k, v in learned.items() if k != missing})


def tampered(learned, draw):
    """Learned arrays with some numbers or sizes changed."""
    arrays = sorted(k for k, v in learned.items() if isinstance(v, np.ndarray) and v.size)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(arrays))
        array = learned[name].copy()
        kind = draw(st.sampled_from(["number", "cut", "noise", "type"]))
        if kind == "number":
            extremes = [-1, 0, 1, 2**31 - 1, -(2**31)]
            value = np.array(draw(st.sampled_from(extremes)), np.int64).astype(array.dtype)
            array[draw(st.integers(0, array.size - 1))] = value
        elif kind == "cut":
            array = array[: draw(st.integers(0, array.size))]
        elif kind == "noise":
            noise = np.random.default_rng(draw(st.integers(0, 99))).bytes(array.nbytes)
            array = np.frombuffer(noise, array.dtype)
        else:
            array = array.astype(np.float64)
        if array.size == 0:
            arrays.remove(name)
        learned = learned | {name: array}
        if not arrays:
            break
    return learned


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_tampered_weights_never_crash(data, draw):
    X, Y = data
    model = OneVsAll().fit(X[:50], Y[:50])
    with np.errstate(all="ignore"):
        learned = tampered(model.weights_.learned(), draw.draw)
    try:
        level = ChunkedWeights()
        level.restore(learned)
        other = OneVsAll()
        other.restore({"weights_": level, "labels_": model.labels_})
        with np.errstate(all="ignore"):
            other.rank(X[:3], k=4)
    except ValueError:
        pass


# --- Ctrl-C

LONG = """
import numpy as np
from scipy.sparse import csr_matrix
from megalabel.linear import OneVsAll
rng = np.random.default_rng(0)
def rows(width, each, n=150_000):
    columns = rng.integers(0, width, n * each)
    return csr_matrix((np.ones(n * each, np.float32), columns, np.arange(n + 1) * each), (n, width))
X, Y = rows(20_000, 60), rows(32, 1)  # two blocks of labels, each of them many seconds
print("ready", flush=True)
try:
    OneVsAll().fit(X, Y)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def test_ctrl_c_ends_a_long_fit():
    process = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    assert process.stdout.readline() == "stopped\n"
    assert time.monotonic() - started < 2
    process.communicate(timeout=10)
    assert process.returncode == 0


# --- a real corpus


def test_a_part_of_eurlex(eurlex):
    """The 200 most frequent labels of 3,000 rows, where LinearSVC has 62.90, 45.66 and 34.02."""
    found = eurlex(OneVsAll(), rows=3000, labels=200)
    assert (found >= [62.7, 45.5, 33.8]).all(), found


@pytest.mark.slow
def test_eurlex(eurlex):
    found = eurlex(OneVsAll())
    assert (found >= [83.6, 70.5, 58.9]).all(), found
