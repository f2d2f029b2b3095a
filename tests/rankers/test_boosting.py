from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel import _native, store
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.rankers import BoostedTrees

PLAIN = {"trees": 8, "max_leaves": 6, "min_rows": 3, "min_hessian": 1e-3, "l2": 0.5}


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def examples(random, rows=400, columns=5, missing=0.2, values=40):
    """Rows of few values, some missing, and targets that follow from three columns."""
    X = random.integers(0, values, (rows, columns)).astype(np.float32)
    X[random.random(X.shape) < missing] = np.nan
    signal = np.nan_to_num(X[:, 0], nan=values) + X[:, 1:3].max(axis=1, initial=0)
    margins = 4 * (np.nan_to_num(signal) / values - 0.8)
    return X, random.random(rows) < 1 / (1 + np.exp(-margins))


def loss(margins, y):
    return float(np.logaddexp(0, np.where(y, -margins, margins)).mean())


# --- slow twins in float64


def twin_margins(trees, X):
    """Each row led down each tree."""
    margins = np.full(len(X), trees.base_)
    for start in trees.starts_[:-1]:
        for row, values in enumerate(X):
            node = start
            while trees.feature_[node] >= 0:
                x = values[trees.feature_[node]]
                left = trees.missing_left_[node] if np.isnan(x) else x <= trees.threshold_[node]
                node = start + (trees.left_ if left else trees.right_)[node]
            margins[row] += trees.value_[node]
    return margins


def twin_split(X, g, h, rows, options):
    """The best split of some rows: its gain, and which of them go left."""

    def score(some):
        return g[some].sum() ** 2 / (h[some].sum() + options.l2)

    best, sides = 0.0, None
    for column in X.T:
        here = column[rows]
        for value in np.unique(here[~np.isnan(here)]):
            for missing_left in (False, True):
                left = np.where(np.isnan(here), missing_left, here <= value)
                parts = rows[left], rows[~left]
                if min(map(len, parts)) < options.min_rows:
                    continue
                if min(h[part].sum() for part in parts) < options.min_hessian:
                    continue
                gain = sum(map(score, parts)) - score(rows)
                if gain > max(options.min_gain, best + 1e-9):
                    best, sides = gain, parts
    return best, sides


def twin_fit(options, X, y, weights=None):
    """Margins of training rows after all trees, by trying every split."""
    w = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
    share = (w * y).sum() / w.sum()
    margins = np.full(len(y), np.log(share / (1 - share)))
    for _ in range(options.trees):
        p = 1 / (1 + np.exp(-margins))
        g, h = w * (p - y), w * p * (1 - p)
        rows = np.arange(len(y))
        leaves = [(rows, 0, twin_split(X, g, h, rows, options))]
        while len(leaves) < options.max_leaves:
            best = max(range(len(leaves)), key=lambda at: leaves[at][2][0])
            _, depth, (gain, sides) = leaves[best]
            if gain <= 0:
                break
            children = []
            for part in sides:
                deep = options.max_depth is not None and depth + 1 >= options.max_depth
                split = (0.0, None) if deep else twin_split(X, g, h, part, options)
                children.append((part, depth + 1, split))
            leaves[best : best + 1] = children[:1]
            leaves.append(children[1])
        for rows, _, _ in leaves:
            step = -g[rows].sum() / (h[rows].sum() + options.l2)
            margins[rows] += options.learning_rate * step
    return margins


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_depth": 2},
        {"min_rows": 30, "l2": 5.0},
        {"min_hessian": 4.0, "min_gain": 2.0, "learning_rate": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_trees_are_those_of_every_split_tried(options, weighted, random):
    X, y = examples(random, values=25)
    weights = random.gamma(1, size=len(y)).astype(np.float32) if weighted else None
    trees = BoostedTrees(**(PLAIN | options)).fit(X, y, weights=weights)
    expected = twin_fit(trees, X, y, weights)
    np.testing.assert_allclose(trees.margins(X), expected, rtol=1e-4, atol=1e-5)


def random_trees(random, trees, leaves, features):
    """Arrays of trees that nobody has fitted, of up to so many leaves."""
    arrays = {name: [] for name in ("feature_", "left_", "right_", "missing_left_")}
    starts = [0]
    for _ in range(trees):
        open_nodes, feature, left, right = [0], [-1], [0], [0]
        for _ in range(random.integers(0, leaves)):
            node = open_nodes.pop(random.integers(len(open_nodes)))
            feature[node] = random.integers(features)
            children = random.permutation([len(feature), len(feature) + 1])
            left[node], right[node] = children
            open_nodes += children.tolist()
            for array, filler in ((feature, -1), (left, 0), (right, 0)):
                array += [filler, filler]
        arrays["feature_"] += feature
        arrays["left_"] += left
        arrays["right_"] += right
        arrays["missing_left_"] += random.integers(0, 2, len(feature)).tolist()
        starts.append(len(arrays["feature_"]))
    learned = {k: np.array(v, np.int32) for k, v in arrays.items()}
    nodes = len(learned["feature_"])
    made = BoostedTrees()
    made.restore(
        learned
        | {
            "missing_left_": learned["missing_left_"].astype(np.uint8),
            "starts_": np.array(starts, np.int64),
            "threshold_": random.integers(0, 9, nodes).astype(np.float32),
            "value_": random.normal(size=nodes).astype(np.float32),
            "base_": float(np.float32(random.normal())),
            "gains_": np.zeros(features),
        }
    )
    return made


@settings(max_examples=30)
@given(
    st.integers(0, 2**32),
    st.integers(0, 4),
    st.sampled_from([1, 2, 31, 32, 33, 64, 70, 256]),
    st.integers(1, 4),
    st.integers(0, 40),
)
def test_margins_are_those_of_rows_led_down_each_tree(seed, trees, leaves, features, rows):
    random = np.random.default_rng(seed)
    model = random_trees(random, trees, leaves, features)
    X = random.integers(-1, 10, (rows, features)).astype(np.float32)
    X[random.random(X.shape) < 0.2] = np.nan
    X[random.random(X.shape) < 0.1] = np.inf
    X[random.random(X.shape) < 0.1] = -np.inf
    np.testing.assert_allclose(model.margins(X), twin_margins(model, X), rtol=1e-5, atol=1e-5)


def test_a_margin_does_not_depend_on_the_rows_beside_it(random):
    model = random_trees(random, 20, 31, 3)
    X = random.normal(4, 3, (70, 3)).astype(np.float32)
    together = model.margins(X)
    for some in (slice(0, 1), slice(5, 40), slice(69, 70)):
        np.testing.assert_array_equal(model.margins(X[some]), together[some])


# --- what is learned


def test_the_same_bits_for_any_number_of_threads(threads, random):
    X, y = examples(random, rows=20_000, columns=9, values=1000)
    held_out = np.arange(len(y)) % 7 == 0
    weights = random.random(len(y), np.float32)
    found = []
    for count in (1, 2, 3):
        threads(count)
        trees = BoostedTrees(trees=12, row_share=0.8, feature_share=0.6, patience=3)
        trees.fit(X, y, weights=weights, validation=held_out)
        found.append([np.asarray(v).tobytes() for v in trees.learned().values()])
        found[-1].append(trees.margins(X).tobytes())
    assert found[0] == found[1] == found[2]


def test_the_loss_falls_with_trees(random):
    X, y = examples(random)
    losses = [
        loss(BoostedTrees(trees=trees, min_rows=5).fit(X, y).margins(X), y) for trees in (1, 5, 25)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.8 * losses[0]


def test_a_rising_target_gives_rising_margins():
    X = np.linspace(-3, 3, 600, dtype=np.float32)[:, None]
    trees = BoostedTrees(trees=30).fit(X, X[:, 0] > 0)
    margins = trees.margins(X)
    assert (np.diff(margins) >= 0).all()
    assert margins[0] < -2
    assert margins[-1] > 2


def test_missing_values_go_where_they_serve(random):
    X = random.normal(size=(1000, 2)).astype(np.float32)
    y = random.random(1000) < 0.5
    X[y, 0] = np.nan  # what is missing says it all
    trees = BoostedTrees(trees=20).fit(X, y)
    margins = trees.margins(X)
    assert margins[y].min() > 1.5
    assert margins[~y].max() < -1.5
    assert trees.gains_[0] > 20 * trees.gains_[1]
    # even a value beyond all that were seen is not a missing one
    assert (trees.margins([[np.inf, 0], [-np.inf, 0], [1e30, 0]]) < 0).all()


@pytest.mark.parametrize("largest", [np.inf, 3e38])
def test_infinite_values_are_the_largest(largest, random):
    X = random.choice([-largest, 0, 1, largest], (500, 1)).astype(np.float32)
    y = (X[:, 0] == largest) | (X[:, 0] == 0)
    trees = BoostedTrees(trees=30, min_rows=1).fit(X, y)
    assert ((trees.margins(X) > 0) == y).all()
    assert np.isfinite(trees.threshold_).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_whole_weight_counts_as_repeated_rows(seed):
    random = np.random.default_rng(seed)
    X, y = examples(random, rows=150)
    counts = random.integers(0, 4, len(y))
    counts[:2], y[:2] = 1, [False, True]
    # splits that gain next to nothing may be others
    options = PLAIN | {"min_rows": 1, "min_hessian": 1.0, "min_gain": 0.5}
    some = counts > 0
    weighted = BoostedTrees(**options).fit(X[some], y[some], weights=counts[some])
    repeated = BoostedTrees(**options).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.margins(X), repeated.margins(X), rtol=1e-4, atol=1e-5)


def test_many_values_share_bins(random):
    X = random.normal(size=(3000, 1)).astype(np.float32)
    X[:1000] = 0.25  # as many as a third of all: a bin for itself
    y = np.abs(X[:, 0] - 0.25) < 1e-6
    trees = BoostedTrees(trees=10, bins=8, learning_rate=1.0).fit(X, y)
    assert ((trees.margins(X) > 0) == y).all()
    thresholds = np.unique(trees.threshold_[trees.feature_ >= 0])
    assert len(thresholds) <= 7


def test_rows_held_out_say_when_to_stop(random):
    X, y = examples(random, rows=2000)
    held_out = np.arange(len(y)) >= 1000
    options = {"trees": 300, "min_rows": 2, "learning_rate": 0.3}
    trees = BoostedTrees(**options, patience=10).fit(X, y, validation=held_out)
    count = len(trees.starts_) - 1
    assert 1 <= count < 100
    best = loss(trees.margins(X[held_out]), y[held_out])
    alone = BoostedTrees(**options | {"trees": 300}).fit(X[~held_out], y[~held_out])
    assert best < loss(alone.margins(X[held_out]), y[held_out])
    # no tree has seen a row that is held out, but for where bins end
    fewer = BoostedTrees(**options | {"trees": count}).fit(X[~held_out], y[~held_out])
    np.testing.assert_array_equal(trees.margins(X), fewer.margins(X))


def test_a_seed_draws_rows_and_features(random):
    X, y = examples(random, columns=8)
    some = {"feature_share": 0.3, "row_share": 0.5, "trees": 10, "min_rows": 5}
    first, again, other = (BoostedTrees(**some, seed=s).fit(X, y).margins(X) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert loss(first, y) < 0.9 * loss(np.zeros(len(y)), y)


def test_limits_of_leaves_and_depth_hold(random):
    X, y = examples(random, rows=3000)
    trees = BoostedTrees(trees=5, max_leaves=100, max_depth=4, min_rows=25).fit(X, y)
    for begin, end in zip(trees.starts_, trees.starts_[1:], strict=False):
        depth = np.zeros(end - begin, int)
        for node in range(end - begin):
            if trees.feature_[begin + node] >= 0:
                children = [trees.left_[begin + node], trees.right_[begin + node]]
                depth[children] = depth[node] + 1
        assert depth.max() == 4
    assert len(BoostedTrees(trees=1, max_leaves=7).fit(X, y).feature_) == 13


def test_nothing_to_tell_apart_is_the_base(random):
    X, y = examples(random, rows=100)
    for columns in (np.zeros((100, 2)), np.full((100, 2), np.nan)):
        trees = BoostedTrees().fit(columns, y)
        expected = np.log(y.mean() / (1 - y.mean()))
        np.testing.assert_allclose(trees.margins(columns), expected, rtol=1e-5)
        assert list(trees.starts_) == [0]
    assert (BoostedTrees().fit(X, np.ones(100)).margins(X) > 10).all()
    assert BoostedTrees(trees=3).fit(X, y).margins(X[:0]).shape == (0,)


# --- kept, and refused


def test_trees_are_saved_copied_and_pickled(random, tmp_path):
    X, y = examples(random)
    trees = BoostedTrees(trees=5).fit(X, y)
    store.save(trees, tmp_path / "trees")
    others = [
        copy.deepcopy(trees),
        pickle.loads(pickle.dumps(trees)),
        store.load(tmp_path / "trees"),
    ]
    for other in others:
        np.testing.assert_array_equal(other.margins(X), trees.margins(X))


HOSTILE = {
    "a cycle": ("left_", 1, 0),
    "a node that is its own child": ("right_", 0, 0),
    "a child of another tree": ("right_", 1, 7),
    "a child below zero": ("left_", 0, -1),
    "a child far away": ("left_", 0, 2**31 - 1),
    "two parents": ("left_", 1, 2),
    "a feature that is not there": ("feature_", 0, 2),
    "a feature below -1": ("feature_", 0, -2),
    "a threshold that is no number": ("threshold_", 0, np.nan),
    "a leaf that is infinite": ("value_", 6, np.inf),
    "starts that fall": ("starts_", 1, 9),
    "starts that repeat": ("starts_", 1, 0),
    "starts that begin late": ("starts_", 0, 1),
    "starts that end early": ("starts_", 2, 6),
    "starts below zero": ("starts_", 1, -(2**63)),
}


def two_trees():
    """Of 4 and 2 leaves: nodes 0 to 6, and 7 to 9."""
    return {
        "starts_": np.array([0, 7, 10], np.int64),
        "feature_": np.array([0, 1, -1, 1, -1, -1, -1, 0, -1, -1], np.int32),
        "threshold_": np.zeros(10, np.float32),
        "left_": np.array([1, 3, 0, 5, 0, 0, 0, 1, 0, 0], np.int32),
        "right_": np.array([2, 4, 0, 6, 0, 0, 0, 2, 0, 0], np.int32),
        "missing_left_": np.ones(10, np.uint8),
        "value_": np.arange(10, dtype=np.float32),
        "base_": 0.5,
        "gains_": np.ones(2),
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_arrays_that_are_no_trees_are_refused(name):
    BoostedTrees().restore(two_trees())
    array, place, value = HOSTILE[name]
    learned = two_trees()
    learned[array][place] = value
    with pytest.raises(ValueError, match="boosted trees"):
        BoostedTrees().restore(learned)


@pytest.mark.parametrize("base", [np.nan, 1e300, "0", None])
def test_a_base_that_is_no_logit_is_refused(base):
    with pytest.raises(ValueError, match="base_ of BoostedTrees"):
        BoostedTrees().restore(two_trees() | {"base_": base})


def test_a_tree_of_too_many_leaves_is_refused():
    nodes = 2 * _native.MOST_LEAVES + 1
    inner = np.arange(nodes) % 2 == 0
    inner[-1] = False
    learned = two_trees() | {
        "starts_": np.array([0, nodes], np.int64),
        "feature_": np.where(inner, 0, -1).astype(np.int32),
        "left_": np.where(inner, np.arange(nodes) + 1, 0).astype(np.int32),
        "right_": np.where(inner, np.arange(nodes) + 2, 0).astype(np.int32),
        "threshold_": np.zeros(nodes, np.float32),
        "missing_left_": np.zeros(nodes, np.uint8),
        "value_": np.zeros(nodes, np.float32),
    }
    with pytest.raises(ValueError, match="more leaves than are allowed"):
        BoostedTrees().restore(learned)


def test_what_cannot_be_learned_from_is_refused(random):
    X, y = examples(random, rows=50)
    trees = BoostedTrees(trees=2)
    for wrong in ({"y": y[:-1]}, {"weights": np.ones(49)}, {"validation": [True]}, {"X": X[0]}):
        with pytest.raises(ShapeError):
            trees.fit(**({"X": X, "y": y} | wrong))
    for wrong in (
        {"weights": np.full(50, -1.0)},
        {"weights": np.full(50, np.nan)},
        {"weights": np.zeros(50)},
        {"validation": np.ones(50, bool)},
        {"y": ["a"] * 50},
        {"X": [["a"]] * 50},
        {"X": np.zeros((50, 0))},
    ):
        with pytest.raises(DataError):
            trees.fit(**({"X": X, "y": y} | wrong))
    with pytest.raises(ParameterError, match="max_leaves of BoostedTrees"):
        BoostedTrees(max_leaves=1).fit(X, y)
    with pytest.raises(NotFittedError):
        trees.margins(X)
    with pytest.raises(ShapeError, match="fitted on 5 columns"):
        trees.fit(X, y).margins(X[:, :3])


INTERRUPTED = """
import numpy as np, time
from megalabel.rankers import BoostedTrees
random = np.random.default_rng(0)
X = random.normal(size=(100_000, 10)).astype(np.float32)
y = random.random(100_000) < 0.5
print("ready", flush=True)
try:
    BoostedTrees(trees=100_000).fit(X, y)
except KeyboardInterrupt:
    print(time.time(), flush=True)
"""


def test_a_fit_can_be_interrupted():
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    sent = time.time()
    process.send_signal(signal.SIGINT)
    answer, _ = process.communicate(timeout=60)
    assert float(answer) - sent < 0.5  # under 0.1 s on a machine with nothing else to do
