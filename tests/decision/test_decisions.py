"""Decisions for macro metrics: brute force, identities, and slow twins."""

from __future__ import annotations

import itertools
import weakref
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import megalabel
from megalabel import LabelSet, Ranking
from megalabel.decision import (
    METRICS,
    BlockCoordinateAscent,
    FrankWolfe,
    Metric,
    Online,
    TopK,
    Weighted,
    measure,
    pareto,
    shortlists,
)
from megalabel.decision.metric import metric_of
from megalabel.decision.weighted import rule_sums
from megalabel.errors import NotFittedError, ParameterError, ShapeError

RATIOS = [name for name in METRICS if name != "coverage"]


def ranked(eta: np.ndarray, width: int | None = None) -> Ranking:
    n, m = eta.shape
    everything = csr_matrix(
        (eta.ravel(), np.tile(np.arange(m), n), np.arange(0, n * m + 1, m)), shape=(n, m)
    )
    return Ranking.from_csr(everything, width or m, LabelSet.numbered(m))


def seeded(n: int = 400, m: int = 30) -> np.ndarray:
    random = np.random.default_rng(7)
    eta = np.clip(random.beta(0.4, 4, (n, m)) / np.arange(1, m + 1) * 3, 0, 1)
    return eta.astype(np.float32).astype(np.float64)


def stored(decided: Ranking) -> np.ndarray:
    given = np.zeros((len(decided), len(decided.labels)), bool)
    rows, places = np.nonzero(decided.present)
    given[rows, decided.ids[rows, places]] = True
    return given


def value(name: str, given: np.ndarray, eta: np.ndarray) -> float:
    """The expected value of a metric, slowly."""
    if name == "coverage":
        return float(np.mean(1 - np.prod(1 - given * eta, axis=0)))
    tp, fp = (given * eta).mean(0), (given * (1 - eta)).mean(0)
    fn, tn = (~given * eta).mean(0), (~given * (1 - eta)).mean(0)
    return float(metric_of(name)(tp, fp, fn, tn).mean())


def top(scores: np.ndarray, k: int) -> np.ndarray:
    given = np.zeros(scores.shape, bool)
    np.put_along_axis(given, np.argsort(-scores, axis=1, kind="stable")[:, :k], True, axis=1)
    return given


def slow_ascent(
    name: str, eta: np.ndarray, k: int, seed: int, passes: int, block: int
) -> np.ndarray:
    """Block coordinate ascent with every value computed from scratch."""
    n, m = eta.shape
    random = np.random.default_rng(seed)
    given = top(eta, k)
    for _ in range(passes):
        starts = range(0, n, block)
        order = [
            starts[b] + random.permutation(min(block, n - starts[b]))
            for b in random.permutation(len(starts))
        ]
        for i in np.concatenate(order):
            gains = np.empty(m)
            for j in range(m):
                outcomes = []
                for choice in (True, False):
                    given[i, j], kept = choice, given[i, j]
                    column = slice(j, j + 1)
                    outcomes.append(value(name, given[:, column], eta[:, column]))
                    given[i, j] = kept
                gains[j] = outcomes[0] - outcomes[1]
            given[i] = top(gains[None], k)[0]
    return given


@pytest.mark.parametrize("name", [*METRICS, "macro-f2"])
@pytest.mark.parametrize("block", [25, 4])
def test_ascent_is_that_of_the_slow_twin(name, block, monkeypatch):
    monkeypatch.setattr(shortlists, "_CELLS", 8 * block)
    eta = seeded(25, 8)
    decided = BlockCoordinateAscent(name, passes=2, tolerance=0, seed=3).apply(ranked(eta), 2)
    np.testing.assert_array_equal(stored(decided), slow_ascent(name, eta, 2, 3, 2, block))


def slow_stream(name: str, eta: np.ndarray, k: int, smoothing: float) -> np.ndarray:
    """Each text by the gradient of the metric at what was decided before."""
    chosen = np.zeros(eta.shape, bool)
    sums = smoothing * np.array([1.0, 2.0, 2.0])[:, None] * np.ones((1, eta.shape[1]))
    for i, p in enumerate(eta):
        (tp, given_, positives), t = sums, i + 1 + 4 * smoothing
        at = np.array([tp, given_ - tp, positives - tp, t - given_ - positives + tp]) / t
        moves = np.array([p, 1 - p, -p, p - 1])
        slopes = (np.array(metric_of(name).gradient(*at)) * moves).sum(axis=0)
        chosen[i] = top(slopes[None], k)[0]
        sums += [p * chosen[i], chosen[i], p]
    return chosen


@pytest.mark.parametrize("name", RATIOS)
def test_a_stream_is_decided_as_by_the_slow_twin(name, monkeypatch):
    monkeypatch.setattr(shortlists, "_CELLS", 8 * 7)
    eta = seeded(60, 8)
    decided = Online(name, smoothing=0.3).apply(ranked(eta), 2)
    np.testing.assert_array_equal(stored(decided), slow_stream(name, eta, 2, 0.3))


def test_blocks_do_not_matter_to_rules_for_single_texts(monkeypatch):
    ranking = ranked(seeded(100, 9))
    rules = [FrankWolfe(k=2).fit(ranking), Weighted("logarithm", budget="expected").fit(ranking)]
    rules += [TopK(caps=15), Weighted("logarithm", caps=15, budget="expected").fit(ranking)]
    whole = [rule.apply(ranking, 2).ids for rule in rules]
    monkeypatch.setattr(shortlists, "_CELLS", 9 * 7)
    for rule, ids in zip(rules, whole, strict=True):
        np.testing.assert_array_equal(rule.apply(ranking, 2).ids, ids)


@pytest.mark.parametrize("name", METRICS)
def test_measures_agree_with_the_slow_twin(name):
    eta = seeded(30, 9)
    decided = TopK().apply(ranked(eta), 3)
    found = measure(decided, ranked(eta), name)
    assert found == pytest.approx(value(name, stored(decided), eta), abs=1e-7)
    truth = (eta > 0.2).astype(float)
    expected = value(name, stored(decided), truth)
    assert measure(decided, csr_matrix(truth), name) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_no_label_sets_of_a_tiny_case_beat_the_best_of_several_starts(name):
    random = np.random.default_rng(0)
    for _ in range(5):
        eta = random.random((3, 3)).astype(np.float32).astype(np.float64)
        subsets = list(itertools.combinations(range(3), 2))
        best = 0.0
        for choice in itertools.product(subsets, repeat=3):
            given = np.zeros((3, 3), bool)
            for i, labels in enumerate(choice):
                given[i, list(labels)] = True
            best = max(best, value(name, given, eta))
        found = max(
            BlockCoordinateAscent(name, start=start, seed=seed).run(ranked(eta), 2).values[-1]
            for start in ("top", "greedy", "random")
            for seed in range(8)
        )
        assert found == pytest.approx(best, abs=1e-7)


def test_the_worked_example():
    ranking = ranked(np.array([[0.6, 0.5], [0.6, 0.1]]))
    tops = TopK().apply(ranking, 1)
    best = BlockCoordinateAscent("macro-f1").apply(ranking, 1)
    expected = {"macro-f1": (0.375, 0.5852), "macro-precision": (0.3, 0.55)}
    expected |= {"macro-recall": (0.5, 0.6667), "coverage": (0.42, 0.55)}
    for name, values in expected.items():
        found = [measure(decided, ranking, name) for decided in (tops, best)]
        assert found == pytest.approx(values, abs=5e-5)
    assert best.ids.tolist() == [[1], [0]]


def test_the_seeded_run_rises_to_the_known_values():
    run = BlockCoordinateAscent("macro-f1").run(ranked(seeded()), 3)
    assert run.values[0] == pytest.approx(0.14935, abs=1e-5)
    assert run.values[-1] >= 0.18634
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(run.values))
    rule = FrankWolfe("macro-f1", k=3).fit(ranked(seeded()))
    assert rule.values_[-1] >= 0.18541
    assert all(b >= a for a, b in itertools.pairwise(rule.values_))


@pytest.mark.parametrize("name", METRICS)
def test_what_decided_labels_promise_is_what_the_shortlists_do(name):
    eta = seeded(50, 20)
    eta[3, :2] = 1
    ranking = ranked(eta, 10)
    decided = BlockCoordinateAscent(name, budget="at-most").apply(ranking, 3)
    positives = shortlists.label_sums(ranking)[0]
    found = shortlists.expected_value(decided, positives, metric_of(name))
    assert found == pytest.approx(measure(decided, ranking, name), rel=1e-6)


@pytest.mark.parametrize(
    "rule",
    [
        BlockCoordinateAscent("macro-f1"),
        BlockCoordinateAscent("macro-f1", budget="at-most"),
        BlockCoordinateAscent("macro-f1", budget="expected"),
        FrankWolfe("macro-f1", k=3, iterations=3),
        Online(),
        TopK(caps=9),
        Weighted(budget="expected"),
    ],
)
def test_an_answer_may_take_the_place_of_the_shortlists(rule, monkeypatch):
    monkeypatch.setattr(shortlists, "_CELLS", 70)
    ranking = ranked(seeded(50, 20))
    given = ranking.ids.copy(), ranking.scores.copy()
    first, second = megalabel.base.clone(rule).fit(ranking), megalabel.base.clone(rule).fit(ranking)
    expected = first.apply(ranking, 3)
    np.testing.assert_array_equal(ranking.ids, given[0])  # nothing is overwritten unasked
    np.testing.assert_array_equal(ranking.scores, given[1])
    large = weakref.ref(ranking.ids), weakref.ref(ranking.scores)
    made = []
    for name in ("ascent", "frank_wolfe", "online", "topk", "weighted"):
        module = import_module(f"megalabel.decision.{name}")
        plain = module.chosen_ranking

        def watched(*args, plain=plain, **options):
            made.append(plain(*args, **options))
            assert all(array() is None for array in large)
            return made[-1]

        monkeypatch.setattr(module, "chosen_ranking", watched)
    found = second.apply(ranking, 3, overwrite=True)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert len(made) == 1


def test_the_choices_are_let_go_as_the_answer_is_made(monkeypatch):
    monkeypatch.setattr(shortlists, "_CELLS", 70)
    ranking = ranked(seeded(50, 20))
    chosen = shortlists.in_blocks(ranking, shortlists.packed(ranking.scores > 0.1))
    assert len(chosen) > 1
    found = shortlists.chosen_ranking(ranking, chosen, None, overwrite=False)
    np.testing.assert_array_equal(
        found.scores[found.scores > 0], ranking.scores[ranking.scores > 0.1]
    )
    assert not chosen


@pytest.mark.parametrize("name", ["macro-recall", "macro-balanced-accuracy"])
def test_linear_metrics_have_closed_forms(name):
    eta = seeded()
    prior = eta.mean(0)
    score = eta / prior
    if name != "macro-recall":
        score = eta * (1 / prior + 1 / (1 - prior)) - 1 / (1 - prior)
    expected = top(score, 3)
    ranking = ranked(eta)
    for rule in (
        BlockCoordinateAscent(name, passes=1),
        FrankWolfe(name, k=3).fit(ranking),
        Weighted(name).fit(ranking),
    ):
        np.testing.assert_array_equal(stored(rule.apply(ranking, 3)), expected)
    assert FrankWolfe(name, k=3).fit(ranking).shares_.tolist() == [1.0]


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("start", ["top", "greedy", "random"])
def test_ascent_never_falls_and_keeps_k(name, start):
    ranking = ranked(seeded(200, 20))
    run = BlockCoordinateAscent(name, start=start, candidates=20).run(ranking, 4)
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(run.values))
    assert (run.ranking.present.sum(axis=1) == 4).all()
    assert (stored(run.ranking).sum(axis=1) == 4).all()  # no label twice
    assert (np.diff(run.ranking.scores, axis=1) <= 0).all()
    assert measure(run.ranking, ranking, name) == pytest.approx(run.values[-1], abs=1e-9)


@pytest.mark.parametrize("method", ["ascent", "frank-wolfe", "online", "weighted"])
def test_as_many_labels_as_there_are(method):
    ranking = ranked(seeded(20, 4))
    rule = {
        "ascent": BlockCoordinateAscent(),
        "frank-wolfe": FrankWolfe(k=4).fit(ranking),
        "online": Online(),
        "weighted": Weighted("logarithm").fit(ranking),
    }[method]
    assert stored(rule.apply(ranking, 4)).all()
    # more than there are, rows with fewer candidates, and no rows at all
    ids = ranking.ids.copy()
    ids[3:5, 2:] = ids[7] = 4
    scores = np.where(ids < 4, ranking.scores, -np.inf)
    short = Ranking(ids, scores, ranking.labels)
    expected = np.full(20, 4)
    expected[3:5], expected[7] = 2, 0
    assert rule.apply(short, 9).present.sum(axis=1).tolist() == expected.tolist()
    assert len(rule.apply(ranking[:0], 2)) == 0


def test_seeds_and_threads():
    ranking = ranked(seeded())
    rule = BlockCoordinateAscent("macro-f1", start="random", seed=5)
    fitted = FrankWolfe("macro-g-mean", k=3).fit(ranking)
    before = megalabel.get_threads()
    answers = []
    try:
        for threads in (1, 2, 3):
            megalabel.set_threads(threads)
            answers.append((rule.apply(ranking, 3).ids, fitted.apply(ranking, 3).ids))
    finally:
        megalabel.set_threads(before)
    for ascent, mixture in answers[1:]:
        np.testing.assert_array_equal(ascent, answers[0][0])
        np.testing.assert_array_equal(mixture, answers[0][1])
    # a text is answered alike in any batch by a rule for single texts
    parts = [fitted.apply(ranking[i : i + 7], 3).ids for i in range(0, 400, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), answers[0][1])


def test_budgets():
    ranking = ranked(seeded())
    exactly = BlockCoordinateAscent("macro-f1").run(ranking, 3)
    at_most = BlockCoordinateAscent("macro-f1", budget="at-most").run(ranking, 3)
    expected = BlockCoordinateAscent("macro-f1", budget="expected").run(ranking, 3)
    assert at_most.values[-1] > exactly.values[-1]
    counts = at_most.ranking.present.sum(axis=1)
    assert counts.max() == 3
    assert counts.min() < 3
    assert expected.ranking.present.sum() == 3 * 400
    assert expected.values[-1] > at_most.values[-1]
    rule = FrankWolfe("macro-f1", k=3, budget="expected").fit(ranking)
    assert rule.apply(ranking, 3).present.sum() == pytest.approx(3 * 400, rel=0.01)
    assert rule.values_[-1] == pytest.approx(expected.values[-1], rel=1e-3)
    assert FrankWolfe("macro-f1", k=3, budget="at-most").fit(ranking).values_[-1] == pytest.approx(
        at_most.values[-1], rel=1e-3
    )
    weighted = Weighted("logarithm", budget="expected").fit(ranking).apply(ranking, 3)
    assert weighted.present.sum() == 3 * 400
    none = np.zeros(30)
    nothing = Weighted(none, none - 1, budget="at-most").apply(ranking, 3)
    assert nothing.present.sum() == 0


@pytest.mark.parametrize("caps", [40, np.arange(30) + 20])
def test_ascent_under_caps(caps):
    ranking = ranked(seeded())
    run = BlockCoordinateAscent("macro-recall", caps=caps).run(ranking, 2)
    assert (stored(run.ranking).sum(axis=0) <= caps).all()
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(run.values))
    free = BlockCoordinateAscent("macro-recall").run(ranking, 2)
    assert 0.5 * free.values[-1] < run.values[-1] <= free.values[-1] + 1e-9


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_all_stored_entries_are_a_dense_matrix(seed, k):
    random = np.random.default_rng(seed)
    eta = random.random((6, 5)).astype(np.float32).astype(np.float64)
    eta[random.random(eta.shape) < 0.3] = random.choice([0.0, 1.0])
    for name in ("macro-f1", "coverage", "macro-g-mean"):
        run = BlockCoordinateAscent(name).run(ranked(eta), k)
        given = stored(run.ranking)
        assert (given.sum(axis=1) == k).all()
        assert run.values[-1] == pytest.approx(value(name, given, eta), abs=1e-6)


@pytest.mark.parametrize("name", RATIOS)
def test_a_metric_of_ones_own_is_as_good_as_a_built_in_one(name):
    ranking = ranked(seeded(60, 12))
    own = Metric(metric_of(name).function)
    for make in (BlockCoordinateAscent, Online):
        built_in, custom = make(name).apply(ranking, 3), make(own).apply(ranking, 3)
        np.testing.assert_array_equal(built_in.ids, custom.ids)
    a, b = FrankWolfe(name, k=3).fit(ranking), FrankWolfe(own, k=3).fit(ranking)
    np.testing.assert_array_equal(a.weights_, b.weights_)


# metrics of one's own that divide 0 by 0 for labels that are given to no text, or that no text has
def _h_mean(tp, fp, fn, tn):
    sensitivity, specificity = tp / (tp + fn), tn / (tn + fp)
    return 2 * sensitivity * specificity / (sensitivity + specificity)


BARE = {
    "macro-precision": lambda tp, fp, fn, tn: tp / (tp + fp),
    "macro-recall": lambda tp, fp, fn, tn: np.divide(tp, tp + fn),
    "macro-f1": lambda tp, fp, fn, tn: 2 * tp / (2 * tp + fp + fn),
    "macro-jaccard": lambda tp, fp, fn, tn: np.where(tp >= 0, tp, 0) / (tp + fp + fn),
    "macro-balanced-accuracy": lambda tp, fp, fn, tn: (tp / (tp + fn) + tn / (tn + fp)) / 2,
    "macro-h-mean": _h_mean,
}
WRITTEN = {
    "arrays": lambda function: function,
    "plain": lambda function: lambda *entries: function(*map(np.asarray, entries)),
    "single": np.vectorize,
    "loop": lambda function: lambda *entries: [function(*e) for e in zip(*entries, strict=True)],
}
# without the arrays that are handed in, 0/0 anywhere makes the value 0, not the ratio alone
WHOLE = [name for name in BARE if name not in ("macro-balanced-accuracy", "macro-h-mean")]
OWN = [(name, how) for name in BARE for how in WRITTEN if how == "arrays" or name in WHOLE]


@pytest.mark.parametrize(("name", "how"), OWN)
def test_a_ratio_of_zeros_is_0_in_a_metric_of_ones_own(name, how):
    own, random = WRITTEN[how](BARE[name]), np.random.default_rng(1)
    for _ in range(3):
        eta = random.random((3, 4)).astype(np.float32).astype(np.float64)
        eta[:, 3] = 0
        ranking = ranked(eta)
        best = 0.0
        for choice in itertools.product(range(4), repeat=3):
            given = np.zeros((3, 4), bool)
            given[range(3), choice] = True
            best = max(best, value(name, given, eta))
        runs = [
            BlockCoordinateAscent(own, start=start, seed=seed).run(ranking, 1)
            for start in ("top", "greedy", "random")
            for seed in range(4)
        ]
        assert all(np.isfinite(run.values).all() for run in runs)
        assert max(run.values[-1] for run in runs) == pytest.approx(best, abs=1e-7)
        assert measure(runs[0].ranking, ranking, own) == pytest.approx(runs[0].values[-1])


@pytest.mark.parametrize(("name", "how"), OWN)
def test_rules_are_learned_for_a_metric_that_divides_zeros(name, how):
    eta = seeded(60, 12)
    eta[:, 3] = 0
    ranking = ranked(eta)
    own = WRITTEN[how](BARE[name])
    built_in, found = FrankWolfe(name, k=2).fit(ranking), FrankWolfe(own, k=2).fit(ranking)
    assert np.isfinite(found.values_).all()
    assert found.values_[-1] == pytest.approx(built_in.values_[-1], rel=1e-3)
    stream = Online(own).apply(ranking, 2)
    np.testing.assert_array_equal(stream.ids, Online(name).apply(ranking, 2).ids)
    expected = measure(stream, ranking, name)
    assert measure(stream, ranking, own) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lambda tp, fp, fn, tn: 1 / (tp + fp), "inf"),
        (np.vectorize(lambda tp, fp, fn, tn: 1 / (tp + fp)), "inf"),
        (lambda tp, fp, fn, tn: np.log(tp), "-inf"),
        (lambda tp, fp, fn, tn: np.sqrt(tp - 1), "nan"),
    ],
)
def test_a_metric_that_is_not_finite_is_refused_by_the_labels_name(function, shown):
    eta = np.array([[0.9, 0.4, 0.0], [0.8, 0.3, 0.0]])
    labels = LabelSet(["zero", "one", "two"], names=["Zero", "One", "Two"])
    ranking = Ranking([[0, 1, 2]] * 2, eta, labels)
    known = "Zero" if shown == "nan" else "One"
    for decide in (
        lambda: BlockCoordinateAscent(function).apply(ranking, 1),
        lambda: FrankWolfe(function, k=1).fit(ranking),
        lambda: measure(TopK().apply(ranking, 1), ranking, function),
        lambda: pareto(ranking, 1, function, weights=[0]),
    ):
        with pytest.raises(ParameterError, match=f"is {shown} for the label '{known}' at tp = "):
            decide()


def test_a_metric_that_is_not_finite_beside_what_was_decided_is_refused():
    # finite as the texts are decided first, but not once one of them is decided otherwise
    labels = LabelSet.numbered(2)
    ranking = Ranking([[0, 1], [1, 0]], [[0.9, 0.4], [0.8, 0.3]], labels)
    with pytest.raises(ParameterError, match="inf for the label"):
        BlockCoordinateAscent(lambda tp, fp, fn, tn: 1 / (tp + fp)).apply(ranking, 1)


def test_divisions_in_place_and_in_part_are_as_numpy_has_them():
    def in_part(tp, fp, fn, tn):
        return np.divide(tp, tp + fp, out=np.full_like(tp, 0.25), where=tp + fp > 0)

    def in_place(tp, fp, fn, tn):
        ratio = tp.copy()
        ratio /= tp + fp
        return ratio

    tp, fp = np.array([0.0, 0.5]), np.array([0.0, 0.5])
    np.testing.assert_array_equal(Metric(in_part)(tp, fp, tp, fp), [0.25, 0.5])
    np.testing.assert_array_equal(Metric(in_place)(tp, fp, tp, fp), [0, 0.5])
    assert tp.tolist() == [0.0, 0.5]


@pytest.mark.parametrize("name", RATIOS)
def test_gradients_are_those_of_small_differences(name):
    metric = metric_of(name)
    random = np.random.default_rng(0)
    at = random.random((4, 50)) + 0.05
    found = np.array(metric.gradient(*at))
    for e in range(4):
        step = np.zeros((4, 1))
        step[e] = 1e-6
        expected = (metric(*(at + step)) - metric(*(at - step))) / 2e-6
        np.testing.assert_allclose(found[e], expected, atol=1e-7)
    # one that dual numbers cannot follow, and one with a gradient of its own
    opaque = Metric(lambda *entries: metric(*(np.asarray(e, np.float64) for e in entries)))
    np.testing.assert_allclose(opaque.gradient(*at), found, rtol=1e-5, atol=1e-7)
    told = Metric(metric.function, lambda *entries: metric.gradient(*entries))
    np.testing.assert_allclose(told.slopes(at, at), (found * at).sum(0), atol=1e-12)


def test_interpolation():
    ranking = ranked(seeded())
    curve = pareto(ranking, 3, "macro-f1", weights=(0, 0.5, 0.9, 1))
    np.testing.assert_array_equal(
        BlockCoordinateAscent(weight=0.0).apply(ranking, 3).ids, TopK().apply(ranking, 3).ids
    )
    metrics = [point.expected_metric for point in curve.points]
    precisions = [point.expected_precision for point in curve.points]
    assert metrics == sorted(metrics)
    assert precisions == sorted(precisions, reverse=True)
    assert curve.to_dict()["points"][0]["weight"] == 0
    truth = csr_matrix(np.random.default_rng(0).random((400, 30)) < seeded())
    known = pareto(ranking, 3, weights=(0, 1), truth=truth)
    assert known.points[0].precision > known.points[1].precision
    assert known.points[0].metric < known.points[1].metric
    assert "macro-f1" in str(known)


def test_madow_keeps_the_shares_and_the_number():
    n = 20_000
    ids = np.tile(np.arange(4), (n, 1))
    scores = np.tile(np.linspace(0.9, 0.3, 4), (n, 1)) - np.arange(n)[:, None] * 1e-6
    ranking = Ranking(ids, scores, LabelSet.numbered(4))
    rule = FrankWolfe(k=2).fit(ranking)
    shares = np.array([0.5, 0.3, 0.2])
    weights = np.array([[9, 1, 1], [9, 1, 9], [1, 9, 9], [1, 9, 1]], np.float32) / 9
    parts = {"weights_": weights, "offsets_": weights * 0, "shares_": shares, "values_": [0.0]}
    rule.restore(parts)
    given = stored(rule.apply(ranking, 2))
    assert (given.sum(axis=1) == 2).all()
    chosen = np.array([top(scores[:1] * w, 2)[0] for w in weights.T])
    np.testing.assert_allclose(given.mean(0), shares @ chosen, atol=4 * 0.5 / np.sqrt(n))


@pytest.mark.parametrize("name", RATIOS)
def test_frank_wolfe_says_what_its_mixture_is_worth(name):
    eta = seeded()
    rule = FrankWolfe(name, k=3).fit(ranked(eta))
    assert rule.shares_.sum() == pytest.approx(1)
    assert (rule.shares_ > 0).all()
    mixed = np.zeros_like(eta)  # how often each text is given each label
    for weights, offsets, share in zip(rule.weights_.T, rule.offsets_.T, rule.shares_, strict=True):
        mixed += share * top(weights.astype(np.float64) * eta + offsets, 3)
    tp, given, positives = (mixed * eta).mean(0), mixed.mean(0), eta.mean(0)
    entries = (tp, given - tp, positives - tp, 1 - given - positives + tp)
    expected = metric_of(name)(*np.maximum(entries, 0)).mean()
    assert rule.values_[-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("counted", [np.float32, np.uint8])
@pytest.mark.parametrize("floor", [-np.inf, 0.2])
def test_sums_of_a_rule_are_those_of_the_slow_twin(counted, floor):
    random = np.random.default_rng(0)
    n, m, width, k = 20_000, 12, 9, 4
    ids = random.permuted(np.tile(np.arange(m + 2), (n, 1)), axis=1)[:, :width].astype(np.int32)
    ids[ids > m] = -1  # padding, above and below
    scores = random.integers(0, 8, ids.shape).astype(np.float32) / 8  # many ties
    values = scores if counted is np.float32 else (scores > 0.4).astype(np.uint8)
    rule = random.integers(1, 5, (2, m)).astype(np.float32) / 4
    ranking = Ranking(np.where(ids < 0, m, ids), scores, LabelSet.numbered(m))
    expected = np.zeros((2, m))
    for row, p, counts in zip(ranking.ids, ranking.scores, values, strict=True):
        sums = np.where(row < m, rule[0].take(row, mode="clip") * p, -np.inf)
        sums = sums + rule[1].take(row, mode="clip")
        for j in np.argsort(-sums, kind="stable")[:k]:
            if sums[j] > floor:
                expected[:, row[j]] += counts[j], 1
    before = megalabel.get_threads()
    try:
        for threads in (1, 3):
            megalabel.set_threads(threads)
            np.testing.assert_array_equal(rule_sums(ranking, values, rule, k, floor), expected)
    finally:
        megalabel.set_threads(before)


def test_frank_wolfe_serves_texts_it_has_not_seen():
    eta = seeded(2000, 30)
    learned = FrankWolfe("macro-f1", k=3).fit(ranked(eta[:1000]))
    single = FrankWolfe("macro-f1", k=3, randomised=False).fit(ranked(eta[:1000]))
    assert len(single.shares_) == 1
    new = ranked(eta[1000:])
    plain = measure(TopK().apply(new, 3), new)
    best = BlockCoordinateAscent("macro-f1").run(new, 3).values[-1]
    for rule in (learned, single):
        found = measure(rule.apply(new, 3), new)
        assert plain < 0.95 * found
        assert found > 0.97 * best


def test_frank_wolfe_learns_from_labels():
    eta = seeded(3000, 10)
    truth = csr_matrix(np.random.default_rng(1).random(eta.shape) < eta)
    rule = FrankWolfe("macro-f1", k=2, truth="labels").fit(ranked(eta), truth)
    assert rule.values_[-1] > rule.values_[0]
    decided = rule.apply(ranked(eta), 2)
    assert measure(decided, truth) == pytest.approx(rule.values_[-1], rel=0.02)


def test_online_learns_from_the_truth_and_goes_on_where_it_was():
    eta = seeded(3000, 20)
    truth = csr_matrix(np.random.default_rng(1).random(eta.shape) < eta)
    ranking = ranked(eta)
    rule = Online("macro-f1")
    whole = rule.follow(ranking, 3, truth)
    assert measure(whole, truth) > measure(TopK().apply(ranking, 3), truth)
    again = Online("macro-f1")
    parts = [again.follow(ranking[s], 3, truth[s]).ids for s in (slice(0, 999), slice(999, None))]
    np.testing.assert_array_equal(np.concatenate(parts), whole.ids)
    assert again.seen_ == 3000
    tp = np.asarray((csr_matrix(stored(whole)).multiply(truth)).sum(0)).ravel()
    np.testing.assert_allclose(again.labels_[:, 0] - 0.1, tp, atol=1e-6)


def test_weights_by_name():
    ranking = ranked(seeded(50, 3))
    counts = (np.array([90, 9, 0]), 100)

    def weights(name, **options):
        return Weighted(name, **options).fit(ranking, None, counts).weights_.ravel()

    prior = np.array([0.9, 0.09, 1 / 101])
    np.testing.assert_allclose(weights("power-law", exponent=0.25), prior**-0.25, rtol=1e-6)
    np.testing.assert_allclose(weights("logarithm"), -np.log(prior), rtol=1e-6)
    np.testing.assert_allclose(weights("macro-recall"), 1 / prior, rtol=1e-6)
    inverse = weights("inverse-propensity")
    assert (np.diff(inverse) > 0).all()
    np.testing.assert_array_equal(
        stored(Weighted(inverse).apply(ranking, 1)), top(seeded(50, 3) * inverse, 1)
    )


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (BlockCoordinateAscent("macro-f"), ParameterError, "metric of BlockCoordinateAscent"),
        (BlockCoordinateAscent(weight=2), ParameterError, "weight of"),
        (BlockCoordinateAscent(budget="some"), ParameterError, "budget of"),
        (BlockCoordinateAscent(caps=np.ones(7)), ShapeError, "caps are"),
        (BlockCoordinateAscent(lambda tp, fp, fn, tn: tp[:1]), ParameterError, "gave"),
        (Online("coverage"), ParameterError, "coverage"),
        (FrankWolfe(), NotFittedError, "fit"),
        (Weighted(), NotFittedError, "fit"),
        (Weighted(np.ones(2)), ShapeError, "weights are"),
    ],
)
def test_what_is_wrong_is_named(rule, error, message):
    with pytest.raises(error, match=message):
        rule.apply(ranked(seeded(5, 4)), 2)


def test_scores_that_are_no_probabilities_are_refused():
    scores = Ranking([[0, 1]], [[3.0, -1.0]], LabelSet.numbered(2))
    for rule in (BlockCoordinateAscent(), Online()):
        with pytest.raises(ParameterError, match="probabilities"):
            rule.apply(scores, 1)
        with pytest.raises(ParameterError, match="k must be"):
            rule.apply(ranked(seeded(5, 4)), 0)
    with pytest.raises(ParameterError, match="coverage"):
        FrankWolfe("coverage").fit(ranked(seeded(5, 4)))
    with pytest.raises(ParameterError, match="needs the labels"):
        FrankWolfe(truth="labels").fit(ranked(seeded(5, 4)))
    fitted = FrankWolfe(k=1).fit(ranked(seeded(5, 4)))
    with pytest.raises(ShapeError, match="4 labels"):
        fitted.apply(ranked(seeded(5, 3)), 1)


def test_an_error_in_a_metric_comes_through():
    def broken(tp, fp, fn, tn):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        BlockCoordinateAscent(broken).apply(ranked(seeded(5, 4)), 2)


def test_a_damaged_model_is_refused():
    fitted = FrankWolfe(k=1).fit(ranked(seeded(5, 4)))
    good = fitted.learned()
    for name, bad in (
        ("weights_", good["weights_"][:, :0]),
        ("offsets_", good["offsets_"][1:]),
        ("shares_", good["shares_"] * 2),
    ):
        with pytest.raises(ValueError, match="FrankWolfe"):
            FrankWolfe().restore(good | {name: bad})
    with pytest.raises(ValueError, match="Online"):
        Online().restore({"labels_": np.zeros((3, 3)), "seen_": 1})
    with pytest.raises(ValueError, match="Weighted"):
        Weighted().restore({"weights_": np.ones((3, 1), np.float32)})
    with pytest.raises(ValueError, match="BlockCoordinateAscent"):
        BlockCoordinateAscent().restore({"a_": 1})
