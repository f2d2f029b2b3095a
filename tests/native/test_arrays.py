"""Arrays that no part of the library makes: the native core refuses them or answers."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import _native

NO_FLOATS, NO_IDS = np.zeros(0, np.float32), np.zeros(0, np.int32)
RECALL = (1, 1.0, 0.0, 1.0, 4.0)  # the metric's number, its beta, the objective's factors, rows
LABEL = np.dtype([("hits", "f8"), ("given", "i4"), ("positives", "f4")])


def test_an_index_without_row_starts_is_refused():
    with pytest.raises(ValueError, match="row starts are empty"):
        _native.search_postings(
            np.zeros(1, np.int64),
            NO_IDS,
            NO_FLOATS,
            NO_FLOATS,
            np.zeros(0, np.uint8),
            np.zeros(0, np.int64),
            NO_IDS,
            NO_FLOATS,
            0.0,
            np.zeros(2, np.int64),
            NO_IDS,
            NO_FLOATS,
            1,
            np.zeros(0, np.int64),
            True,
        )


def ascend(ids: np.ndarray, labels: np.ndarray, chosen: np.ndarray, metric=RECALL) -> None:
    _native.decision_ascend(
        ids,
        np.full(ids.shape, 0.5, np.float32),
        labels.view(np.float64).reshape(len(labels), 2),
        np.ones(len(labels)),
        NO_IDS,
        chosen,
        np.arange(len(ids), dtype=np.int32),
        1,
        -np.inf,
        metric,
        None,
    )


@pytest.mark.parametrize("metric", [RECALL, (8, *RECALL[1:])], ids=["recall", "coverage"])
@pytest.mark.parametrize(("given", "held"), [(2**31 - 1, 0), (-(2**31), 1)])
def test_a_label_given_too_often_to_be_counted_is_refused(metric, given, held):
    labels = np.array([(0, given, 1)], LABEL)
    with pytest.raises(ValueError, match="31 bits"):
        ascend(np.zeros((1, 1), np.int32), labels, np.array([[held]], np.uint8), metric)


def test_texts_given_a_label_are_counted_as_far_as_that_goes():
    labels = np.array([(0, 2**31 - 1, 1)], LABEL)
    with pytest.raises(ValueError, match="31 bits"):
        _native.decision_recount(
            np.zeros((1, 1), np.int32),
            np.ones((1, 1), np.float32),
            np.ones((1, 1), np.uint8),
            labels.view(np.float64).reshape(1, 2),
        )


def test_rows_without_candidates_stay_without_labels():
    labels = np.zeros(2, LABEL)
    ascend(np.zeros((3, 0), np.int32), labels, np.zeros((3, 0), np.uint8))
    assert not labels["given"].any()


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_weights_of_eight_bits_are_shares_of_finite_numbers(weight):
    starts = np.array([0, 2], np.int64)
    with pytest.raises(ValueError, match="node 0 is not a finite number"):
        _native.build_chunks_int8(
            starts,
            np.array([0, 1], np.int32),
            np.array([1, weight], np.float32),
            3,
            np.array([0, 1], np.int64),
        )


def test_counts_that_are_none_are_weighed_without_a_table():
    counts = np.array([0, 2, 63, 64, 2.5, np.inf, 3e38, np.nan, -1], np.float32)
    weighed = counts.copy()
    indptr = np.array([0, len(counts)], np.int64)
    columns = np.arange(len(counts), dtype=np.int32)
    _native.weigh_rows(indptr, columns, weighed, NO_FLOATS, False, True, 0)
    with np.errstate(all="ignore"):
        expected = np.append(0, 1 + np.log(counts[1:].astype(np.float64)))
    np.testing.assert_allclose(weighed, expected, rtol=1e-6)
