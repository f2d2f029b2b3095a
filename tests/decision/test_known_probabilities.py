"""Decisions on the built-in corpus, whose probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import Ranking
from megalabel.data.synthetic import generate
from megalabel.decision import BlockCoordinateAscent, FrankWolfe, Online, TopK, Weighted, measure

K = 3


@pytest.fixture(scope="module")
def values():
    """The macro-F1 of rules on texts that they have not learned from: expected, and drawn."""
    shop = generate(texts=6000, labels=600)
    ranking = Ranking.from_csr(shop.probabilities.astype(np.float32), 100, shop.corpus.labels)
    seen, new = ranking[:3000], ranking[3000:]
    counts = np.asarray((shop.complete[:3000] > 0).sum(0)).ravel(), 3000
    draws = [generate(texts=6000, labels=600, draw=d).complete[3000:] for d in range(4)]
    rules = {"top": TopK(), "ascent": BlockCoordinateAscent(), "online": Online()}
    rules |= {f"power-law {e}": Weighted("power-law", exponent=e) for e in (0.25, 0.5, 0.75)}
    rules |= {w: Weighted(w) for w in ("logarithm", "inverse-propensity", "macro-recall")}
    rules["Frank-Wolfe"] = FrankWolfe(k=K)
    found = {}
    for name, rule in rules.items():
        decided = rule.fit(seen, None, counts).apply(new, K)
        drawn = np.mean([measure(decided, truth) for truth in draws])
        found[name] = measure(decided, new), drawn
    return found


@pytest.mark.parametrize("method", ["ascent", "Frank-Wolfe"])
def test_no_simpler_rule_is_better(values, method):
    others = values.keys() - {"ascent", "Frank-Wolfe", "online"}
    for expected_or_drawn in (0, 1):
        best = max(values[name][expected_or_drawn] for name in others)
        assert values[method][expected_or_drawn] >= best


def test_a_stream_comes_near(values):
    assert values["online"][0] > 0.97 * values["ascent"][0]
    assert values["online"][0] > 2 * values["top"][0]


def test_what_is_expected_comes_true(values):
    for expected, drawn in values.values():
        assert drawn == pytest.approx(expected, rel=0.05)
