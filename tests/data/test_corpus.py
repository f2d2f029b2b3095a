import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, Ranking
from megalabel.errors import DataError, ShapeError


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
    with pytest.raises(TypeError, match="several rows"):
        corpus[2]
    with pytest.raises(IndexError):
        corpus[[4]]


def test_a_stored_zero_is_no_label():
    targets = csr_matrix(([0.0, 1.0], ([0, 1], [0, 1])), shape=(2, 2))
    assert Corpus(["a", "b"], targets=targets).label_counts.tolist() == [0, 1]


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
