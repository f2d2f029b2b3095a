import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import ndtr

from megalabel import _native
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


def drawn(n, seed, shift=0.0, together=0.0):
    """Five answers for each of n texts with probabilities that are too high by `shift`.

    With `together`, the answers of one text tend to be all right or all wrong.
    """
    rng = np.random.default_rng(seed)
    said = rng.uniform(0.1, 0.9, (n, 5))
    said = -np.sort(-said, axis=1)
    noise = np.sqrt(together) * rng.normal(size=(n, 1))
    noise = noise + np.sqrt(1 - together) * rng.normal(size=(n, 5))
    hit = ndtr(noise) < said - shift
    ranking = Ranking(np.tile(np.arange(5), (n, 1)), said, LabelSet.numbered(5))
    return evaluate(ranking, csr_matrix(hit), k=(1, 5), probabilities=True)


@pytest.mark.parametrize("together", [0, 0.5])
@pytest.mark.parametrize(("n", "seeds"), [(200, 40), (500, 30), (5000, 30)])
def test_debiased_errors_of_a_calibrated_model_are_near_0_on_average(n, seeds, together):
    found = [drawn(n, seed, together=together) for seed in range(seeds)]
    for name in ("ECE@1", "ECE@5", "ACE@5"):
        plain = np.mean([evaluation[name] for evaluation in found])
        values = np.array([evaluation[name.replace("@", "-debiased@")] for evaluation in found])
        # over 1,200 seeds, what is left is at most 5 % of the plain error, at 200 texts
        chance = 4 * values.std(ddof=1) / np.sqrt(seeds)
        assert abs(values.mean()) < 0.05 * plain + chance
        assert 0.05 * plain + chance < plain  # so that the plain error would not pass


def test_a_known_error_is_recovered():
    for n, seeds in ((500, 30), (5000, 5)):
        found = [drawn(n, seed, shift=0.1) for seed in range(seeds)]
        values = np.array([evaluation["ECE-debiased@5"] for evaluation in found])
        assert values.mean() == pytest.approx(0.1, abs=0.006)
        assert np.abs(values - 0.1).max() < 4 * values.std() + 0.006
    whole = drawn(20_000, 0, shift=0.1)
    for error in ("ECE", "ACE"):
        assert whole[f"{error}-debiased@5"] == pytest.approx(whole[f"{error}@5"], abs=1e-4)


def test_debiased_errors_are_what_the_formula_says():
    found = drawn(60, 3)
    rng = np.random.default_rng(3)
    said = np.float32(-np.sort(-rng.uniform(0.1, 0.9, (60, 5)), axis=1)).astype(float)
    hit = ndtr(np.zeros((60, 1)) * rng.normal(size=(60, 1)) + rng.normal(size=(60, 5))) < said
    total = 0.0
    for b in range(15):
        by_text = ((said - hit) * ((said * 15).astype(int) == b)).sum(axis=1)
        gap, s = abs(by_text.sum()), np.sqrt((by_text**2).sum())
        if s:
            total += gap - s * np.sqrt(10 / np.pi) * np.exp(-2 * (gap / s) ** 2)
    assert found["ECE-debiased@5"] == pytest.approx(total / 300, abs=1e-9)


def test_debiased_errors_have_intervals_and_are_compared():
    calibrated, shifted = drawn(800, 0), drawn(800, 0, shift=0.1)
    low, high = shifted.intervals()["ECE-debiased@5"]
    assert low < 0.1 < high
    low, high = calibrated.intervals()["ECE-debiased@5"]
    assert low < calibrated["ECE-debiased@5"] < high
    other = Ranking(np.tile(np.arange(5), (800, 1)), np.full((800, 5), 0.9), LabelSet.numbered(5))
    same_truth = csr_matrix(np.eye(5)[np.arange(800) % 5])
    boasting, honest = (
        evaluate(Ranking(other.ids, scores, other.labels), same_truth, probabilities=True)
        for scores in (other.scores, np.full((800, 5), 0.2))
    )
    assert boasting.compare(honest).p_values["ECE-debiased@5"] < 0.01


def test_by_rank_and_by_frequency_agree_with_the_plainest_way():
    rng = np.random.default_rng(0)
    n, labels, k = 300, 40, 30
    ids = np.argsort(rng.random((n, labels)), axis=1)[:, :k]
    scores = -np.sort(-rng.random((n, k)).astype(np.float32), axis=1)
    ids[::7, 25:], scores[::7, 25:] = labels, -np.inf
    truth = rng.random((n, labels + 1)) < 0.3
    truth[:, labels] = False
    counts = rng.choice([0, 1, 5, 6, 19, 20, 99, 100, 5000], labels)
    ranking = Ranking(ids, scores, LabelSet.numbered(labels))
    options = {"train_labels": (counts, 6000), "k": (1, 7, 22, 30)}
    found = evaluate(ranking, csr_matrix(truth), probabilities=True, **options)
    hit = np.take_along_axis(truth, ids, 1)
    present, rank = ids < labels, np.broadcast_to(np.arange(1, k + 1), ids.shape)
    frequency = np.append(counts, -1)[ids]
    for cutoff in (1, 7, 22, 30):
        for by, value, ends in (
            ("rank", rank, [1, 2, 3, 4, 5, 10, 20, 100]),
            ("frequency", frequency, [0, 5, 19, 99, np.inf]),
        ):
            table = found.reliability(cutoff, by=by)
            alone = reliability(
                ranking, csr_matrix(truth), cutoff, by=by, train_labels=options["train_labels"]
            )
            assert table.equals(alone)
            rows, low = iter(table.to_pylist()), 0 if by == "frequency" else 1
            for end in ends:
                inside = present & (rank <= cutoff) & (value >= low) & (value <= end)
                if inside.any() or by == "frequency":
                    row = next(rows)
                    assert row["low"] == low
                    assert row["high"] == (
                        None if end == np.inf else min(end, cutoff) if by == "rank" else end
                    )
                    assert row["count"] == inside.sum()
                    if inside.any():
                        assert row["confidence"] == pytest.approx(scores[inside].mean(), abs=1e-6)
                        assert row["hit_rate"] == pytest.approx(hit[inside].mean(), rel=1e-12)
                        assert row["gap"] == row["confidence"] - row["hit_rate"]
                        assert row["hit_rate_low"] <= row["hit_rate"] <= row["hit_rate_high"]
                    else:
                        assert row["hit_rate"] is None
                low = end + 1
            assert next(rows, None) is None


def test_what_groups_need_is_asked_for():
    ranking, truth = Ranking([[0]], [[1]], LabelSet.numbered(1)), csr_matrix([[1]])
    with pytest.raises(ParameterError, match="give train_labels to reliability"):
        reliability(ranking, truth, by="frequency")
    with pytest.raises(ParameterError, match="rank, frequency, not 'length'"):
        reliability(ranking, truth, by="length")
    found = evaluate(ranking, truth, probabilities=True)
    with pytest.raises(ParameterError, match="give train_labels to evaluate"):
        found.reliability(by="frequency")
    with pytest.raises(DataError, match="not probabilities"):
        reliability(Ranking([[0]], [[2]], LabelSet.numbered(1)), truth, by="rank")
    assert reliability(ranking, truth, k=50, by="rank")["high"].to_pylist() == [1]


def test_groups_that_do_not_fit_are_refused():
    ranked = _native.Ranked(ids=np.zeros((1, 1), np.int32), scores=np.ones((1, 1), np.float32),
                            labels=2)  # fmt: skip
    truth = _native.Truth(indptr=np.array([0, 0]), indices=np.empty(0, np.int32),
                          positive=np.empty(0, np.uint8))  # fmt: skip
    sound = {"cutoffs": np.array([1]), "group_of": np.zeros(2, np.int32), "groups": 1}
    counts = _native.grouped_reliability(ranked, truth, **sound)
    assert counts.tolist() == [1, 1 / _native.CONFIDENCE_UNIT, 0]
    for name, wrong in {
        "cutoffs": np.array([0]),
        "group_of": np.zeros(1, np.int32),
        "groups": 0,
    }.items():
        with pytest.raises(ValueError, match=r"."):
            _native.grouped_reliability(ranked, truth, **(sound | {name: wrong}))
