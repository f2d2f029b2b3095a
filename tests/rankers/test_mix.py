"""What members say of labels, and how one ranking is made of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

import megalabel
from megalabel import LabelSet, Ranking
from megalabel.errors import ParameterError
from megalabel.rankers import Boosted, Means, Mix, Stack
from megalabel.rankers.combining import EDGES, OF_MEMBER, SHARED
from megalabel.rankers.mix import Candidates, renumbered

LABELS = LabelSet.numbered(12)
COUNTS = np.array([0, 1, 2, 5, 7, 20, 50, 100, 300, 2, 1, 4])


def rankings(seed: int, members: int = 2, rows: int = 6, k: int = 8) -> list[Ranking]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(members):
        ids = np.argsort(random.random((rows, len(LABELS))), axis=1)[:, :k].astype(np.int32)
        scores = -np.sort(-random.random((rows, k)), axis=1).astype(np.float32)
        short = random.integers(0, k + 1, rows)  # some rows are padded
        padded = np.arange(k) >= short[:, None]
        ids[padded], scores[padded] = len(LABELS), -np.inf
        found.append(Ranking(ids, scores, LABELS))
    return found


def twin(found: list[Ranking], shortlist: int) -> list[dict[int, list[float]]]:
    """What is said of each listed label of each row, slowly."""
    rows = []
    for row in range(len(found[0])):
        said: dict[int, list[float]] = {}
        places = [{int(i): c for c, i in enumerate(r.ids[row]) if i < len(LABELS)} for r in found]
        for label in set().union(*places):
            listed = [p.get(label, 99) < shortlist for p in places]
            if not any(listed) or not COUNTS[label]:
                continue
            values: list[float] = []
            for member, is_listed in zip(range(len(found)), listed, strict=True):
                if not is_listed:
                    values += [np.nan] * 3
                    continue
                place = places[member][label]
                own = logit(np.clip(found[member].scores[row], 1e-6, 1 - 1e-6).astype(float))
                values += [own[place], place + 1, own[0] - own[place]]
            shares = [
                float(r.scores[row][p[label]]) if is_listed else 0.0
                for r, p, is_listed in zip(found, places, listed, strict=True)
            ]
            fused = [1 / (p[label] + 1) if y else 0.0 for p, y in zip(places, listed, strict=True)]
            mean = float(np.clip(np.mean(shares), 1e-6, 1 - 1e-6))
            values += [np.log1p(COUNTS[label]), logit(mean), float(sum(listed)), np.mean(fused)]
            said[label] = values
        rows.append(said)
    return rows


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 8))
def test_candidates_are_what_members_say(seed, members, shortlist):
    found = rankings(seed, members)
    made = Candidates.of(found, COUNTS, shortlist)
    said = made.said.reshape(*made.ids.shape, OF_MEMBER * members + SHARED)
    for row, expected in enumerate(twin(found, shortlist)):
        present = made.ids[row] < len(LABELS)
        assert set(made.ids[row][present].tolist()) == set(expected)
        for label, values in zip(made.ids[row][present], said[row][present], strict=True):
            np.testing.assert_allclose(values, expected[int(label)], rtol=2e-4, atol=1e-4)


def test_labels_further_down_come_after_by_their_best_place():
    first = Ranking([[5, 6, 7, 0]], [[0.9, 0.5, 0.4, 0.2]], LABELS)
    second = Ranking([[6, 8, 9, 7]], [[0.8, 0.3, 0.2, 0.1]], LABELS)
    made = Candidates.of([first, second], COUNTS, shortlist=1)
    ranked = made.ranked(made.said[:, OF_MEMBER * 2 + 1], 6, LABELS)
    assert set(ranked.ids[0, :2].tolist()) == {5, 6}
    # places 2 and 2, 3, and the label that no text has
    assert ranked.ids[0, 2:].tolist() == [8, 7, 9, 0]
    assert (np.diff(ranked.scores[0]) < 0).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_longer_answer_begins_with_the_shorter(threads):
    before = megalabel.get_threads()
    megalabel.set_threads(threads)
    try:
        deep = rankings(3, rows=40, k=10)
        shallow = [ranking.top(5) for ranking in deep]
        made = [Candidates.of(some, COUNTS, 4) for some in (deep, shallow)]
        ranked = [c.ranked(c.said[:, OF_MEMBER * 2 + 1], 5, LABELS) for c in made]
    finally:
        megalabel.set_threads(before)
    full = ranked[1].ids < len(LABELS)
    np.testing.assert_array_equal(ranked[0].ids[full], ranked[1].ids[full])


def test_equal_margins_are_decided_by_places():
    first = Ranking([[4, 3, 2]], [[0.5, 0.5, 0.5]], LABELS)
    made = Candidates.of([first], COUNTS, 3)
    assert made.ranked(np.zeros(3, np.float32), 3, LABELS).ids[0].tolist() == [4, 3, 2]


def test_labels_of_a_member_get_other_numbers():
    small = Ranking([[1, 0, 2]], [[0.5, 0.4, -np.inf]], LabelSet(["a", "b"]))
    ranked = renumbered(small, np.array([7, 3], np.int32), LABELS)
    assert ranked.ids.tolist() == [[3, 7, len(LABELS)]]


def said_of(margins: np.ndarray) -> np.ndarray:
    """Columns of members with such logits, listed at place 1."""
    rows, members = margins.shape
    said = np.zeros((rows, OF_MEMBER * members + SHARED), np.float32)
    said[:, 0 : OF_MEMBER * members : OF_MEMBER] = margins
    said[:, 1 : OF_MEMBER * members : OF_MEMBER] = 1
    said[:, OF_MEMBER * members] = np.log1p(np.arange(rows) % 150)
    return said


@pytest.fixture(scope="module")
def candidates():
    """Two members, of which the first knows more, and hits."""
    random = np.random.default_rng(0)
    true = random.normal(-1, 2, 4000)
    margins = np.stack([true, true + random.normal(0, 3, 4000)], axis=1)
    hits = random.random(4000) < 1 / (1 + np.exp(-true))
    return said_of(margins), hits, np.arange(4000) // 10


def loss(combiner, said, hits) -> float:
    margins = combiner.margins(said).astype(np.float64)
    return float(np.logaddexp(0, np.where(hits, -margins, margins)).mean())


@pytest.mark.parametrize("make", [Means, Stack, Boosted])
def test_a_combiner_is_no_worse_than_its_best_member(make, candidates):
    said, hits, texts = candidates
    even, odd = texts % 2 == 0, texts % 2 == 1
    combiner = make(2).fit(said[even], hits[even], texts[even])
    best = float(np.logaddexp(0, np.where(hits, -said[:, 0], said[:, 0]))[odd].mean())
    assert loss(combiner, said[odd], hits[odd]) < best + 0.03


@pytest.mark.parametrize("make", [Means, Stack])
def test_margins_are_those_of_their_formula(make, candidates):
    said, hits, texts = candidates
    said = said.copy()
    said[::3, 3:6] = np.nan
    combiner = make(2).fit(said, hits, texts)
    if make is Means:
        logits = said[:, [0, 3]].astype(np.float64)
        unlisted = np.broadcast_to(combiner.unlisted_, logits.shape)
        shares = np.where(np.isnan(logits), unlisted, 1 / (1 + np.exp(-logits)))
        bins = (said[:, [6]] >= EDGES).sum(axis=1)
        expected = logit((shares * combiner.weights_[bins]).sum(axis=1))
    else:
        values = said.astype(np.float64)
        values[:, [1, 4]] = np.log(values[:, [1, 4]])
        values = (values - combiner.means_) / combiner.scales_
        missing = np.isnan(values)
        own, of_missing = np.split(combiner.weights_[:-1], 2)
        expected = np.where(missing, 0, values) @ own + missing @ of_missing
        expected = expected + combiner.weights_[-1]
    np.testing.assert_allclose(combiner.margins(said), expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="not of these columns"):
        combiner.margins(np.ascontiguousarray(said[:, :6]))


def test_means_give_the_weight_to_who_knows(candidates):
    said, hits, texts = candidates
    weights = Means(2).fit(said, hits, texts).weights_
    assert (weights[:, 0] > 0.8).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1)


def test_a_member_that_does_not_list_a_label_counts_as_such_labels_are(candidates):
    said, hits, texts = candidates
    said = said.copy()
    said[:2000, 3:6] = np.nan
    means = Means(2).fit(said, hits, texts)
    assert means.unlisted_[1] == pytest.approx((hits[:2000].sum() + 0.5) / 3000)
    assert np.isfinite(means.margins(said)).all()


def test_a_stack_is_at_its_minimum(candidates):
    said, hits, texts = candidates
    said = said.copy()
    said[::3, 3:6] = np.nan
    stack = Stack(2, l2=1.0).fit(said, hits, texts)
    terms = stack._terms(said)
    p = 1 / (1 + np.exp(-terms @ stack.weights_))
    slope = terms.T @ (p - hits)
    slope[:-1] += stack.weights_[:-1]
    assert np.abs(slope).max() < 1e-2 * len(hits) ** 0.5


@pytest.mark.parametrize("make", [Means, Stack, Boosted])
def test_damaged_combiners_are_refused(make, candidates):
    combiner = make(2).fit(*candidates)
    for name, value in combiner.learned().items():
        if isinstance(value, np.ndarray):
            damaged = value.copy()
            damaged.ravel()[0] = np.nan
            with pytest.raises(ValueError, match=make.__name__):
                make(2).restore(combiner.learned() | {name: damaged})
            with pytest.raises(ValueError, match=make.__name__):
                make(2).restore(combiner.learned() | {name: value[..., :-1]})


def test_a_mix_is_not_fitted_by_itself():
    with pytest.raises(ParameterError, match="part of a trained tagger"):
        Mix([], Means(1)).fit(np.eye(2), np.eye(2))
