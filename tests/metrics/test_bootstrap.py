import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.data import LabelSet, Ranking
from megalabel.errors import ParameterError
from megalabel.metrics import Evaluation, evaluate

LABELS = LabelSet.numbered(20)


def measured(rows, skill, seed, k=(1, 5)):
    """A ranking of texts with two labels each; the texts are the same whatever the skill."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((rows, 20))
    truth[np.arange(rows)[:, None], np.argsort(rng.random((rows, 20)))[:, :2]] = 1
    noise = rng.random((rows, 20))
    ids = np.argsort(-(noise + skill * truth), axis=1)[:, :5]
    ranking = Ranking(ids, np.tile(np.arange(5, 0, -1), (rows, 1)), LABELS)
    return evaluate(ranking, csr_matrix(truth), train_labels=(np.arange(20), 50), k=k)


def test_intervals_agree_with_theory_and_with_a_slow_bootstrap():
    for rows in (900, 9000):  # a group a text, and several
        found = measured(rows, 0.5, seed=0)
        p = found["P@1"]
        error = np.sqrt(p * (1 - p) / rows)
        low, high = found.intervals()["P@1"]
        assert low < p < high
        assert high - low == pytest.approx(2 * 1.96 * error, rel=0.12)


def test_ratios_of_sums_are_sampled_as_such():
    rng = np.random.default_rng(0)
    inverse = rng.uniform(1, 9, 20)
    ids = np.argsort(rng.random((300, 20)), axis=1)[:, :3]
    truth = rng.random((300, 20)) < 0.15
    ranking = Ranking(ids, np.tile([3, 2, 1], (300, 1)), LABELS)
    found = evaluate(ranking, csr_matrix(truth), propensities=1 / inverse, k=3)
    gained = (inverse[ids] * np.take_along_axis(truth, ids, 1)).sum(axis=1)
    attainable = np.array([np.sort(inverse[row])[::-1][:3].sum() for row in truth])
    drawn = rng.integers(0, 300, (4000, 300))
    slow = gained[drawn].sum(axis=1) / attainable[drawn].sum(axis=1)
    low, high = found.intervals(samples=4000)["PSP@3"]
    assert low == pytest.approx(np.quantile(slow, 0.025), abs=0.15 * slow.std())
    assert high == pytest.approx(np.quantile(slow, 0.975), abs=0.15 * slow.std())


def test_the_seed_fixes_the_samples():
    found = measured(200, 0.5, seed=1)
    assert found.intervals(seed=4) == found.intervals(seed=4)
    assert found.intervals(seed=4) != found.intervals(seed=5)
    narrow, wide = found.intervals(confidence=0.5)["P@5"], found.intervals(confidence=0.99)["P@5"]
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_intervals_hold_the_truth_as_often_as_they_say():
    exact = measured(200_000, 0.5, seed=99, k=1)["P@1"]
    held = 0
    for seed in range(100):
        low, high = measured(150, 0.5, seed=seed, k=1).intervals(samples=200)["P@1"]
        held += low <= exact <= high
    assert 86 <= held <= 100


def test_a_better_model_is_told_from_a_worse_one_and_an_equal_one_is_not():
    better, worse = measured(2000, 0.6, seed=2), measured(2000, 0.45, seed=2)
    comparison = better.compare(worse)
    assert comparison["P@1"] > 0
    assert comparison.p_values["P@1"] < 0.01
    assert comparison.intervals["P@1"][0] > 0
    assert worse.compare(better).p_values["P@1"] < 0.01
    same = better.compare(better)
    assert set(same.p_values.values()) == {1.0}
    assert set(comparison.p_values) == set(better)
    assert "p" in str(comparison).splitlines()[0].split()
    assert comparison.to_dict()["P@1"]["p"] == comparison.p_values["P@1"]


def test_chance_differences_are_rarely_significant():
    rng, significant = np.random.default_rng(0), 0
    for _ in range(100):
        truth = csr_matrix(rng.random((200, 20)) < 0.3)
        pair = [
            evaluate(Ranking(rng.integers(0, 20, (200, 1)), np.ones((200, 1)), LABELS), truth, k=1)
            for _ in range(2)
        ]
        significant += pair[0].compare(pair[1], samples=200).p_values["P@1"] < 0.05
    assert significant <= 12


def test_other_texts_are_not_paired():
    first, second = measured(100, 0.5, seed=0), measured(101, 0.5, seed=0)
    assert first.compare(second).p_values == {}
    rng = np.random.default_rng(0)
    truth = csr_matrix(rng.random((100, 20)) < 0.2)
    other = evaluate(Ranking(np.zeros((100, 1)), np.ones((100, 1)), LABELS), truth)
    assert first.compare(other).p_values == {}
    assert first.compare(Evaluation({"P@1": 0.5}, rows=100)).p_values == {}


@pytest.mark.parametrize("options", [{"samples": 0}, {"confidence": 1.0}, {"confidence": 0}])
def test_bad_options(options):
    found = measured(10, 0.5, seed=0)
    with pytest.raises(ParameterError, match=next(iter(options))):
        found.intervals(**options)
    with pytest.raises(ParameterError, match=next(iter(options))):
        found.compare(found, **options)


def near_a_bound(rng, rows, labels, skill, k=(1, 3, 5)):
    """Texts of one to nine labels, nearly all of which are found."""
    drawn = rng.integers(0, labels, (rows, 9))
    carried = np.arange(9) <= rng.poisson(2, rows)[:, None]
    truth = csr_matrix((np.ones(carried.sum()), (np.nonzero(carried)[0], drawn[carried])),
                       (rows, labels))  # fmt: skip
    ids = rng.integers(0, labels, (rows, 5))
    found = carried[:, :5] & (rng.random((rows, 5)) < skill)
    ids[found] = drawn[:, :5][found]
    for rank in range(1, 5):  # a label is answered once
        ids[(ids[:, :rank] == ids[:, [rank]]).any(axis=1), rank] = labels
    scores = np.where(ids < labels, np.arange(5, 0, -1), -np.inf)
    return evaluate(Ranking(ids, scores, LabelSet.numbered(labels)), truth, k=k)


@pytest.mark.parametrize(
    ("rows", "labels", "skill", "names"),
    [
        (200, 30, 0.98, ("P@1", "abandonment@1", "MRR@1", "coverage@1")),
        (200, 150, 0.9, ("coverage@1", "coverage@3", "coverage@5", "abandonment@5")),
        pytest.param(
            2000, 700, 0.995, ("P@1", "abandonment@1", "coverage@1", "coverage@3", "coverage@5"),
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_intervals_near_a_bound_hold_the_truth_as_often_as_they_say(rows, labels, skill, names):
    rng, sets = np.random.default_rng(0), 100
    found = [near_a_bound(rng, rows, labels, skill) for _ in range(sets)]
    intervals = [evaluation.intervals(samples=100) for evaluation in found]
    for name in names:
        truth = np.mean([evaluation[name] for evaluation in found])
        ends = np.array([ends[name] for ends in intervals])
        held = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        assert held >= 0.9 - 2.5 * np.sqrt(0.9 * 0.1 / sets), (name, truth, held)
        assert ((ends >= 0) & (ends <= 1)).all()


def test_a_value_at_its_bound_has_an_interval_with_a_width():
    labels = LabelSet.numbered(10)
    ids = np.arange(400)[:, None] % 10
    found = evaluate(
        Ranking(ids, np.ones((400, 1)), labels), csr_matrix(np.eye(10)[ids[:, 0]]), k=1
    )
    intervals = found.intervals()
    low, high = intervals["P@1"]
    assert (low, high) == pytest.approx((400 / (400 + 1.96**2), 1), abs=1e-4)
    assert intervals["abandonment@1"] == pytest.approx((0, 1 - low))
    assert intervals["coverage@1"] == pytest.approx((1 - 1.96 / 10, 1), abs=1e-3)
    wider = found.intervals(confidence=0.99)
    assert wider["P@1"][0] < low
    assert wider["coverage@1"][0] < intervals["coverage@1"][0]


def test_intervals_of_shares_are_those_of_wilson():
    found = measured(300, 0.5, seed=7, k=1)
    n, p, z = 300, found["P@1"], 1.959964
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    expected = [(centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)]
    assert found.intervals(samples=4000)["P@1"] == pytest.approx(expected, abs=0.003)
