"""FrozenEncoder: a map over the vectors of a model, which reads each text once."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.special import erf
from tests.tiny_static import write_model2vec

from megalabel import Corpus, Tagger, store, systems
from megalabel.base import clone
from megalabel.errors import DataError, ParameterError, ShapeError, StoreError
from megalabel.exporting import without_torch
from megalabel.features import Mapped, OnnxEmbedding, Precomputed, StaticEmbedding, Tfidf
from megalabel.neural import (
    Embedding,
    FrozenEncoder,
    FullClassifier,
    StagedClassifier,
    Trainer,
    encoder_of,
    encoding,
)
from megalabel.neural.batches import TextSource, rows_on
from megalabel.neural.encoding import encoded

TRAINER = Trainer(steps=5, batch=16, device="cpu", learning_rate=0.01)
MAPS = {
    "linear": {"activation": None, "residual": False},
    "linear, residual": {"activation": None, "width": 4},
    "relu": {"activation": "relu", "hidden": 5, "residual": False, "width": 12},
    "gelu": {"activation": "gelu"},
    "tanh": {"activation": "tanh", "width": 3},
}


@pytest.fixture
def X(random) -> np.ndarray:
    rows = random.normal(size=(30, 8)).astype(np.float32)
    rows[3] = 0
    return rows


def mapped(x: np.ndarray, arrays: dict[str, np.ndarray], activation: str | None) -> np.ndarray:
    """The map in float64."""
    a = {name: array.astype(np.float64) for name, array in arrays.items()}
    x = x.astype(np.float64)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    x = x / np.where(lengths > 0, lengths, 1) * np.sqrt(x.shape[1])
    seen = x
    if activation is not None:
        z = x @ a["inner"].T + a["inner_bias"]
        seen = {
            "relu": np.maximum(z, 0),
            "gelu": z * (1 + erf(z / np.sqrt(2))) / 2,
            "tanh": np.tanh(z),
        }[activation]
    made = seen @ a["outer"].T + a["bias"]
    return made + x @ a["skip"].T if "skip" in a else made


@pytest.mark.parametrize("name", MAPS)
def test_what_was_trained_is_the_map_that_is_said(name, X):
    encoder = FrozenEncoder(**MAPS[name])
    targets = csr_matrix(np.eye(3, dtype=np.float32)[np.arange(30) % 3])
    classifier = FullClassifier(encoder, TRAINER).fit(X, targets)
    features, _ = classifier.parts(Precomputed(norm=None).fit(X))
    assert isinstance(features, Mapped)
    expected = mapped(X, features.map_, encoder.activation)
    np.testing.assert_allclose(classifier.features(X), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(features.transform(X), expected, rtol=1e-4, atol=1e-5)
    before = encoder.begin(X, seed=0)
    assert (before.arrays()["outer"] != features.map_["outer"]).any()
    assert features.n_features == (encoder.width or 8) == expected.shape[1]
    known = features.known(X, features.transform(X))
    assert np.flatnonzero(~known).tolist() == [3]


def test_it_begins_as_the_vectors(X):
    same = FrozenEncoder().begin(X, seed=0).eval()
    with torch.no_grad():
        found = same(torch.from_numpy(X)).numpy()
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(found, X * 8**0.5 / np.where(lengths > 0, lengths, 1), atol=1e-5)
    narrow = FrozenEncoder(width=5).begin(X, seed=0).arrays()["skip"].astype(np.float64)
    np.testing.assert_allclose(narrow @ narrow.T, np.eye(5), atol=1e-6)


def test_the_seed_fixes_it_and_a_saved_one_is_the_same(X, tmp_path):
    encoder = FrozenEncoder(width=3, activation="tanh")
    module = encoder.begin(X, seed=4)
    other = encoder.begin(X, seed=4)
    for name, array in module.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name])
    encoder.keep(module)
    store.save(encoder, tmp_path / "model")
    loaded = store.load(tmp_path / "model")
    for name, array in module.arrays().items():
        np.testing.assert_array_equal(array, loaded.module().arrays()[name])
    # what was learned is where the next training starts
    np.testing.assert_array_equal(
        clone(loaded).begin(X, seed=9).arrays()["inner"], module.arrays()["inner"]
    )


def test_rows_of_an_array_are_what_it_reads(X):
    rows = rows_on(X, np.array([2, 0]), torch.device("cpu"))
    np.testing.assert_array_equal(rows.numpy(), X[[2, 0]])
    source = TextSource(X, csr_matrix((30, 2), dtype=np.float32))
    assert sorted(np.concatenate(source.order(0, 8, 0))) == list(range(30))
    module = FrozenEncoder().begin(X, seed=0)
    assert encoded(module, X, TRAINER).shape == (30, 8)


@pytest.mark.parametrize("kind", [FullClassifier, StagedClassifier])
def test_other_rows_are_refused(kind, X):
    targets = csr_matrix(np.eye(3, dtype=np.float32)[np.arange(30) % 3])
    with pytest.raises(DataError, match="reads an array of vectors, not csr_matrix"):
        kind(FrozenEncoder(), TRAINER).fit(csr_matrix(X), targets)
    fitted = kind(FrozenEncoder(), TRAINER).fit(X, targets)
    with pytest.raises(ShapeError, match="7"):
        fitted.rank(X[:, :7], 2)
    with pytest.raises(ShapeError, match="vectors of 8, not 7"):
        fitted.encoder_.begin(X[:, :7], seed=0)


def test_it_has_no_states_of_tokens(X):
    module = FrozenEncoder().begin(X, seed=0)
    with pytest.raises(ParameterError, match="no states of single tokens"):
        module.hidden(torch.from_numpy(X))
    with pytest.raises(ParameterError, match="no vectors of single tokens"):
        _ = module.table


def test_a_tampered_map_is_refused(X, tmp_path):
    encoder = FrozenEncoder(width=4)
    encoder.keep(encoder.begin(X, seed=0))
    features = encoder.with_features(Precomputed().fit(X), [])
    learned = features.learned()
    for name, change in {
        "map_.*must hold": {"inner": None},
        r"'outer'\] of Mapped": {"outer": np.zeros((4, 3), np.float32)},
        r"'skip'\] of Mapped": {"skip": np.zeros((5, 8), np.float32)},
        "must hold": {"more": np.zeros(3, np.float32)},
    }.items():
        arrays = {k: v for k, v in (learned["map_"] | change).items() if v is not None}
        with pytest.raises(ValueError, match=name):
            features.restore(learned | {"map_": arrays})
    encoder.about_["columns"] = 0
    store.save(encoder, tmp_path / "model")
    with pytest.raises(StoreError, match="number of columns"):
        store.load(tmp_path / "model")


class TestOverAModel:
    @pytest.fixture
    def read(self, monkeypatch) -> list[int]:
        """How many tokens long each text was that a model has encoded."""
        lengths: list[int] = []
        before = encoding.encoded

        def counted(module, tokens, trainer, **more):
            lengths.extend(tokens.lengths)
            return before(module, tokens, trainer, **more)

        monkeypatch.setattr("megalabel.neural.embedding.encoded", counted)
        return lengths

    @pytest.fixture
    def small(self, corpus) -> Corpus:
        return corpus[:60]

    def tagger(self, source, system="renee", **parameters) -> Tagger:
        encoder = FrozenEncoder(source, width=6, **parameters)
        made = systems.create(system, encoder=encoder, max_length=16, device="cpu", calibrate=False)
        return made.set_params(classifier__trainer__steps=4)

    @pytest.mark.parametrize("system", ["renee", "astec"])
    def test_a_trained_tagger_is_saved_and_needs_no_model(
        self, system, small, tiny_model, tmp_path, read
    ):
        fitted = self.tagger(tiny_model, system).fit(small)
        assert len(read) == len(small)
        assert isinstance(fitted.features_, Mapped)
        fitted.save(tmp_path / "model")
        assert '"cache"' not in (tmp_path / "model" / "megalabel.json").read_text()
        loaded = Tagger.load(tmp_path / "model")
        with pytest.raises(ParameterError, match="Mapped has no encoder of tokens"):
            encoder_of(loaded)  # it is not what was trained
        np.testing.assert_allclose(
            loaded.rank(small, 3).scores, fitted.rank(small, 3).scores, atol=1e-6
        )

    def test_texts_are_read_once_by_all_fits_that_share_a_folder(
        self, small, tiny_model, tmp_path, read
    ):
        first = self.tagger(tiny_model, cache=str(tmp_path)).fit(small)
        distinct = len(set(small.texts.to_pylist()))
        assert len(read) == distinct
        more = self.tagger(tiny_model, cache=str(tmp_path), activation="relu").fit(small)
        more.rank(small, 2)
        assert len(read) == distinct
        again = self.tagger(tiny_model, cache=str(tmp_path)).fit(small)
        np.testing.assert_array_equal(first.rank(small, 2).scores, again.rank(small, 2).scores)

    def test_without_torch(self, small, tiny_model, tmp_path):
        pytest.importorskip("onnxruntime")
        fitted = self.tagger(tiny_model)
        fitted.set_params(features__precision="float32").fit(small)
        served = without_torch(fitted, texts=small)
        assert isinstance(served.features_.vectors_, OnnxEmbedding)
        assert served.provenance_["without_torch"]["difference"] < 1e-3
        # an exported encoder will do as well, as the folder that `export_onnx` writes
        exported = served.features_.vectors_
        exported.model_.tofile(tmp_path / "model.onnx")
        (tmp_path / "tokenizer.json").write_text(exported.tokenizer_)
        (tmp_path / "config.json").write_text(json.dumps(exported.about_))
        made = self.tagger(str(tmp_path), cache=str(tmp_path / "kept"))
        again = made.fit(small).features_
        assert isinstance(again.vectors_, OnnxEmbedding)
        np.testing.assert_array_equal(again.vectors_.transform(small), exported.transform(small))
        assert list((tmp_path / "kept").rglob("*.safetensors"))

    @pytest.mark.parametrize("system", ["unidec", "ngame"])
    def test_dual_encoders_learn_over_it(self, system, small, tiny_model, tmp_path):
        fitted = self.tagger(tiny_model, system).fit(small)
        fitted.save(tmp_path / "model")
        loaded = Tagger.load(tmp_path / "model")
        np.testing.assert_allclose(
            loaded.rank(small, 3).scores, fitted.rank(small, 3).scores, atol=1e-6
        )
        with pytest.raises(ParameterError, match="reads vectors, and a ranker reads words"):
            systems.create(system, encoder=FrozenEncoder(tiny_model), ranker="trees")

    def test_static_vectors_will_do(self, small, tmp_path, random):
        words = ["begin", *sorted({w for t in small.texts.to_pylist() for w in t.lower().split()})]
        table = random.normal(size=(len(words) + 2, 5)).astype(np.float32)
        folder = write_model2vec(tmp_path, words, {"embeddings": table})
        fitted = self.tagger(folder).fit(small)
        assert isinstance(fitted.features_.vectors_, StaticEmbedding)

    def test_by_name(self, tiny_model):
        made = systems.create("renee", encoder=f"frozen:{tiny_model}")
        assert isinstance(made.classifier.encoder, FrozenEncoder)
        assert made.features.source == tiny_model

    def test_label_texts_are_vectors_of_the_same_model(self, small, tiny_model):
        made = self.tagger(tiny_model)
        prepared = made.prepare(small)
        rows = prepared.examples.label_rows
        assert rows.shape == (len(small.labels), 32)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)

    def test_a_plan_encodes_few_texts(self, small, tiny_model, read):
        assert systems.get("renee").plan(self.tagger(tiny_model), small).seconds > 0
        assert len(read) < 4 * len(small)

    def test_bf16_hardly_changes_vectors(self, small, tiny_model):
        exact, quick = (
            Embedding(tiny_model, precision=precision).fit_transform(small)
            for precision in ("float32", "bf16")
        )
        assert (exact * quick).sum(1).min() > 0.999
        fastest = Embedding(tiny_model, precision="fastest", device="cpu").fit_transform(small)
        wanted = quick if encoding.computes_in_bf16(torch.device("cpu")) else exact
        np.testing.assert_array_equal(fastest, wanted)


def test_words_are_no_vectors(corpus):
    with pytest.raises(DataError, match="reads an array of vectors"):
        Tagger(FullClassifier(FrozenEncoder(), TRAINER), Tfidf(), None).fit(corpus)
