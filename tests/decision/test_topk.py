import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.data import LabelSet, Ranking
from megalabel.decision import TopK
from megalabel.errors import ParameterError


@st.composite
def rankings(draw):
    n, width, n_labels = draw(st.integers(0, 5)), draw(st.integers(0, 6)), draw(st.integers(6, 9))
    ids = np.full((n, width), n_labels)
    scores = np.full((n, width), -np.inf)
    for i in range(n):
        count = draw(st.integers(0, width))
        ids[i, :count] = draw(st.permutations(range(n_labels)))[:count]
        probabilities = st.lists(st.floats(0, 1, width=32), min_size=count, max_size=count)
        scores[i, :count] = sorted(draw(probabilities), reverse=True)
    return Ranking(ids, scores, LabelSet.numbered(n_labels))


@given(
    rankings(),
    st.none() | st.floats(0, 1, width=32),
    st.integers(0, 7),
    st.integers(1, 8),
)
@settings(max_examples=300, deadline=None)
def test_keeps_what_it_should_and_nothing_else(ranking, threshold, at_least, k):
    decided = TopK(threshold, at_least).apply(ranking, k)
    assert decided.k == min(k, ranking.k)
    assert decided.labels is ranking.labels
    for i in range(len(ranking)):
        expected = [
            (label, score)
            for j, (label, score) in enumerate(zip(ranking.ids[i], ranking.scores[i], strict=True))
            if j < k
            and label < len(ranking.labels)
            and (threshold is None or score >= threshold or j < at_least)
        ]
        padding = [(len(ranking.labels), -np.inf)] * (decided.k - len(expected))
        assert list(zip(decided.ids[i], decided.scores[i], strict=True)) == expected + padding


@given(rankings(), st.floats(0, 1), st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_deciding_twice_changes_nothing(ranking, threshold, k):
    decision = TopK(threshold)
    once = decision.apply(ranking, k)
    twice = decision.apply(once, k)
    np.testing.assert_array_equal(once.ids, twice.ids)
    np.testing.assert_array_equal(once.scores, twice.scores)


def test_a_label_at_the_threshold_stays():
    ranking = Ranking([[0]], [[0.1]], LabelSet.numbered(1))  # 0.1 is not a float32
    assert TopK(threshold=0.1).apply(ranking, 1).present.all()


def test_the_ranking_itself_is_left_alone():
    ranking = Ranking([[0, 1]], [[0.9, 0.1]], LabelSet.numbered(2))
    for array in (ranking.ids, ranking.scores):
        array.flags.writeable = False
    TopK(threshold=0.5).apply(ranking, 2)
    assert ranking.ids.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("parameters", "k", "message"),
    [
        ({}, 0, "k must be"),
        ({"threshold": 1.5}, 1, "threshold of TopK"),
        ({"threshold": float("nan")}, 1, "threshold of TopK"),
        ({"at_least": -1}, 1, "at_least of TopK"),
    ],
)
def test_bad_parameters_are_named(parameters, k, message):
    with pytest.raises(ParameterError, match=message):
        TopK(**parameters).apply(Ranking([[0]], [[1]], LabelSet.numbered(1)), k)


def test_learns_nothing():
    decision = TopK()
    decision.restore({})
    assert decision.learned() == {}
    with pytest.raises(ValueError, match="TopK"):
        decision.restore({"weights_": np.ones(3)})
