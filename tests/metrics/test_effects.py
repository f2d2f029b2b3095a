"""Intervals and tests of what is no sum over texts: macro metrics, coverage, calibration errors."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.data import LabelSet, Ranking
from megalabel.data.synthetic import generate
from megalabel.metrics import Evaluation, Evaluator, batches, evaluate
from megalabel.metrics.reliability import BINS

K = (1, 3, 7)


def sample(rows, labels=12, seed=0, k=5):
    """Rankings with gaps at their ends, of texts some of whose labels are unknown."""
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((rows, labels)), axis=1)[:, :k]
    scores = np.sort(rng.random((rows, k)))[:, ::-1].copy()
    short = rng.random(rows) < 0.2
    ids[short, -1] = labels
    scores[short, -1] = -np.inf
    truth = csr_matrix(rng.random((rows, labels + 2)) < 0.15)
    return Ranking(ids, scores, LabelSet.numbered(labels)), truth


def centred(values):
    return values - values.mean(axis=0)


@pytest.mark.parametrize(("rows", "beta"), [(30, 2.0), (3, 0.5), (8, 1.0)])
def test_effects_are_what_metrics_lose_without_a_text(rows, beta):
    ranking, truth = sample(rows, seed=rows)
    whole = evaluate(ranking, truth, k=K, beta=beta)
    names = [n for n in whole if n.startswith(("macro-", "coverage"))]
    lost = np.zeros((rows, len(names)))
    for row in range(rows):
        others = np.flatnonzero(np.arange(rows) != row)
        rest = evaluate(ranking[others], truth[others], k=K, beta=beta)
        lost[row] = [whole[name] - rest[name] for name in names]
    found = whole._tallies.effects[:rows].reshape(rows, -1)
    np.testing.assert_allclose(found, centred(lost), atol=2e-7)


@pytest.mark.parametrize("k", K)
def test_effects_on_calibration_errors_are_their_slopes(k):
    ranking, truth = sample(50)
    found = evaluate(ranking, truth, k=k, probabilities=True)
    present = ranking.present[:, :k]
    dense = np.pad(truth.toarray(), ((0, 0), (0, 1)))
    hits = np.take_along_axis(dense, ranking.ids, 1)[:, :k]
    confidence = np.where(present, ranking.scores[:, :k], 0).astype(np.float64)

    def error(weights):
        weights = weights[:, None] * present
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        gaps = np.bincount(bins.ravel(), (weights * (confidence - hits)).ravel())
        return np.abs(gaps).sum() / weights.sum()

    assert error(np.ones(50)) == pytest.approx(found[f"ECE@{k}"])
    step = 1e-6
    slopes = np.array([(error(1 + step * row) - error(1 - step * row)) / 2 for row in np.eye(50)])
    effects = found._tallies.effects[:50, found._tallies.indirect["ECE"], 0]
    np.testing.assert_allclose(effects, centred(slopes / step), atol=1e-7)


def test_many_texts_are_grouped():
    ranking, truth = sample(9000)
    found = evaluate(ranking, truth, k=3, probabilities=True)
    effects = found._tallies.effects
    assert abs(effects.sum(axis=0)).max() < 1e-9
    few = evaluate(ranking[:4000], truth[:4000], k=3, probabilities=True)
    for name in ("macro-F1@3", "macro-balanced-accuracy@3", "ECE@3"):
        many, less = (np.ptp(e.intervals()[name]) for e in (found, few))
        assert less / many == pytest.approx(np.sqrt(9000 / 4000), rel=0.15)


@pytest.fixture(scope="module")
def shop():
    """Texts, what they carry, and answers that are nearly as good as can be."""
    made = generate(texts=20_000, labels=400)
    rng = np.random.default_rng(0)
    noisy = made.probabilities.copy()
    noisy.data = np.clip(noisy.data * np.exp(0.7 * rng.normal(size=noisy.nnz)), 0, 1)
    return Ranking.from_csr(noisy, 5, made.corpus.labels), made.corpus.targets


def test_intervals_hold_what_other_test_sets_give_on_average(shop):
    answers, truth = shop
    size, names = 200, ("macro-P@5", "macro-F1@5", "coverage@5", "micro-F1@5", "ECE@5", "Brier@5")
    found = []
    for start in range(0, len(answers), size):
        part = slice(start, start + size)
        measured = evaluate(answers[part], truth[part], k=5, probabilities=True)
        intervals = measured.intervals(samples=200)
        found.append([(measured[name], *intervals[name]) for name in names])
    values, low, high = np.moveaxis(np.array(found), 2, 0)
    mean, spread = values.mean(axis=0), values.std(axis=0)
    held = ((low <= mean) & (mean <= high)).mean(axis=0)
    width = (high - low).mean(axis=0) / (2 * 1.96 * spread)
    assert (held >= 0.88).all(), dict(zip(names, held, strict=True))
    assert (width < 1.6).all(), dict(zip(names, width, strict=True))
    assert ((low <= values) & (values <= high)).all()


def test_a_better_model_is_told_from_a_worse_one(shop):
    answers, truth = (part[:2000] for part in shop)
    worse = answers.ids.copy()
    worse[::3] = worse[::3, ::-1]
    first, second = (
        evaluate(Ranking(ids, answers.scores, answers.labels), truth, k=(1, 5), probabilities=True)
        for ids in (answers.ids, worse)
    )
    compared = first.compare(second)
    assert set(compared.p_values) == set(first)
    for name in ("macro-F1@1", "ECE@1"):
        low, high = compared.intervals[name]
        assert low < compared[name] < high
        assert compared.p_values[name] < 0.01
        assert low > 0 or high < 0
    assert compared.p_values["macro-F1@5"] == 1  # the same five labels
    assert second.compare(first).p_values["macro-F1@1"] == compared.p_values["macro-F1@1"]


def test_chance_differences_are_rarely_significant():
    rng, labels, significant = np.random.default_rng(0), LabelSet.numbered(20), 0
    for _ in range(100):
        truth = csr_matrix(rng.random((200, 20)) < 0.3)
        pair = [
            evaluate(Ranking(rng.integers(0, 20, (200, 1)), np.ones((200, 1)), labels), truth, k=1)
            for _ in range(2)
        ]
        significant += pair[0].compare(pair[1], samples=200).p_values["macro-F1@1"] < 0.05
    assert significant <= 12


def test_batches_may_go_to_a_file(monkeypatch):
    ranking, truth = sample(60)
    options = {"k": (1, 3), "probabilities": True}
    expected = evaluate(ranking, truth, **options).to_json()
    monkeypatch.setattr(batches, "IN_MEMORY", 1000)
    streamed = Evaluator(**options)
    for start in range(0, 60, 7):
        streamed.add(ranking[start : start + 7], truth[start : start + 7])
    assert streamed.result().to_json() == expected


def test_what_was_written_without_effects_has_fewer_intervals():
    ranking, truth = sample(20)
    found = evaluate(ranking, truth)
    found._tallies.effects = None
    back = Evaluation.from_json(found.to_json())
    assert "P@1" in back.intervals()
    assert "macro-F1@1" not in back.intervals()
    assert "macro-F1@1" not in back.compare(found).p_values


def test_arrays_that_do_not_fit_are_refused():
    sound = {
        "before": np.zeros((4096, 46)), "first_row": 0,
        "ids": np.zeros((2, 1), np.int32), "scores": np.zeros((2, 1), np.float32), "labels": 3,
        "indptr": np.array([0, 1, 1]), "indices": np.array([2], np.int32),
        "positive": np.ones(1, np.uint8), "k": 1, "class_of": np.zeros(3, np.int32),
        "of_class": np.zeros((1, 48), np.float32),
        "bins_of_cell": np.full((24 * 1024 + 2 + 14, 2), 29, np.int32), "bins_of_errors": 30,
        "bins": 15,
    }  # fmt: skip

    def add_effects(**arrays):
        ranked = _native.Ranked(**{name: arrays.pop(name) for name in ("ids", "scores", "labels")})
        truth = {name: arrays.pop(name) for name in ("indptr", "indices", "positive")}
        return _native.add_effects(ranked=ranked, truth=_native.Truth(**truth), **arrays)

    assert add_effects(**sound).shape == (4096, 46)
    for name, wrong in {
        "before": np.zeros((4096, 16)),
        "scores": np.zeros((1, 1), np.float32),
        "labels": 4,
        "indptr": np.array([0, 2, 1]),
        "indices": np.array([3], np.int32),
        "class_of": np.ones(3, np.int32),
        "of_class": np.zeros((1, 47), np.float32),
        "bins_of_cell": np.zeros((5, 2), np.int32),
        "bins_of_errors": 29,
        "bins": 0,
    }.items():
        with pytest.raises(ValueError, match=r"."):
            add_effects(**(sound | {name: wrong}))
