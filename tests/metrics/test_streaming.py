import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack
from scipy.sparse import random as random_matrix

from megalabel import get_threads, set_threads
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.errors import DataError, ShapeError
from megalabel.metrics import Evaluation, Evaluator, evaluate

LABELS = 30


def sample(rows, seed=0, k=6):
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((rows, LABELS)), axis=1)[:, :k]
    scores = np.sort(rng.random((rows, k)))[:, ::-1]
    truth = random_matrix(rows, LABELS, 0.1, "csr", random_state=seed)
    return Ranking(ids, scores, LabelSet.numbered(LABELS)), csr_matrix(truth)


def evaluator():
    counts = np.arange(LABELS), 100
    return Evaluator(train_labels=counts, k=(1, 3, 5), probabilities=True)


def in_batches(ranking, truth, ends):
    found, ends = evaluator(), [*ends, len(ranking)]
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        found.add(ranking[start:end], truth[start:end])
    return found.result()


def everything(evaluation):
    return evaluation.to_json()


@given(st.lists(st.integers(0, 400), max_size=5))
@settings(max_examples=20)
def test_batches_change_no_bit(ends):
    ranking, truth = sample(400)
    expected = evaluator().add(ranking, truth).result()
    assert everything(in_batches(ranking, truth, sorted(ends))) == everything(expected)


def test_more_rows_than_groups_change_no_bit_either():
    ranking, truth = sample(20_000)
    threads, seen = get_threads(), set()
    try:
        for count, ends in ((1, []), (2, [1, 4095, 9000]), (5, [8192])):
            set_threads(count)
            seen.add(everything(in_batches(ranking, truth, ends)))
    finally:
        set_threads(threads)
    assert len(seen) == 1


def test_an_evaluation_does_not_change_when_rows_are_added():
    ranking, truth = sample(20)
    growing = evaluator().add(ranking[:10], truth[:10])
    early = growing.result()
    before = everything(early)
    growing.add(ranking[10:], truth[10:])
    assert everything(early) == before
    assert growing.result().rows == 20


def test_labels_may_turn_up_late():
    labels = LabelSet(["cat", "dog"])
    texts = [["cat"], ["ant", "dog"], ["bee", "ant"], ["cat", "dog"]]
    ranking = Ranking([[0, 1]] * 4, [[2, 1]] * 4, labels)
    train = Corpus(["a", "b", "c"], targets=[["dog", "cat"], ["bee", "dog"], ["ant"]])
    whole = Corpus(list("wxyz"), targets=texts)
    expected = evaluate(ranking, whole, train_labels=train)
    growing = Evaluator(train_labels=train)
    for i in range(4):
        growing.add(ranking[i : i + 1], Corpus(["w"], targets=texts[i : i + 1]))
    found = growing.result()
    assert found.to_dict() == pytest.approx(expected.to_dict(), rel=1e-15)
    by_label = {row["label"]: row for row in found.per_label().to_pylist()}
    assert by_label["ant"]["positives"] == 2
    assert by_label["bee"]["train"] == 1


def test_batches_that_do_not_belong_together():
    ranking, truth = sample(4)
    growing = evaluator().add(ranking, truth)
    other = Ranking(ranking.ids, ranking.scores, LabelSet.numbered(LABELS + 1))
    with pytest.raises(DataError, match="other labels"):
        growing.add(other, truth)
    with pytest.raises(ShapeError, match="31"):
        growing.add(ranking, csr_matrix((4, LABELS + 1)))
    assert growing.result() == evaluator().add(ranking, truth).result()


def test_a_refused_batch_leaves_no_trace():
    ranking, truth = sample(4)
    growing = evaluator().add(ranking, truth)
    boasting = Ranking(ranking.ids, ranking.scores + 1, ranking.labels)
    with pytest.raises(DataError, match="not probabilities"):
        growing.add(boasting, truth)
    doubled = growing.add(ranking, truth).result()
    both = Ranking(np.tile(ranking.ids, (2, 1)), np.tile(ranking.scores, (2, 1)), ranking.labels)
    assert everything(doubled) == everything(evaluator().add(both, vstack([truth] * 2)).result())


def test_nothing_added():
    with pytest.raises(DataError, match="no rows"):
        Evaluator().result()


def test_everything_survives_json():
    ranking, truth = sample(300)
    there = evaluator().add(ranking, truth).result()
    back = Evaluation.from_json(there.to_json())
    assert back == there
    assert back.to_dict(tables=True) == there.to_dict(tables=True)
    assert back.per_label().equals(there.per_label())
    assert set(back.compare(there).p_values.values()) == {1.0}


@pytest.mark.parametrize(
    "change",
    [{"shape": [1, 2]}, {"type": "|O"}, {"data": "eJxjYAAAAAEAAQ=="}, {"type": "<f8"}],
)
def test_tampered_json_is_refused(change):
    ranking, truth = sample(3)
    state = json.loads(evaluator().add(ranking, truth).result().to_json())
    state["tallies"]["hits"] |= change
    with pytest.raises(DataError, match="hits"):
        Evaluation.from_json(json.dumps(state))
