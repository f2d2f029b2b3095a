"""Classifiers of labels without texts: what they are made of, against slow formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_matrix

import megalabel
from megalabel import LabelSet, _native
from megalabel.data.matrix import canonical
from megalabel.data.synthetic import generate
from megalabel.errors import ShapeError
from megalabel.features import Tfidf
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.linear.blend import (
    COST,
    Blend,
    Parts,
    Texts,
    affordable_shift,
    blended,
    nearest,
    neighbours_of,
    raised,
    thin_product,
)

SHOP = generate(texts=400, labels=200).corpus
WORDS = Tfidf().fit(SHOP.texts)
ROWS = canonical(WORDS.transform(SHOP.texts))
CLASSIFIERS = {
    "dismec": OneVsAll(),
    "logistic": OneVsAll(loss="logistic", bias=2.0),
    "trees": TreeClassifier(trees=2, max_leaf=10, arity=4),
}
NAMES = ["red summer gown", "copper kettle", "qqq zzz", "small wooden chair"]


@pytest.fixture(scope="module")
def fitted():
    made = {}

    def get(name):
        if name not in made:
            made[name] = CLASSIFIERS[name].fit(ROWS[:300], SHOP.targets[:300], SHOP.labels)
        return made[name]

    return get


def parts_of(classifier, names=NAMES, blend=Blend()):  # noqa: B008
    rows = canonical(WORDS.transform(names))
    vectors = canonical(rows.multiply(0.3))
    return Parts(rows, vectors, neighbours_of(classifier, rows, blend))


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 600), st.integers(0, 40), st.integers(1, 90)),
    density=st.floats(0, 0.6),
    least=st.sampled_from([0.0, 0.1, 0.7]),
    seed=st.integers(0, 99),
)
def test_thin_products_are_products_without_small_values(shape, density, least, seed):
    count, middle, width = shape
    random = np.random.default_rng(seed)
    weights = canonical(random_matrix(count, middle, density, random_state=random))
    rows = canonical(random_matrix(middle, width, density, random_state=random) * 2)
    rows.data -= 1  # of both signs
    made = thin_product(weights, rows, least)
    assert made.has_sorted_indices
    assert (np.abs(made.data) >= max(least, 1e-30)).all()
    exact = weights.toarray().astype(np.float64) @ rows.toarray()
    clear = np.abs(np.abs(exact) - least) > 1e-6  # of rounding
    exact[np.abs(exact) < least] = 0
    np.testing.assert_allclose(made.toarray()[clear], exact[clear], rtol=1e-6, atol=1e-7)


def test_thin_products_are_the_same_on_any_number_of_threads():
    random = np.random.default_rng(0)
    weights = canonical(random_matrix(2000, 50, 0.2, random_state=random))
    rows = canonical(random_matrix(50, 300, 0.3, random_state=random))
    before, made = _native.get_threads(), []
    try:
        for threads in (1, 4):
            megalabel.set_threads(threads)
            made.append(thin_product(weights, rows, 0.2))
    finally:
        megalabel.set_threads(before)
    for array in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(made[0], array), getattr(made[1], array))


def test_thin_products_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="another number of rows"):
        thin_product(canonical(csr_matrix((2, 3))), canonical(csr_matrix((4, 3))), 0.1)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("learned", [False, True])
def test_blends_against_the_slow_formula(name, learned, fitted):
    classifier = fitted(name)
    blend = Blend(text=0.6, vectors=0.9, hub=0.4, neighbours=0.2, shift=-0.7)
    parts = parts_of(classifier, blend=blend)
    middle = ROWS[300:].toarray().mean(0) if learned else np.zeros(ROWS.shape[1])
    made = blended(classifier, parts, blend, middle if learned else None)
    trees = [(classifier.weights_, np.arange(200))] if name != "trees" else None
    if trees is None:
        both = zip(classifier.levels_, classifier.trees_, strict=True)
        trees = [(levels[-1], tree.label_of_leaf_) for levels, tree in both]
    assert len(made) == len(trees)
    for weights, (level, leaves) in zip(made, trees, strict=True):
        own = np.zeros((200, ROWS.shape[1] + 1))
        own[leaves] = level.to_csr().toarray()
        for label in range(len(NAMES)):
            shares = parts.near[label].toarray().ravel().astype(np.float64)
            mean = (
                shares @ own
                if shares.any()
                else np.append(np.zeros(ROWS.shape[1]), own[:, -1].mean())
            )
            sums, bias = mean[:-1], mean[-1]
            sums[np.abs(sums) < classifier.prune / 2 / 0.2] = 0
            vector = parts.vectors[label].toarray().ravel()
            expected = 0.6 * parts.words[label].toarray().ravel() + 0.9 * vector + 0.2 * sums
            shift = -0.7 - 0.9 * 0.4 * vector @ middle
            expected = np.append(expected, 0.2 * bias + shift / classifier.bias)
            np.testing.assert_allclose(
                weights[label].toarray().ravel(), expected, rtol=1e-4, atol=1e-6
            )


def recall_of_known(classifier, more=None):
    """R@10 of known labels, alone or beside new ones."""
    truth = SHOP.targets[250:].toarray() > 0
    ids = (more or classifier).rank(ROWS[250:], 10).ids
    truth = np.hstack([truth, np.zeros((len(truth), 1 + len((more or classifier).labels_)), bool)])
    counts = truth.sum(1)
    hits = np.take_along_axis(truth, ids, axis=1).sum(1)
    return (hits[counts > 0] / counts[counts > 0]).mean()


@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_new_labels_are_as_loud_as_those_known_can_afford(name, count, fitted):
    classifier = fitted(name)
    names = [f"{text} {i}" for i, text in enumerate(SHOP.texts.to_pylist()[:count])]
    parts, labels = parts_of(classifier, names), LabelSet(names)
    weights, beside = blended(classifier, parts, Blend()), nearest(parts.near, common=0)
    texts = Texts(ROWS[250:], csr_matrix(SHOP.targets[250:]))
    shift = affordable_shift(classifier, labels, weights, beside, texts)
    before, after = recall_of_known(classifier), []
    for near in (-1e-3, 0.05):  # trees are tried in steps
        louder = [raised(one, (shift + near) / classifier.bias) for one in weights]
        own = (labels, louder, beside) if name == "trees" else (labels, *louder)
        after.append(recall_of_known(classifier, classifier.add_labels(*own)))
    assert before - after[0] <= COST + 1e-9
    if count >= 10:  # fewer can never take all places
        assert before - after[1] > COST


def test_a_raise_is_of_labels_that_something_speaks_for():
    weights = canonical(csr_matrix([[1.0, 0, -2], [0, 3, 0], [0, 0, -2]]))
    assert raised(weights, 0.5).toarray().tolist() == [[1, 0, -1.5], [0, 3, 0.5], [0, 0, -2]]


def test_nearest_neighbours():
    near = csr_matrix(np.array([[0.2, 0, 0.8], [0, 0, 0], [0, 1, 0], [0.5, 0.5, 0]], np.float32))
    assert nearest(near, common=7).tolist() == [2, 7, 1, 0]


def test_nothing_is_blended_of_no_labels(fitted):
    classifier = fitted("dismec")
    empty = canonical(csr_matrix((0, ROWS.shape[1])))
    [made] = blended(
        classifier, Parts(empty, empty, csr_matrix((0, 200), dtype=np.float32)), Blend()
    )
    assert made.shape == (0, ROWS.shape[1] + 1)
    with pytest.raises(ShapeError, match="but the weights have"):
        neighbours_of(classifier, empty[:, :3], Blend())
    texts = Texts(ROWS[:9], csr_matrix(SHOP.targets[:9]))
    assert affordable_shift(classifier, LabelSet([]), [made], np.zeros(0, int), texts) == 0
