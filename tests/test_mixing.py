"""One tagger of several unlike ones."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import megalabel
from megalabel import Corpus, mix, systems
from megalabel.data.synthetic import generate
from megalabel.decision import FrankWolfe
from megalabel.errors import DataError, ParameterError
from megalabel.mixing import FORMS, with_members
from megalabel.rankers import Mix
from megalabel.rankers.mix import Candidates
from megalabel.systems.mix import Mixed


@pytest.fixture(scope="module")
def shop() -> Corpus:
    return generate(texts=2_400, labels=200).corpus


@pytest.fixture(scope="module")
def members(shop):
    return [
        systems.create("xr-linear", calibration=None).fit(shop[:1200]),
        systems.create("knn").fit(shop[:1200]),
    ]


@pytest.fixture(scope="module")
def mixed(shop, members):
    return mix(members, shop[1200:1800])


def quality(tagger, corpus) -> float:
    return float(tagger.evaluate(corpus, k=10)["nDCG@10"])


def test_a_mix_is_better_than_its_members(shop, members, mixed):
    best = max(quality(member, shop[1800:]) for member in members)
    assert quality(mixed, shop[1800:]) > best


def test_it_says_what_was_measured_and_keeps_the_best_form(mixed):
    told = mixed.provenance_["mix"]
    assert set(told["held_out"]) == {"member 0", "member 1", *FORMS}
    best = max(FORMS, key=lambda form: told["held_out"][form]["nDCG@10"])
    assert told["form"] == best
    assert told["members"] == ["xr-linear", "knn"]
    assert (told["trained_on"], told["texts"]) == ([1200, 1200], 600)


def test_its_probabilities_can_be_bet_on(shop, mixed):
    assert mixed.evaluate(shop[1800:], k=5)["ECE-debiased@5"] < 0.04


@pytest.mark.parametrize("form", FORMS)
def test_saved_and_loaded_it_answers_the_same(form, shop, members, tmp_path):
    made = mix(members, shop[1200:1400], form=form)
    made.save(tmp_path / "model")
    loaded = megalabel.load(tmp_path / "model")
    expected, found = (t.rank(shop[1800:1850], 30) for t in (made, loaded))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert loaded.system == "mix"


def test_loading_needs_neither_recipes_nor_torch(mixed, tmp_path):
    mixed.save(tmp_path / "model")
    code = (
        "import sys, megalabel; t = megalabel.load(sys.argv[1]); t.tag('red dress');"
        "assert not {'torch', 'megalabel.systems'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=True)


def test_a_longer_answer_begins_with_the_shorter(shop, mixed):
    short, long = mixed.rank(shop[1800:1900], 5), mixed.rank(shop[1800:1900], 120)
    np.testing.assert_array_equal(long.ids[:, :5], short.ids)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [3, 60])
def test_a_query_is_answered_as_step_by_step(form, k, shop, members):
    few = systems.create("knn", calibration="isotonic").fit(shop[:1200].with_labels(range(150)))
    tagger = mix([*members, few], shop[1200:1800], form=form, shortlist=20)
    ranker = tagger.classifier_
    rows = tagger.features_.transform(shop[1800:1850].texts.to_pylist())
    found = Candidates.of(
        ranker.rankings(rows, max(k, 20)), ranker.label_counts_, 20, ranker.names_, rows[-1]
    )
    expected = found.ranked(ranker.combiner_.margins(found.said), k, ranker.labels_)
    whole = ranker.rank(rows, k)
    np.testing.assert_array_equal(whole.ids, expected.ids)
    np.testing.assert_allclose(whole.scores, expected.scores, rtol=1e-6)
    for row in range(5):
        single = tagger.features_.transform([shop.texts[1800 + row].as_py()])
        np.testing.assert_array_equal(ranker.rank(single, k).scores[0], whole.scores[row])


def test_members_may_know_different_labels(shop, members):
    some = systems.create("knn").fit(shop[:1200].with_labels(np.arange(120)))
    more = systems.create("dismec").fit(shop[:1200].with_labels(np.arange(199, 80, -1)))
    made = mix([some, more], shop[1200:1500], form="means")
    assert set(made.labels.ids.to_pylist()) == set(shop.labels.ids.to_pylist())
    both = quality(made, shop[1800:])
    assert both > max(quality(some, shop[1800:]), quality(more, shop[1800:]))


def test_members_trained_anew_take_the_place_of_others(shop, members, mixed):
    anew = [
        systems.create("xr-linear", calibration=None).fit(shop[:1800]),
        systems.create("knn", calibration=None).fit(shop[:1800]),
    ]
    made = with_members(mixed, anew, shop[:1800])
    assert made.n_texts_ == 1800
    assert made.provenance_["mix"]["trained_on"] == [1800, 1800]
    assert quality(made, shop[1800:]) > quality(mixed, shop[1800:]) - 0.01
    with pytest.raises(ParameterError, match="not a mix of 1 members"):
        with_members(mixed, anew[:1])
    with pytest.raises(DataError, match="other labels"):
        with_members(mixed, [systems.create("knn").fit(shop[:99].with_labels(range(9)))] * 2)


def test_cells_that_a_corpus_leaves_out_are_not_learned_from(shop, members):
    some = shop[1200:1500]
    known = Corpus(some.texts, targets=some.targets, labels=some.labels, excluded=some.targets)
    told = mix(members, known, form="means").provenance_["mix"]
    assert told["held_out"]["means"]["P@1"] == 0


def test_what_it_cannot_learn_from(shop, members):
    with pytest.raises(ParameterError, match="at least one tagger"):
        mix([], shop)
    with pytest.raises(DataError, match="at least 20 texts"):
        mix(members, shop[:19])
    with pytest.raises(DataError, match="0 such labels"):
        mix(members, Corpus(shop.texts, targets=[["unheard of"]] * len(shop)))
    with pytest.raises(ParameterError, match="form must be"):
        mix(members, shop, form="median")
    with pytest.raises(ParameterError, match="taggers must be a list"):
        mix(members[0], shop)
    with pytest.raises(ParameterError, match="on must be a Corpus"):
        mix(members, "shop.csv")


def test_texts_that_members_were_trained_on_teach_nothing(shop, members, caplog):
    with pytest.raises(DataError, match="1,200 of the 1,200 texts"):
        mix(members, shop[:1200])
    mix(members, shop[1100:1500], form="means")
    assert "the mix will trust it too much" in caplog.text


def test_a_decision_learns_from_the_mix(shop, members):
    made = mix(members, shop[1200:1500], form="means", decision=FrankWolfe("macro-f1", k=3))
    assert made.decision_.fitted
    assert len(made.tag(shop.texts[1800].as_py(), k=3)) == 3


def test_names_are_looked_for_where_labels_have_some(shop, mixed, members):
    numbered = Corpus(shop.texts, targets=shop.targets)
    assert isinstance(mixed.classifier_, Mix)
    assert mixed.classifier_.names_ is not None
    plain = mix([systems.create("knn").fit(numbered[:600])], numbered[600:900], form="boosted")
    assert plain.classifier_.names_ is None
    none = mix(members, shop[1200:1500], form="boosted", names=False)
    assert none.classifier_.names_ is None


def test_the_recipe_trains_mixes_and_trains_again(shop):
    made = systems.create("mix", members=("knn", "prior"), form="means").fit(shop[:1000])
    assert made.n_texts_ == 1000
    assert made.provenance_["mix"]["texts"] == 200
    weights = made.classifier_.combiner_.weights_
    assert (weights[:, 0] > weights[:, 1]).all()


def test_names_of_labels_are_a_member_where_texts_may_hold_them(shop, monkeypatch):
    pytest.importorskip("snowballstemmer")
    plain = ["xr-linear", "knn"]

    def members(corpus: Corpus, **given) -> list[str | None]:
        return [one.system for one in systems.create("mix", **given).taggers(corpus)]

    assert members(shop) == [*plain, "lexical"]
    assert members(shop, members=["prior"]) == ["prior"]
    numbered = Corpus(shop.texts, targets=shop.targets)
    vectors = Corpus(features=np.eye(4, dtype=np.float32), targets=[["red"], ["blue"]] * 2)
    assert members(numbered) == members(vectors) == plain
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert members(shop) == plain  # no stemmer


def test_one_system_is_ranked_anew(shop):
    with pytest.raises(ParameterError, match="rerank must be True or False"):
        systems.create("knn", rerank="yes")
    plain = systems.create("knn").fit(shop[:1800])
    anew = systems.create("knn", rerank=True, neighbours=20).fit(shop[:1800])
    assert isinstance(anew, Mixed)
    assert anew.classifier_.members_[0].neighbours == 20
    assert quality(anew, shop[1800:]) > quality(plain, shop[1800:])


def test_labels_can_be_taken(shop, mixed):
    numbers = np.arange(0, 200, 2)
    taken = mixed.take_labels(numbers)
    assert len(taken.labels) == 100
    assert taken.rank(shop[1800:1810], 5).ids.max() < 100
