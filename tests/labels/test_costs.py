"""What an error on a label costs: by a weighting's name, and from files."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel.data import LabelSet
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import (
    jpv,
    label_costs,
    read_caps,
    read_costs,
    read_propensities,
    read_weights,
    write_propensities,
)

COUNTS = np.array([1, 2, 5, 10, 100, 0])
LABELS = LabelSet(["Q1", "Q2", "Q3"], names=["cat", "dog", "a bird"])


def test_weightings_are_their_formulas():
    p = jpv(COUNTS, 1000)
    balance = np.array([1, 0.5263, 0.2442, 0.1535, 0.1, 1])  # Cui et al. with beta 0.9
    dear = np.where(COUNTS > 0, 2 / p - 1, 1)
    ones = np.ones(6)
    for weighting, positive, negative in (
        (None, ones, ones),
        ("balanced", balance, ones),
        ("propensity", dear, ones),
        ("propensity-negatives", ones, np.where(COUNTS > 0, p / (2 - p), 1)),
        ("propensity-balanced", dear * balance, ones),
    ):
        found = label_costs(weighting, COUNTS, 1000)
        np.testing.assert_allclose(found[0], positive, rtol=1e-3)
        np.testing.assert_allclose(found[1], negative, rtol=1e-12)


def test_classes_are_balanced_before_or_after_missing_labels():
    p = np.array([0.2, 0.5, 0.25, 1, 1, 0.5])
    found, negative = label_costs("propensity-rebalanced", COUNTS, 1000, p)
    of_texts = (1 - 0.9) / (1 - 0.9 ** (np.maximum(COUNTS, 1) / p))  # as if none were missing
    np.testing.assert_allclose(found[:-1], (of_texts / p + 1 / p - 1)[:-1], rtol=1e-12)
    assert found[-1] == 1
    assert (negative == 1).all()
    # where nothing is missing, the order makes no difference
    for weighting in ("propensity-balanced", "propensity-rebalanced"):
        costs = label_costs(weighting, COUNTS, 1000, np.ones(6))
        np.testing.assert_allclose(costs, label_costs("balanced", COUNTS, 1000), rtol=1e-12)


def test_any_propensities():
    p = np.array([0.2, 0.5, 0.25, 1, 1, 0.5])
    np.testing.assert_allclose(label_costs("propensity", COUNTS, 1000, p)[0], [9, 3, 7, 1, 1, 1])
    amazon = label_costs("propensity", COUNTS, 1000, "jpv-amazon")[0]
    np.testing.assert_allclose(amazon[0], 2 / jpv([1], 1000, 0.6, 2.6)[0] - 1)
    for weighting in (None, "balanced"):
        with pytest.raises(ParameterError, match="propensities are for weighting='propensity'"):
            label_costs(weighting, COUNTS, 1000, p)
    with pytest.raises(ShapeError, match="2 labels, but there are 6"):
        label_costs("propensity", COUNTS, 1000, [1, 1])


def test_the_two_propensity_weightings_differ_in_scale_alone():
    first, second = (label_costs(w, COUNTS, 300) for w in ("propensity", "propensity-negatives"))
    np.testing.assert_allclose(first[0] / first[1], second[0] / second[1], rtol=1e-12)


def test_an_unknown_weighting_is_told():
    with pytest.raises(ParameterError, match="propensity-negatives"):
        label_costs("heavy", COUNTS, 10)


def read(tmp_path, text, labels=LABELS):
    (tmp_path / "costs.txt").write_text(text, encoding="utf-8")
    positive, negative = read_costs(tmp_path / "costs.txt", labels)
    return positive.tolist(), negative.tolist()


def test_files_by_order(tmp_path):
    assert read(tmp_path, "1 2\n3 4\n5e-1   6\n") == ([1, 3, 0.5], [2, 4, 6])
    assert read(tmp_path, "\ufeff1\n2\n3") == ([1, 2, 3], [1, 1, 1])
    np.savetxt(tmp_path / "costs.txt", [[1.5, 2], [3, 4], [5, 6]])
    assert read_costs(tmp_path / "costs.txt", LABELS)[0].tolist() == [1.5, 3, 5]
    for shape in ((3,), (3, 1), (3, 2)):
        np.save(tmp_path / "costs.npy", np.full(shape, 4))
        positive, negative = read_costs(tmp_path / "costs.npy", LABELS)
        assert positive.tolist() == [4] * 3
        assert negative.tolist() == [4 if shape == (3, 2) else 1] * 3


def test_files_by_name(tmp_path):
    assert read(tmp_path, "a bird\t2\nQ1\t3\t4\r\n") == ([3, 1, 2], [4, 1, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n3\nx\n", r"costs.txt, line 3: expected one or two costs, found 'x'"),
        ("1 2 3\n1\n1\n", "line 1"),
        ("1\n\n1\n", "line 2"),
        ("cat\t1\nfish\t2\n", r"line 2: expected a known label, found 'fish'"),
        ("cat\t1\nQ1\t2\n", r"line 2: 'Q1' has its costs in line 1 already"),
        ("cat\tdear\n", r"line 1: expected label, tab, one or two costs"),
        ("cat\t1\n2 3\n", "line 2"),
        ("1\n0\n1\n", "found 0.0 for 'dog'"),
        ("1\n1 nan\n1\n", "found nan for 'dog'"),
        ("1\n-2\n1\n", "found -2.0"),
    ],
)
def test_bad_files_are_told(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_files_that_are_not_of_these_labels(tmp_path):
    with pytest.raises(ShapeError, match="2 labels, but there are 3"):
        read(tmp_path, "1\n2\n")
    with pytest.raises(ShapeError, match="0 labels, but there are 3"):
        read(tmp_path, "")
    with pytest.raises(DataError, match="no such file"):
        read_costs(tmp_path / "nowhere", LABELS)
    (tmp_path / "costs.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match="expected an array"):
        read_costs(tmp_path / "costs.npy", LABELS)
    np.save(tmp_path / "costs.npy", np.ones((3, 3)))
    with pytest.raises(ShapeError, match=r"\(3, 3\)"):
        read_costs(tmp_path / "costs.npy", LABELS)
    np.save(tmp_path / "costs.npy", np.array(["1", "2", "3"]))
    with pytest.raises(DataError, match="expected numbers"):
        read_costs(tmp_path / "costs.npy", LABELS)
    (tmp_path / "costs.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        read_costs(tmp_path / "costs.txt", LABELS)


def test_caps_and_weights(tmp_path):
    (tmp_path / "caps.tsv").write_text("dog\t3\nQ1\t0\n", encoding="utf-8")
    assert read_caps(tmp_path / "caps.tsv", LABELS).tolist() == [0, 3, np.inf]
    np.save(tmp_path / "caps.npy", np.array([1, 2, 3]))
    assert read_caps(tmp_path / "caps.npy", LABELS).tolist() == [1, 2, 3]
    (tmp_path / "caps.tsv").write_text("dog\t-3\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"expected caps from 0 to inf, found -3\.0 for 'dog'"):
        read_caps(tmp_path / "caps.tsv", LABELS)
    for name in ("weights.tsv", "weights.txt"):
        text = "dog\t-3\ncat\t2\t.5\n" if name == "weights.tsv" else "2 .5\n-3\n1\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
        weights, offsets = read_weights(tmp_path / name, LABELS)
        assert weights.tolist() == [2, -3, 1]
        assert offsets.tolist() == [0.5, 0, 0]


@pytest.mark.parametrize("name", ["p.npy", "p.tsv"])
def test_propensities_are_read_as_they_were_written(tmp_path, name):
    write_propensities(tmp_path / name, np.array([0.25, 1, 1 / 3]), LABELS)
    np.testing.assert_allclose(
        read_propensities(tmp_path / name, LABELS), [0.25, 1, 1 / 3], rtol=1e-5
    )


def test_bad_files_of_propensities_are_told(tmp_path):
    file = tmp_path / "p.txt"
    for error, message, text in (
        (DataError, "no propensities of 2 of 3 labels, such as 'cat'", "dog\t0.5\n"),
        (DataError, "line 2: expected one number, found '0.5 1'", "1\n0.5 1\n1\n"),
        (DataError, "line 1: expected label, tab, one number", "dog\t1 1\ncat\t1\nQ3\t1"),
        (DataError, "from 1e-06 to 1, found 2.0 for 'dog'", "1\n2\n1\n"),
        (DataError, "line 2: 'Q1' has its propensities in line 1", "cat\t1\nQ1\t1\n"),
        (ShapeError, "propensities of 2 labels", "1\n1\n"),
    ):
        file.write_text(text)
        with pytest.raises(error, match=message):
            read_propensities(file, LABELS)
    np.save(tmp_path / "p.npy", np.ones((3, 2)))
    with pytest.raises(ShapeError, match=r"\(3, 2\): expected \(labels,\)"):
        read_propensities(tmp_path / "p.npy", LABELS)
