"""Labels that look at a few features: what is left of sparse output layers without torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import expit

from megalabel import store
from megalabel.data import LabelSet
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels import LabelTree
from megalabel.linear import OneVsAll
from megalabel.rankers import DenseTree, SparseLabels, sparse
from megalabel.rankers.fan_in import dense_weights, sparse_weights

RANDOM = np.random.default_rng(0)
WIDTH = 10
LABELS = LabelSet([f"l{i}" for i in range(23)])
WEIGHTS = RANDOM.normal(size=(23, WIDTH)).astype(np.float32)
BIAS = RANDOM.normal(size=23).astype(np.float32)
X = RANDOM.normal(size=(40, WIDTH)).astype(np.float32)


def made(**options):
    return SparseLabels.from_dense(WEIGHTS, BIAS, LABELS, **{"fan_in": 4, **options})


def check_against_dense(model, rtol=1e-5):
    """Each label has the score that its weights for all features give it."""
    weights, bias = model.to_dense()
    wanted = expit(X.astype(np.float64) @ weights.T.astype(np.float64) + bias)
    ranking = model.rank(X, 7)
    np.testing.assert_allclose(ranking.scores, -np.sort(-wanted, axis=1)[:, :7], rtol=rtol)
    of_ids = np.take_along_axis(wanted, ranking.ids, axis=1)
    np.testing.assert_allclose(ranking.scores, of_ids, rtol=rtol)


@pytest.mark.parametrize("group", [1, 4, 16])
@pytest.mark.parametrize("head", [0, 5, 23])
@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_as_with_weights_for_all_features(group, head, precision):
    order = RANDOM.permutation(23)
    model = made(group=group, head=head, precision=precision, order=order)
    check_against_dense(model)
    kept = (model.to_dense()[0] != 0).sum(axis=1)
    assert (kept[order[:head]] == WIDTH).all()
    assert (kept[order[head:]] <= 4).all()
    near = {"float32": 0, "float16": 2e-3, "int8": 2e-2}[precision]
    exact = made(group=group, head=head, order=order).to_dense()[0]
    np.testing.assert_allclose(model.to_dense()[0], exact, atol=near)


def test_all_features_are_the_dense_layer():
    for group in (1, 8):
        weights, bias = made(fan_in=99, group=group).to_dense()
        np.testing.assert_array_equal(weights, WEIGHTS)
        np.testing.assert_array_equal(bias, BIAS)


def test_the_largest_weights_are_kept():
    model = made(fan_in=3)
    weights, _ = model.to_dense()
    least = np.sort(np.abs(WEIGHTS), axis=1)[:, -3, None]
    np.testing.assert_array_equal(weights, np.where(np.abs(WEIGHTS) >= least, WEIGHTS, 0))
    assert model.indices_.dtype == np.uint16
    assert (np.diff(model.indices_.astype(int), axis=1) > 0).all()
    shared = made(fan_in=3, group=23)
    sizes = np.abs(WEIGHTS).mean(axis=0)
    assert set(shared.indices_[0]) == set(np.argsort(-sizes)[:3])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 99),
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(1, 14),
    st.sampled_from([1, 3, 16]),
    st.booleans(),
)
def test_there_and_back(seed, count, width, fan_in, group, by_rows):
    random = np.random.default_rng(seed)
    dense = random.normal(size=(count, width)).astype(np.float32)
    given = csr_matrix(dense) if by_rows else dense
    order = random.permutation(count)
    first = sparse_weights(given, fan_in, group=group, order=order)
    back = dense_weights(*first, width, count)
    assert ((back == dense) | (back == 0)).all()
    for found, before in zip(
        sparse_weights(back, fan_in, group=group, order=order), first, strict=True
    ):
        np.testing.assert_array_equal(found, before)


def test_blocks_of_weights_and_of_rows_change_nothing(monkeypatch):
    model, ranking = made(group=4), made(group=4).rank(X, 5)
    monkeypatch.setattr("megalabel.rankers.fan_in._WEIGHTS", 90)
    monkeypatch.setattr(sparse, "_VALUES", 30)
    again = made(group=4)
    np.testing.assert_array_equal(again.weights_, model.weights_)
    for rows in (X, csr_matrix(X)):
        np.testing.assert_array_equal(again.rank(rows, 5).ids, ranking.ids)
        np.testing.assert_array_equal(again.rank(rows, 5).scores, ranking.scores)


def test_of_a_linear_classifier():
    """Its weights for the bias become biases."""
    Y = csr_matrix((RANDOM.random((40, 6)) < 0.4).astype(np.float32))
    linear = OneVsAll(bias=2.0, loss="logistic").fit(X, Y)
    found, wanted = SparseLabels.of(linear, fan_in=WIDTH).rank(X, 6), linear.rank(X, 6)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-5)


def test_of_dense_rows():
    tree = DenseTree()
    tree.restore(
        {
            "tree_": LabelTree.from_parents(np.full(23, -1)),
            "weights_": [WEIGHTS.astype(np.float16)],
            "biases_": [BIAS],
            "labels_": LABELS,
        }
    )
    found, wanted = SparseLabels.of(tree, fan_in=WIDTH, group=4).rank(X, 6), tree.rank(X, 6)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-5)
    fewer = SparseLabels.of(made(), fan_in=2)
    assert fewer.indices_.shape == (23, 2)


def test_labels_without_a_place_are_not_found():
    model = made(order=np.arange(5))
    ranking = model.rank(X, 9)
    assert (ranking.present.sum(axis=1) == 5).all()
    assert set(np.unique(ranking.ids[ranking.present])) == set(range(5))
    assert (model.to_dense()[1][5:] == -np.inf).all()


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(23)), st.integers(1, 23), st.sampled_from(["float32", "int8"]))
def test_some_labels_rank_as_before(order, count, precision):
    model = made(group=4, head=6, precision=precision, order=np.arange(23)[::-1])
    chosen = np.array(order[:count])
    left = model.take_labels(chosen)
    assert left.labels_ == LABELS.take(chosen)
    weights, bias = model.to_dense()
    np.testing.assert_array_equal(left.to_dense()[0], weights[chosen])
    np.testing.assert_array_equal(left.to_dense()[1], bias[chosen])
    whole, some = model.rank(X, 23), left.rank(X, count)
    kept = [[(int(i), s) for i, s in zip(*line, strict=True) if i in chosen]
            for line in zip(whole.ids, whole.scores, strict=True)]  # fmt: skip
    back = [
        [(int(chosen[i]), s) for i, s in zip(*line, strict=True)]
        for line in zip(some.ids, some.scores, strict=True)
    ]
    assert [dict(line) for line in back] == [dict(line) for line in kept]


@pytest.mark.parametrize("head", [0, 6])
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_among_labels_that_are_allowed(head, share):
    model = made(group=4, head=head, order=np.arange(23)[::-1])
    allowed = np.random.default_rng(3).random(23) < share
    weights, bias = model.to_dense()
    wanted = expit(X.astype(np.float64) @ weights.T.astype(np.float64) + bias)
    wanted = -np.sort(-np.where(allowed, wanted, -np.inf), axis=1)[:, :7]
    ranking = model.rank_allowed(X, 7, allowed)
    np.testing.assert_allclose(ranking.scores, wanted, rtol=1e-5)
    np.testing.assert_array_equal(ranking.present, wanted > -np.inf)
    assert allowed[ranking.ids[ranking.present]].all()
    assert not model.rank_allowed(X, 7, np.zeros(23, bool)).present.any()


def test_kept_in_a_folder(tmp_path):
    for precision in ("float32", "float16", "int8"):
        model = made(group=4, head=3, precision=precision)
        store.save(model, tmp_path / precision)
        read = store.load(tmp_path / precision)
        np.testing.assert_array_equal(read.rank(X, 5).scores, model.rank(X, 5).scores)


def test_what_is_given_wrongly():
    with pytest.raises(ShapeError, match=r"X is \(1, 3\) but SparseLabels was fitted on 10"):
        made().rank(X[:1, :3], 1)
    with pytest.raises(ParameterError, match="precision must be"):
        made(precision="bfloat16")
    with pytest.raises(ParameterError, match="fan_in and group must be at least 1"):
        made(fan_in=0)
    with pytest.raises(ParameterError, match=r"use SparseLabels\.from_dense"):
        SparseLabels().fit(X, csr_matrix((40, 23), dtype=np.float32), LABELS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_of_place_": np.zeros(24, np.int32)}, "has several places"),
        ({"label_of_place_": np.full(24, 23, np.int32)}, "must be labels or -1"),
        ({"label_of_place_": np.full(24, -2, np.int32)}, "must be labels or -1"),
        ({"label_of_place_": np.zeros(23, np.int32)}, r"label_of_place_ .* int32 \(24\)"),
        ({"scales_": np.ones((6, 4), np.float32)}, "scales_ of SparseLabels are for int8"),
        ({"weights_": np.zeros((6, 4, 4), np.int8)}, "scales_ of SparseLabels are for int8"),
        ({"head_bias_": None}, "together"),
        ({"head_labels_": np.array([22, 21, 20], np.int32)}, "must be labels, rising"),
        ({"head_labels_": np.array([20, 21, 23], np.int32)}, "must be labels, rising"),
        ({"head_weights_": np.zeros((3, 9), np.float32)}, r"head_weights_ .*10"),
        ({"head_labels_": np.array([0, 1, 2], np.int32)}, "has several places"),
    ],
)
def test_arrays_that_do_not_fit_each_other(changes, message):
    model = made(group=4, head=3, order=np.arange(23)[::-1])
    assert len(model.label_of_place_) == 20
    model = made(group=4, head=3, order=np.arange(23)[::-1])
    learned = model.learned()
    if len(changes.get("label_of_place_", [])) or "weights_" in changes or "scales_" in changes:
        learned = made(group=4).learned()
    with pytest.raises(ValueError, match=message):
        SparseLabels().restore(learned | changes)


def test_a_feature_outside_the_width_is_refused():
    learned = made().learned()
    learned["indices_"] = learned["indices_"] + np.uint16(WIDTH)
    model = SparseLabels()
    model.restore(learned)
    with pytest.raises(ValueError, match="looks at feature"):
        model.rank(X, 1)
