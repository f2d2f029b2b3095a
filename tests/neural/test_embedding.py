"""The vectors of encoders as features."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import megalabel
from megalabel import store
from megalabel.base import clone
from megalabel.errors import DataError, NotFittedError, ParameterError
from megalabel.features import Concat, OnnxEmbedding, Tfidf
from megalabel.linear import OneVsAll
from megalabel.neural import Embedding
from megalabel.tagger import Tagger

TEXTS = ["red dress", "blue jeans with rivets", "", "a kettle"]


def test_the_name_is_there_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from megalabel import features, errors\n"
        "try: from megalabel.neural import Embedding\n"
        "except errors.MissingExtraError as error: print(error)\n"
        "try: features.OnnxEmbedding('x').fit([])\n"
        "except errors.DataError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "megalabel[neural]" in done.stdout
    assert "x is not an exported encoder: it has no model.onnx" in done.stdout


def test_an_exported_folder_must_be_whole(tmp_path):
    for name in ("model.onnx", "config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{")
    with pytest.raises(DataError, match=r"config\.json: cannot be read"):
        OnnxEmbedding(str(tmp_path)).fit()
    (tmp_path / "config.json").write_text('{"width": 3, "pad": 0}')
    pytest.importorskip("onnxruntime", reason="the extra onnx")
    pytest.importorskip("tokenizers", reason="the extra onnx")
    with pytest.raises(ValueError, match="cannot be opened"):
        OnnxEmbedding(str(tmp_path)).fit()


class TestEmbedding:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch", reason="the neural room needs torch")

    def test_rows_have_length_one(self, tiny_model):
        embedding = Embedding(tiny_model).fit(TEXTS)
        vectors = embedding.transform(TEXTS)
        assert vectors.shape == (4, embedding.n_features) == (4, 32)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)

    def test_a_text_alone_has_the_same_vector(self, tiny_model):
        embedding = Embedding(tiny_model, layers=[-1, -2]).fit([])
        together = embedding.transform(TEXTS)
        alone = np.concatenate([embedding.transform([text]) for text in TEXTS])
        np.testing.assert_allclose(together, alone, atol=1e-5)
        assert embedding.transform([]).shape == (0, 64)

    def test_beside_words_in_a_tagger_that_is_saved(self, tiny_model, corpus, tmp_path):
        features = Concat([Tfidf(), Embedding(tiny_model)])
        tagger = Tagger(OneVsAll(), features=features, calibration=None).fit(corpus)
        assert tagger.features_.n_features == Tfidf().fit(corpus).n_features + 32
        tagger.save(tmp_path / "model")
        loaded = megalabel.load(tmp_path / "model")
        texts = corpus.texts[:5]
        assert loaded.tag(texts, k=2) == tagger.tag(texts, k=2)
        sizes = [file.stat().st_size for file in (tmp_path / "model").iterdir()]
        weights = sum(v.nbytes for v in tagger.features_.parts_[1].encoder_.weights_.values())
        assert sum(sizes) < 1.9 * weights + 500_000  # the encoder is there once

    def test_of_an_encoder_trained_elsewhere(self, corpus, tmp_path):
        from megalabel.neural import AssembledEncoder, Tokenizer, Trainer, pretrain

        tokenizer = Tokenizer().fit(corpus)
        encoder = AssembledEncoder(width=16, layers=1, heads=2)
        encoder = pretrain(encoder, tokenizer.transform(corpus), trainer=Trainer(epochs=1))
        embedding = Embedding.of(encoder, tokenizer)
        expected = embedding.transform(TEXTS)
        both = Concat([Tfidf(), embedding]).fit(corpus)
        store.save(both, tmp_path / "features")
        loaded = store.load(tmp_path / "features")
        np.testing.assert_array_equal(loaded.parts_[1].transform(TEXTS), expected)
        np.testing.assert_array_equal(clone(embedding).fit([]).transform(TEXTS), expected)

    def test_of_a_saved_tagger(self, corpus, tmp_path):
        from megalabel.neural import AssembledEncoder, Tokenizer

        linear = Tagger(OneVsAll(), calibration=None).fit(corpus)
        linear.save(tmp_path / "linear")
        with pytest.raises(ParameterError, match="Tfidf has no encoder"):
            Embedding(str(tmp_path / "linear")).fit([])
        tokenizer = Tokenizer().fit(corpus)
        encoder = AssembledEncoder(width=16, layers=1, heads=2, pretrain_epochs=0)
        encoder.keep(encoder.begin(tokenizer.transform(corpus), seed=0))
        unit = Embedding.of(encoder, tokenizer)
        beside = Tagger(OneVsAll(), Concat([Tfidf(), unit]), calibration=None).fit(corpus)
        beside.save(tmp_path / "neural")
        embedding = Embedding(str(tmp_path / "neural")).fit([])
        expected = unit.transform(TEXTS)
        np.testing.assert_array_equal(embedding.transform(TEXTS), expected)

    def test_errors(self, tmp_path):
        with pytest.raises(ParameterError, match="needs a source"):
            Embedding().fit([])
        with pytest.raises(NotFittedError):
            Embedding("x").transform(TEXTS)
        with pytest.raises(DataError, match="not a folder"):
            Embedding(str(tmp_path / "none")).fit([])

    def test_levels_that_do_not_fit_are_not_restored(self, tiny_model):
        embedding = Embedding(tiny_model).fit([])
        level = {"layers": [1, 3], "weight": np.ones((4, 64), np.float32), "bias": None}
        seen = Embedding.of(embedding.encoder_, embedding.tokenizer_, levels=[level], pooling="max")
        assert seen.transform(TEXTS).shape == (4, seen.n_features) == (4, 4)
        for change in (
            {"layers": [4]},
            {"layers": [True]},
            {"layers": [1]},
            {"weight": np.ones((4, 64))},
            {"weight": None, "bias": np.ones(4, np.float32)},
            {"bias": np.ones(3, np.float32)},
        ):
            with pytest.raises(ValueError, match=r"levels_ .*of Embedding|layers 0 to 3"):
                Embedding().restore(seen.learned() | {"levels_": [level | change]})
        for bad in (None, 3, [3], [{}]):
            with pytest.raises(ValueError, match=r"levels_.* of Embedding"):
                Embedding().restore(seen.learned() | {"levels_": bad})
