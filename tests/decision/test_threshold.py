"""Threshold: the best F1 of rows, against all thresholds one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import LabelSet, Ranking
from megalabel.decision import Threshold
from megalabel.errors import NotFittedError, ParameterError

LABELS = LabelSet.numbered(6)


def mean_f1(ranking: Ranking, truth: csr_matrix) -> float:
    """The mean over rows, row by row."""
    values = []
    for row in range(len(ranking)):
        given = set(ranking.ids[row][ranking.present[row]].tolist())
        wanted = set(np.flatnonzero(truth[[row]].toarray()[0] > 0).tolist())
        both = len(given) + len(wanted)
        values.append(2 * len(given & wanted) / both if both else 1.0)
    return float(np.mean(values))


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 8), at_least=st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_no_other_threshold_is_better(seed, rows, at_least):
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((rows, 6)), axis=1)[:, :4]
    scores = -np.sort(-rng.integers(1, 9, (rows, 4)) / 10).astype(np.float32)
    ranking = Ranking(ids, scores, LABELS)
    truth = csr_matrix((rng.random((rows, 6)) < 0.4).astype(np.float32))
    rule = Threshold(3, at_least=at_least).fit(ranking, truth)
    found = mean_f1(rule.apply(ranking, 3), truth)
    if not truth.nnz:
        return
    other = Threshold(3, at_least=at_least)
    for threshold in np.linspace(0.05, 1.05, 21):
        other.restore({"threshold_": float(threshold)})
        assert found >= mean_f1(other.apply(ranking, 3), truth) - 1e-9


def test_labels_below_it_are_left_out_but_for_the_first():
    ranking = Ranking([[0, 1], [2, 3]], [[0.9, 0.2], [0.1, 0.05]], LABELS)
    rule = Threshold()
    rule.restore({"threshold_": 0.5})
    assert rule.apply(ranking, 2).ids.tolist() == [[0, 6], [2, 6]]
    strict = Threshold(at_least=0)
    strict.restore({"threshold_": 0.5})
    assert strict.apply(ranking, 2).ids.tolist() == [[0, 6], [6, 6]]
    assert rule.most == rule.shortlist(2) == 5


def test_without_any_label_there_is_no_threshold():
    ranking = Ranking([[0, 1]], [[0.9, 0.2]], LABELS)
    rule = Threshold().fit(ranking, csr_matrix((1, 6), dtype=np.float32))
    assert rule.threshold_ == 0
    assert rule.apply(ranking, 2).present.all()


def test_asking_wrongly():
    ranking = Ranking([[0, 1]], [[0.9, 0.2]], LABELS)
    with pytest.raises(NotFittedError):
        Threshold().apply(ranking, 2)
    with pytest.raises(ParameterError, match="learns from the labels"):
        Threshold().fit(ranking)
    rule = Threshold().fit(ranking, csr_matrix([[1.0, 0, 0, 0, 0, 0]]))
    with pytest.raises(ParameterError, match="k must be"):
        rule.apply(ranking, 0)
