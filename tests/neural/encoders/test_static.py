"""StaticEncoder: word vectors of others, trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from tests.tiny_static import write_model2vec, write_sentence_transformers

from megalabel import Tagger, store, systems
from megalabel.errors import ParameterError, StoreError
from megalabel.features import StaticEmbedding
from megalabel.neural import Embedding, FullClassifier, StaticEncoder, Tokenizer, Trainer
from megalabel.neural.batches import rows_on

CPU = torch.device("cpu")
WORDS = ["begin", "red", "blue", "dress", "jeans"]
TEXTS = ["Red dress", "blue unheard jeans jeans", "unheard", "", "dress red"]


@pytest.fixture
def table(random) -> np.ndarray:
    return random.normal(size=(7, 6)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, table) -> str:
    return write_model2vec(tmp_path / "words", WORDS, {"embeddings": table})


def vectors(module, X) -> np.ndarray:
    module.eval()
    with torch.no_grad():
        return module(rows_on(X, np.arange(len(X)), CPU)).numpy()


def test_vectors_are_means_of_a_texts_words(folder, table):
    tokens = Tokenizer(folder).fit_transform(TEXTS)
    assert tokens.lengths.tolist() == [2, 4, 1, 0, 2]  # nothing is put before or after
    found = vectors(StaticEncoder(folder, norm=None).begin(tokens, seed=0), tokens)
    t = table.astype(np.float64)
    sums = [t[3] + t[5], t[4] + 2 * t[6], 0 * t[0], 0 * t[0], t[3] + t[5]]
    expected = np.array(sums) / np.array([[2], [3], [1], [1], [2]])
    filled = [0, 1, 4]
    ratio = found[filled] / expected[filled]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)
    assert not found[[2, 3]].any()
    lengths = np.linalg.norm(vectors(StaticEncoder(folder).begin(tokens, 0), tokens), axis=1)
    np.testing.assert_allclose(lengths[filled], 6**0.5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["l2", None])
@pytest.mark.parametrize("bottleneck", [None, 3])
@pytest.mark.parametrize("write", [write_model2vec, write_sentence_transformers])
def test_what_was_trained_answers_without_torch(tmp_path, table, write, norm, bottleneck):
    arrays = {"embeddings": table} if write is write_model2vec else table[:6]
    folder = write(tmp_path, WORDS, arrays)
    features = Tokenizer(folder).fit(TEXTS)
    tokens = features.transform(TEXTS)
    classifier = FullClassifier(
        StaticEncoder(folder, norm=norm), Trainer(steps=5, device="cpu"), bottleneck=bottleneck
    )
    targets = np.eye(5, 4, dtype=np.float32)
    classifier.fit(tokens, csr_matrix(targets))
    plain, ranker = classifier.parts(features)
    assert isinstance(plain, StaticEmbedding)
    np.testing.assert_allclose(plain.transform(TEXTS), classifier.features(tokens), atol=1e-5)
    np.testing.assert_array_equal(
        ranker.rank(plain.transform(TEXTS), 2).ids, classifier.rank(tokens, 2).ids
    )


def test_training_moves_the_words_that_were_read(folder):
    tokens = Tokenizer(folder).fit_transform(["red dress"] * 4)
    encoder = StaticEncoder(folder)
    before = encoder.begin(tokens, seed=0).words.weight.detach().numpy().copy()
    fitted = FullClassifier(encoder, Trainer(steps=3, device="cpu", learning_rate=0.1)).fit(
        tokens, csr_matrix(np.ones((4, 2), np.float32))
    )
    moved = (fitted.encoder_.weights_["words.weight"] != before).any(1)
    assert np.flatnonzero(moved).tolist() == [3, 5]


def test_a_folder_is_known_by_what_is_in_it(folder, corpus):
    made = systems.create("renee", encoder=folder, device="cpu", calibrate=False)
    assert isinstance(made.classifier.encoder, StaticEncoder)
    fitted = made.set_params(classifier__trainer__steps=2).fit(corpus)
    assert isinstance(fitted.features_, StaticEmbedding)


def test_a_saved_tagger_gives_the_same(folder, tmp_path):
    made = systems.create("renee", encoder=folder, device="cpu", calibrate=False)
    made.set_params(classifier__trainer__steps=2).fit(TEXTS, [["a"], ["b"], ["b"], ["b"], ["a"]])
    made.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.rank(TEXTS, 2).scores, made.rank(TEXTS, 2).scores)


def test_other_tokens_are_refused(folder):
    with pytest.raises(ParameterError, match="has another tokenizer"):
        StaticEncoder(folder).begin(Tokenizer().fit_transform(TEXTS), seed=0)


def test_a_tampered_description_is_refused(folder, tmp_path):
    encoder = StaticEncoder(folder)
    encoder.keep(encoder.begin(Tokenizer(folder).fit_transform(TEXTS), seed=0))
    for key, value in {"tokens": 9, "width": "6", "normalised": 1}.items():
        broken = StaticEncoder(folder)
        broken.about_, broken.weights_ = encoder.about_ | {key: value}, encoder.weights_
        store.save(broken, tmp_path / key)
        with pytest.raises(StoreError, match=r"about_ of StaticEncoder|do not fit"):
            store.load(tmp_path / key)


def test_vectors_of_all_layers_come_from_torch(folder):
    features = Tokenizer(folder).fit(TEXTS)
    encoder = StaticEncoder(folder)
    encoder.keep(encoder.begin(features.transform(TEXTS), seed=0))
    levels = [{"layers": [0], "weight": None, "bias": None}]
    made = encoder.with_features(features, levels, pooling="mean", device="cpu")
    assert isinstance(made, Embedding)
    assert made.transform(TEXTS).shape == (5, 6)
