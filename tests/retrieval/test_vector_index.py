"""VectorIndex against a dictionary of vectors, through changes; and at the edges."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from megalabel import _native, store
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError, StoreError
from megalabel.retrieval import VectorIndex, vector_index

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(40, 20))
X = (CENTRES[RNG.integers(40, size=3000)] + 0.4 * RNG.normal(size=(3000, 20))).astype(np.float32)
QUERIES = (CENTRES[RNG.integers(40, size=50)] + 0.4 * RNG.normal(size=(50, 20))).astype(np.float32)


def twin(vectors, queries, k, similarity="inner_product", allowed=None):
    """The k best of a dictionary of vectors for each query, in float64: lists of (key, product)."""
    keys = np.array([key for key in sorted(vectors) if allowed is None or key in allowed], int)
    rows = np.array([vectors[key] for key in keys], np.float64).reshape(len(keys), queries.shape[1])
    asked = queries.astype(np.float64)
    if similarity == "cosine":
        rows, asked = (
            m / np.maximum(np.linalg.norm(m, axis=1, keepdims=True), 1e-300) for m in (rows, asked)
        )
    products = asked @ rows.T if len(keys) else np.empty((len(asked), 0))
    order = np.argsort(-products, axis=1, kind="stable")[:, :k]
    return [[(keys[j], row[j]) for j in best] for row, best in zip(products, order, strict=True)]


def check(found, expected, k, tolerance=2e-6):
    """Products are those of the twin, keys too but for near ties, and what is left over is told."""
    keys, products = found
    assert keys.shape == products.shape == (len(expected), k)
    assert (keys.dtype, products.dtype) == (np.int32, np.float32)
    for row, values, best in zip(keys, products, expected, strict=True):
        true = np.array([product for _, product in best])
        there = len(best)
        assert_array_equal(row[there:], -1)
        assert_array_equal(values[there:], -np.inf)
        scale = max(1.0, np.abs(true).max(initial=0))
        assert_allclose(values[:there], true, atol=tolerance * scale, rtol=0)
        for key, value, (other, product) in zip(row, values, best, strict=False):
            assert key == other or abs(value - product) <= 2 * tolerance * scale
        assert len(set(row[:there])) == there
        assert (np.diff(values[:there]) <= 0).all()


# --- search


@pytest.mark.parametrize("similarity", ["inner_product", "cosine"])
@pytest.mark.parametrize("width", [1, 15, 16, 20, 33])
@pytest.mark.parametrize("lists", [1, 7])
def test_all_lists_give_the_best_of_all(similarity, width, lists):
    rng = np.random.default_rng(width)
    rows, queries = rng.normal(size=(300, width)), rng.normal(size=(70, width))
    index = VectorIndex(similarity=similarity, lists=lists).fit(rows)
    found = index.search(queries, 9, probes=300)
    check(found, twin(dict(enumerate(rows)), queries, 9, similarity), 9)


def test_halves_are_searched_as_what_they_stand_for():
    index = VectorIndex(precision="float16", lists=5).fit(X)
    halves = dict(enumerate(X.astype(np.float16).astype(np.float64)))
    for queries in (QUERIES, QUERIES[:1]):
        check(index.search(queries, 12, probes=5), twin(halves, queries, 12), 12)
    with pytest.raises(DataError, match="too large for float16"):
        VectorIndex(precision="float16").fit([[1e6]])


def test_ties_go_to_the_lower_key():
    index = VectorIndex(lists=1).fit(np.ones((500, 3)), np.arange(500)[::-1] * 2)
    assert index.search(np.ones((40, 3)), 6)[0].tolist() == [[0, 2, 4, 6, 8, 10]] * 40
    # vectors of zeros are found as all others are, also below none
    zeros = VectorIndex(similarity="cosine").fit([[0.0, 0], [-1, 0], [1, 0]])
    assert zeros.search([[1.0, 0]], 3)[0].tolist() == [[2, 0, 1]]


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("lists", [1, 30])
def test_threads_and_batches_do_not_matter(precision, lists):
    index = VectorIndex(precision=precision, lists=lists).fit(X).remove(np.arange(0, 3000, 7))
    index = index.add(np.arange(5000, 5400), X[:400] * 1.01)
    queries = np.concatenate([QUERIES, X[:1100]])
    allowed = np.arange(5400) % 3 > 0
    threads = _native.get_threads()
    for mask in (None, allowed):
        whole = index.search(queries, 40, allowed=mask)
        try:
            for count in (1, 2, 5):
                _native.set_threads(count)
                for size in (1, 3, 64):
                    some = range(0, 130, size)
                    parts = [index.search(queries[i : i + size], 40, allowed=mask) for i in some]
                    for part, full in zip(zip(*parts, strict=True), whole, strict=True):
                        rows = np.concatenate(part)
                        assert_array_equal(rows, full[: len(rows)])
                for part, full in zip(index.search(queries, 40, allowed=mask), whole, strict=True):
                    assert_array_equal(part, full)
        finally:
            _native.set_threads(threads)


def test_centres_and_lists_are_those_of_a_slow_twin():
    vectors = RNG.normal(size=(333, 32)).astype(np.float32)
    centres = RNG.normal(size=(150, 32)).astype(np.float32)
    products = vectors.astype(np.float64) @ centres.T.astype(np.float64)
    nearest = _native.nearest_centres(vectors, centres)
    best = products.max(axis=1)
    assert_allclose(products[np.arange(333), nearest], best, atol=1e-5)
    assert_array_equal(nearest, _native.nearest_centres(vectors, np.repeat(centres, 2, 0)) // 2)
    assert (_native.nearest_centres(vectors, np.repeat(centres, 2, 0)) % 2 == 0).all()  # ties


def test_probes_are_the_lists_nearest_to_a_query():
    index = VectorIndex(lists=30).fit(X)
    for probes in (1, 4):
        near = np.argsort(-(QUERIES.astype(np.float64) @ index.centres_[:, :20].T), axis=1)
        lists = np.repeat(np.arange(len(index.centres_)), np.diff(index.starts_[0]))
        for query, chosen in enumerate(near[:, :probes]):
            keys = index.keys_[0][np.isin(lists, chosen)]
            best = twin({key: X[key] for key in keys}, QUERIES[query : query + 1], 5)
            check(index.search(QUERIES[query : query + 1], 5, probes=probes), best, 5)


# --- filters


@pytest.mark.parametrize("count", [0, 1, 3, 40, 600, 2900])
def test_a_filter_leaves_fewer_only_where_fewer_are_allowed(count):
    index = VectorIndex(lists=30).fit(X)
    allowed = np.random.default_rng(count).permutation(3000)[:count]
    mask = np.isin(np.arange(3000), allowed)
    vectors = dict(enumerate(X))
    found = index.search(QUERIES, 20, allowed=allowed, probes=1)
    assert ((found[0] >= 0).sum(axis=1) == min(20, count)).all()
    assert np.isin(found[0], np.append(allowed, -1)).all()
    for part, same in zip(index.search(QUERIES, 20, allowed=mask, probes=1), found, strict=True):
        assert_array_equal(part, same)
    check(
        index.search(QUERIES, 20, allowed=allowed, probes=30),
        twin(vectors, QUERIES, 20, allowed=set(allowed)),
        20,
    )
    if count <= 3000 // 30:  # no more than a query sees anyway: all of them are looked at
        check(found, twin(vectors, QUERIES, 20, allowed=set(allowed)), 20)


def test_more_than_one_list_holds_is_found():
    index = VectorIndex(lists=30).fit(X)
    check(index.search(QUERIES, 3000, probes=1), twin(dict(enumerate(X)), QUERIES, 3000), 3000)
    assert (index.search(QUERIES[:2], 3005)[0][:, 3000:] == -1).all()


# --- changes


changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "replace"]), st.integers(0, 2**32), st.integers(0, 40)
    ),
    max_size=12,
)


@pytest.mark.parametrize("similarity", ["inner_product", "cosine"])
@pytest.mark.parametrize(("lists", "precision"), [(1, "float32"), (6, "float32"), (6, "float16")])
@settings(max_examples=12, deadline=None)
@given(changes=changes)
def test_changes_are_those_of_a_dictionary(similarity, lists, precision, changes):
    rows = X[:90].astype(precision).astype(np.float32)
    vectors = dict(enumerate(rows))
    index = VectorIndex(similarity=similarity, lists=lists, precision=precision).fit(rows)
    tolerance = 2e-6 if precision == "float32" else 2e-3
    for change, seed, count in changes:
        rng = np.random.default_rng(seed)
        known = np.array(sorted(vectors), np.int64)
        before, kept = index, dict(vectors)
        if change == "add":
            keys = np.setdiff1d(rng.integers(300, size=count), known)
        else:
            keys = rng.permutation(known)[:count]
        new = X[rng.integers(3000, size=len(keys))].astype(precision).astype(np.float32)
        if change == "remove":
            index = index.remove(keys)
            vectors = {key: row for key, row in vectors.items() if key not in set(keys.tolist())}
        else:
            index = getattr(index, change)(keys, new)
            vectors |= dict(zip(keys.tolist(), new, strict=True))
        assert len(index) == len(vectors)
        assert index.keys.tolist() == sorted(vectors)
        allowed = set(range(0, 300, 3))
        check(
            index.search(QUERIES[:5], 10, probes=lists),
            twin(vectors, QUERIES[:5], 10, similarity),
            10,
            tolerance,
        )
        check(
            index.search(QUERIES[:5], 10, probes=lists, allowed=np.array(sorted(allowed))),
            twin(vectors, QUERIES[:5], 10, similarity, allowed),
            10,
            tolerance,
        )
        # the index before is as it was
        assert len(before) == len(kept)
    check(
        index.search(QUERIES[:2], 4, probes=lists),
        twin(vectors, QUERIES[:2], 4, similarity),
        4,
        tolerance,
    )


def test_a_change_shares_arrays_and_leaves_the_old_index_as_it_was():
    index = VectorIndex(lists=10).fit(X)
    before = index.search(QUERIES, 10)
    fewer, more = index.remove([3, 5]), index.add([9000], X[:1])
    assert fewer.vectors_[0] is more.vectors_[0] is index.vectors_[0]
    assert fewer.keys_[0] is not index.keys_[0]
    for part, same in zip(index.search(QUERIES, 10), before, strict=True):
        assert_array_equal(part, same)


def test_many_small_changes_leave_few_segments_and_little_that_is_dead():
    index = VectorIndex(lists=10).fit(X)
    for i in range(300):
        index = index.add([5000 + i], X[i : i + 1])
    assert len(index.keys_) <= 10
    for i in range(0, 3000, 50):
        index = index.remove(np.arange(i, i + 45))
        assert all((keys < 0).mean() <= 0.25 for keys in index.keys_)
    assert len(index) == 3300 - 60 * 45
    assert len(index.remove(index.keys)) == 0
    again = index.remove(index.keys).add([1], X[:1])
    assert again.search(X[:1], 2)[0].tolist() == [[1, -1]]


def test_an_index_that_grows_gets_lists(monkeypatch):
    monkeypatch.setattr(vector_index, "EXACT_BELOW", 1000)
    index = VectorIndex().fit(X[:900])
    assert len(index.centres_) == 0
    index = index.add(np.arange(900, 1200), X[900:1200])
    assert len(index.centres_) > 1
    assert index.built_ == 1200
    assert 0.9 < index.recall_ <= 1
    found = index.search(QUERIES, 10, probes=1000)
    check(found, twin(dict(enumerate(X[:1200])), QUERIES, 10), 10)


def test_taking_labels_takes_their_vectors():
    index = VectorIndex(lists=6).fit(X[:200])
    numbers = np.random.default_rng(3).permutation(200)[:120]
    taken = index.take_labels(numbers)
    vectors = {place: X[number] for place, number in enumerate(numbers)}
    check(taken.search(QUERIES, 8, probes=6), twin(vectors, QUERIES, 8), 8)
    few = index.take_labels(np.array([4, 150]))
    assert few.search(X[[150]], 3)[0][0, -1] == -1
    assert sorted(few.keys) == [0, 1]


# --- recall


def test_recall_is_that_of_the_queries():
    index = VectorIndex(lists=40, recall=0.9).fit(X, queries=QUERIES)
    exact = VectorIndex(lists=1).fit(X).search(QUERIES, 100)[0]

    def recall(probes):
        found = index.search(QUERIES, 100, probes=probes)[0]
        return np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, exact, strict=True)]) / 100

    assert recall(index.probes_) == pytest.approx(index.recall_)
    assert index.recall_ >= 0.9
    assert recall(index.probes_ - 1) < 0.92  # the fewest, but for the doubt of a sample
    assert f"recall at 100 {index.recall_:.3f}" in index.summary
    assert VectorIndex(lists=40, recall=1.0).fit(X).recall_ == 1
    assert VectorIndex().fit(X).recall_ == 1
    assert "all looked at" in VectorIndex().fit(X).summary


def test_without_queries_recall_is_that_of_vectors():
    none = np.zeros((0, X.shape[1]))
    index = VectorIndex(lists=40, recall=0.9).fit(X, queries=none)
    assert index.recall_ == VectorIndex(lists=40, recall=0.9).fit(X).recall_
    assert index.search(none, 3)[0].shape == (0, 3)


def test_recall_is_measured_again_after_a_fifth_has_changed():
    index = VectorIndex(lists=40, recall=0.9).fit(X)
    other = RNG.normal(size=(700, 20)).astype(np.float32)  # lists say little of these
    some = index.replace(np.arange(500), other[:500])
    assert (some.changed_, some.probes_, some.recall_) == (500, index.probes_, index.recall_)
    many = some.replace(np.arange(500, 700), other[500:])
    assert many.changed_ == 0
    assert many.probes_ != index.probes_
    assert many.recall_ >= 0.9


# --- kept


def test_a_folder_answers_as_what_was_saved(tmp_path):
    index = VectorIndex(lists=20, similarity="cosine").fit(X, queries=QUERIES[:20])
    index = index.remove([1]).add([4000], X[:1])
    store.save(index, tmp_path / "index")
    opened = store.load(tmp_path / "index")
    for part, same in zip(opened.search(QUERIES, 7), index.search(QUERIES, 7), strict=True):
        assert_array_equal(part, same)
    assert opened.remove([4000]).add([4000], X[:1]).keys.tolist() == index.keys.tolist()


def test_opening_reads_no_vectors(tmp_path):
    index = VectorIndex(lists=2).fit(np.zeros((200_000, 64), np.float32))
    store.save(index, tmp_path / "index")
    seconds = []
    for _ in range(3):
        before = time.perf_counter()
        opened = store.load(tmp_path / "index")
        seconds.append(time.perf_counter() - before)
    assert min(seconds) < 0.1
    assert opened.vectors_[0].base is not None


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("starts_", lambda a: a[::-1].copy()),
        ("starts_", lambda a: a + 1),
        ("starts_", lambda a: np.full_like(a, -1)),
        ("starts_", lambda a: a * 2),
    ],
)
def test_damaged_starts_give_an_error(name, spoil):
    index = VectorIndex(lists=20).fit(X)
    index.restore(index.learned() | {name: [spoil(a) for a in index.learned()[name]]})
    with pytest.raises(ValueError, match="starts of lists"):
        index.search(QUERIES, 3)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("starts_", lambda a: [a[0][:-1]]),
        ("keys_", lambda a: [a[0][:-1]]),
        ("vectors_", lambda a: [a[0][:, :16].copy()]),
        ("vectors_", lambda a: [a[0].astype(np.float16)]),
        ("vectors_", lambda a: []),
        ("centres_", lambda a: a[:, :16].copy()),
        ("centres_", lambda a: a[:3]),
        ("width_", lambda a: 40),
    ],
)
def test_restore_refuses_what_does_not_fit(name, spoil):
    index = VectorIndex(lists=20).fit(X)
    with pytest.raises(ValueError, match="VectorIndex"):
        VectorIndex().restore(index.learned() | {name: spoil(index.learned()[name])})


def test_numbers_that_are_none_do_no_harm(tmp_path):
    index = VectorIndex(lists=20).fit(X)
    vectors, centres = index.vectors_[0].copy(), index.centres_.copy()
    vectors[::2, 3], vectors[1::4, 2], centres[::3, 0] = np.nan, np.inf, np.nan
    keys = index.keys_[0].copy()
    keys[:50] = 2**31 - 1
    index.restore(index.learned() | {"vectors_": [vectors], "centres_": centres, "keys_": [keys]})
    found, products = index.search(QUERIES, 30, allowed=np.ones(3000, bool))
    assert not np.isnan(products).any()
    assert (found < 3000).all()


# --- edges


@pytest.mark.parametrize("lists", [None, 1, 5])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_little_to_index(lists, count):
    index = VectorIndex(lists=lists).fit(X[:count], np.arange(count) + 7)
    assert len(index) == count
    keys, _ = index.search(QUERIES, 4)
    assert ((keys >= 0).sum(axis=1) == count).all()
    assert index.search(QUERIES[:0], 4)[0].shape == (0, 4)
    assert len(index.add([1], X[:1])) == count + 1


def test_equal_vectors_go_into_lists():
    index = VectorIndex(lists=8).fit(np.ones((400, 4)))
    assert index.search(np.ones((1, 4)), 3, probes=8)[0].tolist() == [[0, 1, 2]]


def test_searches_go_on_in_other_threads():
    index = VectorIndex(lists=20).fit(X)
    expected = index.search(QUERIES, 10)[0]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: index.search(QUERIES, 10)[0], range(16)))
    for one in found:
        assert_array_equal(one, expected)


def test_a_long_search_can_be_interrupted():
    index = VectorIndex(lists=1).fit(np.zeros((90_000, 64), np.float32))
    queries = np.ones((6000, 64), np.float32)

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            index.search(queries, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_errors_name_what_is_wrong():
    index = VectorIndex().fit(X[:10])
    with pytest.raises(NotFittedError):
        VectorIndex().search(QUERIES, 1)
    with pytest.raises(NotFittedError):
        VectorIndex().add([1], X[:1])
    for parameters in ({"similarity": "l2"}, {"precision": "int8"}, {"recall": 2}, {"lists": 0}):
        with pytest.raises(ParameterError, match=next(iter(parameters))):
            VectorIndex(**parameters).fit(X)
    with pytest.raises(ParameterError, match="k must be an integer of at least 1, not 0"):
        index.search(QUERIES, 0)
    with pytest.raises(ShapeError, match=r"queries are \(50, 3\) but the vectors have 20 columns"):
        index.search(QUERIES[:, :3], 1)
    with pytest.raises(ShapeError, match=r"X is \(2, 20\) but there are 1 keys"):
        index.add([50], X[:2])
    with pytest.raises(ShapeError, match=r"X is \(1, 3\) but the index has 20 columns"):
        index.add([50], X[:1, :3])
    with pytest.raises(ShapeError, match="at least one column"):
        VectorIndex().fit(np.empty((3, 0)))
    with pytest.raises(DataError, match="the key 4 already"):
        index.add([50, 4], X[:2])
    with pytest.raises(DataError, match="no vector with the key 12"):
        index.remove([1, 12])
    with pytest.raises(DataError, match="the key 1 is given twice"):
        index.remove([1, 1])
    with pytest.raises(ParameterError, match="not -1"):
        index.remove([-1])
    with pytest.raises(ParameterError, match="whole numbers"):
        index.remove([1.5])
    with pytest.raises(DataError, match="not a finite number"):
        index.add([50], np.full((1, 20), np.nan))


def test_damaged_folders_say_so(tmp_path):
    store.save(VectorIndex(lists=20).fit(X), tmp_path / "index")
    (tmp_path / "index" / "keys_.0.npy").write_bytes(b"no array")
    with pytest.raises(StoreError, match=r"keys_"):
        store.load(tmp_path / "index")
