"""Batches of any source, and models that let an encoder read several times in a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import nn

from megalabel import checkpoints
from megalabel.errors import MegalabelError
from megalabel.linear import OneVsAll
from megalabel.neural import AssembledEncoder, SupervisedContrastive, Tokens, Trainer
from megalabel.neural.batches import Source, TextSource, rows_on
from megalabel.neural.models import Group, Model, Stepped

TEXTS, LABELS, SIZE = 40, 12, 8  # five batches an epoch


class Pairs(NamedTuple):
    """Texts and labels of a batch, and which of them go together."""

    texts: Any
    labels: Any
    targets: torch.Tensor


class PairSource(Source):
    """Each text with one of its labels, and with one that the model takes for one of them."""

    def __init__(self, texts, names, Y):
        self.texts, self.names, self.Y = texts, names, Y.toarray()
        self.own = self.Y.argmax(1)
        self.mined = np.zeros(len(self.Y), np.int64)
        self.epochs = []

    def __len__(self):
        return len(self.Y)

    def order(self, epoch, size, seed):
        rows = np.random.default_rng((seed, epoch)).permutation(len(self))
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def batch(self, rows, device, labelled=None):
        labels = np.unique(np.concatenate([self.own[rows], self.mined[rows]]))
        targets = torch.from_numpy(self.Y[np.ix_(rows, labels)]).to(device)
        return Pairs(
            rows_on(self.texts, rows, device), rows_on(self.names, labels, device), targets
        )

    def between_epochs(self, epoch, model):
        self.epochs.append(epoch)
        assert not model.training
        assert not torch.is_grad_enabled()
        cpu = torch.device("cpu")
        texts, names = (
            model.vectors(rows_on(part, np.arange(len(part)), cpu))
            for part in (self.texts, self.names)
        )
        likely = (texts @ names.T + 0.1 * torch.randn(TEXTS, LABELS)).numpy()
        self.mined = np.where(self.Y > 0, -np.inf, likely).argmax(1)

    def state(self):
        return {"mined": torch.from_numpy(self.mined)}

    def load(self, state):
        self.mined = state["mined"].numpy()


class DualModel(Model):
    """Texts and labels through one encoder, and a scale that learns at a rate of its own."""

    def __init__(self, tokens):
        super().__init__()
        encoder = AssembledEncoder(width=8, layers=1, heads=2, dropout=0.0, pretrain_epochs=0)
        self.encoder = encoder.begin(tokens, 0)
        self.scale = Scale()
        self.loss = SupervisedContrastive(temperature=0.2)
        self.passes_made = 0

    def groups(self):
        return {
            "encoder": Group([self.encoder]),
            "scale": Group([self.scale], "head_learning_rate", factor=0.5),
        }

    def vectors(self, inputs):
        self.passes_made += 1
        return nn.functional.normalize(self.encoder(inputs))

    def forward(self, batch):
        scores = self.vectors(batch.texts) @ self.vectors(batch.labels).T
        return self.loss(self.scale(scores), batch.targets).mean()


class Scale(Stepped):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))
        self.rates, self.steps = [], []

    def forward(self, scores):
        return self.factor * scores

    def before_update(self, rate):
        self.rates.append(rate)

    def after_update(self, step, total):
        self.steps.append((step, total))


@pytest.fixture
def pairs():
    """Texts of three words each, and labels of one word; a text has the labels of its words."""
    random = np.random.default_rng(0)
    words = np.stack([random.choice(np.arange(1, LABELS + 1), 3, False) for _ in range(TEXTS)])
    texts = Tokens(words.ravel().astype(np.int32), np.arange(0, 3 * TEXTS + 1, 3), LABELS + 1)
    names = Tokens(np.arange(1, LABELS + 1, dtype=np.int32), np.arange(LABELS + 1), LABELS + 1)
    Y = np.zeros((TEXTS, LABELS), np.float32)
    np.put_along_axis(Y, words - 1, 1, 1)
    return texts, names, csr_matrix(Y)


def train(pairs, folder=None, **options):
    own = {"epochs": 4, "batch": SIZE, "learning_rate": 0.01, "head_learning_rate": 0.05}
    model, source = DualModel(pairs[0]), PairSource(*pairs)
    with checkpoints.kept_in(folder):
        checkpoint = None if folder is None else checkpoints.Checkpoint(OneVsAll(), pairs[2])
        trainer = Trainer(**own | options, checkpoint_seconds=0, device="cpu")
        trainer.fit(model, source, checkpoint=checkpoint)
    return model, source


def assert_same(first, second):
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_an_encoder_reads_twice_a_step_and_labels_are_mined_between_epochs(pairs):
    model, source = train(pairs)
    assert source.epochs == [1, 2, 3]
    assert model.passes_made == 2 * 20 + 2 * 3
    source.mined = np.arange(TEXTS) % LABELS  # all labels at once
    every = source.batch(np.arange(TEXTS), torch.device("cpu"))
    assert model(every) < 0.8 * DualModel(pairs[0])(every)
    assert model.scale.steps == [(step + 1, 20) for step in range(20)]
    trainer = Trainer(epochs=4)
    rates = [0.5 * 0.05 * trainer.rate(step, 20) for step in range(20)]  # half, as its group says
    assert model.scale.rates == rates
    assert model.scale.factor.item() != 1  # and it has learned


def test_layers_computed_a_second_time_learn_the_same_from_all_passes(pairs):
    plain, again = (train(pairs, gradient_checkpointing=g)[0] for g in (False, True))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(value, again.state_dict()[name], rtol=1e-4, atol=1e-5)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("after", [7, 10, 11])  # within an epoch, at its end, after one batch
@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_interrupted_training_goes_on_to_the_same_end(
    pairs, tmp_path, monkeypatch, after, accumulate
):
    options = {"accumulate": accumulate, "epochs": 4 * accumulate}
    whole, mined = train(pairs, **options)
    update, calls = Scale.after_update, []

    def failing(self, step, total):
        update(self, step, total)
        calls.append(step)
        if len(calls) == after + 1:
            raise Interrupted

    monkeypatch.setattr(Scale, "after_update", failing)
    with pytest.raises(Interrupted):
        train(pairs, tmp_path, **options)
    model, source = train(pairs, tmp_path, **options)
    assert calls[after + 1] == after + 1  # what was done was not done again
    assert_same(whole, model)
    np.testing.assert_array_equal(source.mined, mined.mined)


def test_what_learns_without_a_rate_is_told(pairs):
    class Forgetful(DualModel):
        def groups(self):
            return {"encoder": Group([self.encoder])}

    model = Forgetful(pairs[0])
    trainer = Trainer(epochs=1, device="cpu")
    with pytest.raises(MegalabelError, match=r"scale\.factor of Forgetful .* groups: encoder"):
        trainer.fit(model, PairSource(*pairs))
    model.scale.factor.requires_grad_(False)  # it may still move by itself
    with pytest.raises(MegalabelError, match=r"scale of Forgetful learns"):
        trainer.fit(model, PairSource(*pairs))


def test_by_default_all_of_a_model_learns_at_one_rate(pairs):
    class Plain(Model):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(LABELS))

        def forward(self, batch):
            return ((self.shift - batch.targets.dense(0, LABELS)) ** 2).mean()

    model = Plain()
    options = {"steps": 1, "warmup": 0, "learning_rate": 0.1, "device": "cpu"}
    Trainer(**options).fit(model, TextSource(pairs[0], pairs[2]))
    assert float(model.shift.detach().max()) == pytest.approx(0.1, rel=1e-4)  # that of Adam
