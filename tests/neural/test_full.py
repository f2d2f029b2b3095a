from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.special import expit

from megalabel import checkpoints
from megalabel.errors import DataError, NotEnoughMemoryError
from megalabel.neural import DenseHead, FullClassifier, PretrainedEncoder, Trainer
from megalabel.neural.full import FullModel


@pytest.fixture
def encoder(tiny_model):
    return PretrainedEncoder(tiny_model)


def made(encoder, **options):
    own = {"epochs": 1, "batch": 32, "device": "cpu", "checkpoint_seconds": 0}
    trainer = Trainer(**own | options.pop("training", {}))
    head = {name: options.pop(name) for name in DenseHead.parameter_names() if name in options}
    return FullClassifier(encoder, trainer, head=DenseHead(**head), **options)


def same(first, second):
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)


@pytest.mark.parametrize(
    ("rate", "options"),
    [(0.5, {}), (0.5, {"bottleneck": 8}), (0.02, {"optimiser": "adam"})],
)
def test_it_learns(encoder, tokens, corpus, rate, options):
    training = {"epochs": 8, "learning_rate": 2e-3, "head_learning_rate": rate}
    model = made(encoder, training=training, dropout=0.1, validation=0.2, **options)
    ids = model.fit(tokens, corpus.targets, corpus.labels).rank(tokens, 1).ids
    assert np.take_along_axis(corpus.targets.toarray(), ids, 1).mean() > 0.8


def test_answers_are_the_sigmoid_of_a_product(encoder, tokens, corpus):
    model = made(encoder, bottleneck=8).fit(tokens, corpus.targets, corpus.labels)
    with torch.no_grad():
        vectors = model.module()(tokens.batch(np.arange(7), torch.device("cpu"))).double().numpy()
    margins = vectors @ model.projection_.T.astype(float) @ model.weights_.T.astype(float)
    margins = expit(margins + model.bias_)
    ranking = model.rank(tokens[np.arange(7)], 10)
    np.testing.assert_allclose(
        ranking.scores, np.take_along_axis(margins, ranking.ids.astype(int), 1), rtol=1e-4
    )
    assert (np.sort(ranking.ids, 1) == np.arange(10)).all()
    assert (ranking.ids[:, -1] == 9).all()  # the label that no text has


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_bottleneck_learns_at_the_rate_of_the_encoder(encoder, tokens, corpus, optimiser):
    def projection(rate):
        training = {"steps": 1, "warmup": 0, "learning_rate": rate, "weight_decay": 0.0}
        model = made(encoder, bottleneck=8, optimiser=optimiser, dropout=0.0, training=training)
        return model.fit(tokens, corpus.targets).projection_

    # the first step of Adam is the rate, signed
    moved = np.abs(projection(1e-3) - projection(0.0)).max()
    assert moved == pytest.approx(1e-3, rel=0.1)


def test_a_frozen_encoder_stays_as_it_is(encoder, tokens, corpus):
    before = encoder.begin(tokens, 0).state_dict()
    model = made(encoder, frozen=True).fit(tokens, corpus.targets)
    after = model.module().state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not np.array_equal(
        model.weights_, made(encoder, frozen=True, seed=1).fit(tokens, corpus.targets).weights_
    )


class Interrupted(Exception):
    pass


@pytest.mark.parametrize(
    "options",
    [{}, {"precision": "bf16", "momentum": 0.9}, {"precision": "bf16", "optimiser": "adam"}],
)
def test_an_interrupted_training_goes_on_to_the_same_end(
    encoder, tokens, corpus, tmp_path, monkeypatch, options
):
    def fit():
        return made(encoder, **options).fit(tokens, corpus.targets).rank(tokens, 5)

    whole = fit()
    forward, calls = FullModel.forward, []

    def failing(self, batch):
        calls.append(1)
        if len(calls) == 6:
            raise Interrupted
        return forward(self, batch)

    monkeypatch.setattr(FullModel, "forward", failing)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            fit()
        same(whole, fit())
    assert len(calls) == 6 + 10 - 5


def test_one_label_and_one_text(encoder, tokens):
    for rows, Y in ([0, 1, 2], [[1], [1], [0]]), ([0], [[1, 1]]):
        model = made(encoder).fit(tokens[rows], csr_matrix(np.array(Y, np.float32)))
        assert model.rank(tokens[[0, 5]], 5).ids.shape == (2, len(Y[0]))


def test_running_out_of_memory_before_the_first_step_gives_advice(
    encoder, tokens, corpus, monkeypatch
):
    monkeypatch.setattr("megalabel.neural.full.begin", lambda *_, **__: torch.empty(2**50))
    with pytest.raises(NotEnoughMemoryError, match="batch=16 with accumulate=2"):
        made(encoder).fit(tokens, corpus.targets)


def test_a_model_of_a_gpu_answers_without_one(encoder, tokens, corpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = made(encoder).fit(tokens, corpus.targets)
    before = model.rank(tokens, 3)
    model.set_params(trainer__device="cuda")
    same(before, model.rank(tokens, 3))


def test_mistakes_are_told(encoder, tokens, corpus):
    with pytest.raises(DataError, match="tokens of a Tokenizer"):
        made(encoder).fit(csr_matrix((300, 5), dtype=np.float32), corpus.targets)
