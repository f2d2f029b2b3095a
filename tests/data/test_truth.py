import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.data.truth import hits
from megalabel.errors import ShapeError


@pytest.fixture
def ranking():
    scores = [[3, 2, 1], [1, -np.inf, -np.inf]]
    return Ranking([[1, 0, 2], [2, 3, 3]], scores, LabelSet(["ant", "bee", "cat"]))


def test_hits_of_a_matrix_and_of_a_corpus(ranking):
    expected = [[False, True, False], [True, False, False]]
    assert hits(ranking, csr_matrix([[1, 0, 0, 1], [0, 0, 1, 1]])).tolist() == expected
    corpus = Corpus(["x", "y"], targets=[["ant", "yak"], ["cat", "yak"]])
    assert hits(ranking, corpus).tolist() == expected


def test_at_most_k_columns(ranking):
    truth = csr_matrix([[1, 1, 0], [0, 0, 1]])
    assert hits(ranking, truth, 1).tolist() == [[True], [True]]
    assert hits(ranking, truth, 9).shape == (2, 3)


def test_agrees_with_looking_up_each_cell():
    rng = np.random.default_rng(0)
    truth = csr_matrix(rng.random((9000, 90)) < 0.1)
    ids = np.array([rng.permutation(91)[:20] for _ in range(9000)])
    ranking = Ranking(ids, np.zeros(ids.shape), LabelSet.numbered(90))
    padded = np.pad(truth.toarray(), ((0, 0), (0, 1)))
    np.testing.assert_array_equal(hits(ranking, truth), np.take_along_axis(padded, ids, 1))


@pytest.mark.parametrize("shape", [(1, 3), (2, 2)])
def test_another_shape_names_both(ranking, shape):
    with pytest.raises(ShapeError, match=rf"\({shape[0]}, {shape[1]}\).*\(2, 3\)"):
        hits(ranking, csr_matrix(shape))


@pytest.mark.parametrize(
    ("indptr", "values", "k"), [([0], 1, 1), ([0, 5], 1, 1), ([0, 1], 2, 1), ([0, 1], 1, 2)]
)
def test_the_kernel_refuses_arrays_that_lie(indptr, values, k):
    ids, indices = np.zeros((1, 1), np.int32), np.zeros(1, np.int32)
    ranked = _native.Ranked(ids=ids, scores=np.zeros((1, 1), np.float32), labels=1)
    truth = _native.Truth(
        indptr=np.array(indptr), indices=indices, positive=np.ones(values, np.uint8)
    )
    with pytest.raises(ValueError, match=r"truth|ranking"):
        _native.ranking_hits(ranked, truth, k)
