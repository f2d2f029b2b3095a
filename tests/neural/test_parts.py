"""What answers once a neural classifier is trained: features, and a ranker without torch."""

from __future__ import annotations

import json

import numpy as np
import pytest

import megalabel
from megalabel import store
from megalabel.base import Component, clone
from megalabel.errors import StoreError
from megalabel.features import BagEmbedding, Concat, Each, OnnxTokens, Precomputed, Tfidf
from megalabel.linear import OneVsAll
from megalabel.neural import (
    AttentionClassifier,
    BagEncoder,
    CascadeClassifier,
    ConvolutionalEncoder,
    Embedding,
    FullClassifier,
    PretrainedEncoder,
    RecurrentEncoder,
    RecursiveClassifier,
    StagedClassifier,
    TextViews,
    Tokenizer,
    Trainer,
    encoder_of,
)
from megalabel.rankers import AttentionTree, DenseTree, Ensemble, NearestLabels
from megalabel.tagger import Tagger

TRAINER = Trainer(steps=3, batch=32, device="cpu")
BAG = BagEncoder(width=8)
CONVOLUTIONS = ConvolutionalEncoder(width=12, length=8, token_width=16, filters=4)
RECURRENT = RecurrentEncoder(token_width=8, size=6)
TREE = {"clustered_above": 4, "max_leaf": 2, "arity": 2, "levels": 2, "beam": 2}
CLUSTERS = {"resolutions": [2, 4], "beam": 2}

CASES = {
    "full": (FullClassifier, "tokens", {}, Embedding, DenseTree),
    "full, narrow": (FullClassifier, "tokens", {"bottleneck": 4}, Embedding, DenseTree),
    "full, words": (FullClassifier, "words", {"bottleneck": 4}, BagEmbedding, DenseTree),
    "staged": (StagedClassifier, "words", {"shortlist": 3}, BagEmbedding, NearestLabels),
    "staged, tokens": (StagedClassifier, "tokens", {}, Embedding, NearestLabels),
    "cascade": (CascadeClassifier, "views", CLUSTERS, Concat, OneVsAll),
    "network": (CascadeClassifier, "views", CLUSTERS | {"ranker": "network"}, Embedding, DenseTree),
    "network, vector": (
        CascadeClassifier,
        "views",
        CLUSTERS | {"ranker": "network", "layers": "vector"},
        Embedding,
        DenseTree,
    ),
    "recursive": (RecursiveClassifier, "views", {"min_clusters": 2}, Concat, OneVsAll),
    "attention": (AttentionClassifier, "states", {"hidden": [4]}, OnnxTokens, AttentionTree),
    "attention, tree": (
        AttentionClassifier,
        "states",
        {"hidden": [4], **TREE},
        OnnxTokens,
        AttentionTree,
    ),
}


@pytest.fixture
def encoders(tiny_model):
    return {
        "tokens": CONVOLUTIONS,
        "words": BAG,
        "views": PretrainedEncoder(tiny_model),
        "states": RECURRENT,
    }


def rows_and_features(reads, text_views, views):
    if reads == "views":
        return views, text_views
    if reads == "words":
        return views.words, text_views.words_
    return views.tokens, text_views.tokens_


@pytest.mark.parametrize("case", CASES)
def test_parts_answer_as_the_classifier_does(case, encoders, corpus, text_views, views, tmp_path):
    kind, reads, options, features_kind, ranker_kind = CASES[case]
    rows, fitted = rows_and_features(reads, text_views, views)
    made = kind(encoders[reads], TRAINER, **options)
    made.fit(rows, corpus.targets, corpus.labels)
    features, ranker = made.parts(fitted)
    assert (type(features), type(ranker)) == (features_kind, ranker_kind)
    assert not type(ranker).__module__.startswith("megalabel.neural")
    expected, found = made.rank(rows, 5), ranker.rank(features.transform(corpus), 5)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)
    for name, part in (("features", features), ("ranker", ranker)):
        store.save(part, tmp_path / name)
    again, loaded = (store.load(tmp_path / name) for name in ("features", "ranker"))
    answer = loaded.rank(again.transform(corpus), 5)
    np.testing.assert_array_equal(answer.ids, found.ids)
    np.testing.assert_array_equal(answer.scores, found.scores)


def test_classifiers_that_need_no_torch_are_their_own_parts(corpus):
    features = Tfidf()
    X = features.fit_transform(corpus)
    linear = OneVsAll().fit(X, corpus.targets)
    assert linear.parts(features) == (features, linear)
    several = Ensemble(OneVsAll(), models=2).fit(X, corpus.targets)
    assert several.parts(features) == (features, several)
    assert several.onnx_twin(False).rank(X, 3).ids.shape == (300, 3)


def test_each_model_of_an_ensemble_has_its_own_features(corpus):
    words = Tfidf()
    X = words.fit_transform(corpus)
    several = Ensemble(StagedClassifier(BAG, TRAINER), models=2).fit(X, corpus.targets)
    features, ranker = several.parts(words)
    assert isinstance(features, Each)
    assert [type(member) for member in ranker.members_] == [NearestLabels] * 2
    first, second = several.rank(X, 3), ranker.rank(features.transform(corpus), 3)
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_allclose(first.scores, second.scores, atol=1e-6)


def test_a_tagger_holds_what_answers_and_what_trains(corpus, tmp_path):
    tagger = Tagger(FullClassifier(CONVOLUTIONS, TRAINER), Tokenizer(max_length=16)).fit(corpus)
    assert isinstance(tagger.features_, Embedding)
    assert isinstance(tagger.classifier_, DenseTree)
    assert isinstance(tagger.classifier, FullClassifier)
    before = tagger.rank(corpus, 3)
    encoder, tokenizer = encoder_of(tagger)
    assert encoder.fitted
    assert tokenizer.max_length == 16
    tagger.save(tmp_path / "model")
    files = store.about(tmp_path / "model")["files"]
    assert not [name for name in files if name.startswith(("features.", "classifier."))]
    loaded = megalabel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.rank(corpus, 3).scores, before.scores)
    for again in (clone(tagger), tagger, loaded):  # what trains is there, and nothing of it learned
        assert not again.classifier.fitted
        again.fit(corpus)
        np.testing.assert_array_equal(again.rank(corpus, 3).scores, before.scores)


def test_held_out_texts_are_ranked_by_what_answers(corpus, monkeypatch):
    ranked = []
    rank = DenseTree.rank

    def watched(self, X, k):
        ranked.append(len(X))
        return rank(self, X, k)

    monkeypatch.setattr(DenseTree, "rank", watched)
    monkeypatch.setattr(FullClassifier, "rank", lambda *_: pytest.fail("the trained one ranks"))
    tagger = Tagger(FullClassifier(BAG, TRAINER), Tfidf(), refit=False).fit(corpus)
    assert ranked == [30]
    assert tagger.calibration_ is not None


def test_vectors_made_elsewhere_go_through_a_bag(corpus):
    X = Tfidf().fit_transform(corpus)
    vectors = megalabel.Corpus(features=X, targets=corpus.targets, labels=corpus.labels)
    tagger = Tagger(FullClassifier(BAG, TRAINER), calibration=None).fit(vectors)
    assert isinstance(tagger.features_.words_, Precomputed)
    assert tagger.rank(X, 3).ids.shape == (300, 3)


def test_no_trained_classifier_is_kept(corpus, tmp_path, monkeypatch):
    X = Tfidf().fit_transform(corpus)
    made = FullClassifier(BAG, TRAINER).fit(X, corpus.targets)
    store.save(made, tmp_path / "classifier")
    assert json.loads((tmp_path / "classifier" / "megalabel.json").read_text())["files"] == {}
    assert not store.load(tmp_path / "classifier").fitted
    # what a folder brings of one all the same is refused
    monkeypatch.setattr(FullClassifier, "learned", Component.learned)
    store.save(made, tmp_path / "classifier")
    with pytest.raises(StoreError, match="FullClassifier keeps no "):
        store.load(tmp_path / "classifier")


def test_a_tagger_of_a_classifier_that_has_only_parameters_is_refused(corpus, tmp_path):
    tagger = Tagger(OneVsAll(), Tfidf(), None).fit(corpus)
    tagger.classifier_ = FullClassifier(BAG, TRAINER)
    store.save(tagger, tmp_path / "model")
    with pytest.raises(StoreError, match="classifier_ of Tagger must be a fitted FullClassifier"):
        store.load(tmp_path / "model")


def test_a_linear_ranker_explains_and_is_pruned(encoders, corpus):
    features = TextViews(Tfidf(), Tokenizer(encoders["views"].source, max_length=16))
    classifier = CascadeClassifier(encoders["views"], TRAINER, "one-vs-all")
    tagger = Tagger(classifier, features, calibration=None).fit(corpus)
    [reason] = tagger.explain("red evening gown", "red", words=50).reasons
    shares = {word.text: word.share for word in reason.evidence}
    assert shares["red"] > 0
    assert "(vector)" in shares
    assert sum(shares.values()) + reason.bias == pytest.approx(reason.share)
    smaller = tagger.prune(max_per_label=2)
    counts = np.diff(smaller.classifier_.weights_.to_csr().indptr)
    assert counts.max() <= 3  # with the bias
    assert smaller.rank(corpus, 3).ids.shape == (300, 3)
