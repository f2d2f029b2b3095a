"""The prior: smoothed frequencies, the same for every row."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.data import LabelSet
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.linear import Prior

X = csr_matrix((4, 3), dtype=np.float32)
Y = csr_matrix(np.float32([[1, 0, 1, 0], [0, 0, 1, 0], [0, 0.5, 1, 0], [0, 0, 0, 0]]))


def test_scores_are_smoothed_frequencies_that_sum_to_the_labels_of_a_row():
    prior = Prior(smoothing=2).fit(X, Y)
    counts = np.array([1, 0.5, 3, 0])
    expected = (counts + 2 * counts.sum() / 16) / 6
    np.testing.assert_allclose(prior.frequencies_, expected, rtol=1e-6)
    np.testing.assert_allclose(prior.frequencies_.sum(), Y.sum() / 4, rtol=1e-6)
    ranking = prior.rank(csr_matrix((2, 3)), 10)
    assert ranking.ids.tolist() == [[2, 0, 1, 3]] * 2
    np.testing.assert_array_equal(ranking.scores[0], prior.frequencies_[[2, 0, 1, 3]])


def test_equal_frequencies_go_by_number_and_names_are_kept():
    prior = Prior(smoothing=0).fit(X, csr_matrix(np.eye(4)), LabelSet(list("abcd")))
    assert [tag.label for tag in prior.rank(X[:1], 3).tags()[0]] == ["a", "b", "c"]
    assert prior.labels_.ids.to_pylist() == list("abcd")


@pytest.mark.parametrize(
    ("rows", "labels"),
    [(0, 3), (0, 0), (3, 0), (1, 1)],
    ids=["no rows", "nothing", "no labels", "one"],
)
def test_little_or_nothing_to_learn(rows, labels):
    prior = Prior().fit(np.zeros((rows, 2)), csr_matrix(np.ones((rows, labels))))
    ranking = prior.rank(np.zeros((2, 2)), 5)
    assert ranking.ids.tolist() == [list(range(labels)) or [0]] * 2
    assert ranking.present.sum() == 2 * labels
    assert (ranking.scores[ranking.present] == (1 if rows else 0)).all()


def test_adding_rows_is_fitting_them_all():
    wide = csr_matrix((Y.data, Y.indices, Y.indptr), shape=(4, 6))
    prior = Prior().partial_fit(X[:1], Y[:1], LabelSet.numbered(4))
    prior.partial_fit(X[1:], wide[1:], LabelSet.numbered(6))
    whole = Prior().fit(X, wide)
    np.testing.assert_array_equal(prior.frequencies_, whole.frequencies_)
    np.testing.assert_array_equal(prior.order_, whole.order_)
    assert prior.labels_ == whole.labels_


def test_held_out_is_its_own_ranking():
    prior = Prior().fit(X, Y)
    np.testing.assert_array_equal(prior.rank_held_out(X, np.arange(4), 2).ids, prior.rank(X, 2).ids)


def test_errors_name_what_is_wrong():
    with pytest.raises(NotFittedError):
        Prior().rank(X, 1)
    with pytest.raises(ParameterError, match="smoothing of Prior"):
        Prior(smoothing=-1).fit(X, Y)
    prior = Prior().fit(X, Y)
    with pytest.raises(ShapeError, match=r"\(1, 5\) but Prior was fitted on 3"):
        prior.rank(np.zeros((1, 5)), 1)
    with pytest.raises(ParameterError, match="k must be"):
        prior.rank(X, 0)
    with pytest.raises(ShapeError, match=r"\(4, 3\) but Y is \(3, 4\)"):
        prior.fit(X, Y[:3])
    with pytest.raises(ShapeError, match=r"\(4, 4\) but there are 2 labels"):
        prior.fit(X, Y, LabelSet(["a", "b"]))
    with pytest.raises(ShapeError, match=r"\(4, 2\), there are 2 labels and were 4"):
        prior.partial_fit(X, Y[:, :2], LabelSet.numbered(2))
    with pytest.raises(DataError, match="below zero"):
        prior.fit(X, -Y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels_", ["a"]),
        ("labels_", LabelSet(["a"])),
        ("rows_", -1),
        ("n_features_", "3"),
        ("label_counts_", np.zeros(4, np.float32)),
        ("frequencies_", np.zeros((4, 1), np.float32)),
        ("frequencies_", None),
        ("order_", np.array([0, 1, 2, 4], np.int32)),
        ("order_", np.array([0, 1, 2, -1], np.int32)),
    ],
)
def test_restore_refuses_what_does_not_fit(name, value):
    learned = Prior().fit(X, Y).learned()
    restored = Prior()
    restored.restore(learned)
    np.testing.assert_array_equal(restored.rank(X, 2).ids, Prior().fit(X, Y).rank(X, 2).ids)
    with pytest.raises(ValueError, match="Prior"):
        Prior().restore({**learned, name: value})
    del learned[name]
    with pytest.raises(ValueError, match=f"lacks {name}"):
        Prior().restore(learned)
