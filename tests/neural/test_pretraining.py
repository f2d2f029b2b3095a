"""Pre-training on texts without labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel import checkpoints  # noqa: E402
from megalabel.errors import DataError, ParameterError  # noqa: E402
from megalabel.neural import (  # noqa: E402
    AssembledEncoder,
    BagEncoder,
    FullClassifier,
    PretrainedEncoder,
    Tokenizer,
    Trainer,
    pretrain,
)
from megalabel.neural.batches import TextSource  # noqa: E402
from megalabel.neural.pretraining import (  # noqa: E402
    TokenModel,
    like,
    log_frequencies,
    numbered_tags,
    train_on_tokens,
)
from megalabel.neural.tokens import Tokens  # noqa: E402

SMALL = {"width": 32, "layers": 1, "heads": 2, "dropout": 0.0}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer(corpus) -> Tokenizer:
    return Tokenizer(vocabulary=120).fit(corpus)


@pytest.fixture(scope="module")
def tokens(tokenizer, corpus) -> Tokens:
    return tokenizer.transform(corpus)


def first_batch(tokens: Tokens):
    none = csr_matrix((len(tokens), 1), dtype=np.float32)
    return TextSource(tokens, none).batch(np.arange(16), CPU)


def test_one_sentence_is_memorised(tokenizer):
    tokens = tokenizer.transform(["red evening dress of silk for everyone"])
    encoder = AssembledEncoder(**SMALL)
    module = encoder.start(tokens, 0)
    trainer = Trainer(steps=400, batch=1, learning_rate=3e-3, head_learning_rate=3e-3)
    history = train_on_tokens(module, tokens, trainer)
    assert np.mean([h["loss"] for h in history[-20:]]) < 0.1


def test_perplexity_of_other_texts_drops(tokens):
    module = AssembledEncoder(**SMALL).start(tokens, 0)
    trainer = Trainer(epochs=6, batch=32, learning_rate=3e-3, head_learning_rate=3e-3)
    history = train_on_tokens(module, tokens[:250], trainer, held_out=tokens[250:])
    values = [h["value"] for h in history]
    assert np.exp(-values[-1]) < 0.6 * np.exp(-values[0])
    assert np.exp(-values[-1]) < tokens.vocabulary / 4


def frequency_loss(tokens: Tokens) -> float:
    """The loss of guessing every token by how often it occurs."""
    words = tokens.ids[~np.isin(tokens.ids, list(tokens.special.values()))]
    shares = np.bincount(words)[words] / len(words)
    return float(-np.log(shares).mean())


def test_tokens_are_guessed_by_their_frequencies_at_first(tokens):
    module = AssembledEncoder(**SMALL).start(tokens, 0)
    torch.manual_seed(0)
    loss = TokenModel(module, tokens).mean_loss(tokens, Trainer(device="cpu"))
    assert loss == pytest.approx(frequency_loss(tokens), rel=0.05)


def test_the_default_rate_soon_guesses_better_than_frequencies_do(tokens):
    encoder = AssembledEncoder(**SMALL)
    trainer = like(Trainer(device="cpu"), 5, encoder.pretrain_learning_rate, seed=0)
    history = train_on_tokens(encoder.start(tokens, 0), tokens, trainer)
    assert history[-1]["loss"] < 0.8 * frequency_loss(tokens)


@pytest.mark.parametrize("targets", [("mlm",), ("mlm", "frequency", "tags"), ("frequency",)])
def test_an_encoder_of_either_kind_is_pretrained(targets, tokens, corpus, tokenizer, tiny_model):
    words = tokenizer.words(corpus)
    tags = [[None if w == "for" else f"{len(w) > 4}" for w in row] for row in words]
    for encoder in (
        AssembledEncoder(**SMALL),
        PretrainedEncoder(tiny_model),
    ):
        made = pretrain(
            encoder,
            tokens[:64],
            targets=targets,
            tags=tags[:64] if "tags" in targets else None,
            units="words",
            decay=True,
            trainer=Trainer(epochs=1, batch=32),
        )
        assert made.fitted
        assert not encoder.fitted
        started, learned = encoder.start(tokens, 0).state_dict(), made.start(tokens, 0).state_dict()
        assert started.keys() == learned.keys()  # what guesses targets is not part of it
        moved = [k for k, v in started.items() if not torch.equal(v, learned[k])]
        assert len(moved) > len(started) / 2


def test_the_vectors_of_tokens_guess_them_where_tied(tokens):
    encoder = AssembledEncoder(**SMALL).start(tokens, 0)
    model = TokenModel(encoder, tokens, tied=True)
    assert model.guesses["mlm"].output.weight is encoder.table.weight
    state = {k: v + 1 if v.is_floating_point() else v for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    assert model.guesses["mlm"].output.weight.data_ptr() == encoder.table.weight.data_ptr()
    apart = TokenModel(encoder, tokens, tied=False)
    assert apart.guesses["mlm"].output.weight.data_ptr() != encoder.table.weight.data_ptr()


def test_vectors_of_rare_words_stay_apart():
    rare = [f"rare{i}" for i in range(40)]
    tokenizer = Tokenizer().fit(["red blue green", *rare])
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(["red", "blue", "green"], 6)) for _ in range(320)]
    tokens = tokenizer.transform(texts)
    made = pretrain(AssembledEncoder(**SMALL), tokens)
    table = made.weights_["embedding.word.weight"][[tokens.names.index(word) for word in rare]]
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    alike = table @ table.T
    assert abs(alike[~np.eye(len(rare), dtype=bool)].mean()) < 0.1


def test_targets_that_weigh_nothing_change_no_gradient(tokens, tokenizer, corpus):
    tags = [["x"] * len(row) for row in tokenizer.words(corpus)]
    gradients = []
    for extra in ({}, {"targets": ("mlm", "frequency", "tags"), "tags": tags}):
        encoder = AssembledEncoder(**SMALL).start(tokens, 0)
        torch.manual_seed(0)
        model = TokenModel(encoder, tokens, weights={"frequency": 0.0, "tags": 0.0}, **extra)
        model(first_batch(tokens)).backward()
        gradients.append([p.grad for p in encoder.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_losses_are_added_with_their_weights_which_decay(tokens):
    encoder = AssembledEncoder(**SMALL).start(tokens, 0)
    model = TokenModel(
        encoder, tokens, targets=("mlm", "frequency"), weights={"frequency": 2.0}, decay=True
    )
    model.batches = 4
    batch = first_batch(tokens)
    for seen in range(4):
        parts = model.losses(tokens, batch.rows, seen)
        expected = parts["mlm"] + 2.0 * (1 - seen / 4) * parts["frequency"]
        torch.testing.assert_close(model(batch), expected)


def test_frequencies_are_of_words_not_of_pieces():
    continues = np.arange(10) >= 8
    # "5 8" twice, "5 9" once, "5" once, "6" four times
    ids = np.array([2, 5, 8, 5, 8, 5, 9, 5, 6, 6, 6, 6, 3], np.int32)
    tokens = Tokens(ids, np.array([0, 13]), 10, 0, {"cls": 2, "sep": 3}, continues)
    found = log_frequencies(tokens)
    counts = np.array([2, 2, 1, 1, 4, 4, 4, 4])
    logs = np.log1p(counts)
    np.testing.assert_allclose(
        found[tokens.word_starts()], (logs - logs.mean()) / logs.std(), rtol=1e-6
    )
    assert np.isnan(np.delete(found, tokens.word_starts())).all()


def test_tags_are_at_the_first_piece_of_words():
    continues = np.arange(10) >= 8
    ids = np.array([2, 5, 8, 6, 3, 2, 7, 3], np.int32)
    tokens = Tokens(ids, np.array([0, 5, 8]), 10, 0, {"cls": 2, "sep": 3}, continues)
    found, kinds = numbered_tags(tokens, [["verb", None], ["noun"]])
    assert kinds == 2
    assert found.tolist() == [-1, 1, -1, -1, -1, -1, 0, -1]
    with pytest.raises(DataError, match="text 0 has 2 words but 1 tags"):
        numbered_tags(tokens, [["verb"], ["noun"]])
    with pytest.raises(DataError, match="tags for 1 texts, but 2 texts"):
        numbered_tags(tokens, [["verb", None]])


def test_words_are_what_tags_are_given_for(mini_lm):
    tokenizer = Tokenizer(mini_lm).fit([])
    words = tokenizer.words(["Unfathomable prices, everywhere!", "", "x"])
    assert words == [["unfathomable", "prices", ",", "everywhere", "!"], [], ["x"]]


def test_an_assembled_encoder_learns_the_language_when_it_begins(tokens):
    encoder = AssembledEncoder(**SMALL, pretrain_epochs=1, targets=("mlm", "frequency"))
    before = torch.random.get_rng_state()
    one, two = (encoder.begin(tokens, 0).state_dict() for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    plain = AssembledEncoder(**SMALL, pretrain_epochs=0).begin(tokens, 0).state_dict()
    for name, value in one.items():
        assert torch.equal(value, two[name])
    assert any(not torch.equal(value, plain[name]) for name, value in one.items())


def test_a_classifier_starts_from_what_was_learned(tokens, corpus):
    learned = pretrain(AssembledEncoder(**SMALL), tokens, trainer=Trainer(steps=2, device="cpu"))
    trainer = Trainer(steps=1, device="cpu")
    classifier = FullClassifier(learned, trainer, frozen=True).fit(tokens, corpus.targets)
    for name, weights in learned.weights_.items():
        np.testing.assert_array_equal(classifier.encoder_.weights_[name], weights)


def test_an_interrupted_pretraining_goes_on_to_the_same_weights(tokens, tmp_path, monkeypatch):
    encoder = AssembledEncoder(**SMALL)
    trainer = Trainer(epochs=2, batch=32, checkpoint_seconds=0)
    whole = pretrain(encoder, tokens, trainer=trainer)
    forward, calls = TokenModel.forward, []

    def stopping(self, batch):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return forward(self, batch)

    monkeypatch.setattr(TokenModel, "forward", stopping)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(KeyboardInterrupt):
            pretrain(encoder, tokens, trainer=trainer)
        resumed = pretrain(encoder, tokens, trainer=trainer)
    assert len(calls) == 9 + 20 - 8
    for name, value in whole.weights_.items():
        np.testing.assert_array_equal(value, resumed.weights_[name])


def test_texts_without_words_do_no_harm(tokenizer):
    tokens = tokenizer.transform(["", "red dress", ""])
    module = AssembledEncoder(**SMALL).start(tokens, 0)
    trainer = Trainer(epochs=1, batch=1)
    history = train_on_tokens(module, tokens, trainer, targets=("mlm", "frequency"))
    assert np.isfinite(history[-1]["loss"])


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"targets": ("lm",)}, "targets are some of"),
        ({"targets": ()}, "targets are some of"),
        ({"weights": {"pos": 1.0}}, "targets are some of"),
        ({"targets": ("tags",)}, "given together"),
        ({"tags": [["x"]]}, "given together"),
        ({"units": "sentences"}, "units must be one of"),
        ({"share": 0.0}, "share must be above 0"),
    ],
)
def test_bad_choices_are_refused(choices, message, tokens):
    with pytest.raises(ParameterError, match=message):
        pretrain(AssembledEncoder(**SMALL), tokens, **choices)


def test_a_bag_is_not_pretrained(tokens):
    with pytest.raises(ParameterError, match="reads words"):
        pretrain(BagEncoder(), tokens)
