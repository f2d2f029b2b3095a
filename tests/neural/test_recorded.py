"""Recorded passes learn what plain ones learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel.errors import MegalabelError
from megalabel.neural import AssembledEncoder, CascadeClassifier, FullClassifier, Trainer
from megalabel.neural.batches import TextSource
from megalabel.neural.full import FullModel
from megalabel.neural.heads import DenseModule
from megalabel.neural.losses import BCE
from megalabel.neural.models import Model, Pass
from megalabel.neural.recorded import Recorded, padded_length
from megalabel.neural.tokens import TokenBatch, Tokens
from megalabel.neural.views import Views

DEVICE = "cuda"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="records on a GPU alone")


@given(st.integers(1, 10_000))
def test_batches_are_padded_to_few_lengths_and_by_little(length):
    padded = padded_length(length)
    assert padded % 8 == 0
    assert length <= padded <= max(8, length * 1.25 + 8)
    assert padded_length(padded) == padded


def test_there_are_few_lengths():
    assert len({padded_length(n) for n in range(1, 513)}) <= 20


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    lengths = random.integers(3, 30, 100)
    ids = random.integers(5, 50, lengths.sum()).astype(np.int32)
    tokens = Tokens(ids, np.append(0, np.cumsum(lengths)), vocabulary=50)
    # a text has the labels of its first two tokens
    labels = csr_matrix((np.ones(200, np.float32), _first_two(tokens), np.arange(0, 201, 2)))
    return tokens, csr_matrix(labels, shape=(100, 50))


def _first_two(tokens: Tokens) -> np.ndarray:
    at = tokens.indptr[:-1]
    pairs = np.stack([tokens.ids[at], tokens.ids[at + 1]], 1)
    pairs[pairs[:, 0] == pairs[:, 1], 1] = 4  # never twice the same
    return np.sort(pairs, 1).ravel()


class Replayed:
    """Stands for a recorded pass on a CPU: all of them keep what they read in one place."""

    memory: dict[str, TokenBatch] = {}  # noqa: RUF012

    def __init__(self, plain, learned, sums):
        self.plain, self.learned, self.sums = plain, learned, sums

    def forward(self, inputs):
        self.memory["inputs"] = inputs
        with torch.no_grad():
            return (self.plain(inputs),)

    def backward(self, gradients):
        with torch.enable_grad():
            again = self.plain(self.memory["inputs"])
        for total, part in zip(
            self.sums, torch.autograd.grad(again, self.learned, *gradients), strict=True
        ):
            total += part


class OnCpu(Recorded):
    """Recorded passes without a GPU."""

    def _record_all(self, lengths, arithmetic):
        self._sums = [torch.zeros_like(p) for p in self._learned]
        made = Replayed(self._plain, self._learned, self._sums)
        self._passes = dict.fromkeys(lengths, made)


@pytest.fixture
def recorded(rows):
    tokens, _ = rows
    encoder = AssembledEncoder(width=8, layers=1, heads=2, dropout=0.0, pretrain_epochs=0)
    module = encoder.begin(tokens, 0, None, None)
    made = OnCpu(module, module, "forward", 4, np.array([16]), None)
    batches = [tokens.batch(np.arange(start, start + 4), torch.device("cpu")) for start in (0, 4)]
    return made, module, [TokenBatch(b.ids[:, :16], b.mask[:, :16]) for b in batches]


def gradients_of(module, batches):
    """Those of the sum of all outputs, by plain passes."""
    module.zero_grad()
    sum(module(batch).square().sum() for batch in batches).backward()
    return [p.grad.clone() for p in module.parameters()]


def test_passes_that_wait_for_their_backward_pass_are_not_overwritten(recorded, monkeypatch):
    made, module, batches = recorded
    wanted = gradients_of(module, batches)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    with made:
        for together in (False, True):
            made.begin()
            losses = []
            for batch in batches:
                losses.append(module(batch).square().sum())
                if not together:
                    losses.pop().backward()
            if losses:
                sum(losses).backward()
            for parameter, gradient in zip(module.parameters(), wanted, strict=True):
                torch.testing.assert_close(parameter.grad, gradient)
        assert Replayed.memory["inputs"] is batches[0]  # the second one ran as ever


def test_a_batch_of_an_earlier_step_cannot_be_learned_from(recorded, monkeypatch):
    made, module, batches = recorded
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    with made:
        made.begin()
        late = module(batches[0]).sum()
        made.begin()
        module(batches[1]).sum().backward()
        with pytest.raises(MegalabelError, match="record=False"):
            late.backward()


class Twice(Model):
    """An encoder that reads every batch twice a step."""

    def __init__(self, tokens):
        super().__init__()
        encoder = AssembledEncoder(width=8, layers=1, heads=2, dropout=0.0, pretrain_epochs=0)
        self.encoder = encoder.begin(tokens, 0)
        torch.manual_seed(0)
        self.head = torch.nn.Linear(8, 50)

    def passes(self):
        return [Pass(self.encoder, self.encoder, "forward")]

    def forward(self, batch):
        scores = self.head(self.encoder(batch.inputs) + self.encoder(batch.inputs).square())
        wanted = batch.targets.dense(0, 50)
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_model_may_pass_twice_a_step(rows, monkeypatch, accumulate):
    def train():
        model = Twice(rows[0])
        trainer = Trainer(
            steps=6, batch=16, learning_rate=0.01, accumulate=accumulate, device="cpu"
        )
        trainer.fit(model, TextSource(*rows))
        return model.state_dict()

    plain = train()
    forwards = []

    class Counted(Replayed):
        def forward(self, inputs):
            forwards.append(1)
            return super().forward(inputs)

    def record(run):
        [(encoder, owner, method)] = run.model.passes()
        monkeypatch.setattr(f"{__name__}.Replayed", Counted)
        return [OnCpu(encoder, owner, method, run.size, run.source.lengths, None)]

    monkeypatch.setattr("megalabel.neural.trainer._Run._record", record)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    recorded = train()
    # the first of the two was replayed, but for one batch that is smaller
    assert 6 * accumulate - 2 <= len(forwards) <= 6 * accumulate
    for name, value in plain.items():
        torch.testing.assert_close(recorded[name], value, rtol=1e-4, atol=1e-5)


@pytest.fixture
def curve(rows, tmp_path):
    """The losses of a training, epoch by epoch."""

    def train(*, dropout=0.0, **options):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        shared = {"epochs": 4, "batch": 16, "precision": "float32", "device": DEVICE, "seed": 3}
        trainer = Trainer(log=str(folder), **shared | options)
        encoder = AssembledEncoder(width=32, layers=2, heads=2, dropout=dropout, pretrain_epochs=0)
        FullClassifier(encoder, trainer, dropout=0.0).fit(*rows)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    return train


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_curve_is_that_of_plain_passes(curve, accumulate):
    recorded = curve(accumulate=accumulate)
    plain = curve(accumulate=accumulate, record=False)
    np.testing.assert_allclose(recorded, plain, rtol=1e-3)
    assert abs(recorded[-1] - recorded[0]) > 0.01 * recorded[0]  # something was learned


@needs_gpu
@pytest.mark.gpu
def test_dropout_is_drawn_anew_and_by_the_seed(curve):
    first, again = curve(dropout=0.3), curve(dropout=0.3)
    np.testing.assert_allclose(first, again, rtol=1e-4)
    assert abs(first[0] - curve(dropout=0.3, seed=4)[0]) > 1e-5
    # were the same places dropped in every step, the loss would come down as without dropout
    np.testing.assert_allclose(first, curve(dropout=0.3, record=False), rtol=0.1)


@needs_gpu
@pytest.mark.gpu
def test_states_of_layers_are_recorded_too(rows):
    tokens, labels = rows
    views = Views(csr_matrix(np.eye(100, dtype=np.float32)), tokens)
    scores = []
    for record in (True, False):
        trainer = Trainer(
            epochs=3, batch=16, precision="float32", device=DEVICE, record=record, seed=3
        )
        encoder = AssembledEncoder(width=32, layers=2, heads=2, dropout=0.0, pretrain_epochs=0)
        made = CascadeClassifier(
            encoder, trainer, "network", resolutions=[8], dropouts=[0.0, 0.0], layers=[[1], [2]]
        ).fit(views, labels)
        scores.append(made.rank(views, 3).scores)
    np.testing.assert_allclose(*scores, rtol=0.02, atol=1e-3)


@needs_gpu
@pytest.mark.gpu
def test_what_was_recorded_is_gone_after_training(rows):
    tokens, labels = rows
    encoder = AssembledEncoder(width=32, layers=1, heads=2, pretrain_epochs=0)
    module = encoder.begin(tokens, 0, None, None)
    model = FullModel(module, DenseModule(32, 50, BCE()))
    Trainer(steps=3, batch=16, device=DEVICE).fit(model, TextSource(tokens, labels))
    assert "forward" not in vars(module)
    assert all(parameter.grad is None for parameter in module.parameters())
