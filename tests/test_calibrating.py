"""A tagger that calibrates itself, or is calibrated later."""

import logging
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import megalabel
from megalabel import systems
from megalabel.calibration import METHODS, Beta, ByFrequency, ByRank, Isotonic, Joint
from megalabel.data import Corpus
from megalabel.data.synthetic import generate
from megalabel.data.truth import hits
from megalabel.errors import DataError, ParameterError
from megalabel.features import Precomputed
from megalabel.linear import OneVsAll, Prior
from megalabel.metrics import evaluate
from megalabel.preparing import in_random_order
from megalabel.retrieval import NearestNeighbours
from megalabel.tagger import Tagger


@pytest.fixture(scope="module")
def shop():
    return generate(texts=12_000, labels=400, seed=1)


@pytest.fixture(scope="module")
def uncalibrated(shop):
    """Trained without calibration, and saved values that tell that nothing else has changed."""
    return systems.create("xr-linear", calibrate=False).fit(shop[:5_000].corpus)


def fresh(tagger: Tagger) -> Tagger:
    """A copy, so that a test may calibrate it."""
    made = megalabel.base.clone(tagger)
    made.restore(tagger.learned())
    return made


@pytest.mark.parametrize(("method", "times"), [("isotonic", 5), ("beta", 5), ("platt", 2)])
def test_error_falls_and_the_ranking_stays(shop, uncalibrated, method, times):
    tagger, test = fresh(uncalibrated), shop[8_000:].corpus
    before = tagger.rank(test, 5)
    tagger.calibrate(shop[5_000:8_000].corpus, method=method)
    after = tagger.rank(test, 5)
    np.testing.assert_array_equal(after.ids, before.ids)
    first, second = (evaluate(r, test, probabilities=True) for r in (before, after))
    assert second["P@1"] == first["P@1"]
    assert second["P@5"] == first["P@5"]
    assert second["ECE@5"] < first["ECE@5"] / times
    # what it foretold of itself
    tables = tagger.reliability_
    assert tables["texts"] == 3_000
    assert tables["before"]["ECE"] == pytest.approx(first["ECE@5"], abs=0.01)
    assert tables["after"]["ECE"] == pytest.approx(second["ECE@5"], abs=0.01)
    assert tagger.metrics_["ECE@5"] == tables["after"]["ECE"]
    assert sum(tables["after"]["count"]) == 15_000


@pytest.mark.parametrize(
    "calibrator", [Joint(), Isotonic(), ByFrequency(Isotonic()), ByRank(Isotonic())]
)
def test_probabilities_are_the_true_ones_within_binomial_bounds(shop, uncalibrated, calibrator):
    held_out, test = shop[5_000:8_000], shop[8_000:]
    tagger = fresh(uncalibrated).calibrate(held_out.corpus, method=calibrator)
    learned = tagger.rank(held_out.corpus, 5).scores.ravel()
    ranking = tagger.rank(test.corpus, 5)
    observed = csr_matrix(test.probabilities.multiply(test.propensities[None]))
    rows = np.repeat(np.arange(len(test)), 5)
    true = np.asarray(observed[rows, ranking.ids.ravel()])[0]
    said = ranking.scores.ravel()
    edges = np.unique(np.quantile(said, np.linspace(0, 1, 11)))
    for low, high in pairwise(edges):
        chosen = (said >= low) & (said <= high)
        chance = true[chosen].mean()
        # the map knows the chance from so many pairs alone
        n = np.count_nonzero((learned >= low) & (learned <= high))
        assert abs(said[chosen].mean() - chance) < 3.5 * np.sqrt(chance * (1 - chance) / n)


def test_calibrates_itself_by_default(shop):
    train, test = shop[:5_000].corpus, shop[8_000:].corpus
    taggers = [systems.create("xr-linear", **o).fit(train) for o in ({}, {"calibrate": False})]
    assert isinstance(taggers[0].calibration_, Joint)
    assert taggers[1].calibration_ is None
    assert taggers[1].reliability_ == {}
    values = [evaluate(t.rank(test, 5), test, probabilities=True) for t in taggers]
    assert values[0]["P@5"] == values[1]["P@5"]  # trained on all texts in the end
    assert values[0]["ECE@5"] < values[1]["ECE@5"] / 5
    assert taggers[0].reliability_["texts"] == 500


class Counting(Prior):
    """Notes how many rows it is trained on, and must be trained again to rank those it has seen."""

    ranks_held_out = False

    def _fit(self, examples):
        FITS.append(len(examples))
        super()._fit(examples)


FITS: list[int] = []


@pytest.mark.parametrize(
    ("texts", "options", "fits"),
    [
        (1000, {}, [900, 1000]),
        (1000, {"refit": False}, [900]),
        (1000, {"calibration": None}, [1000]),
        (1000, {"calibration_texts": 50}, [950]),
        (1000, {"calibration_texts": 50, "refit": True}, [950, 1000]),
        (1000, {"holdout": 0.5}, [500, 1000]),
        (40, {}, [20, 40]),
        (39, {}, [39]),
        (1, {}, [1]),
        (1, {"refit": True}, [1]),
    ],
)
def test_what_calibration_trains(texts, options, fits):
    FITS.clear()
    tagger = Tagger(Counting(), Precomputed(), **options)
    tagger.fit(np.ones((texts, 2), np.float32), csr_matrix(np.ones((texts, 3))))
    assert fits == FITS
    assert tagger.trainings(texts) == len(fits)
    assert tagger.held_out(texts) == (texts - fits[0] if tagger.calibration_ else 0)


def test_a_part_of_the_labels_is_calibrated_when_merged(shop, caplog):
    train, test = shop[:2_000].corpus, shop[8_000:10_000].corpus
    with caplog.at_level(logging.INFO):
        parts = [systems.create("dismec").fit(train.label_shard(i, 2)) for i in (1, 2)]
    assert "calibrate when all are merged" in caplog.text
    merged = megalabel.merge(parts)
    assert merged.calibration_ is None
    tables = merged.calibrate(test).reliability_
    assert tables["after"]["ECE"] < tables["before"]["ECE"]


@pytest.mark.parametrize("method", [*METHODS, ByFrequency(Beta()), ByRank(Isotonic(), rerank=True)])
def test_is_saved_with_its_tables(shop, uncalibrated, method, tmp_path):
    held_out, test = shop[5_000:6_000].corpus, shop[8_000:8_100].corpus
    tagger = fresh(uncalibrated).calibrate(held_out, method=method)
    tagger.save(tmp_path / "model")
    loaded = megalabel.load(tmp_path / "model", verify=True)
    for k in (2, 5, 9):
        np.testing.assert_array_equal(loaded.rank(test, k).ids, tagger.rank(test, k).ids)
        np.testing.assert_array_equal(loaded.rank(test, k).scores, tagger.rank(test, k).scores)
    np.testing.assert_array_equal(tagger.rank(test, 2).ids, tagger.rank(test, 5).ids[:, :2])
    assert loaded.reliability_ == tagger.reliability_
    assert megalabel.store.about(tmp_path / "model")["reliability"] == tagger.reliability_
    assert loaded.provenance_["calibrated"]["texts"] == 1_000
    assert loaded.provenance_["calibrated"]["method"] == repr(loaded.calibration)


def test_labels_left_out_of_a_ranking_do_not_calibrate():
    # the first of two labels is a hit always, but left out of half the texts, as it is known
    X, Y = np.ones((200, 1), np.float32), np.tile([1.0, 0.0], (200, 1))
    excluded = Y * (np.arange(200) < 100)[:, None]
    corpus = Corpus(features=X, targets=csr_matrix(Y), excluded=csr_matrix(excluded))
    tagger = Tagger(Prior(), calibration=Isotonic(k=1)).fit(corpus)
    assert tagger.reliability_["texts"] == 200
    assert tagger.rank(X[:1], 2).scores[0].tolist() == [1, 0]
    assert tagger.calibrate(corpus, method=Isotonic(k=1)).rank(X[:1], 2).scores[0, 1] == 0


def test_texts_of_training_are_not_for_calibration(shop, tmp_path, caplog):
    part = shop[:300].corpus
    megalabel.data.write(part, tmp_path / "train.jsonl")
    corpus = megalabel.read(tmp_path / "train.jsonl")
    tagger = systems.create("xr-linear").fit(corpus)
    tagger.calibrate(shop[300:600].corpus)
    assert "texts of training" not in caplog.text
    tagger.calibrate(corpus)
    assert "texts of training" in caplog.text


def test_wrong_calls(shop, uncalibrated):
    held_out = shop[5_000:5_100].corpus
    with pytest.raises(ParameterError, match="joint, isotonic, platt"):
        fresh(uncalibrated).calibrate(held_out, method="isotone")
    with pytest.raises(ParameterError, match="method must be a Calibrator"):
        fresh(uncalibrated).calibrate(held_out, method=3)
    with pytest.raises(ParameterError, match="calibration of Tagger"):
        Tagger(OneVsAll(), calibration="isotone").fit(["a"], [["b"]])
    with pytest.raises(DataError, match="none of the corpus's labels"):
        fresh(uncalibrated).calibrate(["a text"], [["another"]])
    with pytest.raises(ParameterError, match="must be fitted without"):
        uncalibrated.classifier_.rank_held_out(None, np.arange(1), 1)


def test_promises_hold_at_every_depth(shop):
    """What is promised at ranks 6-10, 11-20 and 21-100 is what is found, to a third."""
    tagger = systems.create("knn").fit(shop[:5_000].corpus)
    test = shop[8_000:].corpus
    ranking = tagger.rank(test, 120)
    hit = hits(ranking, test.aligned(tagger.labels).targets)
    for low, high in ((5, 10), (10, 20), (20, 100)):
        assert 0.67 < ranking.scores[:, low:high].sum() / hit[:, low:high].sum() < 1.5
    assert (ranking.scores[:, 100:] <= ranking.scores[:, 99:100]).all()
    assert tagger.calibration_.k == 100


def test_held_out_texts_are_seen_as_new_ones_are():
    """Words of a held-out text alone weigh nothing, as the unknown words of a new text do."""
    texts = [f"red dress only{i}" for i in range(60)] + [f"blue jeans other{i}" for i in range(60)]
    names = [["dress"]] * 60 + [["jeans"]] * 60
    for made in (Tagger(NearestNeighbours()), Tagger(Noting())):
        SEEN.clear()
        with patch.object(NearestNeighbours, "_rank", _noting(NearestNeighbours._rank)):
            made.fit(texts, names)
        known = {"red", "dress", "blue", "jeans"}
        columns = made.features_.terms_.to_pylist()
        rows = next(rows for rows in SEEN if rows.shape[0] > 1)
        assert {columns[i] for i in np.unique(rows.indices)} <= known
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
        np.testing.assert_allclose(lengths, 1, rtol=1e-5)


SEEN: list[csr_matrix] = []


def _noting(rank):
    def noted(self, X, *more):
        SEEN.append(X)
        return rank(self, X, *more)

    return noted


class Noting(Counting):
    """Notes the rows that it ranks."""

    def rank(self, X, k):
        SEEN.append(X)
        return super().rank(X, k)


def test_the_share_of_texts_without_known_labels_is_held_out():
    targets = csr_matrix(
        (np.ones(1000), (np.arange(1000), np.r_[np.arange(300) + 5, np.arange(700) % 5]))
    )
    order = in_random_order(targets, seed=3)
    assert sorted(order) == list(range(1000))
    for part in (order[:50], order[:100], order[400:500]):
        assert abs((part < 300).mean() - 0.3) < 0.03
    empty = csr_matrix((1000, 4))  # texts without any label at all
    assert sorted(in_random_order(empty, 0)) == list(range(1000))


@pytest.mark.parametrize("system", ["dismec", "knn", "plt"])
def test_a_text_of_unknown_words_is_promised_no_more_than_the_share(system):
    texts = [f"red dress {i % 7}" for i in range(80)] + [f"blue jeans {i % 9}" for i in range(40)]
    tagger = systems.create(system).fit(texts, [["dress"]] * 80 + [["jeans"]] * 40)
    for text in ("qwertz", ""):
        shares = {"dress": 80 / 120, "jeans": 40 / 120}
        assert tagger.tag(text) == []
        [tags] = tagger.rank([text]).tags()
        assert all(tag.probability <= shares[tag.label] + 1e-6 for tag in tags)
    assert tagger.tag("red dress")[0].probability > 0.8
    both = tagger.rank(["qwertz", "red dress"], 2)
    np.testing.assert_array_equal(both.scores[1], tagger.rank(["red dress"], 2).scores[0])


def test_labels_that_come_later_bring_their_frequency():
    texts = [f"red dress {i % 7}" for i in range(80)]
    tagger = systems.create("knn").fit(texts, [["dress"]] * 80)
    tagger.partial_fit(["blue red jeans"] * 30, [["jeans"]] * 30)
    assert (
        tagger.calibration_.levels_.tolist()
        == Joint()
        .fit(
            *[tagger.rank(texts[:1], 2), csr_matrix([[1.0, 0.0]])], label_counts=np.array([80, 30])
        )
        .levels_.tolist()
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", ["xr-linear", "knn"])
def test_on_a_real_corpus(shared_data, system):
    train, test = (megalabel.read(shared_data / "eurlex-4k", part) for part in ("train", "test"))
    held_out = np.arange(len(train)) % 5 == 0
    tagger = systems.create(system, calibration=None).fit(train[~held_out])
    before = tagger.evaluate(test)
    raw = evaluate(tagger.rank(test, 5), test, probabilities=True)["ECE@5"]
    after = tagger.calibrate(train[held_out]).evaluate(test)
    for k in (1, 3, 5):
        assert after[f"P@{k}"] == before[f"P@{k}"]
    assert after["ECE@5"] < raw / (5 if raw > 0.1 else 2)
