"""LabelVectors: labels by products with their vectors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import store
from megalabel.base import with_learned
from megalabel.data import LabelSet
from megalabel.errors import ParameterError, ShapeError
from megalabel.rankers import LabelVectors
from megalabel.retrieval import VectorIndex

RNG = np.random.default_rng(5)
VECTORS = RNG.normal(size=(30, 6)).astype(np.float32)
X = RNG.normal(size=(9, 6)).astype(np.float32)
LABELS = LabelSet([f"label {i}" for i in range(30)])


def made(index=None, counts=None, **parameters):
    index = VectorIndex().fit(VECTORS) if index is None else index
    learned = {"index_": index, "labels_": LABELS}
    learned |= {} if counts is None else {"label_counts_": counts}
    return with_learned(LabelVectors(**parameters), **learned)


def test_scores_are_sigmoids_of_products():
    ranking = made(scale=2.5, bias=-1.0).rank(X, 30)
    logits = 2.5 * (X.astype(np.float64) @ VECTORS.T) - 1.0
    np.testing.assert_allclose(ranking.to_csr().toarray(), 1 / (1 + np.exp(-logits)), rtol=1e-5)
    assert (np.diff(ranking.scores, axis=1) <= 0).all()
    sparse = made(scale=2.5, bias=-1.0).rank(csr_matrix(X), 30)
    np.testing.assert_array_equal(ranking.ids, sparse.ids)


def test_labels_without_a_vector_are_not_found_or_fill_up():
    index = VectorIndex().fit(VECTORS).remove([3, 7])
    short = made(index).rank(X, 30)
    assert (short.present.sum(axis=1) == 28).all()
    counts = np.arange(30)
    full = made(index, counts).rank(X, 30)
    assert full.ids[:, 28:].tolist() == [[7, 3]] * 9
    assert (np.diff(full.scores, axis=1) <= 0).all()


def test_taken_labels_rank_as_before():
    numbers = RNG.permutation(30)[:20]
    model = made(counts=np.arange(30))
    whole, taken = model.rank(X, 30).to_csr(), model.take_labels(numbers).rank(X, 20).to_csr()
    np.testing.assert_array_equal(whole.toarray()[:, numbers], taken.toarray())


def test_a_folder_answers_with_names(tmp_path):
    store.save(made(), tmp_path / "model")
    names = store.load(tmp_path / "model").rank(X, 1).tags()
    best = (X @ VECTORS.T).argmax(axis=1)
    assert [row[0].label for row in names] == [f"label {i}" for i in best]


def test_what_does_not_fit():
    with pytest.raises(ShapeError, match=r"X is \(9, 2\) but LabelVectors was fitted on 6"):
        made().rank(X[:, :2], 1)
    with pytest.raises(ParameterError, match="part of a trained tagger"):
        LabelVectors().fit(X, csr_matrix((9, 2)))
    beyond = VectorIndex().fit(VECTORS, np.arange(30) + 1)
    with pytest.raises(ValueError, match="a vector of label 30 of 30"):
        made(beyond).rank(X, 30)
