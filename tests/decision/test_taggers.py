"""Taggers that answer by other rules than the k best."""

from __future__ import annotations

import numpy as np
import pytest

import megalabel
from megalabel import Tagger, systems
from megalabel.decision import BlockCoordinateAscent, FrankWolfe, Online, TopK, Weighted
from megalabel.errors import DataError


@pytest.fixture(scope="module")
def tagger(corpus):
    return systems.create("knn").fit(corpus)


@pytest.mark.parametrize(
    "rule", [BlockCoordinateAscent(), FrankWolfe(k=2), Online(), Weighted(), TopK()]
)
def test_a_rule_for_one_call(tagger, corpus, rule):
    decided = tagger.decide(corpus, 2, rule)
    assert len(decided) == len(corpus)
    assert decided.k == 2
    assert isinstance(tagger.decision_, TopK)
    if rule.learns:
        assert not rule.fitted  # what was given stays as it was


@pytest.mark.parametrize("rule", [FrankWolfe(k=2), Weighted("inverse-propensity")])
def test_a_rule_that_is_learned_in_training_and_saved(corpus, rule, tmp_path):
    tagger = systems.create("knn", decision=rule).fit(corpus)
    assert tagger.decision_.fitted
    tagger.save(tmp_path / "model")
    loaded = megalabel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decide(corpus, 2).ids, tagger.decide(corpus, 2).ids)


def test_a_rule_that_is_learned_later(corpus, tmp_path):
    tagger = systems.create("knn").fit(corpus)
    with pytest.raises(DataError, match="FrankWolfe learns from texts"):
        tagger.set_decision(FrankWolfe(k=2))
    tagger.set_decision(FrankWolfe("macro-f1", k=2, truth="labels"), corpus)
    assert len(tagger.tag("red evening gown", k=2)) == 2
    tagger.save(tmp_path / "model")
    assert isinstance(Tagger.load(tmp_path / "model").decision_, FrankWolfe)
    tagger.set_decision(Online())
    tagger.decide(corpus, 2)
    assert tagger.decision_.seen_ == len(corpus)
    tagger.save(tmp_path / "model")
    again = Tagger.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decide(corpus, 2).ids, tagger.decide(corpus, 2).ids)
    learned = tagger.decision_
    assert isinstance(tagger.set_decision(None).decision_, TopK)
    assert tagger.set_decision(learned).decision_ is learned  # it has learned already


def test_the_answer_takes_the_place_of_the_shortlists(tagger, corpus, monkeypatch):
    made = []

    def candidates(self, *args, **more):
        made.append(self.rank(corpus, 20))
        return made[-1]

    monkeypatch.setattr(Tagger, "candidates", candidates)
    assert tagger.decide(corpus, 2, BlockCoordinateAscent()) is made[0]
    assert made[0].k == 2
