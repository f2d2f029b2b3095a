"""NearestNeighbours against a slow twin, and at the edges."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_csr

from megalabel import _native
from megalabel.data import LabelSet
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.retrieval import InvertedIndex, NearestNeighbours

X = random_csr(120, 30, 0.2, format="csr", dtype=np.float32, random_state=1)
Y = random_csr(120, 15, 0.15, format="csr", dtype=np.float32, random_state=2)
Y.data[::2] = 1
QUERIES = random_csr(25, 30, 0.2, format="csr", dtype=np.float32, random_state=3)
COUNTS = csr_matrix((np.ceil(X.data * 4), X.indices, X.indptr), shape=X.shape)
COUNT_QUERIES = csr_matrix(
    (np.ceil(QUERIES.data * 3), QUERIES.indices, QUERIES.indptr), shape=(25, 30)
)


def cosine(queries, documents):
    a, b = queries.toarray().astype(np.float64), documents.toarray().astype(np.float64)
    with np.errstate(invalid="ignore"):
        a, b = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in (a, b))
    return np.nan_to_num(a) @ np.nan_to_num(b).T


def bm25(queries, documents, k1=1.2, b=0.75):
    """Robertson and Zaragoza 2009, with the idf that stays above zero."""
    counts = documents.toarray().astype(np.float64)
    frequencies = (counts > 0).sum(axis=0)
    idf = np.log(1 + (len(counts) - frequencies + 0.5) / (frequencies + 0.5))
    lengths = counts.sum(axis=1, keepdims=True)
    weights = counts * (k1 + 1) / (counts + k1 * (1 - b + b * lengths / lengths.mean()))
    return (queries.toarray() * idf) @ weights.T


def twin(similarities, neighbours, power, k, Y=Y):
    """The scores of all labels; then the fillers."""
    frequencies = (Y.toarray().sum(axis=0) + Y.sum() / np.prod(Y.shape)) / (Y.shape[0] + 1)
    answer = []
    for row in similarities:
        nearest = [j for j in np.argsort(-row, kind="stable") if row[j] > 0][:neighbours]
        weights = row[nearest] ** power
        votes = np.asarray(weights @ Y[nearest].toarray()) / max(weights.sum(), 1e-300)
        voted = [j for j in np.argsort(-votes, kind="stable") if votes[j] > 0]
        fill = [j for j in np.argsort(-frequencies, kind="stable") if votes[j] <= 0]
        scale = votes[voted[-1]] if voted else 1
        both = [(j, votes[j]) for j in voted] + [(j, frequencies[j] * scale) for j in fill]
        answer.append(both[:k])
    return np.array(answer)[..., 0], np.array(answer)[..., 1]


@pytest.mark.parametrize("similarity", ["cosine", "bm25"])
@pytest.mark.parametrize(("neighbours", "power"), [(1, 1.0), (10, 0.0), (10, 2.5), (1000, 1.0)])
def test_votes_are_those_of_the_twin(similarity, neighbours, power):
    documents, queries = (X, QUERIES) if similarity == "cosine" else (COUNTS, COUNT_QUERIES)
    model = NearestNeighbours(neighbours=neighbours, similarity=similarity, power=power)
    ranking = model.fit(documents, Y).rank(queries, 15)
    measure = cosine if similarity == "cosine" else bm25
    ids, scores = twin(measure(queries, documents), neighbours, power, 15)
    np.testing.assert_allclose(ranking.scores, scores, rtol=1e-5)
    differ = ranking.ids != ids  # near ties only
    np.testing.assert_allclose(ranking.scores[differ], scores[differ], rtol=1e-5)
    assert differ.mean() < 0.01
    assert (np.diff(ranking.scores, axis=1) <= 0).all()
    assert (ranking.scores >= 0).all()
    assert (ranking.scores <= 1).all()
    assert (np.sort(ranking.ids, axis=1) == np.arange(15)).all()


def test_dense_features_give_the_same_answer():
    sparse, dense = NearestNeighbours().fit(X, Y), NearestNeighbours().fit(X.toarray(), Y)
    a, b = sparse.rank(QUERIES, 5), dense.rank(QUERIES.toarray(), 5)
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-6)


def test_a_text_without_neighbours_gets_the_prior():
    model = NearestNeighbours().fit(X, Y)
    ranking = model.rank(csr_matrix((2, 30)), 4)
    assert ranking.ids.tolist() == [model.prior_.order_[:4].tolist()] * 2
    np.testing.assert_array_equal(ranking.scores[0], model.prior_.frequencies_[ranking.ids[0]])


def test_fillers_come_below_every_vote_however_frequent():
    everywhere = csr_matrix(np.float32([[1, 0], [1, 0], [1, 0], [0, 1]]))
    features = csr_matrix(np.float32([[1, 0], [1, 0], [1, 0], [0, 1]]))
    ranking = NearestNeighbours().fit(features, everywhere).rank(csr_matrix([[0.0, 1]]), 2)
    assert ranking.ids.tolist() == [[1, 0]]
    assert ranking.scores[0, 0] == 1
    assert 0 < ranking.scores[0, 1] < 1
    always = csr_matrix(np.ones((4, 1), np.float32))
    assert (
        NearestNeighbours().fit(features, always).rank(features, 1).scores.tolist() == [[1.0]] * 4
    )


def test_neighbours_without_labels_lower_the_scores():
    features = csr_matrix(np.ones((2, 1), np.float32))
    model = NearestNeighbours().fit(features, csr_matrix(np.float32([[1, 0], [0, 0]])))
    ranking = model.rank(features[:1], 2)
    assert ranking.ids.tolist() == [[0, 1]]
    assert ranking.scores[0, 0] == 0.5
    unlabelled = NearestNeighbours().fit(features, csr_matrix((2, 3)))
    assert unlabelled.rank(features, 2).scores.tolist() == [[0.0, 0.0]] * 2


def test_held_out_is_fitting_without_the_row():
    model = NearestNeighbours(neighbours=7).fit(X, Y)
    rows = np.array([0, 5, 119])
    held_out = model.rank_held_out(X[rows], rows, 3)
    for place, i in enumerate(rows):
        others = np.delete(np.arange(120), i)
        expected = NearestNeighbours(neighbours=7).fit(X[others], Y[others]).rank(X[[i]], 3)
        assert held_out.ids[place].tolist() == expected.ids[0].tolist()
        np.testing.assert_allclose(held_out.scores[place], expected.scores[0], rtol=1e-2)
    with pytest.raises(ShapeError, match=r"\(2, 30\) but 3 rows"):
        model.rank_held_out(X[:2], rows, 1)


@pytest.mark.parametrize("similarity", ["cosine", "bm25"])
@pytest.mark.parametrize("dense", [False, True])
def test_adding_rows_is_fitting_them_all(similarity, dense):
    documents = COUNTS.toarray() if dense else COUNTS
    wider = csr_matrix((Y.data, Y.indices, Y.indptr), shape=(120, 18))
    whole = NearestNeighbours(similarity=similarity).fit(documents, wider)
    model = NearestNeighbours(similarity=similarity)
    model.partial_fit(documents[:50], Y[:50], LabelSet.numbered(Y.shape[1]))
    model.partial_fit(documents[50:], wider[50:], LabelSet.numbered(18))
    a, b = model.rank(COUNT_QUERIES, 18), whole.rank(COUNT_QUERIES, 18)
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.scores, b.scores)
    assert model.labels_ == whole.labels_


@pytest.mark.parametrize("similarity", ["cosine", "bm25"])
def test_threads_and_batches_do_not_matter(similarity, monkeypatch):
    model = NearestNeighbours(similarity=similarity).fit(COUNTS, Y)
    whole = model.rank(COUNT_QUERIES, 6), model.rank_held_out(COUNTS, np.arange(120), 6)
    threads = _native.get_threads()
    monkeypatch.setattr("megalabel.retrieval.neighbours.BLOCK", 7)
    try:
        for count in (1, 3):
            _native.set_threads(count)
            parts = model.rank(COUNT_QUERIES, 6), model.rank_held_out(COUNTS, np.arange(120), 6)
            for a, b in zip(whole, parts, strict=True):
                np.testing.assert_array_equal(a.ids, b.ids)
                np.testing.assert_array_equal(a.scores, b.scores)
    finally:
        _native.set_threads(threads)


@pytest.mark.parametrize("similarity", ["cosine", "bm25"])
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (1, 3)])
def test_little_to_learn_from(similarity, shape):
    model = NearestNeighbours(similarity=similarity)
    model.fit(csr_matrix(shape, dtype=np.float32), csr_matrix((shape[0], 2), dtype=np.float32))
    ranking = model.rank(csr_matrix((3, shape[1]), dtype=np.float32), 9)
    assert ranking.ids.tolist() == [[0, 1]] * 3
    assert model.rank(csr_matrix((0, shape[1])), 1).ids.shape == (0, 1)


def test_one_label_and_no_label():
    one = NearestNeighbours().fit(X, csr_matrix(np.ones((120, 1)), dtype=np.float32))
    assert one.rank(QUERIES, 3).ids.tolist() == [[0]] * 25
    none = NearestNeighbours().fit(X, csr_matrix((120, 0), dtype=np.float32))
    assert not none.rank(QUERIES, 3).present.any()


def test_read_only_arrays_are_left_alone():
    documents, targets = X.copy(), Y.copy()
    for matrix in (documents, targets):
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.flags.writeable = False
    model = NearestNeighbours().fit(documents, targets)
    np.testing.assert_array_equal(
        model.rank(documents, 3).ids, NearestNeighbours().fit(X, Y).rank(X, 3).ids
    )


def test_names_come_along():
    names = LabelSet([f"label {i}" for i in range(15)])
    model = NearestNeighbours().fit(X, Y, names)
    assert model.labels_ is names
    assert model.rank(QUERIES, 1).labels is names
    model.labels_ = renamed = LabelSet([f"l{i}" for i in range(15)])
    assert model.rank(QUERIES, 1).labels is renamed


def test_errors_name_what_is_wrong():
    with pytest.raises(NotFittedError):
        NearestNeighbours().rank(X, 1)
    with pytest.raises(NotFittedError):
        NearestNeighbours().labels_  # noqa: B018
    for parameters in ({"neighbours": 0}, {"similarity": "dice"}, {"power": -1}, {"b": 2}):
        with pytest.raises(ParameterError, match=next(iter(parameters))):
            NearestNeighbours(**parameters).fit(X, Y)
    model = NearestNeighbours().fit(X, Y)
    with pytest.raises(ShapeError, match=r"\(1, 7\) but NearestNeighbours was fitted on 30"):
        model.rank(csr_matrix((1, 7)), 1)
    with pytest.raises(ShapeError, match=r"\(1, 7\) but NearestNeighbours was fitted on 30"):
        model.partial_fit(csr_matrix((1, 7)), Y[:1], model.labels_)
    with pytest.raises(ShapeError, match="as many rows"):
        model.fit(X, Y[:3])
    with pytest.raises(ParameterError, match="k must be"):
        model.rank(X, -1)
    with pytest.raises(DataError, match="bm25 needs counts"):
        NearestNeighbours(similarity="bm25").fit(-X, Y)
    assert model.rank(QUERIES, 1).ids.shape == (25, 1)  # a refused fit leaves the model whole


def restored(learned, **parameters):
    model = NearestNeighbours(**parameters)
    model.restore(learned)
    return model


@pytest.mark.parametrize("similarity", ["cosine", "bm25"])
def test_restore_takes_back_what_was_learned(similarity):
    model = NearestNeighbours(similarity=similarity).fit(COUNTS, Y)
    again = restored(model.learned(), similarity=similarity)
    np.testing.assert_array_equal(again.rank(COUNTS, 4).scores, model.rank(COUNTS, 4).scores)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("index_", None),
        ("index_", InvertedIndex().fit(X[:5])),
        ("index_", InvertedIndex().fit(X[:, :5])),
        ("prior_", {}),
        ("labels_", LabelSet.numbered(3)),
        ("label_starts_", np.zeros(3, np.int64)),
        ("label_ids_", np.zeros(3, np.int32)),
        ("label_ids_", np.zeros(3, np.int64)),
        ("relevances_", "many"),
        ("idf_", np.zeros(30, np.float64)),
        ("counts_", np.zeros(1, np.float32)),
        ("counts_", None),
    ],
)
def test_restore_refuses_what_does_not_fit(name, value):
    learned = NearestNeighbours(similarity="bm25").fit(COUNTS, Y).learned()
    with pytest.raises(ValueError, match=r"NearestNeighbours|label_ids_"):
        restored({**learned, name: value}, similarity="bm25")
    if name in ("idf_", "counts_"):
        with pytest.raises(ValueError, match="neither"):
            restored(learned)


@pytest.mark.parametrize("name", ["label_starts_", "label_ids_"])
@pytest.mark.parametrize("value", [-1, 2**31 - 1])
def test_damaged_numbers_give_an_error(name, value):
    learned = NearestNeighbours().fit(X, Y).learned()
    damaged = learned[name].copy()
    damaged[len(damaged) // 2] = value
    with pytest.raises(ValueError, match=r"outside"):
        restored({**learned, name: damaged}).rank(X, 3)


@pytest.mark.parametrize("name", ["label_starts_", "label_ids_", "row_starts_", "row_terms_"])
def test_learning_more_with_damaged_numbers_gives_an_error(name):
    model = restored(NearestNeighbours().fit(X, Y).learned())
    owner = model if hasattr(model, name) else model.index_
    damaged = np.array(getattr(owner, name))
    damaged[-1] = 0  # of row starts: SciPy takes the matrix for empty and does not look further
    damaged[1] = 2**31 - 1
    setattr(owner, name, damaged)
    rows = model.prior_.rows_
    with pytest.raises(ValueError, match=r"must not fall|outside"):
        model.partial_fit(X, Y, model.labels_)
    if owner is model:
        assert model.prior_.rows_ == rows


@pytest.mark.parametrize("similarity", ["cosine", "bm25"])
def test_more_columns_change_no_answer(similarity):
    random = np.random.default_rng(0)
    X = csr_matrix(random.poisson(0.5, (40, 12)).astype(np.float32))
    Y = csr_matrix((random.random((40, 6)) < 0.3).astype(np.float32))
    model = NearestNeighbours(similarity=similarity).fit(X, Y)
    wide = csr_matrix((X.data, X.indices, X.indptr), (40, 15))
    one, other = model.rank(X, 4), model.widened(15).rank(wide, 4)
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.scores, other.scores)
    again = NearestNeighbours(similarity=similarity).fit(wide, Y)
    np.testing.assert_array_equal(again.rank(wide, 4).scores, other.scores)


def test_rows_of_labels_vote_and_leave_with_them():
    X, Y = csr_matrix(np.eye(4, 6, dtype=np.float32)), csr_matrix(np.eye(4, dtype=np.float32))
    model = NearestNeighbours().fit(X, Y)
    rows = csr_matrix(np.eye(6, dtype=np.float32)[4:])
    titles = pa.array(["new", "newer"], pa.large_string())
    more = model.add_labels(LabelSet(["n"]), rows, np.array([0, 0]), titles)
    assert more.rank(rows, 1).ids.ravel().tolist() == [4, 4]
    assert (more.title(0), more.title(5)) == ("", "newer")
    assert model.index_.shape[0] == 4
    assert more.prior_.rows_ == model.prior_.rows_
    left = more.take_labels([0, 1, 2, 3])
    assert left.index_.shape == (4, 6)
    assert left.points_ is None
    np.testing.assert_array_equal(left.rank(X, 3).scores, model.rank(X, 3).scores)
    both = more.take_labels([4, 0])
    assert both.index_.shape[0] == 6
    assert both.points_.tolist() == [4, 5]
