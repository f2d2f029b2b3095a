import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, LabelSet, Ranking, Record, read
from megalabel.errors import DataError, MissingExtraError, ShapeError


def test_rows_of_a_corpus():
    corpus = Corpus(list("wxyz"), targets=[["p"], ["q"], ["r"], ["p", "q"]], ids=list("abcd"))
    for rows, expected in (
        ([-1, 0], "da"),
        ([False, True, True, False], "bc"),
        (np.array([True, False, False, False]), "a"),
        (slice(None, None, -1), "dcba"),
        (slice(3, 1), ""),
        ([], ""),
    ):
        part = corpus[rows]
        assert part.ids.to_pylist() == list(expected)
        assert part.targets.shape == (len(expected), 3)
    with pytest.raises(TypeError, match="made of rows"):
        corpus[np.array([[2]])]
    with pytest.raises(IndexError):
        corpus[[4]]


def test_a_stored_zero_is_no_label():
    targets = csr_matrix(([0.0, 1.0], ([0, 1], [0, 1])), shape=(2, 2))
    corpus = Corpus(["a", "b"], targets=targets)
    assert corpus.label_counts.tolist() == [0, 1]
    assert [record.labels for record in corpus] == [(), ("1",)]


def test_records(monkeypatch):
    labels = LabelSet(["Q1", "Q2"], names=["dog", "cat"])
    targets = csr_matrix([[1, 1], [0, 0], [0, 2.5]])
    corpus = Corpus(list("xyz"), targets=targets, labels=labels, ids=list("abc"))
    assert corpus[0] == ("x", ("dog", "cat"), "a")
    assert corpus[np.int64(-1)] == Record("z", ("cat",), "c")
    monkeypatch.setattr("megalabel.data.corpus._AT_ONCE", 2)
    assert list(corpus) == [corpus[i] for i in range(3)]
    assert corpus.head(2) == list(corpus)[:2]
    assert corpus.head(-1) == []
    for absent in (3, -4):
        with pytest.raises(IndexError):
            corpus[absent]
    vectors = Corpus(features=np.eye(2), targets=[["p"], []])
    assert list(vectors) == [(None, ("p",), None), (None, (), None)]


def test_data_frames_come_back(monkeypatch):
    targets = [["dress", "red"], [], ["jeans"]]
    corpus = Corpus(["a red dress", "nothing", "jeans"], targets=targets, ids=["7", "8", "9"])
    frame = pytest.importorskip("pandas") and corpus.to_pandas()
    assert list(frame.columns) == ["uid", "text", "labels"]
    back = read(frame)
    assert list(back) == list(corpus)
    assert back.labels == corpus.labels
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'megalabel\[pandas\]'"):
        corpus.to_pandas()


def test_notebooks_show_a_table():
    nasty = "<script>alert(1)</script>" + "x" * 1000
    corpus = Corpus([nasty] * 100, targets=[[nasty, "red & blue"]] * 100)
    shown = corpus._repr_html_()
    assert "Corpus of 100 texts with 2 labels" in shown
    assert shown.count("<tr>") == 1 + 5
    assert "<script>" not in shown
    assert len(shown) < 5_000
    assert "red &amp; blue" in Corpus(["a"], targets=[["red & blue"]])._repr_html_()
    assert corpus[:8]._repr_html_().count("<tr>") == 1 + 8
    assert "Corpus of 2 rows" in Corpus(features=np.eye(2), targets=[["p"], []])._repr_html_()


def test_excluded_cells_are_checked():
    with pytest.raises(ShapeError, match=r"excluded are \(1, 5\)"):
        Corpus(["a"], targets=[["x"]], excluded=csr_matrix((1, 5)))
    corpus = Corpus(["a"], targets=[["x"]], excluded=[[1]])
    ranking = Ranking([[0]], [[1.0]], corpus.labels)
    assert ranking.without(corpus.excluded).ids.tolist() == [[1]]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([[3], [9]], "found 3"),
        ([["x"], [None]], "text 1, found None"),
        ([["x"], [""]], "text 1, found ''"),
        ([{"x": 1}, ["y"]], "text 0"),
        ("xy", "the string 'xy'"),
        ([1, 2], "text 0"),
    ],
)
def test_labels_that_are_no_names_are_refused(targets, message):
    with pytest.raises(DataError, match=message):
        Corpus(["a", "b"], targets=targets)


def test_a_frame_names_its_labels():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[1, 0], [0, 1]], columns=["dress", "jeans"])
    corpus = Corpus(["a", "b"], targets=frame)
    assert corpus.labels.ids.to_pylist() == ["dress", "jeans"]
    assert Corpus(["a", "b"], targets=[[1, 0], [0, 1]], labels=["x", "y"]).labels.name(1) == "y"


@pytest.mark.parametrize("texts", ["one text", b"bytes", {"title": "red"}])
def test_one_text_is_not_several(texts):
    with pytest.raises(DataError, match="several strings"):
        Corpus(texts)
