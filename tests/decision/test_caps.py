"""Labels that only so many texts may be given: brute force, and what every rule keeps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

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
from megalabel.decision.metric import metric_of
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
    (chosen,), _ = assign(ranking, rule, caps, K, floor)
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
    rules.append(FrankWolfe(k=K, caps=caps, budget=budget, randomised=False).fit(ranking))
    if budget != "expected":
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


def probable(rule: FrankWolfe, ranking: Ranking, k: int) -> np.ndarray:
    """How often a mixture gives each candidate: slowly, rule by rule."""
    often = np.zeros(ranking.ids.shape)
    expected, free = rule.budget == "expected", rule.budget == "exactly" and rule.caps is None
    m = len(ranking.labels)
    for weights, offsets, share in zip(rule.weights_.T, rule.offsets_.T, rule.shares_, strict=True):
        ids = np.minimum(ranking.ids, m - 1)
        worth = weights.astype(np.float64)[ids] * ranking.scores + offsets.astype(np.float64)[ids]
        worth[~ranking.present] = -np.inf
        order = np.argsort(-worth, axis=1, kind="stable")[:, : None if expected else k]
        best = np.take_along_axis(worth, order, 1) > (-np.inf if free else 0)
        mask = np.zeros(often.shape, bool)
        np.put_along_axis(mask, order, best, axis=1)
        often += share * mask
    return often


def label_totals(often: np.ndarray, ranking: Ranking) -> np.ndarray:
    there = ranking.present
    return np.bincount(ranking.ids[there], often[there], len(ranking.labels))


def mixed_value(metric: str, often: np.ndarray, ranking: Ranking) -> float:
    """The metric of the confusion entries to expect."""
    scores = np.where(ranking.present, ranking.scores, 0).astype(np.float64)
    n = len(ranking)
    tp, positives = (label_totals(often * scores, ranking), label_totals(scores, ranking))
    given = label_totals(often, ranking)
    found = np.array([tp, given - tp, positives - tp, n - given - positives + tp]) / n
    return float(metric_of(metric)(*np.maximum(found, 0)).mean())


@pytest.mark.parametrize("caps", [250, 210, 100, np.arange(20) * 30])
@pytest.mark.parametrize("budget", ["exactly", "at-most", "expected"])
def test_a_mixture_keeps_to_the_caps_and_is_worth_what_it_says(caps, budget):
    ranking = shortlists(2000, 20)
    rule = FrankWolfe(k=K, caps=caps, budget=budget).fit(ranking)
    often = probable(rule, ranking, K)
    assert (label_totals(often, ranking) <= np.asarray(caps) * (1 + 1e-5)).all()
    assert rule.values_[-1] == pytest.approx(mixed_value("macro-f1", often, ranking), rel=1e-5)
    ascent = BlockCoordinateAscent(caps=caps, budget=budget).run(ranking, K)
    assert rule.values_[-1] > 0.99 * ascent.values[-1]
    if budget != "expected":
        plain = measure(TopK(caps=caps).apply(ranking, K), ranking)
        assert rule.values_[-1] > 0.999 * plain


@pytest.mark.parametrize("steps", [1000, 5])
@pytest.mark.parametrize("caps", [30, 22])
def test_a_mixture_gives_exactly_k_where_there_is_room(caps, steps):
    ranking = shortlists(200, 20, steps=steps)
    rule = FrankWolfe(k=K, caps=caps).fit(ranking)
    often = probable(rule, ranking, K)
    assert (label_totals(often, ranking) <= caps * (1 + 1e-5)).all()
    np.testing.assert_allclose(often.sum(axis=1), K)
    assert (rule.apply(ranking, K).present.sum(axis=1) == K).all()
    plain = measure(TopK(caps=caps).apply(ranking, K), ranking)
    assert rule.values_[-1] > 0.99 * plain


def test_texts_that_are_all_alike_share_the_labels():
    ranking = Ranking([[0, 1]] * 10, [[0.6, 0.5]] * 10, LabelSet.numbered(2))
    rule = FrankWolfe("macro-recall", k=1, caps=5).fit(ranking)
    often = probable(rule, ranking, 1)
    np.testing.assert_allclose(often, 0.5)
    assert rule.values_[-1] == pytest.approx(0.5)


def test_caps_hold_as_a_share_of_texts_not_learned_from():
    ranking = shortlists(4000, 20)
    rule = FrankWolfe(k=K, caps=220).fit(ranking[:2000])
    new = ranking[2000:]
    decided = rule.apply(new, K)
    assert (decided.present.sum(axis=1) == K).all()
    assert counts(TopK().apply(new, K)).max() > 400
    assert (counts(decided) <= 220 + 4 * np.sqrt(220)).all()
    # a text unlike any learned from has k labels too
    unlike = Ranking(np.arange(20)[None], np.zeros((1, 20)), ranking.labels)
    assert rule.apply(unlike, K).present.sum() == K


def test_labels_of_no_room_and_more_labels_than_candidates():
    ranking = shortlists(50, 4)
    caps = np.array([0, 50, 50, 10])
    rule = FrankWolfe(k=9, caps=caps).fit(ranking)
    often = probable(rule, ranking, 9)
    given = label_totals(often, ranking)
    assert (given <= caps * (1 + 1e-5)).all()
    np.testing.assert_allclose(given[:3], [0, 50, 50], atol=1)
    assert rule.apply(ranking[:0], K).present.sum() == 0
    assert FrankWolfe(k=K, caps=0).fit(ranking).apply(ranking, K).present.sum() == 0
    assert FrankWolfe(k=K, caps=3).fit(ranking[:0]).values_[-1] == 0


def test_it_is_said_where_there_is_no_room(caplog):
    ranking = shortlists(50, 4)
    FrankWolfe(k=K, caps=40).fit(ranking)
    FrankWolfe(k=K, caps=5, budget="at-most").fit(ranking)
    assert not caplog.records
    FrankWolfe(k=K, caps=5).fit(ranking)
    assert "no room for 2 labels a text" in caplog.text


def most_recall(ranking: Ranking, caps: np.ndarray, k: int, exactly: bool) -> float:
    """The largest macro recall of any probabilities of giving labels, by linear programming."""
    n, m = ranking.ids.shape
    eta = np.empty((n, m))
    np.put_along_axis(eta, ranking.ids, ranking.scores.astype(np.float64), axis=1)
    gains = eta / eta.sum(axis=0) / m
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    sums = {"A_ub": columns, "b_ub": caps, "A_eq": rows, "b_eq": np.full(n, k)}
    if not exactly:
        sums = {"A_ub": np.vstack([columns, rows]), "b_ub": np.append(caps, np.full(n, k))}
    return -float(linprog(-gains.ravel(), bounds=(0, 1), **sums).fun)


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=25, deadline=None)
def test_no_probabilities_are_much_better_than_the_mixture(seed, exactly):
    random = np.random.default_rng(seed)
    n, m = 12, 4
    ranking = shortlists(n, m, seed)
    caps = random.integers(n // 2 + 1, n, m)  # a little room
    budget = "exactly" if exactly else "at-most"
    rule = FrankWolfe("macro-recall", k=K, caps=caps, budget=budget).fit(ranking)
    often = probable(rule, ranking, K)
    assert (label_totals(often, ranking) <= caps * (1 + 1e-5)).all()
    assert often.sum(axis=1).max() <= K + 1e-9
    best = most_recall(ranking, caps, K, exactly)
    assert 0.95 * best <= rule.values_[-1] <= best + 1e-6


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
    with pytest.raises(ParameterError, match="0 or more"):
        TopK(caps=np.array([1, 2, 3, -1])).apply(ranking, K)
    with pytest.raises(ParameterError, match="at_least"):
        TopK(0.5, 1, caps=3).apply(ranking, K)
    with pytest.raises(ParameterError, match="caps of"):
        TopK(caps="many").apply(ranking, K)
