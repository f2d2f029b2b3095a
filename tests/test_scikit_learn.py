"""A tagger among scikit-learn's tools; what every system must do there is in contracts/."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix, issparse
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils.validation import check_is_fitted

import megalabel
from megalabel import systems
from megalabel.data import LabelSet
from megalabel.errors import NotFittedError

TEXTS = ["red summer dress", "red evening dress", "blue jeans", "faded blue jeans"] * 10
NAMES = [["dress"], ["dress", "red"], ["jeans"], ["blue", "jeans"]] * 10
CLASSES = ["blue", "dress", "jeans", "red"]
Y = MultiLabelBinarizer().fit_transform(NAMES)


def knn(**parameters):
    return systems.create("knn", **parameters)


@pytest.mark.parametrize("column", [list, pd.Series, lambda x: np.array(x, dtype=object)])
@pytest.mark.parametrize("cv", [3, None, KFold(3)])
def test_cross_validation_with_names(column, cv):
    scores = cross_val_score(knn(), TEXTS, column(NAMES), cv=cv, error_score="raise")
    assert (scores == 1).all()


def test_a_search_with_names():
    grid = {"classifier__neighbours": [1, 5]}
    search = GridSearchCV(knn(), grid, cv=2, error_score="raise").fit(TEXTS, NAMES)
    assert search.best_score_ == 1
    assert sorted(search.predict(["a red evening dress"])[0]) == ["dress", "red"]
    pipeline = Pipeline([("same", FunctionTransformer()), ("tag", knn())])
    search = GridSearchCV(pipeline, {"tag__classifier__neighbours": [1, 5]}, cv=2)
    assert search.fit(TEXTS, NAMES).score(TEXTS, NAMES) == 1


@pytest.mark.parametrize("labels", [4, 2])
@pytest.mark.parametrize("scoring", ["average_precision", "f1_micro", "accuracy"])
def test_scores_of_matrices(scoring, labels):
    y = Y[:, 4 - labels :]
    rows = y.any(axis=1)
    texts = [text for text, there in zip(TEXTS, rows, strict=True) if there]
    scores = cross_val_score(knn(), texts, y[rows], cv=2, scoring=scoring, error_score="raise")
    assert scores.shape == (2,)
    assert (scores > 0.9).all()


def test_several_scores_at_once():
    scoring = ["average_precision", "roc_auc"]
    found = cross_validate(knn(), TEXTS, Y, cv=2, scoring=scoring, error_score="raise")
    assert (found["test_average_precision"] > 0.9).all()
    assert (found["test_roc_auc"] > 0.9).all()
    search = GridSearchCV(knn(), {"seed": [0]}, scoring="average_precision", cv=2).fit(TEXTS, Y)
    assert search.score(TEXTS, Y) > 0.9
    nested = cross_val_score(search, TEXTS, Y, cv=2, scoring="average_precision")
    assert (nested > 0.9).all()


@pytest.mark.parametrize("calibration", ["isotonic", None])
def test_decision_function_has_all_labels(corpus, calibration):
    tagger = knn(calibration=calibration).fit(corpus)
    scores = tagger.decision_function(["red evening gown", "blue denim", ""])
    assert scores.shape == (3, len(corpus.labels))
    ranking = tagger.rank(["red evening gown", "blue denim", ""], 3)
    np.testing.assert_array_equal(
        np.take_along_axis(scores, ranking.ids.astype(int), axis=1), ranking.scores
    )


def test_names_in_names_out(tmp_path):
    tagger = knn().fit(TEXTS, NAMES)
    assert tagger.classes_.tolist() == CLASSES
    predicted = tagger.predict(TEXTS[:4])
    assert [sorted(names) for names in predicted] == NAMES[:4]
    tagger.save(tmp_path / "model")
    loaded = megalabel.load(tmp_path / "model")
    assert loaded.predict(TEXTS[:4]) == predicted
    assert loaded.classes_.tolist() == CLASSES
    again = knn().fit(TEXTS, predicted * 10)  # what it answers with can be learned from
    assert again.classes_.tolist() == CLASSES


@pytest.mark.parametrize("y", [Y, Y.tolist(), csr_matrix(Y)])
def test_a_matrix_in_a_matrix_out(y, tmp_path):
    tagger = knn().fit(TEXTS, y)
    assert tagger.classes_.tolist() == [0, 1, 2, 3]
    predicted = tagger.predict(TEXTS)
    assert issparse(predicted)
    np.testing.assert_array_equal(predicted.toarray(), Y)
    tagger.fit(TEXTS, NAMES).fit(TEXTS, y)  # the last fit counts
    assert issparse(tagger.predict(TEXTS))
    tagger.save(tmp_path / "model")
    assert issparse(megalabel.load(tmp_path / "model").predict(TEXTS))


def test_names_that_look_like_numbers_are_names():
    tagger = knn().fit(TEXTS, [["0"], ["1"]] * 20)
    assert tagger.classes_.tolist() == ["0", "1"]


def test_columns_that_have_names():
    for tagger in (
        knn().fit(TEXTS, pd.DataFrame(Y, columns=CLASSES)),
        knn().fit(TEXTS, Y, labels=LabelSet(CLASSES)),
    ):
        assert tagger.classes_.tolist() == CLASSES
        np.testing.assert_array_equal(tagger.predict(TEXTS).toarray(), Y)


def test_a_model_of_names_that_is_made_smaller_answers_in_names():
    tagger = systems.create("dismec").fit(TEXTS, NAMES)
    assert tagger.prune(0.01).predict(TEXTS[:1]) == tagger.predict(TEXTS[:1])


def test_predictions_of_all_texts():
    predicted = cross_val_predict(knn(), TEXTS, Y, cv=2)
    np.testing.assert_array_equal(predicted.toarray(), Y)


def test_what_is_not_fitted_is_scikit_learns_error_too():
    tagger = knn()
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(tagger)
    with pytest.raises(SklearnNotFittedError, match="call fit first") as raised:
        tagger.predict(["red"])
    assert isinstance(raised.value, NotFittedError)
    again = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(again, SklearnNotFittedError)
    assert str(again) == str(raised.value)
    assert not hasattr(tagger, "classes_")
    check_is_fitted(tagger.fit(TEXTS, NAMES))


def test_nothing_of_scikit_learn_is_loaded_for_it():
    code = """
import sys, megalabel
from megalabel.errors import NotFittedError
try:
    megalabel.systems.create("knn").tag("a text")
except NotFittedError as error:
    print(type(error).__mro__[0] is NotFittedError, "sklearn" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_a_fitted_tagger_is_a_classifier():
    assert is_classifier(knn().fit(TEXTS, Y))
