"""Trained taggers whose labels look at few features afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import LabelSet, Tagger, systems
from megalabel.errors import ParameterError
from megalabel.labels import LabelTree
from megalabel.linear import OneVsAll
from megalabel.rankers import DenseTree, Rectified, SparseLabels
from megalabel.rankers.thinning import with_fan_in

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 12)).astype(np.float32)
Y = (RANDOM.random((60, 9)) < 0.3).astype(np.float32)
LABELS = LabelSet.numbered(9)


def dense_tree(**learned):
    made = DenseTree()
    given = {
        "tree_": LabelTree.from_parents(np.full(9, -1)),
        "weights_": [RANDOM.normal(size=(9, 12)).astype(np.float16)],
        "biases_": [RANDOM.normal(size=9).astype(np.float32)],
        "labels_": LABELS,
    }
    made.restore(given | learned)
    return made


def linear(loss="squared-hinge", bias=1.0):
    return OneVsAll(loss=loss, bias=bias, prune=0.0).fit(X, Y, LABELS)


MADE = [dense_tree(), linear(), linear("logistic"), linear(bias=0.0)]


@pytest.mark.parametrize("classifier", MADE)
@pytest.mark.parametrize("group", [1, 4])
def test_with_all_features_nothing_changes(classifier, group):
    found = with_fan_in(classifier, 12, group=group).rank(X, 9)
    before = classifier.rank(X, 9)
    scores = np.zeros((2, 60, 9))
    for filled, ranking in zip(scores, (before, found), strict=True):
        np.put_along_axis(filled, ranking.ids.astype(int), ranking.scores, 1)
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-3)  # weights in half precision


@pytest.mark.parametrize("classifier", MADE)
def test_the_largest_weights_stay(classifier):
    weights, bias, _ = classifier.linear_layer()
    weights = np.asarray(weights.todense() if not isinstance(weights, np.ndarray) else weights)
    sparse = with_fan_in(classifier, 4)
    for label in range(9):
        kept = np.sort(np.argsort(-np.abs(weights[label].astype(float)), kind="stable")[:4])
        assert sparse.indices_[label].tolist() == kept.tolist()
        np.testing.assert_allclose(sparse.weights_[label, :, 0], weights[label, kept], rtol=1e-3)
    np.testing.assert_allclose(sparse.bias_[:, 0], bias, rtol=1e-3)


def test_groups_are_of_labels_as_frequent_and_keep_what_is_large_on_average():
    counts = np.array([1, 9, 2, 8, 3, 7, 4, 6, 5])
    sparse = with_fan_in(MADE[0], 3, group=4, counts=counts)
    assert sparse.label_of_place_.tolist() == [1, 3, 5, 7, 8, 6, 4, 2, 0, -1, -1, -1]
    sizes = np.abs(MADE[0].weights_[0].astype(float))[[1, 3, 5, 7]].mean(0)
    assert sparse.indices_[0].tolist() == sorted(np.argsort(-sizes)[:3])


@pytest.mark.parametrize("group", [1, 4])
def test_there_and_back_it_is_the_same(group):
    sparse = with_fan_in(MADE[0], 4, group=group)
    again = with_fan_in(sparse, 4, group=group)
    np.testing.assert_array_equal(sparse.indices_, again.indices_)
    np.testing.assert_array_equal(sparse.weights_, again.weights_)
    np.testing.assert_array_equal(sparse.bias_, again.bias_)
    np.testing.assert_array_equal(sparse.label_of_place_, again.label_of_place_)


def test_a_layer_before_it_stays():
    layer = RANDOM.normal(size=(12, 5)).astype(np.float16)
    whole = Rectified.over(MADE[0], layer, np.zeros(12, np.float32))
    thin = with_fan_in(whole, 4)
    assert isinstance(thin.ranker_, SparseLabels)
    rows = RANDOM.normal(size=(7, 5)).astype(np.float32)
    wide = np.maximum(rows @ layer.astype(np.float32).T, 0)
    np.testing.assert_allclose(
        thin.rank(rows, 3).scores, with_fan_in(MADE[0], 4).rank(wide, 3).scores, rtol=1e-4
    )


def test_a_tagger_with_few_features_a_label(corpus, tmp_path):
    tagger = systems.create("dismec").fit(corpus)
    thin = tagger.prune(fan_in=8, group=2)
    assert isinstance(thin.classifier_, SparseLabels)
    assert thin.provenance_["pruned"] == {"fan_in": 8, "group": 2}
    thin.save(tmp_path / "thin")
    loaded = Tagger.load(tmp_path / "thin")
    texts = corpus.texts.to_pylist()
    np.testing.assert_array_equal(loaded.rank(texts, 3).ids, thin.rank(texts, 3).ids)
    same = (loaded.rank(texts, 1).ids == tagger.rank(texts, 1).ids).mean()
    assert same > 0.6  # of texts with two labels as likely
    assert tagger.evaluate(corpus)["P@1"] - thin.evaluate(corpus)["P@1"] < 0.1
    assert len(thin.prune(fan_in=4).classifier_.indices_) == len(corpus.labels)


def test_what_cannot_be_done_is_told(corpus):
    tagger = systems.create("xr-linear").fit(corpus)
    with pytest.raises(ParameterError, match="does not score labels by a linear layer"):
        systems.create("knn").fit(corpus).prune(fan_in=3)
    with pytest.raises(ParameterError, match="leave out threshold"):
        tagger.prune(0.1, fan_in=3)
    with pytest.raises(ParameterError, match="give fan_in too"):
        tagger.prune(group=3)
    with pytest.raises(ParameterError, match="fan_in must be an integer"):
        tagger.prune(fan_in=0)
    tree = LabelTree.from_parents([-1, -1, -1, 0, 0, 1, 1, 2])
    two = DenseTree(beams=[2])
    two.restore(
        {
            "tree_": tree,
            "weights_": [np.zeros((3, 4), np.float16), np.zeros((8, 4), np.float16)],
            "biases_": [np.zeros(3, np.float32), np.zeros(8, np.float32)],
            "labels_": LabelSet.numbered(8),
        }
    )
    with pytest.raises(ParameterError, match="DenseTree does not score labels by a linear layer"):
        with_fan_in(two, 2)
