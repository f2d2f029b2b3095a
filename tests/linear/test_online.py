"""Online trees: beside a slow twin, growing, and where they start from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import systems
from megalabel.base import clone
from megalabel.data import LabelSet
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels.growing import TOP
from megalabel.linear import OnlineTree, TreeClassifier
from megalabel.tagger import Tagger


def stream(seed, n=60, features=12, labels=20):
    """Rows whose labels come one after another, so that every part of it brings new ones."""
    random = np.random.default_rng(seed)
    X = random.random((n, features)) * (random.random((n, features)) < 0.4)
    Y = np.zeros((n, labels), np.float32)
    for i in range(n):
        known = 2 + i * (labels - 2) // n
        Y[i, random.choice(known, size=random.integers(0, 3), replace=False)] = 1
    return csr_matrix(X, dtype=np.float32), csr_matrix(Y)


def learned_in_parts(X, Y, cuts, **parameters):
    model = OnlineTree(**({"arity": 2, "max_leaf": 3, "prune": 0, "passes": 1} | parameters))
    start = 0
    for end in [*cuts, X.shape[0]]:
        width = int(Y[:end].indices.max(initial=0)) + 1  # labels named so far
        model.partial_fit(X[start:end], Y[start:end, :width], LabelSet.numbered(width))
        start = end
    return model


def paths(tree):
    """Of each label that has joined: the (parent, place) of every node down to it."""
    found = {}
    for label in np.flatnonzero(tree.label_parents_ >= 0):
        path = [(int(tree.label_parents_[label]), int(tree.label_places_[label]))]
        while (above := int(tree.node_parents_[path[0][0]])) >= 0:
            path.insert(0, (above, int(tree.node_places_[path[0][0]])))
        found[int(label)] = path
    return found


def twin(model, rows, X, Y):
    """The weights of every (node, place) of the final tree, trained from the first row on."""
    tree = paths(model.tree_)
    columns = model.tree_.columns()
    width = X.shape[1] + 1
    weights = {(p, c): np.zeros(width) for p in range(len(columns)) for c in range(columns[p])}
    squares = {key: np.zeros(width) for key in weights}
    X = np.hstack([X.toarray().astype(np.float64), np.full((X.shape[0], 1), model.bias)])
    for i in rows:
        positive = {step for label in Y[i].indices for step in tree[int(label)]}
        for node in {TOP} | {node for node, _ in positive}:
            for place in range(columns[node]):
                key = (node, place)
                error = 1 / (1 + np.exp(-X[i] @ weights[key])) - (key in positive)
                squares[key] += (error * X[i]) ** 2
                weights[key] -= model.rate * error * X[i] / np.sqrt(model.epsilon + squares[key])
    return weights


def blocks(model):
    """The weights of every (node, place) as vectors, bias last."""
    columns = model.tree_.columns()
    begin, found = 0, {}
    for node, count in enumerate(columns):
        own = model.features_[model.feature_starts_[node] : model.feature_starts_[node + 1]]
        block = model.weights_[begin : begin + len(own) * count].reshape(len(own), count)
        begin += len(own) * count
        for place in range(count):
            found[node, place] = np.zeros(model.n_features_ + 1)
            found[node, place][own] = block[:, place]
    return found


def marginals(model, X):
    """The product of sigmoids down the path of each label, all in float64."""
    weights = blocks(model)
    X = np.hstack([X.toarray().astype(np.float64), np.full((X.shape[0], 1), model.bias)])
    scores = np.zeros((X.shape[0], len(model.labels_)))
    for label, path in paths(model.tree_).items():
        scores[:, label] = np.prod([1 / (1 + np.exp(-X @ weights[step])) for step in path], axis=0)
    return scores


# --- learning


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 59), max_size=4, unique=True).map(sorted))
def test_growth_does_not_change_what_is_learned(seed, cuts):
    # the invariant that defines online label trees: the final tree, had it been there from the
    # first text, would have learned the same
    X, Y = stream(seed)
    model = learned_in_parts(X, Y, cuts)
    first = cuts[0] if cuts else X.shape[0]
    order = np.random.default_rng(0).permutation(first)  # as the first part is shuffled
    expected = twin(model, [*order, *range(first, X.shape[0])], X, Y)
    found = blocks(model)
    assert found.keys() == expected.keys()
    for key, weights in expected.items():
        np.testing.assert_allclose(found[key], weights, rtol=2e-3, atol=2e-4)


def test_several_passes_of_fit_agree_with_the_twin():
    X, Y = stream(1)
    model = OnlineTree(arity=2, max_leaf=3, passes=3, seed=5, rate=0.5, bias=2.0).fit(X, Y)
    random = np.random.default_rng(5)
    rows = np.concatenate([random.permutation(X.shape[0]) for _ in range(3)])
    for key, weights in twin(model, rows, X, Y).items():
        np.testing.assert_allclose(blocks(model)[key], weights, rtol=2e-3, atol=2e-4)


def test_wide_nodes_are_trained_in_stripes():
    X, Y = stream(2, n=150, labels=90)
    model = OnlineTree(max_leaf=100, passes=1).fit(X, Y)
    assert model.tree_.columns().max() > 48
    order = np.random.default_rng(0).permutation(X.shape[0])
    for key, weights in twin(model, order, X, Y).items():
        np.testing.assert_allclose(blocks(model)[key], weights, rtol=2e-3, atol=2e-4)


def test_same_for_any_number_of_threads(threads):
    X, Y = stream(3, n=300, labels=90)
    models = []
    for count in (1, 2, 5):
        threads(count)
        models.append(learned_in_parts(X, Y, [40, 100]))
    for other in models[1:]:
        for name in ("weights_", "squares_", "features_", "label_of_leaf_"):
            np.testing.assert_array_equal(getattr(models[0], name), getattr(other, name))


# --- the tree


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 119), max_size=5, unique=True).map(sorted))
def test_every_label_met_is_in_the_tree_once(seed, cuts):
    X, Y = stream(seed, n=120, labels=60)
    model = learned_in_parts(X, Y, cuts)
    tree = model.tree_
    tree.restore(tree.learned())  # checks that it is a tree
    assert set(np.flatnonzero(tree.label_parents_ >= 0)) == set(Y.indices)
    labels_below = np.bincount(tree.label_parents_[tree.label_parents_ >= 0])
    nodes_below = np.bincount(tree.node_parents_[tree.node_parents_ >= 0], minlength=1)
    assert labels_below.max() <= model.max_leaf
    assert nodes_below.max() <= model.arity
    assert sorted(model.label_of_leaf_) == list(range(len(model.labels_)))


def test_old_labels_keep_their_numbers_and_nothing_is_lost_on_the_way():
    X, Y = stream(4, n=120, labels=60)
    model = learned_in_parts(X[:60], Y[:60], [])
    before = model.labels_
    wide = LabelSet.numbered(60)
    model.partial_fit(X[60:], Y[60:], wide)
    assert len(before) < 60 == len(model.labels_)
    assert model.labels_.take(np.arange(len(before))) == before


def test_like_labels_join_the_same_branch():
    # two subjects with words of their own: new labels go where the classifiers know their words
    random = np.random.default_rng(0)
    labels = np.arange(400) % 32
    subject = labels % 2
    X = np.zeros((400, 40), np.float32)
    for i in range(400):
        X[i, 20 * subject[i] + random.choice(20, 5, replace=False)] = 0.4
    Y = csr_matrix((np.ones(400, np.float32), labels, np.arange(401)), (400, 32))
    order = np.argsort(labels >= 8, kind="stable")  # labels 0 to 7 first
    X, Y, first = csr_matrix(X)[order], Y[order], np.count_nonzero(labels < 8)
    model = OnlineTree(arity=2, max_leaf=4, balance=0.1).fit(X[:first], Y[:first, :8])
    model.set_params(max_leaf=20)
    model.partial_fit(X[first:], Y[first:], LabelSet.numbered(32))
    tops = np.array([paths(model.tree_)[label][1][1] for label in range(32)])
    assert len(set(tops[::2])) == len(set(tops[1::2])) == 1
    assert tops[0] != tops[1]


# --- answering


@pytest.fixture(scope="module")
def grown():
    X, Y = stream(5, n=200, labels=60)
    return learned_in_parts(X, Y, [20, 60, 61, 130]), X


def test_scores_are_the_marginal_probabilities_in_their_order(grown):
    model, X = grown
    expected = marginals(model, X)
    ranking = model.rank(X, 60)
    found = np.zeros_like(expected)
    np.put_along_axis(found, ranking.ids.astype(np.int64), ranking.scores, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert (np.diff(ranking.scores, axis=1) <= 0).all()


def test_a_wide_beam_finds_the_exact_answer(grown):
    model, X = grown
    exact = model.rank(X, 5)
    model.set_params(exact=False, beam=60)
    try:
        np.testing.assert_array_equal(exact.ids, model.rank(X, 5).ids)
    finally:
        model.set_params(exact=True, beam=10)


def test_the_margins_of_an_explanation_multiply_to_the_score(grown):
    model, X = grown
    expected = marginals(model, X)
    for label in range(0, len(model.labels_), 7):
        steps = model.explain(X[3], label)
        assert len(steps) == len(paths(model.tree_)[label])
        product = np.prod([1 / (1 + np.exp(-step.margin)) for step in steps])
        np.testing.assert_allclose(product, expected[3, label], rtol=1e-4)
        for step in steps:
            np.testing.assert_allclose(step.margin, step.bias + step.contributions.sum())


def test_labels_without_texts_come_last_and_join_when_they_are_met():
    X, Y = stream(6)
    wide = csr_matrix((Y.data, Y.indices, Y.indptr), (Y.shape[0], 23))
    model = OnlineTree().fit(X, wide)
    assert (np.sort(model.rank(X, 23).ids[:, -3:]) == [20, 21, 22]).all()
    late = csr_matrix((np.ones(60, np.float32), np.full(60, 21), np.arange(61)), (60, 23))
    model.partial_fit(X, late, model.labels_)
    assert (model.rank(X, 23).ids[:, 0] == 21).mean() > 0.5
    assert (np.sort(model.rank(X, 23).ids[:, -2:]) == [20, 22]).all()


def test_rows_without_labels_only():
    X, Y = stream(7)
    none = csr_matrix(Y.shape, dtype=np.float32)
    model = OnlineTree().partial_fit(X, none, LabelSet.numbered(20))
    assert model.rank(X, 3).scores.max() < 1e-10
    model.partial_fit(X, Y, LabelSet.numbered(20))
    assert model.rank(X, 1).scores.max() > 0.1


# --- keeping, and going wrong


def test_saved_and_loaded_it_goes_on_learning_the_same(tmp_path):
    texts = [f"word{i % 7} word{i % 5} common" for i in range(60)]
    labels = [
        [f"seven {i % 7}"] if i < 30 else [f"five {i % 5}", f"seven {i % 7}"] for i in range(60)
    ]
    stayed, loaded = (systems.create("online-plt", max_leaf=3, arity=2) for _ in range(2))
    for start in range(0, 60, 15):
        part = slice(start, start + 15)
        stayed.partial_fit(texts[part], labels[part])
        loaded.partial_fit(texts[part], labels[part]).save(tmp_path / "model")
        loaded = Tagger.load(tmp_path / "model")
    np.testing.assert_array_equal(stayed.classifier_.weights_, loaded.classifier_.weights_)
    assert stayed.labels == loaded.labels
    np.testing.assert_array_equal(stayed.rank(texts).scores, loaded.rank(texts).scores)
    assert stayed.explain(texts[0], "five 3").reasons


def test_words_that_come_later_are_learned():
    tagger = systems.create("online-plt")
    tagger.partial_fit(["red dress", "blue jeans"] * 5, [["dress"], ["jeans"]] * 5)
    tagger.partial_fit(["steel kettle", "green dress"] * 5, [["kettle"], ["dress"]] * 5)
    assert tagger.tag("a steel kettle", k=1)[0].label == "kettle"
    assert tagger.tag("the red dress", k=1)[0].label == "dress"


def test_explanations_name_words_in_spite_of_hashing():
    tagger = systems.create("online-plt", features__ngram_range=(1, 2))
    tagger.fit(["red dress", "blue jeans"] * 5, [["dress"], ["jeans"]] * 5)
    *_, last = tagger.explain("a red dress", "dress").reasons
    assert {word.text for word in last.evidence} == {"red", "dress", "red dress"}
    assert all(word.share > 0 for word in last.evidence)


def test_a_failed_part_changes_nothing():
    X, Y = stream(8)
    model = OnlineTree().fit(X, Y)
    before = model.learned()
    with pytest.raises(ShapeError, match="20"):
        model.partial_fit(X, Y[:, :10], LabelSet.numbered(10))
    with pytest.raises(ShapeError, match=r"11.*12"):
        model.partial_fit(X[:, :11], Y, LabelSet.numbered(20))
    assert all(value is before[name] for name, value in model.learned().items())


def test_a_tree_trained_in_one_go_names_the_one_that_learns_on():
    X, Y = stream(9)
    model = TreeClassifier().partial_fit(X, Y, LabelSet.numbered(20))
    with pytest.raises(ParameterError, match="online-plt"):
        model.partial_fit(X, Y, LabelSet.numbered(20))


@pytest.mark.parametrize(
    "damage",
    [
        {"weights_": np.zeros(3, np.float32)},
        {"feature_starts_": np.array([5, 1])},
        {"labels_": LabelSet.numbered(3)},
        {"n_features_": -1},
        {"levels_": []},
        {"label_of_leaf_": np.zeros(20, np.int32)},
        {"tree_": None},
        {"squares_": None},
    ],
)
def test_damaged_parts_are_refused(damage):
    X, Y = stream(10)
    model = OnlineTree(max_leaf=30).fit(X, Y)
    with pytest.raises(ValueError, match=r"OnlineTree|labels"):
        clone(model).restore(model.learned() | damage)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("node_parents_", lambda a: np.where(a < 0, 1, a)),  # a loop, and no root
        ("node_places_", lambda a: a + 1),
        ("label_parents_", lambda a: a + 10**6),
        ("label_parents_", lambda a: np.zeros_like(a)),  # labels beside nodes
        ("label_places_", lambda a: a.astype(np.int64)),
    ],
)
def test_damaged_trees_are_refused(name, change):
    model = OnlineTree(arity=2, max_leaf=3).fit(*stream(11))
    learned = model.tree_.learned()
    with pytest.raises(ValueError, match="GrowingTree"):
        clone(model.tree_).restore(learned | {name: change(learned[name])})


def test_features_outside_the_width_are_refused_not_read():
    X, Y = stream(12)
    model = OnlineTree().fit(X, Y)
    model.features_ = model.features_ + 10**6
    with pytest.raises(ValueError, match="width"):
        model.partial_fit(X, Y, LabelSet.numbered(20))


def test_eurlex_in_one_pass(eurlex):
    first, third, fifth = eurlex(OnlineTree(passes=1), rows=5000, labels=500)
    assert first > 69  # trained in one go: 71.5, 55.8, 44.3
    assert third > 52
    assert fifth > 41
