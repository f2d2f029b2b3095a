"""Labels that training has seen and those that it has not, each measured by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import LabelSet, Ranking, evaluate
from megalabel.errors import ParameterError, ShapeError

K = (1, 3)


def twin(ids: np.ndarray, truth: np.ndarray, seen: np.ndarray, k: int) -> dict[str, list[float]]:
    """Slowly, pair by pair."""
    found: dict[str, list[float]] = {"R": [], "macro-R": [], "P": []}
    for of in (seen, ~seen, np.ones(len(seen), bool)):
        hits = dict.fromkeys(np.flatnonzero(of & truth.any(0)).tolist(), 0)
        for row, labels in enumerate(ids[:, :k].tolist()):
            for label in labels:
                if label in hits and truth[row, label]:
                    hits[label] += 1
        carried = {label: truth[:, label].sum() for label in hits}
        found["R"].append(sum(hits.values()) / sum(carried.values()) if hits else 0.0)
        each = [hits[label] / carried[label] for label in hits]
        found["macro-R"].append(float(np.mean(each)) if each else 0.0)
        found["P"].append(sum(hits.values()) / (len(ids) * k))
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(3, 9))
def test_agrees_with_a_slow_twin(seed, rows, labels):
    random = np.random.default_rng(seed)
    ids = random.random((rows, labels)).argsort(1)[:, :3]
    truth = random.random((rows, labels)) < 0.4
    counts = random.integers(0, 2, labels)
    scores = np.tile(np.arange(3, 0, -1.0), (rows, 1))
    ranking = Ranking(ids, scores, LabelSet.numbered(labels))
    result = evaluate(ranking, csr_matrix(truth.astype(float)), train_labels=(counts, 9), k=K)
    table = result.seen_and_unseen().to_pydict()
    assert table["group"] == ["seen", "unseen", "all", "harmonic mean"]
    for k in K:
        for name, values in twin(ids, truth, counts > 0, k).items():
            assert table[f"{name}@{k}"][:3] == pytest.approx(values)
        assert table[f"P@{k}"][2] == pytest.approx(result[f"P@{k}"])
        both = table[f"R@{k}"]
        total = both[0] + both[1]
        assert both[3] == pytest.approx(2 * both[0] * both[1] / total if total else 0)
    again = type(result).from_json(result.to_json())
    assert again.seen_and_unseen().equals(result.seen_and_unseen())
    assert result.seen_and_unseen(counts > 0).equals(result.seen_and_unseen())


def test_it_must_be_known_what_was_seen():
    ranking = Ranking([[0]], [[1.0]], LabelSet(["cat", "dog"]))
    result = evaluate(ranking, csr_matrix([[1.0, 1.0]]), k=1)
    with pytest.raises(ParameterError, match="give train_labels"):
        result.seen_and_unseen()
    with pytest.raises(ShapeError, match=r"seen must be bool \(2,\)"):
        result.seen_and_unseen(np.array([1, 0]))
    table = result.seen_and_unseen(np.array([True, False]))
    assert table["R@1"].to_pylist() == [1.0, 0.0, 0.5, 0.0]
    assert table["labels"].to_pylist() == [1, 1, 2, None]
