"""Arrays that no part of the library makes: the native core refuses them or answers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.features import Tfidf
from megalabel.linear import OneVsAll

NO_FLOATS, NO_IDS = np.zeros(0, np.float32), np.zeros(0, np.int32)
NO_ROWS = {"columns": NO_IDS, "values": NO_FLOATS, "width": 0}
LABEL = np.dtype([("hits", "f8"), ("given", "i4"), ("positives", "f4")])


def test_an_index_without_row_starts_is_refused():
    with pytest.raises(ValueError, match="row starts are empty"):
        _native.search_postings(
            postings=_native.Postings(
                starts=np.zeros(1, np.int64),
                documents=NO_IDS,
                weights=NO_FLOATS,
                largest=NO_FLOATS,
                common=np.zeros(0, np.uint8),
                norm=0.0,
            ),
            rows=_native.SparseRows(starts=np.zeros(0, np.int64), **NO_ROWS),
            queries=_native.SparseRows(starts=np.zeros(2, np.int64), **NO_ROWS),
            k=1,
            left_out=np.zeros(0, np.int64),
            prune=True,
        )


def ascend(ids: np.ndarray, labels: np.ndarray, chosen: np.ndarray, metric: str = "recall") -> None:
    scores = np.full(ids.shape, 0.5, np.float32)
    _native.decision_ascend(
        _native.Ranked(ids=ids, scores=scores, labels=len(labels)),
        labels=labels.view(np.float64).reshape(len(labels), 2),
        positives=np.ones(len(labels)),
        caps=NO_IDS,
        chosen=chosen,
        order=np.arange(len(ids), dtype=np.int32),
        k=1,
        floor=-np.inf,
        objective=_native.Objective(
            metric=_native.MacroMetric[metric], beta=1.0, linear=0.0, scale=1.0, rows=4.0
        ),
        custom=None,
    )


@pytest.mark.parametrize("metric", ["recall", "coverage"])
@pytest.mark.parametrize(("given", "held"), [(2**31 - 1, 0), (-(2**31), 1)])
def test_a_label_given_too_often_to_be_counted_is_refused(metric, given, held):
    labels = np.array([(0, given, 1)], LABEL)
    with pytest.raises(ValueError, match="31 bits"):
        ascend(np.zeros((1, 1), np.int32), labels, np.array([[held]], np.uint8), metric)


def test_texts_given_a_label_are_counted_as_far_as_that_goes():
    labels = np.array([(0, 2**31 - 1, 1)], LABEL)
    with pytest.raises(ValueError, match="31 bits"):
        _native.decision_recount(
            _native.Ranked(
                ids=np.zeros((1, 1), np.int32), scores=np.ones((1, 1), np.float32), labels=1
            ),
            chosen=np.ones((1, 1), np.uint8),
            labels=labels.view(np.float64).reshape(1, 2),
        )


def test_rows_without_candidates_stay_without_labels():
    labels = np.zeros(2, LABEL)
    ascend(np.zeros((3, 0), np.int32), labels, np.zeros((3, 0), np.uint8))
    assert not labels["given"].any()


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_weights_of_eight_bits_are_shares_of_finite_numbers(weight):
    starts = np.array([0, 2], np.int64)
    with pytest.raises(ValueError, match="node 0 is not a finite number"):
        _native.build_chunks(
            _native.SparseRows(
                starts=starts,
                columns=np.array([0, 1], np.int32),
                values=np.array([1, weight], np.float32),
                width=3,
            ),
            child_starts=np.array([0, 1], np.int64),
            precision=_native.Precision.int8,
        )


def test_counts_that_are_none_are_weighed_without_a_table():
    counts = np.array([0, 2, 63, 64, 2.5, np.inf, 3e38, np.nan, -1], np.float32)
    weighed = counts.copy()
    indptr = np.array([0, len(counts)], np.int64)
    columns = np.arange(len(counts), dtype=np.int32)
    _native.weigh_rows(
        indptr,
        columns,
        weighed,
        idf=NO_FLOATS,
        binary=False,
        sublinear=True,
        norm=_native.Norm.none,
    )
    with np.errstate(all="ignore"):
        expected = np.append(0, 1 + np.log(counts[1:].astype(np.float64)))
    np.testing.assert_allclose(weighed, expected, rtol=1e-6)


def test_the_arrays_of_a_struct_are_given_by_name():
    starts, ids = np.zeros(2, np.int64), np.zeros(1, np.int32)
    with pytest.raises(TypeError, match="columns"):
        _native.SparseRows(starts, ids, np.ones(1, np.float32), 1)
    with pytest.raises(TypeError, match="width"):
        _native.SparseRows(starts=starts, columns=ids, values=np.ones(1, np.float32))


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_parts_that_keep_structs_can_be_pickled(precision):
    texts = ["a red dress", "blue jeans", "a blue dress"]
    tfidf = Tfidf(stop_words=["a"]).fit(texts)
    X, Y = tfidf.transform(texts), csr_matrix(np.eye(3, dtype=np.float32))
    model = OneVsAll(precision=precision).fit(X, Y)
    for again in (pickle.loads(pickle.dumps((tfidf, model))), copy.deepcopy((tfidf, model))):
        ranking = again[1].rank(again[0].transform(texts), k=3)
        assert ranking.ids.tolist() == model.rank(X, k=3).ids.tolist()
        assert ranking.scores.tolist() == model.rank(X, k=3).scores.tolist()
