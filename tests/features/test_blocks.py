"""Precomputed, Concat and Each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix, issparse, random
from sklearn.base import clone
from sklearn.preprocessing import normalize

from megalabel import store
from megalabel.data import Corpus
from megalabel.errors import DataError, NotFittedError, ParameterError, ShapeError
from megalabel.features import Concat, Each, Precomputed, Tfidf

DENSE = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
DENSE[2] = 0
SPARSE = random(4, 6, 0.5, "csr", dtype=np.float32, random_state=1)
TEXTS = ["red dress", "blue jeans", "", "red shoes"]


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if issparse(matrix) else matrix


@pytest.mark.parametrize("matrix", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_features_pass_through(matrix: Any) -> None:
    before = dense(matrix).copy()
    for inputs in (matrix, Corpus(TEXTS, matrix)):
        rows = Precomputed().fit_transform(inputs)
        assert issparse(rows) == issparse(matrix)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(dense(rows), normalize(before), rtol=1e-6)
        np.testing.assert_array_equal(dense(Precomputed(norm=None).fit_transform(inputs)), before)
    np.testing.assert_array_equal(dense(matrix), before)


def test_another_number_of_columns_is_refused() -> None:
    features = Precomputed().fit(DENSE)
    assert features.n_features == 3
    with pytest.raises(ShapeError, match=r"\(n, 3\), found \(4, 6\)"):
        features.transform(SPARSE)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (Corpus(TEXTS), "expected a corpus with features"),
        (TEXTS, "matrix of numbers"),
        (np.ones(3), "two dimensions"),
        ([[np.nan, 1.0]], "finite"),
        (csr_matrix([[np.inf, 1.0]]), "finite"),
    ],
)
def test_what_is_not_a_matrix_is_named(inputs: Any, message: str) -> None:
    with pytest.raises((DataError, ShapeError), match=message):
        Precomputed().fit(inputs)


def test_a_wrong_number_of_columns_is_not_restored() -> None:
    with pytest.raises(ValueError, match="n_features_ of Precomputed must be an integer"):
        Precomputed().restore({"n_features_": -1})


@pytest.mark.parametrize("weights", [None, [3, 0.5]])
def test_blocks_are_normalised_weighted_and_joined(weights: list[float] | None) -> None:
    corpus = Corpus(TEXTS, SPARSE)
    both = Concat([Tfidf(), Precomputed()], weights=weights)
    rows = both.fit_transform(corpus)
    first, second = weights or [1, 1]
    tfidf = Tfidf().fit_transform(TEXTS).toarray()
    expected = normalize(np.hstack([first * tfidf, second * normalize(SPARSE.toarray())]))
    assert issparse(rows)
    assert rows.dtype == np.float32
    assert rows.has_sorted_indices
    np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(both.transform(corpus).toarray(), rows.toarray())
    assert both.n_features == rows.shape[1] == 11


def test_dense_blocks_stay_dense() -> None:
    rows = Concat([Precomputed(), Precomputed(norm=None)]).fit_transform(DENSE)
    expected = normalize(np.hstack([normalize(DENSE)] * 2))
    np.testing.assert_allclose(rows, expected, rtol=1e-6)


def test_parts_are_copied_and_exposed() -> None:
    parts = [Tfidf(), Concat([Tfidf(analyzer="char")])]
    both = Concat(parts).fit(TEXTS)
    assert both.get_params()["parts"] is parts
    assert not parts[0].fitted
    assert [type(part) for part in both.parts_] == [Tfidf, Concat]
    assert clone(both).parts[0].get_params() == parts[0].get_params()
    again = Concat(parts)
    again.restore(both.learned())
    np.testing.assert_array_equal(again.transform(TEXTS).data, both.transform(TEXTS).data)


def test_parts_must_fit() -> None:
    with pytest.raises(ParameterError, match="at least one"):
        Concat([]).fit(TEXTS)
    with pytest.raises(ParameterError, match="2 parts but 1 weights"):
        Concat([Tfidf(), Tfidf()], weights=[1]).fit(TEXTS)
    with pytest.raises(ParameterError, match="parts of Concat"):
        Concat(["tfidf"]).fit(TEXTS)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="fitted copies"):
        Concat([Tfidf()]).restore({"parts_": [Precomputed().fit(DENSE)]})
    with pytest.raises(ValueError, match=r"parts_\[0\] of Concat must be a fitted Tfidf"):
        Concat([Tfidf()]).restore({"parts_": [Tfidf()]})
    with pytest.raises(NotFittedError):
        Concat([Tfidf()]).transform(TEXTS)


def test_joined_rows_as_they_are() -> None:
    corpus = Corpus(TEXTS, DENSE)
    both = Concat([Tfidf(), Precomputed()], norm=None).fit_transform(corpus)
    words = Tfidf().fit_transform(corpus).toarray()
    np.testing.assert_allclose(dense(both), np.hstack([words, normalize(DENSE)]), rtol=1e-6)
    alone = Concat([Precomputed(), Precomputed()], norm=None).fit_transform(DENSE)
    np.testing.assert_allclose(alone, np.hstack([normalize(DENSE)] * 2), rtol=1e-6)


def test_each_by_itself(tmp_path: Path) -> None:
    corpus = Corpus(TEXTS, DENSE)
    features = Each([Tfidf(), Precomputed()]).fit(corpus)
    store.save(features, tmp_path / "features")
    for fitted in (features, store.load(tmp_path / "features")):
        words, vectors = fitted.transform(corpus)
        np.testing.assert_array_equal(dense(words), dense(Tfidf().fit_transform(corpus)))
        np.testing.assert_array_equal(vectors, Precomputed().fit_transform(corpus))
        assert fitted.n_features == words.shape[1] + 3
    with pytest.raises(ValueError, match="parts_ of Each"):
        Each([Tfidf()]).restore({"parts_": [Precomputed().fit(DENSE)]})


def test_a_text_is_known_where_any_part_knows_it() -> None:
    words, letters = Tfidf(), Tfidf(analyzer="char", ngram_range=(1, 1))
    texts = ["red", "reds", "zzz", ""]
    assert words.fit(TEXTS).known(texts, words.transform(texts)).tolist() == [True] + [False] * 3
    for several in (Concat([words, letters]), Each([words, letters])):
        several.fit(TEXTS)
        assert several.known(texts, several.transform(texts)).tolist() == [True, True, False, False]
    vectors = Precomputed().fit(DENSE)
    assert vectors.known(DENSE, vectors.transform(DENSE)).tolist() == [True, True, False, True]
