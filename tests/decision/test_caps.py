"""Labels that only so many texts may be given: brute force, and what every rule keeps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import megalabel
from megalabel import LabelSet, Ranking
from megalabel.decision import (
    BlockCoordinateAscent,
    FrankWolfe,
    Online,
    TopK,
    Weighted,
    measure,
)
from megalabel.decision.shortlists import assign, largest, unpacked
from megalabel.errors import ParameterError, ShapeError

K = 2


def shortlists(n: int, m: int, seed: int = 0, steps: int = 1000) -> Ranking:
    """All labels of each text, of few different probabilities where there are few steps."""
    random = np.random.default_rng(seed)
    eta = random.integers(1, steps, (n, m)) / steps / np.arange(1, m + 1) ** 0.3
    ids = np.argsort(-eta, axis=1, kind="stable")
    return Ranking(ids, np.take_along_axis(eta, ids, 1), LabelSet.numbered(m))


def counts(decided: Ranking) -> np.ndarray:
    return np.bincount(decided.ids[decided.present], minlength=len(decided.labels))


def best_sum(values: np.ndarray, caps: np.ndarray, k: int, nothing: float) -> float:
    """The largest sum of what labels are worth beyond nothing, by trying all label sets."""
    n, m = values.shape
    subsets = [s for size in range(k + 1) for s in itertools.combinations(range(m), size)]
    best = 0.0
    for choice in itertools.product(subsets, repeat=n):
        used = np.bincount([j for s in choice for j in s], minlength=m)
        if (used <= caps).all():
            sums = [values[i, j] - nothing for i, s in enumerate(choice) for j in s]
            best = max(best, float(np.sum(sums)))
    return best


@given(st.integers(0, 2**32), st.sampled_from([4, 1000]), st.booleans())
@settings(max_examples=25, deadline=None)
def test_no_label_sets_have_a_larger_sum(seed, steps, floored):
    random = np.random.default_rng(seed)
    n, m = 4, 3
    ranking = shortlists(n, m, seed, steps)
    rule = random.integers(1, 4, (2, m)).astype(np.float32)
    rule[1] -= 2
    caps = random.integers(0, 4, m).astype(np.int32)
    values = np.empty((n, m))
    np.put_along_axis(values, ranking.ids, ranking.scores.astype(np.float64), axis=1)
    values = values * rule[0].astype(np.float64) + rule[1]
    spread = values.max() - values.min()
    floor = 0.2 if floored else -np.inf
    nothing = floor if floored else values.min() - spread
    (chosen,) = assign(ranking, rule, caps, K, floor)
    mask = np.zeros((n, m), bool)
    np.put_along_axis(mask, ranking.ids, unpacked(chosen, m), axis=1)
    assert (mask.sum(axis=0) <= caps).all()
    assert (mask.sum(axis=1) <= K).all()
    found = (values[mask] - nothing).sum()
    assert found >= best_sum(values, caps, K, nothing) - 1e-4 * spread * n * K - 1e-9


@given(st.integers(0, 2**32), st.integers(0, 12))
@settings(max_examples=25, deadline=None)
def test_the_largest_of_each_label(seed, count):
    random = np.random.default_rng(seed)
    ids = np.array([random.permutation(4)[:3] for _ in range(4)])
    values = random.integers(0, 5, ids.shape).astype(np.float64)
    values[random.random(values.shape) < 0.2] = -np.inf
    caps = random.integers(0, 3, 4)
    left, expected = caps.copy(), np.zeros(values.shape, bool)
    for at in np.argsort(-values, axis=None, kind="stable"):
        label = ids.flat[at]
        if np.isfinite(values.flat[at]) and left[label] > 0 and expected.sum() < count:
            left[label] -= 1
            expected.flat[at] = True
    np.testing.assert_array_equal(largest(values, ids, count, caps), expected)


@pytest.mark.parametrize("caps", [30, np.arange(20) + 15, 0])
@pytest.mark.parametrize("steps", [1000, 5])
@pytest.mark.parametrize("budget", ["exactly", "at-most", "expected"])
def test_caps_hold_for_every_rule_and_budget(caps, steps, budget):
    ranking = shortlists(200, 20, steps=steps)
    rules = [
        BlockCoordinateAscent(caps=caps, budget=budget),
        BlockCoordinateAscent(caps=caps, budget=budget, start="random"),
        BlockCoordinateAscent(caps=caps, budget=budget, start="greedy"),
        Weighted("logarithm", caps=caps, budget=budget).fit(ranking),
    ]
    if budget == "expected":
        rules.append(FrankWolfe(k=K, caps=caps, budget=budget, randomised=False).fit(ranking))
    else:
        rules += [Online(caps=caps, budget=budget), TopK(caps=caps), TopK(0.3, caps=caps)]
    for rule in rules:
        decided = rule.apply(ranking, K)
        assert (counts(decided) <= caps).all(), rule
        if budget != "expected":
            assert decided.present.sum(axis=1).max(initial=0) <= K


def test_where_there_is_room_caps_change_nothing():
    ranking = shortlists(100, 12)
    for make in (
        lambda caps: TopK(caps=caps),
        lambda caps: TopK(0.4, caps=caps),
        lambda caps: Weighted("power-law", caps=caps).fit(ranking),
        lambda caps: Weighted("power-law", caps=caps, budget="expected").fit(ranking),
        lambda caps: Online(caps=caps),
        lambda caps: BlockCoordinateAscent(caps=caps),
    ):
        capped, free = (make(caps).apply(ranking, K) for caps in (100, None))
        np.testing.assert_array_equal(capped.ids, free.ids)


def test_all_texts_have_k_where_labels_have_room_for_them():
    ranking = shortlists(300, 15)
    for rule in (TopK(caps=45), BlockCoordinateAscent(caps=45)):
        decided = rule.apply(ranking, K)
        assert (decided.present.sum(axis=1) == K).all()
    tight = TopK(caps=40).apply(ranking, K)  # all room is taken, and nobody has three
    assert (counts(tight) == 40).all()


def test_a_mixture_keeps_to_the_caps_on_average_and_rises():
    ranking = shortlists(2000, 20)
    rule = FrankWolfe(k=K, caps=250, budget="expected").fit(ranking)
    assert rule.values_[-1] >= rule.values_[0]
    spread = 4 * np.sqrt(250)
    assert (counts(rule.apply(ranking, K)) <= 250 + spread).all()
    ascent = BlockCoordinateAscent(caps=250, budget="expected").run(ranking, K)
    assert rule.values_[-1] > 0.99 * ascent.values[-1]


def test_ascent_under_caps_starts_from_the_best_sum_and_rises():
    ranking = shortlists(2000, 20)
    ascent = BlockCoordinateAscent(caps=250).run(ranking, K)
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(ascent.values))
    assert ascent.values[0] == pytest.approx(measure(TopK(caps=250).apply(ranking, K), ranking))


def test_a_stream_counts_what_it_gave_before():
    ranking = shortlists(60, 6)
    rule = Online(caps=7)
    parts = [rule.apply(ranking[i : i + 20], K) for i in (0, 20, 40)]
    assert (sum(counts(part) for part in parts) <= 7).all()


def test_threads_do_not_matter():
    ranking = shortlists(500, 20)
    before = megalabel.get_threads()
    answers = []
    try:
        for threads in (1, 3):
            megalabel.set_threads(threads)
            answers.append([r.apply(ranking, K).ids for r in (TopK(caps=30), Online(caps=30))])
    finally:
        megalabel.set_threads(before)
    np.testing.assert_array_equal(answers[0], answers[1])


def test_what_is_wrong_is_named():
    ranking = shortlists(10, 4)
    for rule in (TopK(caps=np.ones(3)), Online(caps=np.ones(3)), Weighted(caps=np.ones(3))):
        with pytest.raises(ShapeError, match="caps are"):
            rule.fit(ranking).apply(ranking, K)
    with pytest.raises(ShapeError, match="caps are"):
        FrankWolfe(k=K, caps=np.ones(3), budget="expected").fit(ranking)
    with pytest.raises(ParameterError, match='budget="expected" only'):
        FrankWolfe(k=K, caps=3).fit(ranking)
    with pytest.raises(ParameterError, match="0 or more"):
        TopK(caps=np.array([1, 2, 3, -1])).apply(ranking, K)
    with pytest.raises(ParameterError, match="at_least"):
        TopK(0.5, 1, caps=3).apply(ranking, K)
    with pytest.raises(ParameterError, match="caps of"):
        TopK(caps="many").apply(ranking, K)
