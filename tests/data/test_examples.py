"""What a fit sees: rows, targets, labels, and which rows are texts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.data import LabelSet
from megalabel.data.examples import Examples
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.linear import OneVsAll, Prior

Y = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]], dtype=np.float32)


def test_rows_and_targets_must_fit_each_other() -> None:
    with pytest.raises(ShapeError, match="as many rows are needed"):
        Examples.of(np.eye(3), Y)
    with pytest.raises(ShapeError, match="there are 1 labels"):
        Examples.of(np.eye(4), Y, LabelSet(["a"]))
    with pytest.raises(DataError, match="below zero"):
        Examples.of(np.eye(4), -Y)


def test_label_points_are_not_counted_as_texts() -> None:
    examples = Examples.of(np.eye(4), Y, label_points=np.array([2, 3]))
    assert examples.texts.tolist() == [0, 1]
    assert examples.label_counts.tolist() == [2, 1, 0]
    assert len(examples) == 4
    some = examples.at(np.array([3, 1]))
    assert some.texts.tolist() == [1]
    assert some.label_counts.tolist() == [1, 1, 0]


def test_frequencies_are_those_of_texts() -> None:
    examples = Examples.of(np.eye(4), Y, label_points=np.array([2, 3]))
    prior = Prior(smoothing=0).fit_examples(examples)
    assert prior.frequencies_.tolist() == [1.0, 0.5, 0.0]
    balanced = OneVsAll(weighting="balanced")
    alone = balanced.label_costs(examples.at(examples.texts))
    np.testing.assert_array_equal(balanced.label_costs(examples), alone)


def test_what_is_not_asked_for_is_not_made() -> None:
    asked = []

    def rows() -> np.ndarray:
        asked.append("label rows")
        return np.eye(3)

    examples = Examples.of(np.eye(4), Y, find_label_rows=rows)
    OneVsAll().fit_examples(examples)
    assert not asked
    assert examples.columns is None
    np.testing.assert_array_equal(examples.label_rows, np.eye(3))
    with pytest.raises(ParameterError, match="give label_rows"):
        _ = Examples.of(np.eye(4), Y).label_rows
