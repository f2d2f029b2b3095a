"""The index against a slow twin in float64: exact answers, whatever way they were found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_csr

from megalabel import _native
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.retrieval import InvertedIndex


def twin(queries, documents, k, exclude_self=False):
    """Every similarity in float64, then sorted by falling similarity and rising number."""
    products = queries.astype(np.float64) @ documents.astype(np.float64).T
    products = (products.toarray() if hasattr(products, "toarray") else products).astype(np.float32)
    if exclude_self:
        np.fill_diagonal(products, 0)
    n = documents.shape[0]
    ids = np.full((len(products), k), n, np.int32)
    similarities = np.full((len(products), k), -np.inf, np.float32)
    for i, row in enumerate(products):
        best = [d for d in np.lexsort((np.arange(n), -row)) if row[d] > 0][:k]
        ids[i, : len(best)] = best
        similarities[i, : len(best)] = row[best]
    return ids, similarities


def assert_same(answer, expected):
    np.testing.assert_allclose(answer[1], expected[1], rtol=1e-6)
    # Near ties may swap between two ways of summing, exact ones may not.
    differ = answer[0] != expected[0]
    np.testing.assert_allclose(answer[1][differ], expected[1][differ], rtol=1e-6)


def zipfian(n, width, rng, per_row=8):
    """Rows like texts: a few common columns in most rows, many rare ones; rows of length one."""
    columns = np.minimum(rng.zipf(1.3, (n, per_row)) - 1, width - 1)
    weights = 1 / (1 + np.log1p(width / (1 + columns)))
    X = csr_matrix((1 / weights.ravel(), columns.ravel(), np.arange(n + 1) * per_row), (n, width))
    X.sum_duplicates()
    lengths = np.sqrt(X.multiply(X).sum(axis=1))
    return csr_matrix(X.multiply(1 / lengths), dtype=np.float32)


@pytest.mark.parametrize("k", [1, 5, 60])
def test_finds_what_the_twin_finds(k):
    rng = np.random.default_rng(k)
    documents, queries = zipfian(3000, 800, rng), zipfian(200, 800, rng)
    index = InvertedIndex().fit(documents)
    assert_same(index.search(queries, k), twin(queries, documents, k))


def test_early_termination_changes_nothing():
    rng = np.random.default_rng(0)
    documents, queries = zipfian(20000, 2000, rng), zipfian(300, 2000, rng)
    index = InvertedIndex().fit(documents)
    early = index.search(queries, 20)
    late = index.search(queries, 20, early_termination=False)
    np.testing.assert_array_equal(early[0], late[0])
    np.testing.assert_array_equal(early[1], late[1])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_small_matrix(data):
    n, m, width = (data.draw(st.integers(1, high)) for high in (30, 4, 6))
    # Few distinct values make many ties; negative ones switch early termination off.
    low = data.draw(st.sampled_from([0, -2]))
    cells = st.integers(low, 2)
    documents = np.array(data.draw(st.lists(cells, min_size=n * width, max_size=n * width)))
    queries = np.array(data.draw(st.lists(cells, min_size=m * width, max_size=m * width)))
    documents = documents.reshape(n, width).astype(np.float32)
    queries = queries.reshape(m, width).astype(np.float32)
    k = data.draw(st.integers(1, 8))
    expected = twin(queries, documents, k)
    for form in (csr_matrix, np.asarray):
        ids, similarities = InvertedIndex().fit(form(documents)).search(form(queries), k)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(similarities, expected[1])


def test_negative_weights_that_cancel():
    documents = csr_matrix(np.float32([[1, -1], [1, -0.5], [-1, 1], [2, 0]]))
    ids, similarities = InvertedIndex().fit(documents).search(csr_matrix([[1.0, 1.0]]), 4)
    assert ids.tolist() == [[3, 1, 4, 4]]
    assert similarities.tolist() == [[2.0, 0.5, -np.inf, -np.inf]]


def test_ties_go_to_the_lower_document_among_many_copies():
    documents = csr_matrix(np.ones((5000, 3), np.float32))
    ids, _ = InvertedIndex().fit(documents).search(documents[:2], 7)
    assert ids.tolist() == [list(range(7))] * 2


def test_tiny_weights_are_found_once():
    documents = csr_matrix(np.full((4, 3), 1e-30, np.float32))
    ids, similarities = InvertedIndex().fit(documents).search(csr_matrix([[1e-12, 1, 1e-9]]), 5)
    assert ids.tolist() == [[0, 1, 2, 3, 4]]
    assert (similarities[0, :4] > 0).all()


@pytest.mark.parametrize("form", [csr_matrix, lambda X: X.toarray()])
def test_leaving_each_document_out(form):
    documents = zipfian(500, 100, np.random.default_rng(1))
    index = InvertedIndex().fit(form(documents))
    whole = index.search(form(documents), 6, leave_out=np.arange(500))
    assert_same(whole, twin(documents, documents, 6, exclude_self=True))
    rows = np.array([499, 3, 3, 120])
    part = index.search(form(documents[rows]), 6, leave_out=rows)
    np.testing.assert_array_equal(part[0], whole[0][rows])
    with pytest.raises(ShapeError, match=r"queries are \(100, 100\) but leave_out is \(9,\)"):
        index.search(form(documents[:100]), 6, leave_out=np.arange(9))


@pytest.mark.parametrize("form", [csr_matrix, lambda X: X.toarray()])
def test_threads_and_batches_do_not_matter(form):
    rng = np.random.default_rng(2)
    documents, queries = form(zipfian(2000, 300, rng)), form(zipfian(101, 300, rng))
    index = InvertedIndex().fit(documents)
    threads = _native.get_threads()
    try:
        answers = []
        for count, batch in ((1, 101), (2, 101), (2, 7), (3, 1)):
            _native.set_threads(count)
            parts = [index.search(queries[i : i + batch], 9) for i in range(0, 101, batch)]
            answers.append([np.concatenate(part) for part in zip(*parts, strict=True)])
    finally:
        _native.set_threads(threads)
    for ids, similarities in answers[1:]:
        np.testing.assert_array_equal(ids, answers[0][0])
        np.testing.assert_array_equal(similarities, answers[0][1])


def test_building_does_not_depend_on_threads():
    documents = zipfian(5000, 50, np.random.default_rng(3))
    threads = _native.get_threads()
    built = []
    try:
        for count in (1, 3):
            _native.set_threads(count)
            built.append(InvertedIndex().fit(documents).learned())
    finally:
        _native.set_threads(threads)
    for name, value in built[0].items():
        np.testing.assert_array_equal(value, built[1][name], err_msg=name)


def test_postings_are_the_transposed_matrix_without_zeros():
    documents = random_csr(60, 20, 0.3, format="csr", dtype=np.float32, random_state=0)
    documents.data[::5] = 0
    index = InvertedIndex().fit(documents)
    postings = csr_matrix(
        (index.term_weights_, index.term_documents_, index.term_starts_), shape=(20, 60)
    )
    assert postings.has_canonical_format
    np.testing.assert_array_equal(postings.toarray(), documents.toarray().T)
    assert (postings.data != 0).all()
    np.testing.assert_array_equal(index.largest_, documents.toarray().max(axis=0))
    np.testing.assert_array_equal(index.rows.toarray(), documents.toarray())


@pytest.mark.parametrize("form", [csr_matrix, np.asarray])
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_nothing_to_find(form, shape):
    index = InvertedIndex().fit(form(np.zeros(shape, np.float32)))
    ids, similarities = index.search(form(np.zeros((2, shape[1]), np.float32)), 3)
    assert ids.tolist() == [[shape[0]] * 3] * 2
    assert np.isneginf(similarities).all()
    assert index.search(form(np.zeros((0, shape[1]), np.float32)), 3)[0].shape == (0, 3)


def test_a_sparse_query_finds_in_dense_documents_and_the_other_way_round():
    documents = zipfian(50, 20, np.random.default_rng(4))
    sparse, dense = InvertedIndex().fit(documents), InvertedIndex().fit(documents.toarray())
    for a, b in ((sparse, documents.toarray()), (dense, documents), (dense, documents.toarray())):
        answer, expected = a.search(b, 5), sparse.search(documents, 5)
        np.testing.assert_array_equal(answer[0], expected[0])
        np.testing.assert_array_equal(answer[1], expected[1])


@pytest.mark.parametrize("form", [csr_matrix, lambda X: X.toarray()])
def test_adding_rows_is_fitting_them_all(form):
    documents = form(zipfian(90, 20, np.random.default_rng(5)))
    index = InvertedIndex().partial_fit(documents[:40]).partial_fit(documents[40:])
    for name, value in InvertedIndex().fit(documents).learned().items():
        np.testing.assert_array_equal(getattr(index, name), value, err_msg=name)


def test_read_only_and_mapped_arrays(tmp_path):
    documents = zipfian(200, 50, np.random.default_rng(6))
    index = InvertedIndex().fit(documents)
    mapped = InvertedIndex()
    learned = {}
    for name, value in index.learned().items():
        if isinstance(value, np.ndarray):
            np.save(tmp_path / f"{name}.npy", value)
            value = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        learned[name] = value
    mapped.restore(learned)
    for array in (documents.data, documents.indices, documents.indptr):
        array.flags.writeable = False
    np.testing.assert_array_equal(mapped.search(documents, 5)[0], index.search(documents, 5)[0])
    InvertedIndex().fit(documents)


def test_errors_name_what_is_wrong():
    index = InvertedIndex()
    with pytest.raises(NotFittedError, match="fit first"):
        index.search(csr_matrix((1, 3)), 1)
    index.fit(csr_matrix((4, 3)))
    with pytest.raises(ShapeError, match=r"\(1, 5\) .* \(4, 3\)"):
        index.search(csr_matrix((1, 5)), 1)
    with pytest.raises(ParameterError, match="k must be"):
        index.search(csr_matrix((1, 3)), 0)
    with pytest.raises(DataError, match="not a finite number"):
        index.fit(np.array([[np.nan]]))
    with pytest.raises(DataError, match="not a finite number in row 0"):
        index.fit(csr_matrix([[np.inf]]))
    with pytest.raises(ShapeError, match="two dimensions"):
        index.fit(np.zeros(3))


def test_memory_is_what_the_formula_says():
    documents = zipfian(300, 70, np.random.default_rng(7))
    index = InvertedIndex().fit(documents)
    size = sum(v.nbytes for v in index.learned().values() if isinstance(v, np.ndarray))
    assert size == InvertedIndex.index_bytes(300, 70, documents.nnz)


TAMPERED = [
    ("row_starts_", np.zeros(0, np.int64)),
    ("row_starts_", np.arange(5, dtype=np.int64)),
    ("row_terms_", np.zeros(3, np.int32)),
    ("row_weights_", np.zeros((2, 2), np.float32)),
    ("term_starts_", np.zeros(1, np.int64)),
    ("term_documents_", "documents"),
    ("term_weights_", np.zeros(2, np.float64)),
    ("largest_", np.zeros(1, np.float32)),
    ("common_", np.zeros(1, np.uint8)),
    ("norm_", float("nan")),
    ("norm_", "1"),
]


@pytest.mark.parametrize(("name", "value"), TAMPERED)
def test_restore_refuses_arrays_that_do_not_fit(name, value):
    learned = InvertedIndex().fit(zipfian(20, 9, np.random.default_rng(8))).learned()
    with pytest.raises(ValueError, match=r"of InvertedIndex must"):
        InvertedIndex().restore({**learned, name: value})
    del learned[name]
    with pytest.raises(ValueError, match=r"InvertedIndex (must have|lacks norm_)"):
        InvertedIndex().restore(learned)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_numbers_give_an_error_or_an_answer(data):
    documents = zipfian(40, 12, np.random.default_rng(9))
    learned = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in InvertedIndex().fit(documents).learned().items()
    }
    name = data.draw(st.sampled_from([n for n, v in learned.items() if isinstance(v, np.ndarray)]))
    raw = learned[name].view(np.uint8)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    index = InvertedIndex()
    index.restore(learned)
    for early in (True, False):
        try:
            ids, similarities = index.search(documents, 5, early_termination=early)
        except ValueError:
            continue
        assert ((ids >= 0) & (ids <= 40)).all()
        assert not np.isnan(similarities).any()
