import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.data import LabelSet, Ranking
from megalabel.errors import DataError, ParameterError
from megalabel.metrics import evaluate, reliability


def test_published_toy():
    scores = [[0.9, 0.9, 0.9, 0.9, 0.6, 0.6]]
    ranking = Ranking([[0, 1, 2, 3, 4, 5]], scores, LabelSet.numbered(6))
    truth = csr_matrix([[1, 1, 1, 0, 1, 0]])
    table = reliability(ranking, truth, k=6, bins=10)
    filled = [row for row in table.to_pylist() if row["count"]]
    assert [row["count"] for row in filled] == [2, 4]
    assert [row["hit_rate"] for row in filled] == [0.5, 0.75]
    error = sum(r["count"] * abs(r["confidence"] - r["hit_rate"]) for r in filled) / 6
    assert error == pytest.approx(0.8 / 6, abs=1e-7)


def test_bins_hold_their_lower_end_and_the_last_one_holds_1():
    ranking = Ranking([[0, 1, 2]], [[1.0, 0.5, 0.0]], LabelSet.numbered(3))
    table = reliability(ranking, csr_matrix((1, 3)), k=3, bins=2)
    assert table["count"].to_pylist() == [1, 2]
    assert table["confidence"].to_pylist() == [0, 0.75]


def test_padding_is_no_pair_and_empty_bins_have_no_rates():
    ranking = Ranking(
        [[0, 3], [3, 3]], [[0.9, -np.inf]] * 1 + [[-np.inf] * 2], LabelSet.numbered(3)
    )
    table = reliability(ranking, csr_matrix([[1, 0, 0, 1], [1, 0, 0, 1]]), k=2)
    assert sum(table["count"].to_pylist()) == 1
    assert table["hit_rate"].null_count == 14


def test_true_probabilities_are_calibrated():
    rng = np.random.default_rng(0)
    n, m = 20_000, 10
    eta = rng.random((n, m)).astype(np.float32)
    truth = csr_matrix(rng.random((n, m)) < eta)
    ids = np.argsort(-eta, axis=1, kind="stable")
    scores = np.take_along_axis(eta, ids, 1)
    labels = LabelSet.numbered(m)
    honest = evaluate(Ranking(ids, scores, labels), truth, probabilities=True, k=(1, 5))
    assert max(honest["ECE@1"], honest["ECE@5"]) < 0.01
    boastful = evaluate(Ranking(ids, np.sqrt(scores), labels), truth, probabilities=True, k=5)
    assert boastful["ECE@5"] > 0.05
    # more rows than one block, in the plainest way
    for k in (1, 5):
        confidence = scores[:, :k].astype(float).ravel()
        hit = np.take_along_axis(truth.toarray(), ids, 1)[:, :k].ravel()
        bins = np.minimum((confidence * 15).astype(int), 14)
        gaps = [abs((confidence - hit)[bins == b].sum()) for b in range(15)]
        assert honest[f"ECE@{k}"] == pytest.approx(sum(gaps) / len(hit), rel=1e-9)


@pytest.mark.parametrize("score", [1.5, -0.1, np.nan, np.inf])
def test_scores_that_are_not_probabilities(score):
    ranking = Ranking([[0]], [[score]], LabelSet.numbered(1))
    with pytest.raises(DataError, match="not probabilities"):
        reliability(ranking, csr_matrix((1, 1)))


def test_bad_bins():
    with pytest.raises(ParameterError, match="bins"):
        reliability(Ranking([[0]], [[1]], LabelSet.numbered(1)), csr_matrix((1, 1)), bins=0)
