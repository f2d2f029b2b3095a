"""Stopwatch: what it counts, and what it does not."""

from __future__ import annotations

import time

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from megalabel.neural import Stopwatch, Trainer, models
from megalabel.neural.batches import Batch, TextSource


class Model(models.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(1, 1)

    def forward(self, batch: Batch) -> Tensor:
        loss: Tensor = self.encoder(torch.ones(1, 1)).sum()
        return loss


class BusySource(TextSource):
    def between_epochs(self, epoch: int, model: nn.Module) -> None:
        busy(0.5)


def busy(seconds: float) -> float:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return 0.0


def test_steps_are_counted_without_what_is_done_between_epochs() -> None:
    rows = csr_matrix(np.eye(8, dtype=np.float32))
    with Stopwatch() as watch:
        Trainer(steps=6, batch=4, device="cpu").fit(
            Model(), BusySource(rows, rows), evaluate=lambda: busy(0.5)
        )
        Trainer(epochs=1, batch=4, device="cpu").fit(Model(), TextSource(rows, rows))
    told, by_epochs = watch.trainings
    assert (told.steps, told.by_steps) == (6, True)
    assert (by_epochs.steps, by_epochs.by_steps) == (2, False)
    assert told.first > 0
    assert told.others > 0
    assert told.seconds == told.first + told.others < 0.5  # evaluating and mining took 2.5
    assert told.step == told.others / 5


def test_nothing_is_timed_outside() -> None:
    rows = csr_matrix(np.eye(8, dtype=np.float32))
    with Stopwatch() as watch:
        pass
    Trainer(steps=2, batch=4, device="cpu").fit(Model(), TextSource(rows, rows))
    assert watch.trainings == []


def test_recording_is_told_apart_from_the_first_step() -> None:
    with Stopwatch() as watch:
        lap = Stopwatch.start(True, torch.device("cpu"))
        assert lap is not None
        lap.begin()
        busy(0.2)
        lap.recorded(4)
        lap.begin()
        lap.end(epoch=True)
    (timed,) = watch.trainings
    assert timed.recorded == 4
    assert timed.recording >= 0.2 > timed.first
    assert timed.seconds == timed.recording + timed.first
