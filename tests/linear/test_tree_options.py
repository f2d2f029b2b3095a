"""TreeClassifier: costs, relevances, what labels are clustered by, and trees of other models."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random, vstack

import megalabel
from megalabel import checkpoints, store, systems
from megalabel.base import clone
from megalabel.data import Corpus, LabelSet
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import LabelTree, label_costs, label_vectors
from megalabel.linear import OneVsAll, TreeClassifier, training


@pytest.fixture(scope="module")
def data():
    """Two hundred rows with twelve labels of different relevance."""
    rng = np.random.default_rng(0)
    X = random(200, 40, 0.2, format="csr", dtype=np.float32, random_state=0)
    X = csr_matrix(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))), dtype=np.float32)
    S = X @ rng.normal(size=(40, 12)) + 0.1 * rng.normal(size=(200, 12))
    Y = np.quantile(S, np.linspace(0.7, 0.95, 12), axis=0).diagonal() < S
    return X, csr_matrix((Y * rng.uniform(0.5, 2, Y.shape)).astype(np.float32))


# three clusters of four labels
READY = LabelTree.from_parents([-1] * 3 + list(np.repeat(range(3), 4)), [-1] * 3 + list(range(12)))
FLAT = LabelTree.from_parents([-1] * 12)
EXACT = {"prune": 0.0, "eps": 1e-4}


def weights(model):
    return [level.to_csr().toarray() for level in model.levels_[0]]


def plain(X, targets, **more):
    columns = targets.shape[1]
    costs = {"positive_costs": np.ones(columns), "negative_costs": np.ones(columns)}
    options = {"loss": "squared-hinge", "bias": 1.0, **EXACT, **costs, **more}
    return training.train(X, csr_matrix(targets).tocsc(), **options).toarray()


# --- costs


def test_costs_are_those_of_the_labels(data):
    X, Y = data
    costs = {"positive_costs": np.linspace(0.5, 3, 12), "negative_costs": np.linspace(2, 1, 12)}
    order = FLAT.label_of_leaf_
    flat = weights(TreeClassifier(tree=FLAT, prune=0.05, **costs).fit(X, Y))[0]
    np.testing.assert_array_equal(
        flat, OneVsAll(**costs).fit(X, Y).weights_.to_csr().toarray()[order]
    )
    shuffled = READY.take_labels(np.random.default_rng(1).permutation(12))
    with_costs, without = (
        weights(TreeClassifier(tree=shuffled, prune=0.0, **c).fit(X, Y)) for c in (costs, {})
    )
    np.testing.assert_array_equal(with_costs[0], without[0])  # the nodes above have no costs
    for cluster in range(3):
        labels = shuffled.label_of_leaf_[4 * cluster : 4 * cluster + 4]
        inside = Y[:, labels].getnnz(axis=1) > 0
        own = {name: values[labels] for name, values in costs.items()}
        expected = OneVsAll(prune=0.0, **own).fit(X[inside], Y[inside][:, labels])
        np.testing.assert_array_equal(
            with_costs[1][4 * cluster : 4 * cluster + 4], expected.weights_.to_csr().toarray()
        )


def test_named_weightings(data):
    X, Y = data
    counts = np.diff(Y.tocsc().indptr)
    positive, negative = label_costs("propensity-negatives", counts, 200)
    named = TreeClassifier(tree=READY, weighting="propensity-negatives").fit(X, Y)
    given = TreeClassifier(tree=READY, positive_costs=positive, negative_costs=negative).fit(X, Y)
    for one, other in zip(weights(named), weights(given), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ShapeError, match="negative_costs are of 3 labels"):
        TreeClassifier(negative_costs=[1, 2, 3]).fit(X, Y)


# --- relevance


@pytest.mark.parametrize("norm", [None, "l1", "l2", "max"])
def test_relevances_are_gathered_up_the_tree(data, norm):
    X, Y = data
    dense = Y.toarray().astype(np.float64)
    clusters = dense.reshape(200, 3, 4).sum(axis=2)

    def scaled(R):
        sizes = {
            None: np.ones(200),
            "l1": R.sum(axis=1),
            "l2": np.sqrt((R**2).sum(axis=1)),
            "max": R.max(axis=1),
        }[norm]
        return R / np.maximum(sizes, 1e-9)[:, None]

    found = {
        mode: weights(
            TreeClassifier(tree=READY, relevance=mode, relevance_norm=norm, **EXACT).fit(X, Y)
        )
        for mode in (None, "labels", "nodes")
    }
    top = plain(X, scaled(clusters), weighed=True)
    np.testing.assert_allclose(found["nodes"][0], top, atol=2e-3)
    np.testing.assert_array_equal(found["labels"][0], found[None][0])
    np.testing.assert_array_equal(found[None][0], plain(X, clusters))
    np.testing.assert_array_equal(found["labels"][1], found["nodes"][1])
    for cluster in range(3):
        rows, columns = clusters[:, cluster] > 0, slice(4 * cluster, 4 * cluster + 4)
        leaves = plain(X[rows], scaled(dense)[rows][:, columns], weighed=True)
        np.testing.assert_allclose(found["nodes"][1][columns], leaves, atol=2e-3)
        assert np.abs(found[None][1][columns] - leaves).max() > 0.01


def test_a_relevance_of_two_is_the_positive_twice(data):
    """For one label: another's positives would come twice as its negatives."""
    X, Y = data
    y = csr_matrix((Y[:, [0]] > 0).astype(np.float32))
    again = np.flatnonzero(y.toarray()[:, 0])[::2]
    twice = y.copy()
    twice.data[::2] = 2
    tree = LabelTree.from_parents([-1])
    model = TreeClassifier(tree=tree, relevance="nodes", prune=0.0, eps=1e-6).fit(X, twice)
    other = TreeClassifier(tree=tree, prune=0.0, eps=1e-6)
    other.fit(vstack([X, X[again]]), vstack([y, y[again]]))
    np.testing.assert_allclose(weights(model)[0], weights(other)[0], atol=2e-3)


def test_plain_labels_count_how_many_are_below_a_node(data):
    X, Y = data
    Y = csr_matrix((Y > 0).astype(np.float32))
    nodes = weights(TreeClassifier(tree=READY, relevance="nodes", **EXACT).fit(X, Y))
    labels = weights(TreeClassifier(tree=READY, **EXACT).fit(X, Y))
    np.testing.assert_array_equal(nodes[1], labels[1])
    clusters = Y.toarray().reshape(200, 3, 4).sum(axis=2)
    np.testing.assert_array_equal(nodes[0], plain(X, clusters, weighed=True))


@pytest.mark.parametrize("name", ["relevance", "relevance_norm"])
def test_wrong_relevances_are_told(data, name):
    with pytest.raises(ParameterError, match=f"{name} of TreeClassifier must be one of None"):
        TreeClassifier(**{name: "all"}).fit(*data)


# --- what labels are clustered by


def test_label_vectors_make_the_tree(data):
    X, Y = data
    texts = csr_matrix(np.random.default_rng(0).random((12, 40)), dtype=np.float32)
    for method, mix in (("pifa-paper", None), ("text", None), ("pifa+text", 0.3)):
        model = TreeClassifier(label_vectors=method, label_mix=mix, max_leaf=3)
        model.fit(X, Y, label_rows=texts)
        vectors = label_vectors(X, Y, method, texts, mix=mix)
        tree = LabelTree.balanced(vectors, max_leaf=3, arity=16)
        np.testing.assert_array_equal(model.trees_[0].label_of_leaf_, tree.label_of_leaf_)
    with pytest.raises(ParameterError, match="give label_rows"):
        TreeClassifier(label_vectors="text").fit(X, Y)
    with pytest.raises(ShapeError, match="label_rows are of 11 labels but Y is"):
        TreeClassifier(label_vectors="text").fit(X, Y, label_rows=texts[:11])
    with pytest.raises(ParameterError, match="label_vectors of TreeClassifier"):
        TreeClassifier(label_vectors="words").fit(X, Y)


THINGS = ["oak chair", "pine chair", "steel lamp", "brass lamp"]


@pytest.mark.parametrize("system", ["xr-linear", "bonsai", "parabel", "plt"])
def test_a_tagger_reads_the_names_of_labels(system):
    texts = [f"{thing} {i}" for thing in THINGS for i in range(5)]
    # by their names alone, chairs are like chairs
    labels = LabelSet(["a", "b", "c", "d"], names=THINGS)
    corpus = Corpus(texts, targets=csr_matrix(np.eye(4)[np.arange(20) % 4]), labels=labels)
    options = {"label_vectors": "text", "max_leaf": 2, "trees": 1}
    if system in ("xr-linear", "bonsai"):
        options["arity"] = 2
    fitted = systems.create(system, **options).fit(corpus)
    clusters = fitted.classifier_.trees_[0].label_of_leaf_.reshape(2, 2)
    assert sorted(sorted(c) for c in clusters.tolist()) == [[0, 1], [2, 3]]
    # a longer text is read in place of the name
    labels = LabelSet(labels.ids, THINGS, ["a chair", "a lamp"] * 2)
    other = Corpus(corpus.texts, targets=corpus.targets, labels=labels)
    clusters = systems.create(system, **options).fit(other).classifier_.trees_[0].label_of_leaf_
    assert sorted(sorted(c) for c in clusters.reshape(2, 2).tolist()) == [[0, 2], [1, 3]]
    calibrated = systems.create(system, calibration_texts=10, **options).fit(corpus)
    assert calibrated.calibration_ is not None


def test_labels_that_say_nothing_are_told(corpus):
    numbered = LabelSet.numbered(len(corpus.labels))
    bare = Corpus(corpus.texts, targets=corpus.targets, labels=numbered)
    with pytest.raises(DataError, match="known by number alone"):
        systems.create("xr-linear", label_vectors="pifa+text").fit(bare)
    vectors = Corpus(features=np.eye(len(corpus)), targets=corpus.targets, labels=corpus.labels)
    with pytest.raises(ParameterError, match="vectors made elsewhere"):
        systems.create("xr-linear", label_vectors="text").fit(vectors)


def test_labels_without_a_known_word_are_no_trouble(corpus):
    names = LabelSet([f"zzz{'x' * i}" for i in range(len(corpus.labels))])
    strange = Corpus(corpus.texts, targets=corpus.targets, labels=names)
    fitted = systems.create("xr-linear", label_vectors="text", max_leaf=3).fit(strange)
    assert fitted.evaluate(strange)["P@1"] > 0.8


# --- trees of other models


def test_trees_are_taken_over(data):
    X, Y = data
    labels = LabelSet([f"label {i}" for i in range(12)])
    first = TreeClassifier(trees=3, max_leaf=3, arity=4).fit(X, Y, labels)
    again = TreeClassifier(tree=first.trees_, max_leaf=3, arity=4).fit(X, Y, labels)
    assert len(again.trees_) == 3
    np.testing.assert_array_equal(again.rank(X, 5).scores, first.rank(X, 5).scores)
    assert clone(again).tree == again.tree
    # for the same labels in another order the model is the same
    order = np.random.default_rng(2).permutation(12)
    other = TreeClassifier(tree=first.trees_for(labels.take(order)), max_leaf=3, arity=4)
    ranking = other.fit(X, Y[:, order], labels.take(order)).rank(X, 3)
    np.testing.assert_allclose(ranking.scores, first.rank(X, 3).scores, rtol=1e-6)


def test_trees_for_some_of_the_labels(data):
    X, Y = data
    labels = LabelSet([f"label {i}" for i in range(12)])
    first = TreeClassifier(tree=READY).fit(X, Y, labels)
    [tree] = first.trees_for(labels.take([7, 0, 6, 1, 5]))
    assert tree.level_sizes == [2, 5]
    assert tree.label_of_leaf_.tolist() == [1, 3, 4, 2, 0]
    with pytest.raises(DataError, match=r"1 of 2 labels are not in the tree, such as 'new'"):
        first.trees_for(LabelSet(["label 3", "new"]))
    with pytest.raises(DataError, match=r"such as 'label 3'"):  # a name, but of another label
        first.trees_for(LabelSet(["Q1"], names=["label 3"]))


def test_another_tree_is_not_taken_from_a_checkpoint(data, tmp_path):
    X, Y = data
    other = READY.take_labels(np.arange(12)[::-1])
    with checkpoints.kept_in(tmp_path):
        TreeClassifier(tree=READY).fit(X, Y)
        found = weights(TreeClassifier(tree=other).fit(X, Y))
    for kept, made in zip(found, weights(TreeClassifier(tree=other).fit(X, Y)), strict=True):
        np.testing.assert_array_equal(kept, made)


def test_options_are_saved(data, tmp_path):
    X, Y = data
    costs = np.linspace(1, 2, 12)
    model = TreeClassifier(tree=[READY, FLAT], positive_costs=costs, relevance="nodes").fit(X, Y)
    store.save(model, tmp_path / "model")
    loaded = store.load(tmp_path / "model")
    assert loaded.relevance == "nodes"
    np.testing.assert_array_equal(loaded.positive_costs, costs)
    np.testing.assert_array_equal(loaded.rank(X, 5).scores, model.rank(X, 5).scores)
    store.save(READY, tmp_path / "tree")
    assert megalabel.load(tmp_path / "tree").level_sizes == [3, 12]
