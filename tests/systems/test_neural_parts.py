from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from megalabel import Tagger, systems
from megalabel.errors import ParameterError
from megalabel.features import Tfidf
from megalabel.neural import AssembledEncoder, BagEncoder, Tokenizer
from megalabel.systems import neural_parts


@pytest.mark.parametrize("name", ["xr-transformer", "cascadexml", "lightxml"])
def test_several_models(name, tiny_model, corpus, tmp_path):
    several = systems.create(
        name,
        encoder=tiny_model,
        max_length=16,
        device="cpu",
        models=2,
        calibrate=False,
        classifier__model__trainer__steps=2,
    )
    texts = corpus[:60]
    several.fit(texts)
    assert len(several.classifier_.members_) == 2
    several.save(tmp_path / "model")
    first, second = several.rank(corpus, 5), Tagger.load(tmp_path / "model").rank(corpus, 5)
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)
    plan = systems.get(name).plan(several, texts)
    assert plan.fits
    assert plan.disk > 0


def test_an_encoder_by_name():
    bag = systems.create("renee", encoder="bag")
    assert isinstance(bag.classifier.encoder, BagEncoder)
    assert isinstance(bag.features, Tfidf)
    for default in (systems.create("renee"), systems.create("renee", encoder="assembled")):
        assert isinstance(default.classifier.encoder, AssembledEncoder)
        assert default.classifier.encoder.pretrain_epochs == 0
        assert isinstance(default.features, Tokenizer)


def test_renee_moves_a_trained_model_less_than_what_learns_from_scratch(tiny_model):
    rates = [
        systems.create("renee", encoder=encoder).classifier.trainer.learning_rate
        for encoder in (tiny_model, "assembled", "bag")
    ]
    assert rates == [1e-4, 2e-3, 2e-3]
    chosen = systems.create("renee", encoder="bag", learning_rate=0.01)
    assert chosen.classifier.trainer.learning_rate == 0.01


def test_renee_over_a_bag_of_words(corpus, one_thread, tmp_path):
    own = {"device": "cpu", "epochs": 6, "calibrate": False, "classifier__encoder__width": 16}
    tagger = systems.create("renee", encoder="bag", learning_rate=0.05, **own).fit(corpus)
    assert tagger.evaluate(corpus)["P@1"] > 0.9
    tagger.save(tmp_path / "model")
    first, second = (made.rank(corpus, 3) for made in (tagger, Tagger.load(tmp_path / "model")))
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)


@pytest.mark.parametrize("name", ["xr-transformer", "cascadexml", "lightxml", "attentionxml"])
@pytest.mark.parametrize("encoder", ["bag", BagEncoder(width=8)])
def test_an_encoder_of_words_is_refused_where_tokens_are_read(name, encoder):
    with pytest.raises(ParameterError, match=r"BagEncoder reads words.* encoder that reads tokens"):
        systems.create(name, encoder=encoder)


@pytest.mark.parametrize("name", ["astec", "xr-transformer"])
def test_a_gpu_that_is_not_there_is_told_before_features_are_made(
    name, create, corpus, monkeypatch
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(Tfidf, "fit_transform", lambda *_: pytest.fail("features were made"))
    with pytest.raises(ParameterError, match="device='cuda'"):
        create(name, device="cuda").fit(corpus)


def test_groups_of_labels_in_lightxml(create, corpus):
    made = create("lightxml", grouped_above=5, group_size=2, groups=2, bottleneck=8)
    fitted = made.fit(corpus)
    assert fitted.classifier_.tree_.level_sizes == [4, 10]
    assert [w.shape for w in fitted.classifier_.weights_] == [(4, 3 * 32), (10, 8)]
    first, second = fitted.features_.levels_
    assert first["weight"] is None
    assert second["weight"].shape == (8, 3 * 32)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("lightxml", {"grouped_above": 5, "group_size": 2, "groups": 2, "bottleneck": 8}),
        ("attentionxml", {}),
        ("attentionxml", {"clustered_above": 3, "levels": 2, "max_leaf": 2, "beam": 2}),
        ("astec", {}),
        ("inceptionxml", {}),
        ("inceptionxml", {"clusters": 4, "beam": 2}),
        ("xr-transformer", {}),
        ("cascadexml", {}),
    ],
)
def test_in_half_precision_as_on_a_gpu(name, more, create, corpus):
    made = create(name, calibrate=False, classifier__trainer__precision="bf16", **more)
    ranking = made.fit(corpus).rank(corpus, 3)
    assert np.isfinite(ranking.scores).all()
    assert ranking.present.all()


@pytest.mark.parametrize("name", ["xr-transformer", "astec"])
def test_a_plan_takes_few_steps_and_foresees_them_all(name, create, corpus, monkeypatch):
    made = create(name, classifier__trainer__steps=None, classifier__trainer__epochs=30)
    tried = []
    fit = Tagger.fit_prepared

    def counted(self, prepared, texts):
        tried.append((len(texts), self.classifier.trainer.steps))
        return fit(self, prepared, texts)

    monkeypatch.setattr(Tagger, "fit_prepared", counted)
    plan = systems.get(name).plan(made, corpus)
    batch = made.classifier.trainer.batch_of(len(corpus))
    assert tried[:2] == [(batch, 2)] * 2
    assert all(texts <= len(corpus) and steps == 1 + -(-texts // batch) for texts, steps in tried)
    assert plan.seconds > 0


def test_a_plan_tries_batches_of_all_lengths(create, corpus):
    job = neural_parts._Trials(create("astec"), corpus)
    words = np.diff(job._vectors.indptr)
    longest = words[job.order[-job.batch :]]
    assert longest.min() >= np.delete(words, job.order[-job.batch :]).max()
    assert sorted(job.spread(job.batches)) == list(range(len(corpus)))
    middle = job.spread(1)
    assert len(middle) == job.batch
    below = (words < words[middle].min()).sum()
    above = (words > words[middle].max()).sum()
    assert max(below, above) < 0.6 * len(corpus)


@pytest.mark.parametrize(
    ("fewer", "more", "expected"),
    [
        ((10, 1.0), (20, 2.0), 10.0),  # in proportion
        ((10, 1.0), (20, 1.5), 5.5),  # on a line
        ((10, 2.0), (20, 1.5), 1.5),  # nothing grows
        ((10, 1.0), (20, 5.0), 25.0),  # never steeper than in proportion
        ((10, 1.0), (10, 1.0), 1.0),
    ],
)
def test_what_a_plan_makes_of_two_trials(fewer, more, expected):
    assert neural_parts._Trials.line(*fewer, *more, 100) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fewer", "more", "expected"),
    [
        ((100, 10.0), (400, 20.0), 20 * 4**0.5),  # the root of the texts
        ((100, 10.0), (400, 80.0), 80 * 4**0.8),  # never much more of it with more texts
        ((100, 10.0), (400, 9.0), 9.0),  # nothing grows
        ((400, 0.0), (400, 0.0), 0.0),  # there is no ranker
    ],
)
def test_the_size_of_a_ranker_is_a_power_of_the_texts(fewer, more, expected, create, corpus):
    job = neural_parts._Trials(create("astec"), corpus)
    job._whole = 1600
    assert job.power(*fewer, *more) == pytest.approx(expected)


def test_systems_that_train_an_encoder_say_so():
    neural = {name for name in systems.names() if systems.get(name).neural}
    assert {"astec", "attentionxml", "dst", "haste", "inceptionxml", "renee", "unidec"} <= neural
    assert not {"auto", "knn", "lexical", "mix", "xr-linear", "zeroshot"} & neural


def test_labels_of_few_features_see_most_of_them_in_training():
    for system in ("dst", "haste", "spartex"):
        classifier = systems.create(system, encoder="bag").classifier
        assert (
            classifier.encoder.dropout
            < systems.create("renee", encoder="bag").classifier.encoder.dropout
        )
        assert classifier.trainer.head_learning_rate == 0.05
        own = systems.create(system, encoder=BagEncoder(dropout=0.4)).classifier
        assert own.encoder.dropout == 0.4


def test_labels_of_long_vectors_learn_slowly():
    own = systems.create("dst", encoder="vectors").classifier.trainer
    assert own.head_learning_rate == 0.01
    chosen = systems.create("dst", encoder="vectors", head_learning_rate=0.03).classifier.trainer
    assert chosen.head_learning_rate == 0.03
