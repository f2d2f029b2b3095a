"""Label trees: their shape, their clusters against slow twins in float64, and ready-made ones."""

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_csr

from megalabel import _native, store
from megalabel.data.matrix import sparse_rows
from megalabel.errors import (
    DataError,
    MegalabelError,
    NotFittedError,
    ParameterError,
    ShapeError,
    StoreError,
)
from megalabel.labels import LabelTree
from megalabel.labels.tree import GAIN


def unit(rows):
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)


def vectors(n, width=60, density=0.2, seed=0):
    rng = np.random.default_rng(seed)
    rows = random_csr(n, width, density, "csr", np.float32, rng)
    return csr_matrix(unit(rows.toarray()), dtype=np.float32)


def blobs(sizes, width=300, seed=0):
    """Vectors around directions far apart, shuffled, and the blob of each."""
    rng = np.random.default_rng(seed)
    blob = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    share = width // len(sizes)
    rows = np.zeros((len(blob), width), np.float32)
    for row, b in zip(rows, blob, strict=True):
        row[b * share : (b + 1) * share] = 1 + rng.random(share)
    return csr_matrix(unit(rows)), blob


def clusters(tree, level):
    """The labels below each node of a level."""
    everything = np.arange(tree.level_sizes[level - 1] + 1)
    starts = reduce(lambda a, b: b[a], tree.levels_[level:], everything)
    return [set(tree.label_of_leaf_[a:b].tolist()) for a, b in pairwise(starts)]


def same(a, b):
    return np.array_equal(a.label_of_leaf_, b.label_of_leaf_) and all(
        np.array_equal(x, y) for x, y in zip(a.levels_, b.levels_, strict=True)
    )


# --- slow twins


class Random:
    """The kernels' generator, seeded by node."""

    def __init__(self, seed, level, node):
        self.state = seed
        self.state = (self.next() + level) % 2**64
        self.state = (self.next() + node) % 2**64

    def next(self):
        self.state = z = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() * n >> 64


def halves_twin(Z, members, random, spherical, iterations):
    rows = Z.toarray().astype(np.float64)[members]
    n, centre = len(members), unit if spherical else (lambda x: x)
    left = random.below(n)
    right = random.below(n - 1)
    right += right >= left
    direction, before = centre(rows[right]) - centre(rows[left]), None
    for _ in range(iterations):
        order = np.lexsort((np.arange(n), rows @ direction))
        halves = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
        if before is not None and np.array_equal(halves[0], before):
            break
        before = halves[0]
        direction = centre(rows[halves[1]].mean(axis=0)) - centre(rows[halves[0]].mean(axis=0))
    return members[np.concatenate(halves)]


def kmeans_twin(Z, random, k, balanced, iterations):
    rows = Z.toarray().astype(np.float64)
    n = len(rows)
    order = list(range(n))
    for j in range(k):
        other = j + random.below(n - j)
        order[j], order[other] = order[other], order[j]
    centres, before = unit(rows[order[:k]]), None
    for _ in range(iterations):
        scores = rows @ centres.T
        group = scores.argmax(axis=1)
        if balanced:
            counts, larger = np.zeros(k, int), n % k
            for i in np.lexsort((np.arange(n), -scores.max(axis=1))):
                room = (counts < n // k) | ((counts == n // k) & (larger > 0))
                group[i] = np.where(room, scores[i], -np.inf).argmax()
                larger -= counts[group[i]] == n // k
                counts[group[i]] += 1
        total = scores[np.arange(n), group].sum()
        if before is not None and total - before < GAIN * n:
            break
        before = total
        centres = unit(np.array([rows[group == j].sum(axis=0) for j in range(k)]))
    return group


@pytest.mark.parametrize("spherical", [True, False])
@pytest.mark.parametrize("iterations", [1, 3, 20])
@pytest.mark.parametrize("width", [40, 4000], ids=["columns as they are", "columns renumbered"])
def test_halves_are_those_of_the_twin(spherical, iterations, width):
    Z = vectors(400, width, 20 / width, seed=iterations)
    members = np.random.default_rng(0).permutation(400).astype(np.int32)
    starts = np.array([0, 101, 102, 250, 250, 400])
    found = _native.halve_level(
        sparse_rows(Z),
        members=members,
        starts=starts,
        seed=5,
        depth=2,
        spherical=spherical,
        iterations=iterations,
    )
    for node, (a, b) in enumerate(pairwise(starts)):
        expected = members[a:b]
        if b - a > 1:
            expected = halves_twin(Z, expected, Random(5, 2, node), spherical, iterations)
        np.testing.assert_array_equal(found[a:b], expected)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("k", [2, 3, 7, 16])
@pytest.mark.parametrize("width", [40, 4000], ids=["columns as they are", "columns renumbered"])
def test_groups_are_those_of_the_twin(balanced, k, width):
    Z = vectors(150, width, 20 / width, seed=k)
    members, starts, children = _native.cluster_level(
        sparse_rows(Z),
        members=np.arange(150, dtype=np.int32),
        starts=np.array([0, 150]),
        seed=9,
        depth=0,
        largest=1,
        arity=k,
        aim=1,
        balanced=balanced,
        iterations=20,
        tolerance=GAIN,
    )
    expected = kmeans_twin(Z, Random(9, 0, 0), k, balanced, 20)
    groups = [np.flatnonzero(expected == j) for j in range(k)]
    np.testing.assert_array_equal(members, np.concatenate(groups))
    np.testing.assert_array_equal(np.diff(starts), [len(g) for g in groups if len(g)])
    assert children.tolist() == [0, len(starts) - 1]


# --- balanced trees


def test_the_chain_of_eurlex():
    tree = LabelTree.balanced(vectors(3956), max_leaf=16, arity=16)
    assert tree.level_sizes == [16, 256, 3956]
    assert set(np.diff(tree.levels_[-1])) == {15, 16}


@pytest.mark.parametrize("arity", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("labels", [1, 2, 3, 5, 64, 100, 333, 1000])
def test_any_arity_and_number_of_labels(arity, labels):
    tree = LabelTree.balanced(vectors(labels), max_leaf=3, arity=arity)
    sizes = np.diff(tree.levels_[-1])
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() <= 3
    assert sorted(tree.label_of_leaf_) == list(range(labels))
    for starts in tree.levels_[1:-1]:
        assert set(np.diff(starts)) == {arity}
    if tree.depth > 1:
        assert 2 <= tree.level_sizes[0] <= arity
    np.testing.assert_array_equal(
        reduce(lambda product, C: C @ product, tree.chain()).toarray(), np.ones((labels, 1))
    )


def test_four_blobs_are_found():
    Z, blob = blobs([25, 25, 25, 25])
    for seed in range(5):
        tree = LabelTree.balanced(Z, max_leaf=25, arity=2, seed=seed)
        assert tree.level_sizes == [2, 4, 100]
        found = clusters(tree, 2)
        assert sorted(map(sorted, found)) == sorted(
            np.flatnonzero(blob == b).tolist() for b in range(4)
        )


def test_a_large_node_is_shared_out_with_the_same_result(threads):
    Z, blob = blobs([1000, 1000, 1000, 1000], width=1200)  # over a million entries
    trees = {}
    for count in (1, 2, 5):
        threads(count)
        trees[count] = [
            LabelTree.balanced(Z, max_leaf=1000, arity=4),
            LabelTree.kmeans(Z, max_leaf=100, arity=7),
            LabelTree.kmeans(Z, max_leaf=100, arity=7, balanced=True),
        ]
    for count in (2, 5):
        assert all(map(same, trees[1], trees[count]))
    for cluster in clusters(trees[1][0], 1):
        assert len(set(blob[list(cluster)])) == 1


@pytest.mark.parametrize(
    "build",
    [
        lambda Z: LabelTree.balanced(Z, max_leaf=5, arity=4),
        lambda Z: LabelTree.balanced(Z, max_leaf=5, arity=4, spherical=False),
        lambda Z: LabelTree.kmeans(Z, arity=6, max_leaf=5),
        lambda Z: LabelTree.kmeans(Z, arity=6, max_leaf=5, balanced=True),
    ],
    ids=["balanced", "means", "kmeans", "balanced kmeans"],
)
class TestEveryBuilder:
    def test_the_number_of_threads_does_not_matter(self, build, threads):
        Z = vectors(2000)
        trees = []
        for count in (1, 2, 5):
            threads(count)
            trees.append(build(Z))
        assert same(trees[0], trees[1])
        assert same(trees[0], trees[2])

    def test_sparse_and_dense_vectors_give_the_same(self, build):
        Z = vectors(300)
        assert same(build(Z), build(Z.toarray()))

    def test_arrays_that_cannot_be_written(self, build):
        Z = vectors(300)
        expected = build(Z)
        for array in (Z.data, Z.indices, Z.indptr):
            array.flags.writeable = False
        assert same(build(Z), expected)

    @pytest.mark.parametrize("labels", [1, 2, 3, 5, 6, 7, 50])
    def test_few_labels(self, build, labels):
        tree = build(vectors(labels))
        tree.check_learned()
        assert tree.n_labels == labels
        if labels <= 5:
            assert tree.level_sizes == [labels]

    @pytest.mark.parametrize("labels", [1, 2, 40, 333])
    def test_zeros_and_equal_vectors_are_dealt_out(self, build, labels):
        for Z in (csr_matrix((labels, 9)), csr_matrix(np.ones((labels, 9)) / 3)):
            tree = build(Z)
            assert sorted(tree.label_of_leaf_) == list(range(labels))
            sizes = np.diff(tree.levels_[-1])
            assert sizes.max() - sizes.min() <= 1

    def test_some_zeros_among_the_others(self, build):
        Z = vectors(300).toarray()
        Z[::3] = 0
        assert same(build(Z), build(csr_matrix(Z)))

    def test_no_columns_at_all(self, build):
        assert build(csr_matrix((20, 0), dtype=np.float32)).n_labels == 20

    def test_enormous_values_do_no_harm(self, build):
        Z = vectors(100).toarray() * np.float32(3e38)
        Z[::2] *= -1
        assert build(Z).n_labels == 100

    def test_survives_the_store(self, build, tmp_path):
        tree = build(vectors(300))
        store.save(tree, tmp_path / "tree")
        again = store.load(tmp_path / "tree")
        assert same(again, tree)
        assert repr(again) == repr(tree)

    def test_no_labels(self, build):
        with pytest.raises(DataError, match="at least one label"):
            build(csr_matrix((0, 5)))


def test_the_seed_matters():
    Z = vectors(500)
    trees = [LabelTree.balanced(Z, max_leaf=10, seed=seed) for seed in (0, 0, 1)]
    assert same(trees[0], trees[1])
    assert not same(trees[0], trees[2])


# --- k-means trees


def test_blobs_of_any_size_are_found():
    Z, blob = blobs([90, 5, 40])
    best = min(
        (LabelTree.kmeans(Z, arity=3, max_leaf=1, depth=1, seed=s) for s in range(10)),
        key=lambda tree: -len({frozenset(set(blob[list(c)])) for c in clusters(tree, 1)}),
    )
    assert sorted(map(len, clusters(best, 1))) == [5, 40, 90]


@pytest.mark.parametrize(("arity", "depth"), [(3, None), (10, 1), (10, 2), (1000, None)])
def test_balanced_clusters_of_any_arity(arity, depth):
    tree = LabelTree.kmeans(vectors(700), arity=arity, max_leaf=7, depth=depth, balanced=True)
    for level in range(1, tree.depth):
        sizes = [len(c) for c in clusters(tree, level)]
        assert max(sizes) - min(sizes) <= 1
    for starts in tree.levels_[:-1]:
        assert np.diff(starts).max() <= arity
    if depth is None:
        assert max(map(len, clusters(tree, tree.depth - 1))) <= 7
    else:
        assert tree.depth == depth + 1


def test_small_clusters_are_carried_down():
    Z, _ = blobs([90, 5])
    tree = LabelTree.kmeans(Z, arity=2, max_leaf=10, depth=3)
    assert tree.depth == 4
    small = [len(c) <= 10 for c in clusters(tree, 1)]
    assert [count == 1 for count in np.diff(tree.levels_[1])] == small


# --- the parts of a tree


def test_places_parents_and_chain_agree():
    tree = LabelTree.balanced(vectors(200), max_leaf=10, arity=4)
    np.testing.assert_array_equal(tree.label_of_leaf_[tree.leaf_of_label], np.arange(200))
    for level, C in enumerate(tree.chain(), start=1):
        assert C.shape == (tree.level_sizes[level - 1], [1, *tree.level_sizes][level - 1])
        rows = tree.label_of_leaf_ if level == tree.depth else np.arange(C.shape[0])
        np.testing.assert_array_equal(C.tocsr()[rows].indices, tree.parents(level))
    assert same(LabelTree.from_chain(tree.chain()), tree)
    for level in (0, tree.depth + 1):
        with pytest.raises(ParameterError, match=f"level must be from 1 to {tree.depth}"):
            tree.parents(level)


def test_a_tree_that_was_not_made():
    with pytest.raises(NotFittedError):
        _ = LabelTree().depth
    assert repr(LabelTree()) == "LabelTree()"
    with pytest.raises(ValueError, match="LabelTree lacks levels_"):
        LabelTree().restore({})


GOOD = LabelTree.balanced(vectors(20), max_leaf=5, arity=2).learned()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("levels_", None),
        ("levels_", []),
        ("levels_", [1, 2]),
        ("levels_", GOOD["levels_"][:2]),
        ("levels_", GOOD["levels_"][1:]),
        ("levels_", [np.array([0, 20], np.int32)]),
        ("levels_", [np.array([1, 20])]),
        ("levels_", [np.array([0, 2]), np.array([0, 20, 20])]),
        ("levels_", [np.array([0, 2]), np.array([0, 25, 20])]),
        ("levels_", [np.array([0, 3]), np.array([0, 2**63 - 1, 5 - 2**63, 20])]),
        ("levels_", [np.array([0, -1])]),
        ("label_of_leaf_", np.arange(20)),
        ("label_of_leaf_", np.arange(19, dtype=np.int32)),
        ("label_of_leaf_", np.zeros(20, np.int32)),
        ("label_of_leaf_", np.arange(1, 21, dtype=np.int32)),
        ("label_of_leaf_", np.arange(-1, 19, dtype=np.int32)),
    ],
)
def test_restore_refuses_what_is_no_tree(name, value):
    LabelTree().restore(GOOD)
    with pytest.raises(ValueError, match=r"LabelTree|every label once"):
        LabelTree().restore({**GOOD, name: value})
    with pytest.raises(ValueError, match="LabelTree"):
        LabelTree().restore({k: v for k, v in GOOD.items() if k != name})


def test_a_tampered_folder_is_refused(tmp_path):
    tree = LabelTree.balanced(vectors(20), max_leaf=5)
    tree.label_of_leaf_ = np.zeros(20, np.int32)
    store.save(tree, tmp_path / "tree")
    with pytest.raises(StoreError, match="every label once"):
        store.load(tmp_path / "tree")


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("rows", "columns", "members", "starts") for value in (-1, 99)],
)
def test_damaged_numbers_give_an_error(name, value):
    rows, columns = np.array([0, 1, 3]), np.int32([0, 1, 2])
    level = {"members": np.int32([0, 1]), "starts": np.array([0, 1, 2])}
    {"rows": rows, "columns": columns, **level}[name][1] = value
    damaged = _native.SparseRows(
        starts=rows, columns=columns, values=np.ones(3, np.float32), width=3
    )
    level |= {"seed": 0, "depth": 0, "iterations": 5}
    with pytest.raises(ValueError, match=r"outside|starts"):
        _native.halve_level(damaged, **level, spherical=True)
    with pytest.raises(ValueError, match=r"outside|starts"):
        _native.cluster_level(
            damaged, **level, largest=1, arity=2, aim=1, balanced=True, tolerance=GAIN
        )


@pytest.mark.parametrize(
    ("build", "arguments", "words"),
    [
        ("balanced", {"arity": 6}, "arity must be a power of two, not 6"),
        ("balanced", {"arity": 1}, "arity must be an integer of at least 2"),
        ("balanced", {"max_leaf": 1}, "max_leaf must be"),
        ("balanced", {"iterations": 0}, "iterations must be"),
        ("balanced", {"seed": -1}, "seed must be"),
        ("balanced", {"spherical": "yes"}, "spherical must be"),
        ("kmeans", {"arity": 1}, "arity must be"),
        ("kmeans", {"depth": 0}, "depth must be"),
        ("kmeans", {"max_leaf": 0}, "max_leaf must be"),
        ("kmeans", {"balanced": 2}, "balanced must be"),
    ],
)
def test_wrong_arguments_are_named(build, arguments, words):
    with pytest.raises(ParameterError, match=words):
        getattr(LabelTree, build)(vectors(10), **arguments)


# --- ready-made trees


def test_a_chain_in_any_order_with_empty_clusters():
    chain = [np.ones((4, 1)), np.zeros((3, 4)), np.zeros((5, 3))]
    chain[1][[0, 1, 2], [3, 0, 3]] = 1  # node 1 and 2 of the first level have no children
    chain[2][range(5), [2, 1, 2, 1, 2]] = 1  # node 0 of the second has none
    tree = LabelTree.from_chain([csr_matrix(C) for C in chain])
    assert tree.level_sizes == [2, 2, 5]
    assert clusters(tree, 2) == [{1, 3}, {0, 2, 4}]


@pytest.mark.parametrize(
    ("chain", "error", "words"),
    [
        ([], DataError, "at least one matrix"),
        ([np.ones((2, 2))], ShapeError, r"matrix 1 of the chain is \(2, 2\)"),
        ([np.ones((2, 1)), np.eye(3)], ShapeError, r"matrix 2 .* has 2 nodes"),
        ([np.ones((2, 1)), np.ones((3, 2))], DataError, "row 0 of matrix 2 .* has 2 parents"),
        ([[[1], [0]]], DataError, "row 1 of matrix 1 .* has 0 parents"),
        ([np.ones((0, 1))], DataError, "at least one label"),
    ],
)
def test_what_is_no_chain(chain, error, words):
    with pytest.raises(error, match=words):
        LabelTree.from_chain(chain)


def test_a_thesaurus_with_labels_at_every_height():
    #      0     5
    #     / \
    #    1   2
    #    |
    #    3
    #    |
    #    4  (no label below it)
    tree = LabelTree.from_parents([-1, 0, 0, 1, 3, -1], labels=[0, -1, 1, 2, -1, 3])
    assert tree.level_sizes == [2, 4, 4]
    assert sorted(map(sorted, clusters(tree, 1))) == [[0, 1, 2], [3]]
    assert sorted(map(sorted, clusters(tree, 2))) == [[0], [1], [2], [3]]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_hierarchy(data):
    n = data.draw(st.integers(1, 15))
    shuffled = data.draw(st.permutations(range(n)))
    parents, labels = [0] * n, [-1] * n
    for i, node in enumerate(shuffled):
        above = data.draw(st.integers(-1, i - 1))
        parents[node] = -1 if above < 0 else shuffled[above]
    chosen = data.draw(st.lists(st.sampled_from(range(n)), min_size=1, unique=True))
    for label, node in enumerate(chosen):
        labels[node] = label
    tree = LabelTree.from_parents(parents, labels)
    assert sorted(tree.label_of_leaf_) == list(range(len(chosen)))

    def path(node):
        return [node] if parents[node] < 0 else [*path(parents[node]), node]

    paths = [path(node) for node in chosen]
    assert tree.depth == max(map(len, paths))
    for level in range(1, tree.depth + 1):
        # labels of one cluster share the way down to it; those whose way has ended are alone
        expected = {}
        for label, nodes in enumerate(paths):
            expected.setdefault(
                ("node", nodes[level - 1]) if len(nodes) >= level else ("label", label), set()
            ).add(label)
        assert sorted(map(sorted, clusters(tree, level))) == sorted(map(sorted, expected.values()))


@pytest.mark.parametrize(
    ("parents", "labels", "error", "words"),
    [
        ([], None, DataError, "at least one label"),
        ([-1, 0], [-1, -1], DataError, "at least one label"),
        ([1, 0], None, DataError, "node 0 is below itself"),
        ([-1, 2, 1], None, DataError, "node 1 is below itself"),
        ([-1, 7], None, DataError, "node 1 of 2 has the parent 7"),
        ([-1, -2], None, DataError, "node 1 of 2 has the parent -2"),
        ([-1, 0.5], None, DataError, "parents must be whole numbers"),
        ([-1, 0], [0], ShapeError, "2 parents but 1 labels"),
        ([-1, 0], [0, 2], DataError, "label 2 but not label 1"),
        ([-1, 0], [1, 1], DataError, "but not label 0"),
    ],
)
def test_what_is_no_hierarchy(parents, labels, error, words):
    with pytest.raises(error, match=words):
        LabelTree.from_parents(parents, labels)


# --- trees made of trees


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(0, 1000),
)
def test_joined_trees_are_branches(shapes, seed):
    trees = [
        LabelTree.kmeans(vectors(n, seed=seed + i), arity=2, max_leaf=leaf, seed=seed)
        for i, (n, leaf) in enumerate(shapes)
    ]
    joined = LabelTree.joined(trees)
    joined.check_learned()
    assert joined.depth == max(tree.depth for tree in trees)
    assert joined.n_labels == sum(tree.n_labels for tree in trees)
    first = np.cumsum([0] + [tree.n_labels for tree in trees])
    for level in range(1, joined.depth + 1):
        expected = []
        for tree, offset in zip(trees, first, strict=False):
            if level == joined.depth:
                own = clusters(tree, tree.depth)
            elif tree.depth == 1:
                own = [set(range(tree.n_labels))]
            else:
                own = clusters(tree, min(level, tree.depth - 1))
            expected += [{label + offset for label in cluster} for cluster in own]
        assert clusters(joined, level) == expected


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(0, 1000))
def test_trees_of_some_labels_keep_their_clusters(n, seed):
    rng = np.random.default_rng(seed)
    tree = LabelTree.kmeans(vectors(n, seed=seed), arity=3, max_leaf=4)
    assert same(tree.take_labels(np.arange(n)), tree)
    numbers = np.full(n, -1)
    chosen = rng.permutation(n)[: rng.integers(1, n + 1)]
    numbers[chosen] = np.arange(len(chosen))
    smaller = tree.take_labels(chosen)
    smaller.check_learned()
    assert smaller.n_labels == len(chosen)
    for level in range(1, tree.depth + 1):
        kept = [{int(numbers[x]) for x in c if numbers[x] >= 0} for c in clusters(tree, level)]
        assert clusters(smaller, level) == [c for c in kept if c]


def test_what_makes_no_tree_is_told():
    tree = LabelTree.from_parents([-1] * 3)
    for numbers in ([0, 0], [-1], [3], [], [0.5]):
        with pytest.raises(MegalabelError, match="label"):
            tree.take_labels(np.array(numbers))
    with pytest.raises(DataError, match="at least one label"):
        LabelTree.joined([])
