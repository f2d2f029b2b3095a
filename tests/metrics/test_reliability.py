import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


@st.composite
def pairs(draw):
    special = st.sampled_from([0.0, 1.0, 0.5, 2.0**-24, 2.0**-25, 1e-30, *np.arange(16) / 15])
    rows = draw(st.lists(st.tuples(st.floats(0, 1, width=32) | special, st.booleans()), min_size=1))
    confidence, hit = zip(*rows, strict=True)
    return np.array(confidence, np.float32), np.array(hit)


@given(pairs(), st.integers(1, 20))
@settings(max_examples=200)
def test_bins_agree_with_the_plainest_way(case, bins):
    confidence, hit = case
    n = len(hit)
    ranking = Ranking(np.zeros((n, 1)), confidence[:, None], LabelSet.numbered(1))
    truth = csr_matrix(hit[:, None])
    table = reliability(ranking, truth, k=1, bins=bins).to_pydict()
    wide = confidence.astype(float)
    number = np.minimum((wide * bins).astype(int), bins - 1)
    assert table["count"] == np.bincount(number, minlength=bins).tolist()
    for b in range(bins):
        inside = number == b
        if inside.any():
            assert table["confidence"][b] == pytest.approx(wide[inside].mean(), abs=1e-14)
            assert table["hit_rate"][b] == pytest.approx(hit[inside].mean(), rel=1e-12)
    found = evaluate(ranking, truth, k=1, probabilities=True)
    assert found["Brier@1"] == pytest.approx(((wide - hit) ** 2).mean(), rel=1e-12, abs=1e-15)
    clipped = np.clip(np.where(hit, wide, 1 - wide), 2.0**-23, 1 - 2.0**-23)
    assert found["log-loss@1"] == pytest.approx(-np.log(clipped).mean(), rel=1e-12)
    assert found["ACE@1"] == pytest.approx(slow_adaptive(wide, hit), abs=1e-12)


def slow_adaptive(confidence, hit, bins=15):
    """Bins of equal mass; what agrees in ten binary digits (and in the bin of ECE) is tied."""
    fraction, exponent = np.frexp(confidence)
    tied = list(zip(
        np.where(confidence < 2.0**-24, -99, exponent),
        np.where(confidence < 2.0**-24, 0, np.floor(fraction * 2048)),
        np.minimum((confidence * 15).astype(int), 14),
        strict=True,
    ))  # fmt: skip
    gaps, n = {}, len(hit)
    for i, cell in enumerate(tied):
        before = sum(other < cell for other in tied)
        gaps[before * bins // n] = gaps.get(before * bins // n, 0) + confidence[i] - hit[i]
    return sum(map(abs, gaps.values())) / n


def test_equal_mass_is_the_textbooks_when_nothing_is_tied():
    confidence = np.linspace(0.05, 0.95, 60, dtype=np.float32)[::-1]
    hit = np.random.default_rng(0).random(60) < confidence**2
    ranking = Ranking(np.arange(60)[None], confidence[None], LabelSet.numbered(60))
    found = evaluate(ranking, csr_matrix(hit[None]), k=60, probabilities=True)
    parts = zip(np.split(confidence.astype(float), 15), np.split(hit, 15), strict=True)
    assert found["ACE@60"] == pytest.approx(
        sum(abs((c - h).sum()) for c, h in parts) / 60, rel=1e-12
    )


def test_brier_of_the_published_toy():
    ranking = Ranking([[0, 1, 2, 3, 4, 5]], [[0.9] * 4 + [0.6] * 2], LabelSet.numbered(6))
    found = evaluate(ranking, csr_matrix([[1, 1, 1, 0, 1, 0]]), k=6, probabilities=True)
    assert found["Brier@6"] == pytest.approx(0.22667, abs=1e-5)
