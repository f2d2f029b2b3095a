from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import nn

from megalabel import checkpoints
from megalabel.errors import DataError, MegalabelError, NotEnoughMemoryError, ParameterError
from megalabel.linear import OneVsAll
from megalabel.neural import AssembledEncoder, Tokens, Trainer, models
from megalabel.neural.batches import TextSource
from megalabel.neural.full import FullModel
from megalabel.neural.heads import DenseModule
from megalabel.neural.losses import BCE


class Model(models.Model):
    """A table of token vectors under a table of labels."""

    def __init__(self, tokens=50, labels=7, width=8, sparse=False):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.EmbeddingBag(tokens, width, sparse=sparse, padding_idx=0)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(width, labels)

    def groups(self):
        return {
            "encoder": models.Group([self.encoder]),
            "head": models.Group([self.head], "head_learning_rate"),
        }

    def forward(self, batch):
        ids = batch.inputs.ids
        scores = self.head(self.dropout(self.encoder(ids)))
        return nn.functional.binary_cross_entropy_with_logits(
            scores, batch.targets.dense(0, batch.targets.labels)
        )


def data(rows=90, labels=7, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 9, rows)
    ids = random.integers(1, 50, lengths.sum()).astype(np.int32)
    Y = csr_matrix((random.random((rows, labels)) < 0.3).astype(np.float32))
    return Tokens(ids, np.append(0, np.cumsum(lengths)), 50), Y


def state(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_an_epoch_has_every_row_once_with_rows_of_like_length_together():
    X, Y = data(rows=1000)
    source = TextSource(X, Y)
    order = source.order(0, 10, seed=3)
    assert sorted(np.concatenate(order).tolist()) == list(range(1000))
    spread = np.mean([np.ptp(X.lengths[rows]) for rows in order])
    assert spread < 1
    again, other = source.order(0, 10, seed=3), source.order(1, 10, seed=3)
    assert all((a == b).all() for a, b in zip(order, again, strict=True))
    assert not all((a == b).all() for a, b in zip(order, other, strict=True))


def test_batches_go_on_from_any_step():
    X, Y = data()
    source = TextSource(X, Y)

    def taken(first, count):
        begun = []
        batches = source.rows_from(first, 16, seed=0, between=begun.append)
        return [rows.tolist() for rows in islice(batches, count)], begun

    whole, begun = taken(0, 20)  # of six batches an epoch
    assert begun == [1, 2, 3]
    assert taken(9, 11) == (whole[9:], [2, 3])
    assert taken(12, 8) == (whole[12:], [2, 3])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("average", [None, "ema", "swa"])
def test_it_learns_and_the_seed_fixes_everything(sparse, average):
    X, Y = data()
    clip = None if sparse else 1.0
    options = {"epochs": 20, "batch": 16, "learning_rate": 0.05, "head_learning_rate": 0.05}
    trainer = Trainer(**options, clip=clip, average=average, weight_decay=0)
    first, second = Model(sparse=sparse), Model(sparse=sparse)
    history = trainer.fit(first, TextSource(X, Y))
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    torch.manual_seed(123)  # what the caller draws does not matter, nor is it disturbed
    before = torch.get_rng_state()
    trainer.fit(second, TextSource(X, Y))
    assert torch.equal(before, torch.get_rng_state())
    assert_same(state(first), state(second))
    trainer.set_params(seed=1).fit(third := Model(sparse=sparse), TextSource(X, Y))
    assert not torch.equal(first.head.weight, third.head.weight)


def test_accumulated_batches_are_one_larger_batch():
    X, Y = data(rows=64)
    model, other = Model().eval(), Model().eval()
    for module in (model, other):
        module.dropout.p = 0.0
    options = {"epochs": 1, "weight_decay": 0.0, "clip": None, "learning_rate": 0.1}
    Trainer(batch=64, **options).fit(model, TextSource(X, Y))
    Trainer(batch=16, accumulate=4, **options).fit(other, TextSource(X, Y))
    for name, value in state(model).items():
        torch.testing.assert_close(value, state(other)[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_epsilon_bounds_the_step_of_small_gradients(sparse):
    X, Y = data()
    moved = {}
    for epsilon in (1e-12, 1e6):
        model = Model(sparse=sparse)
        before = state(model)
        options = {"steps": 1, "warmup": 0, "learning_rate": 0.1, "weight_decay": 0.0}
        Trainer(epsilon=epsilon, device="cpu", **options).fit(model, TextSource(X, Y))
        after = state(model)
        moved[epsilon] = float((after["encoder.weight"] - before["encoder.weight"]).abs().max())
    assert moved[1e-12] == pytest.approx(0.1, rel=0.1)  # the first step of Adam: the rate, signed
    assert moved[1e6] < 1e-6


def test_rates_rise_and_fall():
    trainer = Trainer(warmup=0.1, schedule="cosine")
    rates = [trainer.rate(step, 100) for step in range(100)]
    assert np.argmax(rates) in (9, 10)
    assert rates[0] < 0.2
    assert rates[-1] < 0.01
    assert all(np.diff(rates[:10]) > 0)
    assert all(np.diff(rates[10:]) < 0)
    assert Trainer(warmup=0, schedule="constant").rate(70, 100) == 1
    assert Trainer(warmup=0, schedule="linear").rate(50, 100) == 0.5


def test_the_best_state_stays_and_patience_ends():
    X, Y = data()
    values = iter([0.1, 0.9, 0.5, 0.4, 0.3, 0.2])
    kept = []
    model = Model()

    def evaluate():
        kept.append(state(model))
        return next(values)

    history = Trainer(epochs=6, batch=16, patience=3).fit(
        model, TextSource(X, Y), evaluate=evaluate
    )
    assert [record["value"] for record in history] == [0.1, 0.9, 0.5, 0.4, 0.3]
    assert_same(state(model), kept[1])


def test_what_is_written_down(tmp_path):
    X, Y = data()
    Trainer(epochs=3, batch=16, log=str(tmp_path)).fit(Model(), TextSource(X, Y), name="level-1")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [6, 12, 18]
    assert all(line["training"] == "level-1" and line["loss"] > 0 for line in lines)


def test_mistakes_are_told():
    X, Y = data()
    with pytest.raises(MegalabelError, match="lower learning_rate"):
        Trainer(epochs=50, batch=16, learning_rate=1e30, clip=None, warmup=0).fit(
            Model(), TextSource(X, Y)
        )
    with pytest.raises(DataError, match="no row"):
        Trainer().fit(Model(), TextSource(X[[]], Y[[]]))


def test_running_out_of_a_gpus_memory_gives_advice(monkeypatch):
    X, Y = data()

    class Greedy(Model):
        def forward(self, batch):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    from types import SimpleNamespace

    properties = SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    with pytest.raises(NotEnoughMemoryError, match=r"80 GiB.*batch=16 with accumulate=2"):
        Trainer(batch=32).fit(Greedy(), TextSource(X, Y))


@pytest.mark.parametrize("allocate", [torch.empty, np.empty])
def test_running_out_of_memory_gives_advice(allocate):
    X, Y = data()

    class Greedy(Model):
        def forward(self, batch):
            allocate(2**50)

    with pytest.raises(
        NotEnoughMemoryError, match=r"machine's memory.*batch=16 with accum"
    ) as told:
        Trainer(batch=32, device="cpu").fit(Greedy(), TextSource(X, Y))
    assert "record" not in str(told.value)  # which is of GPUs alone


def test_other_errors_stay_as_they_are():
    X, Y = data()

    class Wrong(Model):
        def forward(self, batch):
            raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        Trainer(batch=32, device="cpu").fit(Wrong(), TextSource(X, Y))


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "gpu", "cuda:first"])
def test_a_device_that_is_not_there_is_told(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ParameterError, match=device):
        Trainer(device=device).check_machine()


def test_what_was_trained_elsewhere_answers_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("auto", "cpu", "cuda", "cuda:3"):
        assert Trainer(device=device).answering_device == torch.device("cpu")


def run(folder, epochs=4, average=None, log=None):
    X, Y = data()
    model = Model()
    options = {"epochs": epochs, "batch": 16, "average": average, "learning_rate": 0.01}
    with checkpoints.kept_in(folder):
        checkpoint = None if folder is None else checkpoints.Checkpoint(OneVsAll(), Y)
        Trainer(**options, checkpoint_seconds=0, log=log).fit(
            model, TextSource(X, Y), checkpoint=checkpoint
        )
    return state(model)


def curve(folder):
    with open(f"{folder}/metrics.jsonl") as lines:
        return [(line["step"], line["loss"]) for line in map(json.loads, lines)]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("average", [None, "ema"])
def test_an_interrupted_training_goes_on_to_the_same_end(tmp_path, monkeypatch, average):
    logs = [str(tmp_path / name) for name in ("whole", "resumed")]
    whole = run(None, average=average, log=logs[0])
    forward, calls = Model.forward, []

    def failing(self, batch):
        calls.append(1)
        if len(calls) == 14:
            raise Interrupted
        return forward(self, batch)

    monkeypatch.setattr(Model, "forward", failing)
    with pytest.raises(Interrupted):
        run(tmp_path, average=average, log=logs[1])
    assert_same(whole, run(tmp_path, average=average, log=logs[1]))
    assert len(calls) == 14 + 24 - 13  # what was done was not done again
    assert curve(logs[0]) == curve(logs[1])
    assert_same(whole, run(tmp_path, average=average))  # nor is a training that has ended


def test_a_damaged_checkpoint_is_not_taken_up(tmp_path):
    whole = run(tmp_path)
    [file] = tmp_path.rglob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    assert_same(whole, run(tmp_path))


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
import test_trainer
forward = test_trainer.Model.forward
def slow(self, batch):
    print("step", flush=True)
    return forward(self, batch)
test_trainer.Model.forward = slow
test_trainer.run(sys.argv[2])
"""


def test_kill_and_resume(tmp_path):
    here = os.path.dirname(__file__)
    command = [sys.executable, "-c", KILLED, here, str(tmp_path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for _ in range(15):
        assert child.stdout.readline() == "step\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    time.sleep(0.05)
    assert_same(run(None), run(tmp_path))


@pytest.mark.slow  # compiling takes longer than all else here
def test_a_compiled_encoder_learns_the_same():
    losses = []
    for compiled in (False, True):
        made = AssembledEncoder(width=16, layers=1, heads=2, dropout=0.0, pretrain_epochs=0)
        trainer = Trainer(epochs=3, batch=16, compile=compiled, device="cpu", seed=1)
        model = FullModel(made.begin(data()[0], 0, trainer, None), DenseModule(16, 7, BCE()))
        losses.append([record["loss"] for record in trainer.fit(model, TextSource(*data()))])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    assert losses[0][-1] < losses[0][0]
