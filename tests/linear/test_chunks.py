"""Chunked weights and tree search against slow twins in float64."""

from copy import deepcopy
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_csr

from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.linear.chunks import (
    POSTPROCESSORS,
    PRECISIONS,
    ChunkedWeights,
    beam_search,
    forest_search,
    subtree_weights,
)

TRANSFORMS = {
    "l1-hinge": lambda v: -np.maximum(0, 1 - v),
    "l2-hinge": lambda v: -(np.maximum(0, 1 - v) ** 2),
    "l3-hinge": lambda v: -(np.maximum(0, 1 - v) ** 3),
    "l4-hinge": lambda v: -(np.maximum(0, 1 - v) ** 4),
    "sigmoid": lambda v: -np.logaddexp(0, -v),
    "noop": lambda v: v,
}


def matrix(rows, columns, density, rng):
    made = random_csr(rows, columns, density, format="csr", dtype=np.float32, random_state=rng)
    made.data = rng.normal(size=made.nnz).astype(np.float32)
    return made


def cleared(made, first, last):
    """The matrix with nothing in some rows."""
    made.data[made.indptr[first] : made.indptr[last]] = 0
    made.eliminate_zeros()
    return made


def random_tree(rng, depth, width=30, roots=1, density=0.3):
    """Ragged levels of weights, with children counts from 1 (at times 0), and shuffled labels."""
    levels, parents = [], roots
    for level in range(depth):
        counts = rng.integers(0 if level == depth - 1 and parents > 1 else 1, 6, parents)
        counts[0] = max(1, counts[0])
        starts = np.concatenate([[0], np.cumsum(counts)])
        weights = matrix(starts[-1], width + 1, density, rng)
        levels.append((cleared(weights, 0, starts[1]), starts))  # an empty chunk
        parents = int(starts[-1])
    return levels, rng.permutation(parents).astype(np.int32)


def built(levels, precision="float32"):
    return [ChunkedWeights.build(*level, precision) for level in levels]


def margins(weights, X, bias):
    X = X.toarray() if hasattr(X, "toarray") else X
    X = np.hstack([X, np.full((len(X), 1), bias)]).astype(np.float64)
    return X @ weights.toarray().astype(np.float64).T


def log_scores(levels, X, post, bias):
    """Log scores of all nodes of every level, in float64."""
    above, result = np.zeros((X.shape[0], len(levels[0][1]) - 1)), []
    for weights, starts in levels:
        own = TRANSFORMS[post](margins(weights, X, bias))
        parent = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        above = own if post == "noop" else own + above[:, parent]
        result.append(above)
    return result


def twin(levels, labels, X, k, beam, post, bias):
    ids = np.full((X.shape[0], k), len(labels), np.int32)
    scores = np.full((X.shape[0], k), -np.inf)
    every = log_scores(levels, X, post, bias)
    for i in range(X.shape[0]):
        alive = np.arange(len(levels[0][1]) - 1)
        for t, (_, starts) in enumerate(levels):
            last = t == len(levels) - 1
            nodes = np.concatenate([np.arange(starts[p], starts[p + 1]) for p in alive])
            numbers = labels[nodes] if last else nodes
            order = np.lexsort((numbers, -every[t][i, nodes].astype(np.float32)))
            alive = nodes[order][: k if last else beam]
        ids[i, : len(alive)] = labels[alive]
        scores[i, : len(alive)] = every[-1][i, alive]
    return ids, scores if post == "noop" else np.where(ids < len(labels), np.exp(scores), -np.inf)


def assert_same(answer, expected, ties=0.02):
    ids, scores = answer
    assert ids.dtype == np.int32
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-6)
    differ = ids != expected[0]  # only near ties
    np.testing.assert_allclose(scores[differ], expected[1][differ], rtol=1e-4, atol=1e-6)
    assert differ.mean() < ties


@pytest.mark.parametrize("seed", range(12))
def test_beam_search_finds_what_the_twin_finds(seed):
    rng = np.random.default_rng(seed)
    levels, labels = random_tree(rng, depth=1 + seed % 4, roots=1 + 2 * (seed == 5))
    X = cleared(matrix(60, 30, 0.3, rng), 2, 3)
    k, beam = int(rng.integers(1, 12)), int(rng.integers(1, 6))
    for post in POSTPROCESSORS:
        for rows in (X, X.toarray(), X[:3]):
            answer = beam_search(built(levels), labels, rows, k, beam=beam, post=post, bias=0.5)
            assert_same(answer, twin(levels, labels, rows, k, beam, post, 0.5))


def random_forest(rng, trees):
    """Trees of different shapes over the same labels, of which none has all, and their number."""
    shapes = [random_tree(rng, depth=1 + t % 3)[0] for t in range(trees)]
    sizes = [levels[-1][1][-1] for levels in shapes]
    n_labels = int(max(sizes)) + 1
    labels = [rng.permutation(n_labels)[:size].astype(np.int32) for size in sizes]
    return list(zip(shapes, labels, strict=True)), n_labels


def mean_twin(answers, n_labels, k):
    """The k best of the mean over the answers of trees, each (ids, scores), in float64."""
    n = len(answers[0][0])
    total, met = np.zeros((n, n_labels)), np.zeros((n, n_labels), bool)
    for ids, scores in answers:
        for row, (own, values) in enumerate(zip(ids, scores, strict=True)):
            there = own < n_labels
            filled = np.full(n_labels, min(0.0, values[there].min(initial=0)))
            filled[own[there]] = values[there]
            total[row] += filled / len(answers)
            met[row, own[there]] = True
    ids, best = np.full((n, k), n_labels, np.int32), np.full((n, k), -np.inf)
    for row in range(n):
        labels = np.flatnonzero(met[row])
        labels = labels[np.lexsort((labels, -total[row, labels].astype(np.float32)))][:k]
        ids[row, : len(labels)], best[row, : len(labels)] = labels, total[row, labels]
    return ids, best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exact", [False, True])
def test_a_forest_is_the_mean_of_its_trees(seed, exact):
    rng = np.random.default_rng(seed)
    forest, n_labels = random_forest(rng, trees=2 + seed % 3)
    trees = [(built(levels), labels) for levels, labels in forest]
    X = cleared(matrix(60, 30, 0.3, rng), 2, 3)
    beam = int(rng.integers(1, 6))
    for post in POSTPROCESSORS:
        if exact and post == "noop":
            continue
        options = {"beam": beam, "post": post, "bias": 0.5, "exact": exact, "n_labels": n_labels}
        for k in (1, 3, n_labels):
            wide = max(k, min(2 * beam, n_labels))
            answers = [beam_search(*tree, X, wide, **options) for tree in trees]
            expected = mean_twin(answers, n_labels, k)
            for rows in (X, X.toarray(), X[:3]):
                answer = forest_search(trees, rows, k, **options)
                # labels of empty chunks tie in each tree; sums over trees round differently
                assert_same(answer, [part[: rows.shape[0]] for part in expected], ties=0.05)
                assert answer[0].shape == (rows.shape[0], k)


@pytest.mark.parametrize("post", ["l3-hinge", "sigmoid", "noop"])
def test_trees_that_are_the_same_give_the_answer_of_one(post):
    rng = np.random.default_rng(3)
    levels, labels = random_tree(rng, depth=3)
    tree, X = (built(levels), labels), matrix(100, 30, 0.3, rng)
    one = beam_search(*tree, X, len(labels), beam=3, post=post)
    two = forest_search([tree, tree], X, len(labels), beam=3, post=post)
    np.testing.assert_array_equal(two[1], one[1])  # halves add up to the same float
    ids = np.lexsort((one[0], -one[1]), axis=1)  # of a forest, equal scores go by number alone
    np.testing.assert_array_equal(two[0], np.take_along_axis(one[0], ids, axis=1))


def test_a_forest_puts_what_is_not_a_number_last():
    """A damaged model may lead one tree to infinity and another to minus infinity."""
    trees = []
    for weights in ([3.0, 0.5], [-3.0, 0.5]):
        level = ChunkedWeights.build(csr_matrix(np.array([weights]).T @ [[1.0, 0.0]]), [0, 2])
        learned = level.learned()
        large = np.abs(learned["entry_weights_"]) > 1
        learned["entry_weights_"] = np.where(
            large, np.float32(np.inf) * learned["entry_weights_"], learned["entry_weights_"]
        )
        damaged = ChunkedWeights()
        damaged.restore(learned)
        trees.append(([damaged], [0, 1]))
    ids, scores = forest_search(trees, np.ones((1, 1)), 2, post="noop")
    assert ids.tolist() == [[1, 0]]
    assert scores.tolist() == [[0.5, -np.inf]]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_batches_and_form_change_nothing(precision, threads):
    rng = np.random.default_rng(1)
    starts = [[0, 7], np.arange(0, 211, 30), np.sort(rng.integers(0, 4000, 211))]
    starts[2][0], starts[2][-1] = 0, 4000
    levels = [(matrix(s[-1], 301, 0.2, rng), s) for s in starts]
    labels, X = rng.permutation(4000).astype(np.int32), matrix(1500, 300, 0.1, rng)
    tree = built(levels, precision)
    forest = [(tree, labels), (tree, rng.permutation(4000)), (tree[1:], rng.permutation(4000))]
    for trees, options in product(
        (forest[:1], forest),
        ({"post": "sigmoid"}, {"post": "noop"}, {"post": "l3-hinge", "exact": True}),
    ):
        threads(1)
        ids, scores = forest_search(trees, X, 10, beam=5, **options)
        threads(3)
        for rows, form in (
            (slice(0, 1500), csr_matrix),
            (slice(0, 1500), csr_matrix.toarray),
            (slice(100, 105), csr_matrix),
            (slice(100, 105), csr_matrix.toarray),
            (slice(7, 8), csr_matrix),
            (slice(200, 270), csr_matrix),
        ):
            again = forest_search(trees, form(X[rows]), 10, beam=5, **options)
            np.testing.assert_array_equal(again[0], ids[rows])
            np.testing.assert_array_equal(again[1], scores[rows])


@pytest.mark.parametrize("density", [0.001, 0.05, 0.9])
@pytest.mark.parametrize("nonzeros", [1, 20, 300])
def test_every_way_to_score_gives_the_same_bits(density, nonzeros):
    rng = np.random.default_rng(0)
    level = ChunkedWeights.build(matrix(60, 301, density, rng), [0, 1, 4, 4, 60])
    X = matrix(40, 300, nonzeros / 300, rng)
    rows, parents = np.repeat(np.arange(40), 4), np.tile(np.arange(4), 40)
    together = level.scores(X, rows, parents)
    np.testing.assert_array_equal(level.scores(X.toarray(), rows, parents), together)
    alone = [level.scores(X[i], [0], [p]) for i, p in zip(rows, parents, strict=True)]
    np.testing.assert_array_equal(np.concatenate(alone), together)
    expected = margins(level.to_csr(), X, 1.0)
    np.testing.assert_allclose(together.reshape(40, 60), expected, atol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("children", [3, 70000])
def test_weights_come_back(precision, children):
    rng = np.random.default_rng(children)
    weights = cleared(matrix(children + 5, 41, 0.05, rng), 1, 2)
    level = ChunkedWeights.build(weights, [0, children, children, children + 5], precision)
    assert level.precision == precision
    assert (level.n_parents, level.n_nodes, level.n_features_) == (3, children + 5, 40)
    back, error = level.to_csr(), abs(level.to_csr() - weights).toarray()
    if precision == "float32":
        assert (back != weights).nnz == 0
    elif precision == "float16":
        np.testing.assert_array_equal(back.data, weights.data.astype(np.float16))
    else:
        assert (error <= abs(weights).max(axis=1).toarray() / 253).all()
    X = matrix(20, 40, 0.4, rng)
    found = level.scores(X, np.arange(20), np.zeros(20))
    expected = margins(back, X, 1.0)[:, :children]
    np.testing.assert_allclose(found.reshape(20, -1), expected, atol=1e-4)


def test_a_large_bias_takes_no_bits_from_the_weights():
    rng = np.random.default_rng(0)
    dense = matrix(30, 41, 0.4, rng).toarray()
    dense[:, -1] = np.linspace(-500, 500, 30)
    dense[7, -1] = 0  # no bias
    level = ChunkedWeights.build(csr_matrix(dense), [0, 10, 10, 30], "int8")
    found = level.to_csr().toarray()
    np.testing.assert_array_equal(found[:, -1], dense[:, -1])
    most = np.abs(dense[:, :-1]).max(axis=1, keepdims=True) / 127
    assert (np.abs(found - dense)[:, :-1] <= most * 0.501).all()
    X = matrix(9, 40, 0.5, rng)
    for bias in (1.0, 0.0, 0.3):
        scores = level.scores(X, np.arange(9), np.full(9, 2), bias=bias).reshape(9, 20)
        wanted = margins(csr_matrix(found[10:]), X, bias)
        np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-4)
    _, features, weights = level.chunks(0, 1)
    np.testing.assert_array_equal(weights[features == 40], np.delete(dense[:10, -1], 7))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("nodes", "width", "density"),
    [
        (300, 65535, 0.002),  # the bias is the last of one section
        (300, 65536, 0.002),  # and alone in another
        (40, 200_000, 0.002),
        (100_000, 30, 0.001),  # children are far apart
        (70_000, 30, 0.00002),  # and farther than 16 bits reach
        (3000, 100, 0.01),
        (66_000, 3, 1.0),  # rows too long for blocks
    ],
)
def test_few_bits_are_enough_for_many_features_and_children(precision, nodes, width, density):
    rng = np.random.default_rng(nodes)
    ends = csr_matrix(([2.0, 2.0], ([0, nodes - 1], [width, width])), (nodes, width + 1))
    weights = csr_matrix(matrix(nodes, width + 1, density, rng) + ends, dtype=np.float32)
    for starts in ([0, nodes], [0, nodes // 3, nodes]):
        level = ChunkedWeights.build(weights, starts, precision)
        back = level.to_csr()
        if precision == "float32":
            assert (back != weights).nnz == 0
        X = matrix(4, width, min(1, max(0.01, 5 / width)), rng)
        parents = np.arange(len(starts) - 1)
        for rows in ([0], [0, 1, 2, 3]):
            asked = np.repeat(rows, len(parents))
            found = level.scores(X, asked, np.tile(parents, len(rows)))
            expected = X[rows] @ back[:, :-1].T + back[:, -1].T.toarray()
            np.testing.assert_allclose(found.reshape(len(rows), -1), expected, atol=1e-4)


GAPS = st.one_of(
    st.sampled_from(
        [1, 2, 255, 256, 257, 511, 512, 65_279, 65_280, 65_535, 65_536, 70_000, 131_072]
    ),
    st.integers(1, 300),
    st.integers(1, 80_000),
)


def rows_with_gaps(features, seed):
    """Weights (nodes, features + 1) whose features have children at the given distances."""
    rng = np.random.default_rng(seed)
    children = [np.cumsum(gaps) - first for gaps, first in features]
    nodes = max(int(places[-1]) for places in children) + 1 + int(rng.integers(3))
    indices = np.concatenate(children)
    columns = np.repeat(np.arange(len(children)), [len(places) for places in children])
    values = rng.choice([-3.0, -0.5, 0.25, 1, 2], len(indices)).astype(np.float32)
    return csr_matrix((values, (indices, columns)), (nodes, len(features) + 1))


FEATURES = st.lists(
    # the first child may be the first of all
    st.tuples(st.lists(GAPS, min_size=1, max_size=40), st.integers(0, 1)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=60, deadline=None)
@given(features=FEATURES, seed=st.integers(0, 99))
def test_children_at_any_distance(precision, features, seed):
    weights = rows_with_gaps(features, seed)
    nodes, width = weights.shape[0], weights.shape[1] - 1
    rng = np.random.default_rng(seed)
    level = ChunkedWeights.build(weights, [0, nodes], precision)
    back = level.to_csr()
    assert (back != 0).nnz == weights.nnz
    np.testing.assert_allclose(back.data, weights.data, atol=0.012 if precision == "int8" else 0)
    np.testing.assert_array_equal(back.indices, weights.indices)
    for X in (matrix(1, width, 1.0, rng), matrix(5, width, 0.5, rng)):
        n = X.shape[0]
        found = level.scores(X, np.arange(n), np.zeros(n, int)).reshape(n, -1)
        expected = (X.astype(np.float64) @ back[:, :-1].T.astype(np.float64)).toarray()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    places = [rng.permutation(nodes), nodes + rng.permutation(nodes)]
    joined = ChunkedWeights.join([level, level], places)
    shuffled = csr_matrix((2 * nodes, width + 1), dtype=np.float32)
    for own in places:
        shuffled += csr_matrix((np.ones(nodes), (own, np.arange(nodes))), (2 * nodes, nodes)) @ back
    assert abs(joined.to_csr() - shuffled).max() == 0


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("gap", "entries"),
    [(255, 1), (256, 2), (65_535, 2), (65_536, 3), (130_815, 3), (130_816, 4)],
)
def test_a_wide_gap_costs_few_entries(precision, gap, entries):
    weights = csr_matrix(([1.0, 1.0], ([3, 3 + gap], [0, 0])), (200_000, 2), dtype=np.float32)
    level = ChunkedWeights.build(weights, [0, 200_000], precision)
    assert len(level.entry_gaps_) == 1 + entries
    assert level.to_csr().nonzero()[0].tolist() == [3, 3 + gap]


def test_float16_is_read_without_help_of_the_processor():
    every = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = every[np.isfinite(every) & (every != 0)]
    level = ChunkedWeights.build(csr_matrix(every[:, None]), [0, len(every)], "float16")
    np.testing.assert_array_equal(level.scores(np.empty((1, 0)), [0], [0]), every)
    with pytest.raises(DataError, match="70000 is too large for float16"):
        ChunkedWeights.build(csr_matrix([[70000.0]]), [0, 1], "float16")


def test_values_of_the_third_hinge():
    level = ChunkedWeights.build(csr_matrix([[1.0, 0]]), [0, 1])
    X = np.array([[-1.0], [0], [0.5], [1], [7]])
    _, scores = beam_search([level], [0], X, 1)
    np.testing.assert_allclose(scores[:, 0], [0.00034, 0.36788, 0.8825, 1, 1], atol=5e-6)


def probability_tree(*levels):
    """Levels whose nodes have the given probabilities whatever the query."""
    return [
        ChunkedWeights.build(
            csr_matrix(np.array([[0, np.log(q / (1 - q))] for q in probabilities], np.float32)),
            starts,
        )
        for probabilities, starts in levels
    ]


TOY = probability_tree(([0.9], [0, 1]), ([0.8, 0.6], [0, 2]), ([0.5, 0.7, 0.95, 0.1], [0, 2, 4]))


@pytest.mark.parametrize("exact", [True, False])
def test_toy_tree_of_probabilities(exact):
    X = np.zeros((1, 1))
    ids, scores = beam_search(TOY, range(4), X, 4, post="sigmoid", exact=exact)
    assert ids.tolist() == [[2, 1, 0, 3]]
    np.testing.assert_allclose(scores, [[0.513, 0.504, 0.36, 0.054]], rtol=1e-5)


def test_a_heavy_label_is_found_below_a_light_node():
    X, weights = np.zeros((1, 1)), np.array([1.0, 1, 1, 20])
    ids, scores = beam_search(TOY, range(4), X, 2, post="sigmoid", exact=True, weights=weights)
    assert ids.tolist() == [[3, 2]]
    np.testing.assert_allclose(scores, [[1.08, 0.513]], rtol=1e-5)
    # Labels without weight come last, by their numbers.
    zero = np.array([0, 1.0, 0, 0])
    ids, scores = beam_search(TOY, range(4), X, 4, post="sigmoid", exact=True, weights=zero)
    assert ids.tolist() == [[1, 0, 2, 3]]
    np.testing.assert_allclose(scores, [[0.504, 0, 0, 0]], rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_exact_search_is_brute_force(seed, weighted):
    rng = np.random.default_rng(seed)
    levels, labels = random_tree(rng, depth=1 + seed % 4)
    X = matrix(50, 30, 0.3, rng)
    weights = rng.exponential(size=len(labels)).astype(np.float32) ** 3
    post = list(POSTPROCESSORS)[seed % 5]
    tree = built(levels)
    k = int(rng.integers(1, 9))
    every = np.exp(log_scores(levels, X, post, 1.0)[-1]) * (weights[labels] if weighted else 1)
    given_weights = subtree_weights(tree, labels, weights) if seed % 2 else weights
    ids, scores = beam_search(
        tree, labels, X, k, post=post, exact=True, weights=given_weights if weighted else None
    )
    best = -np.sort(-every, axis=1)[:, :k]
    np.testing.assert_allclose(scores[:, : best.shape[1]], best, rtol=1e-4, atol=1e-9)
    leaf = np.argsort(labels)
    found = ids[:, : best.shape[1]]
    assert (np.diff(np.sort(found, axis=1), axis=1) > 0).all()  # none twice
    own = np.take_along_axis(every, leaf[found], axis=1)
    np.testing.assert_allclose(scores[:, : best.shape[1]], own, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("post", POSTPROCESSORS)
def test_a_wide_beam_is_exhaustive_and_scores_fall_along_paths(post):
    rng = np.random.default_rng(3)
    levels, labels = random_tree(rng, depth=3)
    X, tree = matrix(60, 30, 0.3, rng), built(levels)
    every = log_scores(levels, X, post, 1.0)[-1]
    everything = len(labels)
    ids, scores = beam_search(tree, labels, X, everything, beam=everything, post=post)
    assert (np.sort(ids, axis=1) == np.arange(everything)).all()
    leaf_scores = np.empty_like(scores)
    np.put_along_axis(leaf_scores, np.argsort(labels)[ids], scores, axis=1)
    expected = every if post == "noop" else np.exp(every)
    np.testing.assert_allclose(leaf_scores, expected, rtol=1e-4, atol=1e-6)
    if post == "noop":
        return
    exact = beam_search(tree, labels, X, everything, post=post, exact=True)
    np.testing.assert_array_equal(exact[0], ids)
    np.testing.assert_array_equal(exact[1], scores)
    inner = beam_search(tree[:2], np.arange(tree[1].n_nodes), X, tree[1].n_nodes, post=post)
    inner_scores = np.empty_like(inner[1])
    np.put_along_axis(inner_scores, inner[0], inner[1], axis=1)
    parent = np.repeat(np.arange(tree[2].n_parents), np.diff(levels[2][1]))
    assert (leaf_scores <= inner_scores[:, parent]).all()


def test_ties_go_to_the_lower_label():
    level = ChunkedWeights.build(csr_matrix(np.ones((40, 2), np.float32)), [0, 15, 40])
    labels = np.arange(40)[::-1]
    for options in ({"post": "l3-hinge"}, {"post": "noop"}, {"post": "sigmoid", "exact": True}):
        for n in (1, 60):
            ids, scores = beam_search([level], labels, np.ones((n, 1)), 5, **options)
            assert (ids == np.arange(5)).all()
            assert (scores == scores[0, 0]).all()


def test_places_left_over_are_padded():
    level = ChunkedWeights.build(csr_matrix([[1.0, 0]]), [0, 1])
    for n in (1, 60):
        ids, scores = beam_search([level], [0], np.ones((n, 1)), 3)
        assert ids.tolist() == [[0, 1, 1]] * n
        assert scores.tolist() == [[1, -np.inf, -np.inf]] * n
    ids, _ = beam_search([level], [6], np.ones((1, 1)), 2, n_labels=9)
    assert ids.tolist() == [[6, 9]]
    ids, scores = beam_search([level], [0], np.ones((0, 1)), 3)
    assert ids.shape == scores.shape == (0, 3)


def test_scores_too_small_for_a_float_keep_their_order():
    weights = csr_matrix(np.array([[0, -9.0], [0, -8], [0, -10]], np.float32))
    ids, scores = beam_search([ChunkedWeights.build(weights, [0, 3])], range(3), [[0.0]], 3)
    assert ids.tolist() == [[1, 0, 2]]
    assert (scores == 0).all()


def test_what_cannot_be_asked():
    level = TOY[0]
    X = np.zeros((1, 1))
    for options, words in (
        ({"k": 0}, "k must be"),
        ({"beam": 0}, "beam must be"),
        ({"post": "l5-hinge"}, "post must be one of 'l1-hinge'"),
        ({"post": "noop", "exact": True}, "exact needs"),
        ({"weights": np.ones(1)}, "exact=True"),
        ({"bias": np.inf}, "bias must be"),
        ({"weights": -np.ones(1), "exact": True}, "weights must be"),
    ):
        with pytest.raises(ParameterError, match=words):
            beam_search([level], [0], X, **{"k": 1} | options)
    with pytest.raises(ParameterError, match="at least one level"):
        beam_search([], [0], X, 1)
    with pytest.raises(ShapeError, match=r"\(1, 3\) but the weights have 1"):
        beam_search([level], [0], np.zeros((1, 3)), 1)
    with pytest.raises(DataError, match="finite"):
        beam_search([level], [0], [[np.nan]], 1)
    with pytest.raises(ValueError, match="4 nodes but 3 have a label"):
        beam_search(TOY, range(3), X, 1)
    with pytest.raises(ValueError, match="level 1 has 2 parents but the level above 1 nodes"):
        beam_search([TOY[0], TOY[2]], range(4), X, 1)
    with pytest.raises(ValueError, match="outside the 4 labels"):
        beam_search(TOY, [0, 1, 2, 4], X, 4)
    with pytest.raises(ValueError, match="outside the matrices"):
        level.scores(X, [1], [0])
    with pytest.raises(NotFittedError):
        ChunkedWeights().scores(X, [0], [0])
    with pytest.raises(NotFittedError):
        ChunkedWeights().to_csr()


def test_what_cannot_be_built():
    weights = csr_matrix((3, 2), dtype=np.float32)
    with pytest.raises(ShapeError, match="end at 2"):
        ChunkedWeights.build(weights, [0, 2])
    with pytest.raises(ValueError, match="must rise"):
        ChunkedWeights.build(weights, [0, 4, 3])
    with pytest.raises(ParameterError, match="precision must be one of"):
        ChunkedWeights.build(weights, [0, 3], "float8")
    with pytest.raises(ShapeError, match="bias"):
        ChunkedWeights.build(csr_matrix((3, 0), dtype=np.float32), [0, 3])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_restored_from_its_learned_arrays(precision):
    rng = np.random.default_rng(0)
    level = ChunkedWeights.build(matrix(20, 9, 0.4, rng), [0, 5, 20], precision)
    learned = level.learned()
    for value in learned.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    again = ChunkedWeights()
    again.restore(learned)
    X = matrix(3, 8, 0.5, rng)
    np.testing.assert_array_equal(again.scores(X, [0, 2], [1, 0]), level.scores(X, [0, 2], [1, 0]))
    for name, value in learned.items():
        damaged = dict(learned)
        damaged[name] = value[:-1].astype(np.float64) if isinstance(value, np.ndarray) else -1
        with pytest.raises(ValueError, match=name):
            ChunkedWeights().restore(damaged)


def damaged(data, level):
    """The arrays of a level with some numbers changed."""
    learned = deepcopy(level.learned())
    names = [k for k, v in learned.items() if isinstance(v, np.ndarray) and v.size]
    if data.draw(st.booleans()):
        learned["block_bits_"] = data.draw(st.integers(0, 16))
    for _ in range(data.draw(st.integers(1, 3))):
        raw = learned[data.draw(st.sampled_from(names))]
        place = data.draw(st.integers(0, raw.size - 1))
        if raw.dtype.kind in "iu":
            info = np.iinfo(raw.dtype)
            near = st.integers(-3, 40).map(lambda v, low=info.min: max(v, low))
            raw[place] = data.draw(st.one_of(st.sampled_from([info.min, info.max]), near))
        else:
            raw[place] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return learned


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_arrays_give_an_error_or_an_answer(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 20)))
    width = data.draw(st.sampled_from([12, 70_000]))
    levels, labels = random_tree(rng, depth=2, width=width, density=4 / width)
    tree = built(levels, data.draw(st.sampled_from(PRECISIONS)))
    learned = damaged(data, tree[1])
    X = matrix(data.draw(st.sampled_from([1, 60])), width, 6 / width, rng)
    X = data.draw(st.sampled_from([X, X.toarray()]))
    exact = data.draw(st.booleans())
    try:
        with np.errstate(all="ignore"):
            tree[1] = ChunkedWeights()
            tree[1].restore(learned)
            ids, _ = beam_search(tree, labels, X, 4, post="sigmoid", exact=exact)
    except ValueError:
        return
    assert ((ids >= 0) & (ids <= len(labels))).all()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_arrays_are_scored_and_joined_or_refused(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 20)))
    width, n = data.draw(st.sampled_from([(12, 9), (70_000, 9), (12, 3000)]))
    weights = matrix(n, width + 1, 40 / width / n, rng)
    level = ChunkedWeights.build(weights, [0, n], data.draw(st.sampled_from(PRECISIONS)))
    learned = damaged(data, level)
    X = matrix(data.draw(st.sampled_from([1, 60])), width, 6 / width, rng)
    try:
        changed = ChunkedWeights()
        changed.restore(learned)
        with np.errstate(all="ignore"):
            scores = changed.scores(X, np.arange(X.shape[0]), np.zeros(X.shape[0], int))
            changed.to_csr()
        joined = ChunkedWeights.join([level, changed], [np.arange(n), np.arange(n, 2 * n)])
    except ValueError:
        return
    assert scores.size == X.shape[0] * np.diff(changed.child_starts_)[0]
    assert joined.n_nodes == 2 * n


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("nodes", "width", "parts"), [(1, 4, 1), (700, 70_000, 3), (40, 9, 7)])
def test_joined_parts_are_what_is_built_at_once(precision, nodes, width, parts):
    rng = np.random.default_rng(nodes)
    weights = matrix(nodes, width + 1, 0.01 if width > 1000 else 0.5, rng)
    skewed = width * (weights.indices / width) ** 3  # some features are in common use
    weights = csr_matrix((weights.data, skewed.astype(int), weights.indptr), weights.shape)
    weights.sum_duplicates()
    places = np.array_split(rng.permutation(nodes), parts)
    made = [ChunkedWeights.build(weights[rows], [0, len(rows)], precision) for rows in places]
    joined = ChunkedWeights.join(made, places)
    whole = ChunkedWeights.build(weights, [0, nodes], precision)
    for name, value in whole.learned().items():
        np.testing.assert_array_equal(joined.learned()[name], value, name)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"places": [[0], [0]]}, "a place of its own"),
        ({"places": [[0], [2]]}, "a place of its own"),
        ({"places": [[0], []]}, "a place for every child"),
        ({"places": [[0]]}, "places for each"),
        ({"precision": "float16"}, "precision"),
        ({"width": 5}, "features"),
        ({"starts": [0, 1, 1]}, "one parent"),
    ],
)
def test_what_cannot_be_joined(changed, said):
    weights = csr_matrix(np.ones((1, changed.get("width", 4)), np.float32))
    first = ChunkedWeights.build(csr_matrix(np.ones((1, 4), np.float32)), [0, 1])
    second = ChunkedWeights.build(
        weights, changed.get("starts", [0, 1]), changed.get("precision", "float32")
    )
    with pytest.raises(ValueError, match=said):
        ChunkedWeights.join([first, second], changed.get("places", [[0], [1]]))
