import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.data import Corpus, LabelSet, Ranking, Tag
from megalabel.errors import ShapeError

LABELS = 6


def ranking_of(rows, k):
    """Rows of label numbers, best first, padded to k."""
    ids = [row + [LABELS] * (k - len(row)) for row in rows]
    scores = [[1 / (j + 1) if i < LABELS else -np.inf for j, i in enumerate(row)] for row in ids]
    return Ranking(np.array(ids).reshape(-1, k), scores, LabelSet.numbered(LABELS))


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, LABELS - 1), unique=True, max_size=4),
            st.sets(st.integers(0, LABELS - 1)),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_without_drops_cells_and_closes_the_gaps(rows):
    ranking = ranking_of([ranked for ranked, _ in rows], k=4)
    excluded = np.zeros((len(rows), LABELS))
    for row, (_, dropped) in enumerate(rows):
        excluded[row, list(dropped)] = 1
    kept = ranking.without(csr_matrix(excluded))
    for row, (ranked, dropped) in enumerate(rows):
        stay = [j for j, label in enumerate(ranked) if label not in dropped]
        padding = 4 - len(stay)
        assert kept.ids[row].tolist() == [ranked[j] for j in stay] + [LABELS] * padding
        scores = [np.float32(1 / (j + 1)) for j in stay] + [-np.inf] * padding
        assert kept.scores[row].tolist() == scores


def test_without_takes_cells_in_any_order_and_stored_zeros():
    excluded = csr_matrix((np.zeros(2), [3, 1], [0, 2]), shape=(1, LABELS))
    kept = ranking_of([[1, 2, 3]], k=3).without(excluded)
    assert kept.ids.tolist() == [[2, LABELS, LABELS]]
    assert excluded.indices.tolist() == [3, 1]


def test_without_nothing_is_the_same_ranking():
    ranking = ranking_of([[1, 2]], k=2)
    assert ranking.without(None) is ranking
    assert ranking.without(csr_matrix((1, LABELS))) is ranking
    with pytest.raises(ShapeError, match=r"\(2, 6\).*\(1, 6\)"):
        ranking.without(csr_matrix(np.ones((2, LABELS))))


def test_without_is_the_same_for_any_number_of_threads(threads):
    random = np.random.default_rng(0)
    ids = random.integers(0, 50, (10_000, 5))
    ranking = Ranking(ids, random.random(ids.shape), LabelSet.numbered(50))
    excluded = csr_matrix(random.random((10_000, 50)) < 0.3)
    answers = []
    for count in (1, 2):
        threads(count)
        answers.append(ranking.without(excluded))
    assert (answers[0].ids == answers[1].ids).all()
    assert (answers[0].scores == answers[1].scores).all()


@pytest.mark.parametrize(
    ("indptr", "indices", "scores"),
    [
        ([0, 9], [0], [[0.5, 0.5]]),
        ([0, -1], [0], [[0.5, 0.5]]),
        ([0], [0], [[0.5, 0.5]]),
        ([0, 1], [0], [[0.5]]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(indptr, indices, scores):
    ids, scores = np.array([[0, 1]], np.int32), np.array(scores, np.float32)
    ranked = _native.Ranked(ids=ids, scores=scores, labels=2)
    cells = _native.Truth(
        indptr=np.array(indptr),
        indices=np.array(indices, np.int32),
        positive=np.ones(len(indices), np.uint8),
    )
    with pytest.raises(ValueError, match=r"truth|scores"):
        _native.drop_labels(ranked, cells)
    with pytest.raises(ValueError, match=r"truth|scores"):
        _native.reliability_cells(ranked, cells, cutoffs=np.array([2]), bins=15)


def test_a_table_has_a_list_of_names_and_scores_a_text():
    table = ranking_of([[3, 1], []], k=2).to_arrow()
    assert table.to_pydict() == {"labels": [["3", "1"], []], "scores": [[1.0, 0.5], []]}


def test_rows_for_json():
    ranking = ranking_of([[2, 0], []], 2)
    texts = Corpus(["red gown", ""], ids=["a1", ""])
    labels = [{"label": "2", "probability": 1.0}, {"label": "0", "probability": 0.5}]
    assert list(ranking.rows()) == [{"labels": labels}, {"labels": []}]
    assert list(ranking.rows(texts)) == [
        {"uid": "a1", "text": "red gown", "labels": labels},
        {"text": "", "labels": []},
    ]
    vectors = Corpus(features=np.ones((2, 3)))
    assert [row["text"] for row in ranking.rows(vectors)] == [None, None]
    with pytest.raises(ShapeError, match="1 texts and 2 rows"):
        next(ranking.rows(texts[:1]))


def test_notebooks_show_labels_with_probabilities_or_scores():
    labels = LabelSet(["a & b", "dog"])
    ranking = Ranking([[1, 0], [0, 2]], [[0.9, 0.25], [0.5, -np.inf]], labels)
    shown = ranking._repr_html_()
    assert "2 texts, the best 2 of 2 labels" in shown
    assert "dog 90%, a &amp; b 25%" in shown
    assert ">a &amp; b 50%</td>" in shown
    assert "dog 3.50" in Ranking([[1]], [[3.5]], labels)._repr_html_()
    many = Ranking(np.zeros((100, 1)), np.ones((100, 1)), labels)
    assert many._repr_html_().count("<tr>") == 1 + 5
    Ranking(np.zeros((0, 1)), np.zeros((0, 1)), labels)._repr_html_()


def test_data_frames():
    pytest.importorskip("pandas")
    frame = Ranking([[1, 0], [0, 2]], [[0.9, 0.25], [0.5, -np.inf]], LabelSet(["a", "b"]))
    rows = frame.to_pandas().explode(["labels", "scores"])
    assert rows["labels"].tolist() == ["b", "a", "a"]
    assert rows["scores"].astype(float).tolist() == pytest.approx([0.9, 0.25, 0.5])


def test_identifiers_of_labels():
    labels = LabelSet(["Q1", "Q2"], names=["cat", "dog"])
    ranking = Ranking([[1, 0]], [[0.9, 0.2]], labels)
    assert ranking.tags() == [[Tag("dog", 0.9, "Q2"), Tag("cat", 0.2, "Q1")]]
    assert next(ranking.rows())["labels"][0] == {"label": "dog", "probability": 0.9, "id": "Q2"}
    assert ranking.to_arrow()["label_ids"].to_pylist() == [["Q2", "Q1"]]
    same = LabelSet(["cat", "dog"], names=["cat", "dog"])
    assert not same.identified
    plain = Ranking([[1]], [[0.9]], same)
    assert repr(plain.tags()[0][0]) == "Tag(label='dog', probability=0.9)"
    assert "id" not in next(plain.rows())["labels"][0]
