"""What a tagger takes and what it makes of it; what every system must do is in contracts/."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix, identity

from megalabel import systems
from megalabel.calibration import ByRank, Isotonic
from megalabel.data import Corpus, LabelSet
from megalabel.decision import BlockCoordinateAscent
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.features import Concat, Precomputed, Tfidf
from megalabel.labels import read_propensities
from megalabel.linear import OneVsAll, Prior
from megalabel.retrieval import NearestNeighbours
from megalabel.tagger import Tagger

TEXTS = ["red summer dress", "red evening dress", "blue jeans", "faded blue jeans"] * 3
NAMES = [["dress"], ["dress", "red"], ["jeans"], ["jeans"]] * 3
MATRIX = csr_matrix(np.eye(4)[np.arange(12) % 4])


def tagger(**parameters):
    return Tagger(NearestNeighbours(), **parameters)


COLUMNS = [list, tuple, pd.Series, pl.Series, pa.array]


@pytest.mark.parametrize("column", [*COLUMNS, np.array, lambda x: pd.Series(x, dtype="category")])
def test_texts_as_any_column(column):
    fitted = tagger().fit(column(TEXTS), NAMES)
    assert fitted.tag(column(["a red dress"]), k=1)[0][0].label == "dress"


@pytest.mark.parametrize("column", [*COLUMNS, lambda x: np.array(x, dtype=object)])
def test_labels_as_any_column(column):
    fitted = tagger().fit(TEXTS, column(NAMES))
    assert fitted.labels.ids.to_pylist() == ["dress", "jeans", "red"]
    assert fitted.score(TEXTS, column(NAMES)) == 1


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (pd.DataFrame({"text": TEXTS}), NAMES, r"sequence of strings, found a DataFrame \(12, 1\)"),
        (np.array(TEXTS)[:, None], NAMES, "matrix of numbers"),
        (TEXTS, pd.Series([None, *NAMES[1:]]), "for text 0, found None"),
        (TEXTS, np.arange(12), "for text 0, found 0"),
    ],
)
def test_what_is_neither_says_so(texts, labels, message):
    with pytest.raises(DataError, match=message):
        tagger().fit(texts, labels)


def test_columns_of_a_matrix_mean_the_labels_known():
    labels = LabelSet(["a", "b", "c", "d"])
    fitted = tagger().fit(TEXTS, MATRIX, labels=labels)
    assert fitted.score(TEXTS, MATRIX) == fitted.score(TEXTS, MATRIX.toarray()) == 1
    fitted.partial_fit(TEXTS, MATRIX)
    assert fitted.labels == labels
    assert fitted.label_counts_.tolist() == [6, 6, 6, 6]
    with pytest.raises(ShapeError, match=r"\(12, 3\).*4 labels"):
        fitted.partial_fit(TEXTS, MATRIX[:, :3])


def test_a_wider_matrix_brings_labels_where_they_are_numbers():
    fitted = tagger().fit(TEXTS, MATRIX)
    fitted.partial_fit(TEXTS, csr_matrix((MATRIX.data, MATRIX.indices, MATRIX.indptr), (12, 6)))
    assert fitted.labels == LabelSet.numbered(6)


def test_new_labels_come_after_those_known():
    fitted = tagger().fit(TEXTS, NAMES)
    fitted.partial_fit(["a green apple"], [["apple", "jeans"]])
    assert fitted.labels.ids.to_pylist() == ["dress", "jeans", "red", "apple"]
    assert fitted.label_counts_.tolist() == [6, 7, 3, 1]


def test_vectors_are_taken_as_the_tagger_was_told():
    vectors = 2 * identity(12, format="csr")
    as_is = tagger(features=Precomputed(norm=None)).fit(vectors, NAMES)
    assert as_is.features_.transform(vectors).data.max() == 2
    assert tagger().fit(vectors, NAMES).features_.transform(vectors).data.max() == 1


SEEN = []


class SecondFit(Prior):
    """A classifier that must be trained again to rank rows it has seen; notes its rows."""

    ranks_held_out = False

    def rank(self, X, k):
        SEEN.append(X[:, 0])
        return super().rank(X, k)


def test_held_out_rows_come_from_the_whole_corpus():
    SEEN.clear()
    vectors = np.arange(1, 2001, dtype=np.float32)[:, None]
    targets = csr_matrix(np.ones((2000, 1)))
    model = Tagger(SecondFit(), Precomputed(norm=None), Isotonic(), calibration_texts=1000)
    model.fit(vectors, targets)
    (rows,) = SEEN
    assert len(rows) == 200
    assert rows.min() < 100
    assert rows.max() > 1900


def test_fewer_labels_than_are_calibrated():
    fitted = tagger(calibration=Isotonic(k=5)).fit(TEXTS, [["only"]] * 12)
    assert fitted.rank(TEXTS, k=3).ids.shape == (12, 1)
    assert fitted.evaluate(Corpus(TEXTS, targets=[["only"]] * 12), k=3)["R@3"] == 1


def test_predict_answers_with_what_is_likely(corpus):
    tagger = systems.create("knn").fit(corpus)
    predicted = tagger.predict(["red evening gown", "gown for everyone", ""])
    assert 1 <= predicted[0].nnz <= 3
    assert predicted[1].nnz >= 1  # the best one at least
    assert predicted[2].nnz == 0
    uncalibrated = systems.create("knn", calibration=None).fit(corpus)
    assert uncalibrated.predict(["red evening gown"]).nnz == 2  # as many as texts have


def test_a_corpus_of_other_labels_is_not_measured(corpus):
    tagger = systems.create("knn").fit(corpus)
    with pytest.raises(DataError, match="none of the corpus's labels"):
        tagger.evaluate(["a text"], [["another label"]])
    with pytest.raises(DataError, match="no labels to be measured"):
        tagger.evaluate(Corpus(["a text"]))


def test_new_words_join_those_of_neighbours(corpus):
    tagger = systems.create("knn").fit(corpus)
    before, width = tagger.rank(corpus, 3), tagger.features_.n_features
    tagger.partial_fit(["zzyzx quux", "zzyzx"], [["strange"], ["strange"]])
    assert tagger.tag("zzyzx", k=1)[0].label == "strange"
    assert tagger.features_.n_features == width + 2
    assert (tagger.rank(corpus, 3).ids == before.ids).mean() > 0.9


def test_new_texts_of_unknown_words_are_said(corpus, caplog):
    tagger = systems.create("knn").fit(corpus)
    tagger.partial_fit(["!"], [["strange"]])
    assert "1 of 1 new texts hold no word known" in caplog.text


def test_cells_that_are_left_out_are_neither_ranked_nor_decided(corpus):
    made = systems.create("knn").fit(corpus)
    best = made.rank(corpus, 3)
    first = csr_matrix(
        (np.ones(len(corpus)), (np.arange(len(corpus)), best.ids[:, 0])), corpus.targets.shape
    )
    names = LabelSet(corpus.labels.ids.to_pylist()[::-1])  # numbered otherwise
    left_out = Corpus(
        corpus.texts, targets=corpus.targets[:, ::-1], labels=names, excluded=first[:, ::-1]
    )
    np.testing.assert_array_equal(made.rank(left_out, 2).ids, best.ids[:, 1:])
    np.testing.assert_array_equal(made.decide(left_out, 1).ids, best.ids[:, 1:2])


@pytest.mark.parametrize("calibration", ["isotonic", ByRank(Isotonic(k=3))])
def test_what_a_decision_looks_at_is_calibrated(corpus, calibration, caplog):
    rule = BlockCoordinateAscent("macro-f1", candidates=7)
    made = Tagger(NearestNeighbours(), Tfidf(), calibration, rule).fit(corpus)
    assert made.calibration_.k == 7
    made.decide(corpus, 2)
    assert "calibrated" not in caplog.text
    plain = Tagger(NearestNeighbours(), Tfidf(), Isotonic(k=3)).fit(corpus)
    assert plain.calibration_.k == 3
    plain.decide(corpus, 2)
    assert "calibrated" not in caplog.text
    plain.decide(corpus, 2, rule)
    assert "calibration.k=7" in caplog.text


def test_words_beside_other_features_are_named(corpus):
    features = Concat([Tfidf(), Tfidf(analyzer="char", ngram_range=(2, 2))])
    made = Tagger(OneVsAll(), features, None).fit(corpus)
    text, label = corpus.texts[0].as_py(), corpus.labels.ids[0].as_py()
    [reason] = made.explain(text, label, words=100).reasons
    said = {word.text for word in reason.evidence}
    assert {word for word in said if len(word) > 2} <= set(text.lower().split())
    assert any(len(word) == 2 for word in said)
    assert not any(word.isdecimal() for word in said)


def test_features_in_a_supervised_pipeline(corpus):
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    y = corpus.targets.toarray()[:, :3]
    made = make_pipeline(Tfidf(), OneVsRestClassifier(LogisticRegression()))
    assert made.fit(corpus.texts.to_pylist(), y).predict(["evening gown"]).shape == (1, 3)


def test_many_texts_are_ranked_as_few_are(monkeypatch):
    made = systems.create("dismec", calibrate=False)
    made.fit(["red dress", "blue jeans", "red hat"], [["dress"], ["jeans"], ["hat"]])
    texts = ["red", "blue hat", "a dress"]
    few = made.rank(texts, 9)
    monkeypatch.setattr("megalabel.answering._BATCH", 2)
    many = made.rank(texts, 9)
    np.testing.assert_array_equal(many.ids, few.ids)
    np.testing.assert_array_equal(many.scores, few.scores)
    for wrong in (0, -1, "two"):
        with pytest.raises(ParameterError, match="k must be"):
            made.rank(texts, wrong)


def test_a_new_fit_is_not_of_the_folder_it_was_read_from(corpus, tmp_path):
    systems.create("prior").fit(corpus).save(tmp_path / "m")
    tagger = Tagger.load(tmp_path / "m")
    assert tagger.origin == tmp_path / "m"
    assert tagger.fit(corpus).origin is None


def test_propensities_of_a_file(corpus, tmp_path):
    fitted = tagger().fit(corpus[:200])
    file = tmp_path / "p.tsv"
    names = corpus.labels.ids.to_pylist()
    file.write_text("".join(f"{name}\t{0.1 + 0.05 * i}\n" for i, name in enumerate(names)))
    aligned = corpus.aligned(fitted.labels).labels
    expected = fitted.evaluate(corpus, propensities=read_propensities(file, aligned))
    assert fitted.evaluate(corpus, propensities=file) == expected


def test_notebooks_show_what_a_tagger_is(corpus):
    tagger = systems.create("knn")
    assert "not fitted" in tagger._repr_html_()
    shown = tagger.fit(corpus)._repr_html_()
    labels, texts = len(corpus.labels), len(corpus)
    assert f"Tagger knn, {labels:,} labels learned from {texts:,} texts" in shown
    assert "NearestNeighbours(" in shown
    assert "Is the first suggestion right? (P@1)" in shown
