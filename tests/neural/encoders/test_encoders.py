"""What every encoder must do, and what is known of each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel import Tagger, store, systems  # noqa: E402
from megalabel.base import clone  # noqa: E402
from megalabel.errors import DataError, ParameterError, ShapeError  # noqa: E402
from megalabel.features import Tfidf  # noqa: E402
from megalabel.neural import (  # noqa: E402
    AssembledEncoder,
    BagEncoder,
    ConvolutionalEncoder,
    Embedding,
    PretrainedEncoder,
    RecurrentEncoder,
    StaticEncoder,
    Tokenizer,
    Tokens,
    Trainer,
    encoder_of,
    pretrain,
)
from megalabel.neural.batches import BagBatch, rows_on  # noqa: E402
from megalabel.neural.encoders.bag import ResidualBlock  # noqa: E402
from megalabel.neural.encoders.base import pooled  # noqa: E402
from megalabel.neural.encoders.convolutional import GatedAttention  # noqa: E402
from megalabel.neural.encoders.layers import ENCODERS, rotated  # noqa: E402
from megalabel.neural.encoders.recurrent import BothWays  # noqa: E402

CPU = torch.device("cpu")
EMBEDDINGS = [
    ("word",),
    ("word", "position"),
    ("word", "sinusoidal"),
    ("word", "segment"),
    ("word", "position", "sinusoidal", "segment"),
]
SMALL = {"width": 16, "layers": 2, "heads": 2, "pretrain_epochs": 0}


def static_beside(source: str) -> str:
    """A folder of static vectors for the tokens of a model."""
    folder = Path(source).with_name("static-vectors")
    folder.mkdir(exist_ok=True)
    shutil.copy(Path(source, "tokenizer.json"), folder)
    table = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)
    save_file({"embeddings": table}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "model2vec"}')
    return str(folder)


def made(name: str, source: str):
    return {
        "bag": lambda: BagEncoder(width=12),
        "gated bag": lambda: BagEncoder(width=12, residual="gated", sparse=False),
        "convolutional": lambda: ConvolutionalEncoder(width=12, length=5, token_width=20),
        "recurrent": lambda: RecurrentEncoder(token_width=10, size=6, layers=2),
        "gru": lambda: RecurrentEncoder(token_width=10, size=6, cell="gru", pooling="max"),
        "assembled": lambda: AssembledEncoder(**SMALL),
        "rotary": lambda: AssembledEncoder(
            **SMALL, rotary=True, norm="post", token_width=8, tied=False
        ),
        "pretrained": lambda: PretrainedEncoder(source),
        "static": lambda: StaticEncoder(static_beside(source)),
        "two layers": lambda: PretrainedEncoder(source, layers=[-1, 1], pooling="first"),
    }[name]()


NAMES = [
    "bag",
    "gated bag",
    "convolutional",
    "recurrent",
    "gru",
    "assembled",
    "rotary",
    "pretrained",
    "static",
    "two layers",
]


@pytest.fixture(scope="module")
def texts(corpus) -> list[str]:
    return [*corpus.texts[:30].to_pylist(), "", "red"]


@pytest.fixture(scope="module")
def tokens(texts, tiny_model) -> Tokens:
    return Tokenizer(tiny_model).fit_transform(texts)


@pytest.fixture(scope="module")
def rows(texts, tokens):
    words = Tfidf().fit_transform(texts)
    return lambda encoder: tokens if encoder.reads == "tokens" else words


def outputs(module, X) -> np.ndarray:
    module.eval()
    with torch.no_grad():
        return module(rows_on(X, np.arange(X.shape[0]), CPU)).numpy()


@pytest.mark.parametrize("name", NAMES)
class TestEveryEncoder:
    def test_gives_one_finite_vector_a_row(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        module = encoder.begin(X, seed=0)
        vectors = outputs(module, X)
        assert vectors.shape == (X.shape[0], module.width)
        assert np.isfinite(vectors).all()

    def test_rows_do_not_depend_on_each_other(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        module = encoder.begin(X, seed=0)
        alone = np.concatenate([outputs(module, X[[i]]) for i in range(X.shape[0])])
        np.testing.assert_allclose(outputs(module, X), alone, atol=1e-5)

    def test_the_seed_fixes_it(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        first = outputs(encoder.begin(X, seed=3), X)
        torch.manual_seed(99)
        np.testing.assert_array_equal(first, outputs(encoder.begin(X, seed=3), X))

    def test_building_leaves_the_random_state_alone(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        before = torch.random.get_rng_state()
        encoder.begin(rows(encoder), seed=0)
        assert torch.equal(before, torch.random.get_rng_state())

    def test_a_batch_of_one_row_trains(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        module = encoder.begin(X, seed=0)
        assert module.training
        module(rows_on(X, np.array([0]), CPU)).square().sum().backward()
        assert all(
            p.grad is None or torch.isfinite(p.grad.to_dense()).all() for p in module.parameters()
        )
        assert module.table.weight.grad is not None

    def test_a_saved_one_gives_the_same(self, name, rows, tiny_model, tmp_path):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        module = encoder.begin(X, seed=0)
        encoder.keep(module)
        store.save(encoder, tmp_path / "model")
        loaded = store.load(tmp_path / "model")
        np.testing.assert_array_equal(outputs(module, X), outputs(loaded.module(), X))

    def test_what_was_learned_is_where_the_next_training_starts(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        module = encoder.begin(X, seed=0)
        with torch.no_grad():
            module.table.weight.mul_(2)
        encoder.keep(module)
        copied = clone(encoder)
        np.testing.assert_array_equal(outputs(module, X), outputs(copied.begin(X, seed=5), X))
        copied.keep(copied.begin(X, seed=0))
        assert copied.weights_ is not encoder.weights_

    def test_states_have_the_width_that_is_said(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        module = encoder.begin(X, seed=0)
        if encoder.reads == "words":
            with pytest.raises(ParameterError, match="reads tokens"):
                module.hidden(rows_on(X, np.arange(3), CPU))
            return
        batch = rows_on(X, np.arange(3), CPU)
        states = module.hidden(batch)
        assert len(states) == module.depth + 1
        for state in states[1:]:
            assert state.shape[0] == 3
            assert state.shape[2] == module.state_width

    def test_more_tokens_than_it_knows_are_refused(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        encoder.keep(encoder.begin(X, seed=0))
        more = X.shape[1] + 1
        wide = (
            Tokens(X.ids, X.indptr, more)
            if isinstance(X, Tokens)
            else csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], more))
        )
        with pytest.raises(
            ShapeError, match=f"knows {X.shape[1]} tokens, but the rows have {more}"
        ):
            encoder.begin(wide, seed=0)

    def test_other_features_than_those_of_its_training_are_refused(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        X = rows(encoder)
        names = [f"word {i}" for i in range(X.shape[1])]
        if isinstance(X, Tokens):
            names = list(X.names)
        encoder.keep(encoder.begin(X, seed=0, names=names))
        encoder.begin(X, seed=0, names=names)
        others = names[::-1]
        if isinstance(X, Tokens):
            X = Tokens(X.ids, X.indptr, X.vocabulary, X.pad, X.special, X.continues, others)
        with pytest.raises(ParameterError, match="other features"):
            encoder.begin(X, seed=0, names=others)

    def test_weights_of_another_shape_are_refused(self, name, rows, tiny_model):
        encoder = made(name, tiny_model)
        encoder.keep(encoder.begin(rows(encoder), seed=0))
        name_, value = next(iter(encoder.weights_.items()))
        learned = {"about_": encoder.about_, "weights_": encoder.weights_ | {name_: value[:-1]}}
        with pytest.raises(ValueError, match="do not fit"):
            clone(encoder).restore(learned)
        with pytest.raises(ValueError, match=r"about_|arrays of weights"):
            clone(encoder).restore({"about_": {}, "weights_": {}})


@pytest.mark.parametrize("name", [n for n in NAMES if "bag" not in n])
def test_padding_changes_nothing(name, tokens, tiny_model):
    module = made(name, tiny_model).begin(tokens, seed=0).eval()
    batch = rows_on(tokens, np.arange(4), CPU)
    more = type(batch)(
        torch.nn.functional.pad(batch.ids, (0, 7), value=3),
        torch.nn.functional.pad(batch.mask, (0, 7)),
    )
    with torch.no_grad():
        torch.testing.assert_close(module(batch), module(more), atol=1e-5, rtol=1e-5)
        plain, padded = module.hidden(batch)[-1], module.hidden(more)[-1]
    seen = batch.mask[:, : plain.shape[1]]
    torch.testing.assert_close(plain[seen], padded[:, : plain.shape[1]][seen], atol=1e-5, rtol=1e-5)


class TestBag:
    def test_words_are_added_up_in_any_order(self):
        module = BagEncoder(width=6, residual=None).begin(csr_matrix((1, 9)), seed=0).eval()
        weights = torch.tensor([0.5, 2.0, 1.0])
        one = BagBatch(torch.tensor([4, 1, 7]), torch.tensor([0]), weights)
        other = BagBatch(torch.tensor([7, 4, 1]), torch.tensor([0]), weights[[2, 0, 1]])
        torch.testing.assert_close(module(one), module(other))
        expected = (weights[:, None] * module.table.weight[[4, 1, 7]]).sum(0).relu()
        torch.testing.assert_close(module(one)[0], expected)

    @pytest.mark.parametrize("residual", ["sum", "gated", None])
    def test_a_text_without_words_is_zeros(self, residual):
        module = BagEncoder(width=6, residual=residual).begin(csr_matrix((1, 9)), seed=0)
        assert not outputs(module, csr_matrix((2, 9), dtype=np.float32)).any()

    def test_blocks_start_at_the_identity(self):
        x = torch.randn(5, 8)
        torch.testing.assert_close(ResidualBlock(8, 0.0, "sum")(x), x + x.relu())
        torch.testing.assert_close(ResidualBlock(8, 0.0, "gated")(x), 0.5 * x.relu() + 0.5 * x)

    def test_the_map_of_a_block_is_spectrally_normalised(self):
        block = ResidualBlock(8, 0.0, "sum")
        with torch.no_grad():
            block.linear.parametrizations.weight.original.normal_()
        for _ in range(60):  # power iterations
            block(torch.randn(2, 8))
        block.eval()
        assert torch.linalg.matrix_norm(block.linear.weight, 2).item() == pytest.approx(1, abs=1e-3)


class TestConvolutional:
    def test_attention_with_its_gate_at_0_is_the_identity(self):
        attention, x = GatedAttention(16), torch.randn(3, 4, 16)
        assert torch.equal(attention(x), x)
        attention.gate.data.fill_(1.0)
        assert not torch.allclose(attention(x), x)

    def test_what_comes_after_its_length_is_not_read(self, tokens, tiny_model):
        module = made("convolutional", "").begin(tokens, seed=0).eval()
        batch = rows_on(tokens, np.arange(4), CPU)
        short = type(batch)(batch.ids[:, :5], batch.mask[:, :5])
        torch.testing.assert_close(module(batch), module(short))

    def test_one_row_trains_where_one_value_is_left(self, tokens):
        # 16 dimensions become 4 and then 1: nothing to normalise over
        module = ConvolutionalEncoder(width=4, token_width=16).begin(tokens, seed=0)
        module(rows_on(tokens, np.array([0]), CPU)).sum().backward()

    def test_too_narrow_tokens_are_refused(self, tokens):
        with pytest.raises(ParameterError, match="at least 16"):
            ConvolutionalEncoder(token_width=15).begin(tokens, seed=0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_reading_both_ways_is_torch_on_packed_sequences(cell):
    layer = BothWays(cell, 5, 4)
    twin = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](
        5, 4, batch_first=True, bidirectional=True
    )
    state = {f"{k}": v for k, v in layer.forwards.state_dict().items()}
    state |= {f"{k}_reverse": v for k, v in layer.backwards.state_dict().items()}
    twin.load_state_dict(state)
    x, lengths = torch.randn(4, 6, 5), torch.tensor([6, 2, 1, 4])
    mask = torch.arange(6) < lengths[:, None]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(twin(packed)[0], batch_first=True)
    torch.testing.assert_close(layer(x, mask)[mask], expected[mask])


class TestAssembled:
    @pytest.mark.parametrize("encoder", ENCODERS)
    @pytest.mark.parametrize("embedding", EMBEDDINGS, ids="+".join)
    def test_every_pair_gives_states(self, embedding, encoder, tokens):
        chosen = AssembledEncoder(embedding=embedding, encoder=encoder, **SMALL)
        module = chosen.begin(tokens, seed=0)
        batch = rows_on(tokens, np.arange(3), CPU)
        states = module.hidden(batch)
        assert [s.shape for s in states] == [(3, batch.ids.shape[1], 16)] * 3

    @pytest.mark.parametrize(
        ("choices", "message"),
        [
            ({"embedding": ["position"]}, "must have 'word'"),
            ({"embedding": ["word", "word"]}, "twice"),
            ({"encoder": "bi-lstm", "rotary": True}, "rotary is of a transformer"),
            ({"width": 15}, "multiple of heads"),
            ({"width": 6, "rotary": True}, "even width"),
            ({"width": 15, "encoder": "bi-gru"}, "must be even"),
            ({"kernel": 4}, "must be odd"),
            ({"token_width": 8, "tied": True}, "tied=False"),
            ({"pretrain_epochs": 1, "targets": []}, "targets must name"),
            ({"encoder": "mamba"}, "encoder of AssembledEncoder must be one of"),
            ({"embedding": ["words"]}, "embedding of AssembledEncoder must be"),
            ({"targets": ["lm"]}, "targets of AssembledEncoder must be"),
        ],
    )
    def test_what_does_not_go_together_is_refused(self, choices, message, tokens):
        with pytest.raises(ParameterError, match=message):
            AssembledEncoder(**(SMALL | choices)).begin(tokens, seed=0)

    def test_texts_longer_than_the_learned_positions_are_refused(self, tokens):
        module = AssembledEncoder(**SMALL, max_length=4).begin(tokens, seed=0)
        with pytest.raises(DataError, match="4 positions"):
            module(rows_on(tokens, np.arange(3), CPU))

    def test_segments_are_told_by_the_separator(self, tokens):
        module = AssembledEncoder(**SMALL, embedding=["word", "segment"]).begin(tokens, seed=0)
        sep = tokens.special["sep"]
        ids = torch.tensor([[2, 9, sep, 9, sep]])
        module.eval()
        first, second = module.embedding(ids)[0][[1, 3]]
        assert not torch.allclose(first, second)
        torch.testing.assert_close(module.embedding(ids[:, 3:])[0][0], first)

    def test_recomputed_layers_give_the_same_gradients(self, tokens):
        grads = []
        for again in (False, True):
            module = AssembledEncoder(**SMALL, dropout=0.0).begin(tokens, seed=0)
            if again:
                module.checkpoint_gradients()
            module(rows_on(tokens, np.arange(3), CPU)).square().sum().backward()
            grads.append(module.table.weight.grad)
        torch.testing.assert_close(*grads)

    def test_rotated_products_depend_on_distance_alone(self):
        query, key = torch.randn(8).expand(6, 8), torch.randn(8).expand(6, 8)
        products = rotated(query) @ rotated(key).T
        for offset in (-2, 0, 3):
            along = products.diagonal(offset)
            torch.testing.assert_close(along, along[:1].expand_as(along), atol=1e-5, rtol=1e-4)
        assert torch.equal(rotated(query)[0], query[0])


class TestPretrained:
    def test_layers_and_poolings(self, tokens, tiny_model):
        batch = rows_on(tokens, np.arange(3), CPU)
        last = PretrainedEncoder(tiny_model).begin(tokens, seed=0).eval()
        both = PretrainedEncoder(tiny_model, layers=[-1, 0]).begin(tokens, seed=0).eval()
        with torch.no_grad():
            torch.testing.assert_close(both(batch)[:, :32], last(batch))
            expected = pooled(last.hidden(batch)[0], batch.mask, "mean")
            torch.testing.assert_close(both(batch)[:, 32:], expected)
        with pytest.raises(ParameterError, match="layers must be some of -4 to 3"):
            PretrainedEncoder(tiny_model, layers=[4]).begin(tokens, seed=0)

    @pytest.mark.parametrize(
        ("said", "expected", "understood"),
        [
            ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first", True),
            ({"pooling_mode_max_tokens": True}, "max", True),
            ({"pooling_mode_mean_tokens": True, "word_embedding_dimension": 8}, "mean", True),
            ({"pooling_mode_weightedmean_tokens": True}, "mean", False),
            ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "mean", False),
        ],
    )
    def test_pooling_as_the_model_says(
        self, tokens, tiny_model, tmp_path, caplog, said, expected, understood
    ):
        folder = shutil.copytree(tiny_model, tmp_path / "model")
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))
        assert PretrainedEncoder(str(folder)).new(tokens).pooling == expected
        assert ("here it is the mean" in caplog.text) == (not understood)

    def test_the_source_is_not_needed_to_answer(self, tokens, tiny_model, tmp_path):
        moved = tmp_path / "moved"
        moved.mkdir()
        for file in Path(tiny_model).iterdir():
            (moved / file.name).write_bytes(file.read_bytes())
        encoder = PretrainedEncoder(str(moved))
        module = encoder.begin(tokens, seed=0)
        store.save(encoder.keep(module), tmp_path / "model")
        for file in moved.iterdir():
            file.unlink()
        loaded = store.load(tmp_path / "model")
        np.testing.assert_array_equal(outputs(module, tokens), outputs(loaded.module(), tokens))
        with pytest.raises(DataError, match="cannot be had"):
            clone(PretrainedEncoder(str(moved))).begin(tokens, seed=0)

    def test_pickled_weights_are_not_read(self, tokens, tiny_model, tmp_path):
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (tmp_path / name).write_bytes((Path(tiny_model) / name).read_bytes())
        torch.save({}, tmp_path / "pytorch_model.bin")
        with pytest.raises(DataError, match="cannot be had"):
            PretrainedEncoder(str(tmp_path)).begin(tokens, seed=0)

    def test_sentence_vectors_are_those_of_sentence_transformers(self, mini_lm):
        texts = ["A red evening dress.", "Blue jeans", "A crimson gown"]
        tokens = Tokenizer(mini_lm).fit_transform(texts)
        module = PretrainedEncoder(mini_lm).begin(tokens, seed=0)
        vectors = outputs(module, tokens)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        likeness = vectors @ vectors.T
        assert likeness[0, 2] > likeness[0, 1] + 0.1
        sentences = pytest.importorskip("sentence_transformers", reason="compared with its vectors")
        reference = sentences.SentenceTransformer(mini_lm, device="cpu").encode(texts)
        np.testing.assert_allclose(vectors, reference, atol=1e-4)


def test_tokens_of_another_tokenizer_than_the_models_are_refused(tiny_model):
    texts = ["a red dress of other words", "words of others"]
    tokens = Tokenizer().fit_transform(texts)
    with pytest.raises(ParameterError, match=r"another tokenizer: \d+ of \d+ tokens"):
        PretrainedEncoder(tiny_model).begin(tokens, seed=0)
    encoder = PretrainedEncoder(tiny_model)
    module = encoder.begin(Tokenizer(tiny_model).fit_transform(texts), seed=0)
    with pytest.raises(ParameterError, match="other features"):
        Embedding.of(encoder.keep(module), Tokenizer().fit(texts))


@pytest.mark.parametrize("system", ["renee", "xr-transformer"])
def test_a_pretrained_encoder_keeps_its_tokenizer_in_a_tagger(system, corpus, tmp_path):
    tokenizer = Tokenizer(max_length=16)
    tokens = tokenizer.fit_transform(corpus)
    encoder = AssembledEncoder(width=16, layers=1, heads=2, pretrain_epochs=0)
    learned = pretrain(encoder, tokens, trainer=Trainer(steps=2, device="cpu"))
    part = "features" if system == "renee" else "features__tokens"
    own = {"classifier__trainer__steps": 2, "device": "cpu", "calibrate": False}
    other = corpus[:40]  # which have fewer words
    tagger = systems.create(system, encoder=learned, **own, **{part: tokenizer}).fit(other)
    assert encoder_of(tagger)[1].definition_ == tokenizer.definition_
    tagger.save(tmp_path / "model")
    again = Tagger.load(tmp_path / "model")
    np.testing.assert_array_equal(again.rank(other, 3).ids, tagger.rank(other, 3).ids)
    with pytest.raises(ParameterError, match="other features"):
        systems.create(system, encoder=learned, **own).fit(other)
