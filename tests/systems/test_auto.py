"""auto: a race of systems on texts held out, within a budget of seconds and memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import megalabel
from megalabel import checkpoints, systems
from megalabel.data import Corpus, Ranking
from megalabel.data.synthetic import generate
from megalabel.decision import FrankWolfe
from megalabel.errors import DataError, ParameterError
from megalabel.features import Tfidf
from megalabel.metrics import evaluate
from megalabel.systems import foresight, outlook, racing
from megalabel.systems.auto import Auto
from megalabel.systems.knn import knn
from megalabel.systems.planning import Plan
from megalabel.systems.racing import Race
from megalabel.systems.trials import Candidate, Trial, Trials, complementary, gains
from megalabel.tagger import Tagger


@pytest.fixture(scope="module")
def shop() -> Corpus:
    return generate(texts=900, labels=200).corpus


@pytest.fixture(scope="module")
def raced(shop) -> Tagger:
    return systems.create("auto", budget="60s").fit(shop)


@pytest.fixture
def table(monkeypatch):
    """Lets some systems alone take part: those that are named, and made ones."""
    every = {name: systems.get(name) for name in systems.names()}

    def use(*names: str, **made: systems.System) -> None:
        known = {name: every[name] for name in names}
        known |= {name: replace(system, name=name) for name, system in made.items()}
        monkeypatch.setattr(systems, "_all", lambda: known)

    return use


class FakeClock:
    """Seconds that pass only when a trial takes some."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    """A clock by which a fit takes as many seconds as it has thousands of texts, or as many times
    that as the system's name says: `slow9`."""
    made = FakeClock()
    plain = Trials.fitted

    def fitted(self, candidate, corpus):
        made.seconds += seconds(candidate.create(0), candidate.system.name, corpus)
        return plain(self, candidate, corpus)

    monkeypatch.setattr(Trials, "fitted", fitted)
    monkeypatch.setattr(foresight, "_SMALL", 0)  # all is planned
    return made


def seconds(tagger: Tagger, name: str, corpus: Corpus) -> float:
    times = float(name.removeprefix("slow")) if name.startswith("slow") else 1.0
    if getattr(tagger.classifier, "neighbours", None) == THRIFTY["neighbours"]:
        times /= 10
    return times * len(corpus) / 1_000


THRIFTY = {"neighbours": 7}  # a tenth of the time


def planned(name: str, memory: int = 0, cost_class: str = "linear") -> systems.System:
    """Nearest neighbours by another name, which plan the seconds that the clock has."""

    def plan(tagger, corpus):
        return Plan(memory, 1, seconds(tagger, name, corpus), 1 << 60)

    system = replace(systems.get("knn"), name=name, plan=plan, cost_class=cost_class, race=())
    return system


def tried(race: dict) -> list[tuple]:
    return [(t["system"], t["texts"], t.get("nDCG@10")) for t in race["trials"]]


def test_a_race_is_won_by_the_best_on_texts_held_out(raced, shop):
    race = raced.provenance_["race"]
    done = [trial for trial in race["trials"] if "nDCG@10" in trial]
    assert {"prior", "knn", "dismec"} <= {trial["system"] for trial in done}
    assert race["winner"].startswith(raced.system)
    assert race["nDCG@10"] >= max(trial["nDCG@10"] for trial in done) - 1e-9
    assert race["texts"] == raced.n_texts_ == len(shop)
    assert 0 < race["held_out"] <= len(shop) // 5
    assert race["seconds"] <= race["budget"] == 60
    assert "there is no GPU" in race["left_out"]["renee"] or "texts" in race["left_out"]["renee"]


def test_it_says_who_won(raced):
    winner = raced.provenance_["race"]["winner"]
    assert repr(raced).startswith("Auto(budget=")
    assert f"{winner} won" in repr(raced)
    assert f"{winner} won" in raced._repr_html_()
    assert "won" not in repr(Auto()) + Auto()._repr_html_()


def test_the_winner_is_calibrated(raced, shop):
    assert raced.calibration_ is not None
    assert raced.metrics_["rows"] == raced.provenance_["race"]["held_out"]
    assert raced.reliability_["after"]["ECE"] < 0.2
    plain = systems.create("auto", calibration=None).fit(shop)
    assert plain.calibration_ is None


def test_a_plain_tagger_is_saved_and_needs_no_race(raced, shop, tmp_path):
    raced.save(tmp_path / "model")
    loaded = megalabel.load(tmp_path / "model")
    assert type(loaded) is Tagger
    assert loaded.system == raced.system
    assert loaded.provenance_["race"] == raced.provenance_["race"]
    np.testing.assert_array_equal(loaded.rank(shop, 5).ids, raced.rank(shop, 5).ids)
    code = "import sys, megalabel; megalabel.load(sys.argv[1]).tag('a lamp')\n"
    code += "assert not [m for m in sys.modules if m.startswith('megalabel.systems')]"
    subprocess.run([sys.executable, "-c", code, tmp_path / "model"], check=True)


def test_a_part_of_it_is_a_plain_tagger_too(raced, shop):
    some = raced.take_labels(np.arange(20))
    assert type(some) is Tagger
    assert type(some.classifier) is type(raced.classifier_)
    assert type(raced.plain().classifier) is type(raced.classifier_)


def test_the_same_seed_decides_the_same(raced, shop):
    again = systems.create("auto", budget=60).fit(shop)
    assert tried(again.provenance_["race"]) == tried(raced.provenance_["race"])
    np.testing.assert_array_equal(again.rank(shop, 5).scores, raced.rank(shop, 5).scores)


def test_texts_held_out_are_never_trained_on_in_a_trial(shop, monkeypatch):
    seen = []
    plain = Trials.fitted

    def fitted(self, candidate, corpus):
        seen.append((self, corpus))
        return plain(self, candidate, corpus)

    monkeypatch.setattr(Trials, "fitted", fitted)
    numbered = Corpus([f"{text} n{i}" for i, text in enumerate(shop.texts.to_pylist())],
                      targets=shop.targets, labels=shop.labels)  # fmt: skip
    Race(numbered, budget=60).run(calibration=None)
    *in_trials, (_, last) = seen
    for trials, corpus in in_trials:
        held_out = set(trials.held_out.texts.to_pylist())
        assert not held_out & set(corpus.texts.to_pylist())
    assert len(last) == len(shop)


def test_labels_of_texts_held_out_alone_count_for_nobody():
    """What learns from names of labels finds them in a trial; with all texts others do so too."""
    shop = generate(texts=400, labels=600).corpus
    trials = Trials(shop, 0)
    count = trials.whole // 4  # so that some labels have no text
    carried = (
        np.bincount(trials.texts(trials.whole).targets.indices, minlength=len(shop.labels)) > 0
    )
    assert not carried.all()
    assert carried[trials.held_out.targets.indices].all()
    trial = trials.run(Candidate(systems.get("knn"), {"label_points": "self"}), count)
    ids = trial.ranking.ids[trial.ranking.present]
    assert carried[ids].all()
    rare = np.setdiff1d(np.flatnonzero(carried), trials.texts(count).targets.indices)
    assert np.isin(ids, rare).any()


def test_test_texts_are_not_looked_at(shop, tmp_path):
    megalabel.data.write(shop, tmp_path / "train.jsonl")
    (tmp_path / "test.jsonl").write_text("not even JSON")
    systems.create("auto", budget=30).fit(megalabel.read(tmp_path, "train"))


def test_a_candidate_that_fails_is_listed_and_the_race_goes_on(shop, table):
    def broken(**_):
        tagger = knn()
        tagger.features.max_features = "many"
        return tagger

    table("prior", "knn", broken=replace(systems.get("knn"), build=broken))
    raced = Auto(budget=60).fit(shop)
    assert raced.system == "knn"
    [failed] = [t for t in raced.provenance_["race"]["trials"] if t["system"] == "broken"]
    assert "max_features" in failed["problem"]
    assert not failed["refused"]


def test_a_plan_that_fails_is_listed_and_the_race_goes_on(shop, table, clock):
    def plan(tagger, corpus):
        raise RuntimeError("no such device")

    table("prior", small=planned("small"), broken=replace(planned("broken"), plan=plan))
    race = Race(shop, budget=600, clock=clock).run(calibration=None).provenance_["race"]
    [failed] = [t for t in race["trials"] if t["system"] == "broken"]
    assert failed["problem"] == "failed: no such device"
    assert race["winner"] == "small"


def test_if_all_fail_the_reason_is_raised(table):
    table("knn", "dismec")
    with pytest.raises(DataError, match="term"):
        Auto(budget=60).fit(["!!!"] * 60, [["a"], ["b"]] * 30)


def test_what_does_not_fit_into_memory_is_not_tried(shop, table, clock):
    table("prior", large=planned("large", memory=1 << 50), small=planned("small"))
    race = Race(shop, budget=600, memory=8 << 30, clock=clock)
    race = race.run(calibration=None).provenance_["race"]
    [refused] = [t for t in race["trials"] if t["system"] == "large"]
    assert "memory" in refused["problem"]
    assert race["winner"] == "small"


@pytest.mark.parametrize("budget", [1.0, 3.0, 5.0, 10.0, 100.0])
def test_nothing_is_started_that_cannot_end_in_time(budget, shop, table, clock):
    names = ("slow1", "slow2", "slow8")
    table("prior", **{name: planned(name) for name in names})
    race = Race(shop, budget=budget, clock=clock).run(calibration=None).provenance_["race"]
    assert clock.seconds <= max(1.2 * budget, 1.5)  # one trial there must be
    done = {t["system"] for t in race["trials"] if "nDCG@10" in t}
    assert ("slow8" in done) == (budget == 100)
    assert race["texts"] == len(shop) or budget < 3


@pytest.mark.parametrize("alone", [False, True])
def test_what_takes_longer_than_planned_gives_way(alone, shop, table, clock, monkeypatch):
    monkeypatch.setattr(racing, "_SHARE", 100)
    # one that is good, but says that it takes a fiftieth of the time
    late = replace(planned("slow50"), plan=planned("slow1").plan)
    weak = replace(planned("slow1"), build=lambda **_: knn(neighbours=1, power=0.0))
    table("prior", slow50=late, **({} if alone else {"slow1": weak}))
    race = Race(shop, budget=40, clock=clock).run(calibration=None).provenance_["race"]
    assert clock.seconds <= 1.2 * 40
    assert race["winner"] == "slow50" if alone else race["texts"] == len(shop)
    assert race["texts"] > 180  # the first share


def test_thrifty_settings_are_taken_where_defaults_take_too_long(shop, table, clock):
    table("prior", slow8=replace(planned("slow8"), thrifty=THRIFTY))
    for budget, taken in ((100, {}), (10, THRIFTY)):
        race = Race(shop, budget=budget, clock=clock).run(calibration=None).provenance_["race"]
        settings = {repr(t["settings"]) for t in race["trials"] if t["system"] == "slow8"}
        assert settings == {repr(taken)}


def test_better_halves_go_on_to_twice_as_many_texts(table, clock, monkeypatch):
    monkeypatch.setattr(racing, "_SHARE", 100)
    corpus = generate(texts=1_000, labels=200).corpus
    named = {f"slow{i}": planned(f"slow{i}") for i in range(1, 8)}
    table("prior", **named)
    race = Race(corpus, budget=1_000, clock=clock).run(calibration=None).provenance_["race"]
    rounds = {}
    for system, texts, _ in tried(race):
        rounds.setdefault(texts, []).append(system)
    (first, some), (second, fewer), *_ = rounds.items()
    assert second == 2 * first
    assert len(some) == 8
    assert len(fewer) == 4
    whole = len(corpus) - race["held_out"]
    assert [texts for texts in rounds if 2 * texts > whole] == [whole]


def test_no_budget_is_two_minutes_or_what_a_linear_system_takes(shop, table, clock):
    quick, slow = planned("slow1"), planned("slow900")
    table("prior", slow1=quick)
    assert Race(shop, clock=clock).foreseen()[0] == 120
    table("prior", slow900=slow)
    assert Race(shop, clock=clock).foreseen()[0] > 2 * 900 * len(shop) / 1_000


def test_a_mix_wins_where_it_is_better(table):
    corpus = generate(texts=1_100, labels=200).corpus  # of which enough are held out
    table("prior", "knn", "dismec")
    raced = Auto(budget=60).fit(corpus)
    race, mixed = raced.provenance_["race"], raced.provenance_["mix"]
    alone = max(trial["nDCG@10"] for trial in race["trials"])
    assert race["winner"].startswith("mix of ")
    assert raced.system == "mix"
    assert race["nDCG@10"] == mixed["held_out"][mixed["form"]]["nDCG@10"] > alone
    assert raced.n_texts_ == len(corpus)
    assert raced.provenance_["corpus"]["texts"] == len(corpus)
    assert raced.calibration_ is not None


def test_a_mix_that_is_no_better_does_not_win(table, monkeypatch):
    measured = {"means": {"nDCG@10": 0.01}, "member 0": {"nDCG@10": 0.5}}
    worse = SimpleNamespace(provenance_={"mix": {"form": "means", "held_out": measured}})
    monkeypatch.setattr(racing, "mix", lambda *given, **options: worse)
    table("prior", "knn")
    raced = Auto(budget=60).fit(generate(texts=1_100, labels=200).corpus)
    assert raced.system == "knn"
    assert "mix" not in raced.provenance_


def test_a_trial_is_told_in_a_few_words():
    system = systems.get("dismec")
    setting = max(system.race, key=lambda setting: len(repr(setting)))
    candidate = Candidate(system, {"cost": 2.0}).with_setting(setting)
    assert str(candidate) == "dismec, cost=2.0, features=words + letters 4 + words 2"


def test_settings_are_tried_one_after_another(shop, table, monkeypatch):
    monkeypatch.setattr(racing, "_TUNED", 50)
    table("prior", "knn")
    race = Race(shop, budget=60).run(calibration=None).provenance_["race"]
    settings = [t["settings"] for t in race["trials"] if t["system"] == "knn"]
    assert settings[0] == {}
    assert any(setting.get("similarity") == "bm25" for setting in settings)
    assert max(map(len, settings)) >= 1


def test_features_that_take_too_long_are_tried_with_a_cheaper_system(
    shop, table, clock, monkeypatch
):
    monkeypatch.setattr(racing, "_TUNED", 50)
    setting = {"features": Tfidf(analyzer="char", ngram_range=(1, 4))}
    better = replace(planned("slow8"), race=(setting,))
    weak = replace(planned("slow1"), build=lambda **given: knn(neighbours=1, power=0.0, **given))
    table("prior", slow8=better, slow1=weak)
    race = Race(shop, budget=60, clock=clock).run(calibration=None).provenance_["race"]
    told = [trial for trial in race["trials"] if "features" in trial["settings"]]
    assert [(trial["system"], "problem" in trial) for trial in told] == [
        ("slow8", True),
        ("slow1", False),
    ]


def test_a_killed_race_goes_on_where_it_was(shop, raced, tmp_path, monkeypatch, caplog):
    plain, done = Trials._do, []

    def dies(self, trial, checkpoint):
        if len(done) == 3:
            raise KeyboardInterrupt
        plain(self, trial, checkpoint)
        done.append((str(trial.candidate), trial.texts))

    monkeypatch.setattr(Trials, "_do", dies)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(KeyboardInterrupt):
            Auto(budget=60).fit(shop)
        before, done[2:] = list(done), []  # the third counts as not yet done
        again = Auto(budget=60)
        monkeypatch.setattr(Trials, "_do", lambda *a: (done.append(str(a[1].candidate)), plain(*a)))
        assert "earlier run" not in caplog.text
        caplog.set_level("INFO", "megalabel.systems")
        again.fit(shop)
    assert caplog.text.count("going on from an earlier run") == 1
    assert caplog.text.count(", by an earlier run") == 3
    assert not {name for name, _ in before} & set(done[2:])
    assert tried(again.provenance_["race"]) == tried(raced.provenance_["race"])
    np.testing.assert_array_equal(again.rank(shop, 5).scores, raced.rank(shop, 5).scores)


def test_other_texts_are_another_race(shop, tmp_path):
    with checkpoints.kept_in(tmp_path):
        Trials(shop, 0).run(Candidate(systems.get("knn")), 100)
        assert Trials(shop, 0).run(Candidate(systems.get("knn")), 100).kept
        assert not Trials(shop[:800], 0).run(Candidate(systems.get("knn")), 100).kept
        assert not Trials(shop, 1).run(Candidate(systems.get("knn")), 100).kept


def test_a_decision_learns_from_texts_held_out(shop):
    raced = systems.create("auto", decision=FrankWolfe("macro-f1", k=3)).fit(shop)
    assert raced.decision_.fitted
    assert len(raced.tag("a lamp", k=3)) <= 3


def test_few_texts_need_no_race():
    made = systems.create("auto").fit(["red dress", "blue jeans"], [["dress"], ["jeans"]])
    assert made.system == "knn"
    assert made.tag("a dress", k=1)[0].label == "dress"


def test_a_part_of_the_labels_needs_a_system_by_name(shop):
    with pytest.raises(ParameterError, match="name a system"):
        systems.create("auto").fit(shop.label_shard(1, 2))


def test_a_race_is_not_planned_before_it_plans_itself(shop, monkeypatch):
    monkeypatch.setattr(outlook, "_PLANNED", 1)
    assert not str(outlook.outlook(systems.create("auto"), shop))


@pytest.mark.parametrize("wrong", [{"budget": "soon"}, {"budget": 0}, {"memory": "much"}])
def test_budgets_that_are_none(wrong, shop):
    with pytest.raises(ParameterError, match="such as"):
        systems.create("auto", **wrong).fit(shop)


def test_gains_are_those_of_evaluate(shop):
    ranking = systems.create("knn", calibration=None).fit(shop[:500]).rank(shop[500:], 12)
    truth = shop[500:].targets
    measured = evaluate(ranking, truth, k=(1, 10))
    assert gains(ranking, truth).mean() == pytest.approx(measured["nDCG@10"])
    assert gains(ranking, truth, 1).mean() == pytest.approx(measured["P@1"])


def test_members_of_a_mix_add_to_each_other(shop):
    truth, labels = shop.targets, shop.labels
    random = np.random.default_rng(0)

    def knows(half: np.ndarray) -> Trial:
        """A trial that is right on half of the texts and random on the others."""
        ids = random.permuted(np.tile(np.arange(len(labels)), (len(shop), 1)), axis=1)[:, :10]
        scores = random.random(ids.shape) * 0.2
        for row in np.flatnonzero(half):
            own = truth.indices[truth.indptr[row] : truth.indptr[row + 1]][:10]
            others = np.setdiff1d(ids[row], own)
            ids[row] = np.concatenate([own, others])[:10]
            scores[row, : len(own)] = 0.9
        order = np.argsort(-scores, axis=1)
        ids, scores = (np.take_along_axis(each, order, 1) for each in (ids, scores))
        ranking = Ranking(ids, scores, labels)
        return Trial(Candidate(systems.get("knn")), 1, ranking=ranking, gains=gains(ranking, truth))

    even = np.arange(len(shop)) % 2 == 0
    first, second, like_first = knows(even), knows(~even), knows(even)
    chosen = complementary([first, second, like_first], truth, 2)
    assert second in chosen
    assert len(chosen) == 2
