"""Stopwatch: how long the steps of trainings take, for plans."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

import torch

from megalabel.clock import Clock


@dataclass
class Timed:
    """The steps of one training."""

    by_steps: bool
    """Whether it was told how many, not how often to go through the rows."""
    steps: int = 0
    first: float = 0.0
    """Seconds of the first step, which pays for what is done once."""
    others: float = 0.0
    """Of all others: one is prepared while the one before is computed."""
    recording: float = 0.0
    """Seconds that recording an encoder's passes took."""
    recorded: int = 0
    """For how many lengths of texts they were recorded."""

    @property
    def step(self) -> float:
        """Seconds of a step on average, without the first where there are more."""
        return self.others / (self.steps - 1) if self.steps > 1 else self.first

    @property
    def seconds(self) -> float:
        """Of all steps, and of what was recorded for them."""
        return self.recording + self.first + self.others


class Stopwatch:
    """Times the steps of every training within.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from megalabel.neural import BagEncoder, FullClassifier, Stopwatch, Trainer
    >>> classifier = FullClassifier(BagEncoder(width=4), Trainer(steps=5, device="cpu"))
    >>> with Stopwatch() as watch:
    ...     _ = classifier.fit(csr_matrix(np.eye(9)), csr_matrix(np.eye(9)))
    >>> [training.steps for training in watch.trainings]
    [5]
    """

    _running: ClassVar[list[Stopwatch]] = []

    def __init__(self) -> None:
        self.trainings: list[Timed] = []

    def __enter__(self) -> Self:
        self._running.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.remove(self)

    @classmethod
    def start(cls, by_steps: bool, device: torch.device) -> Lap | None:
        """For a training that begins; None: nobody asks for its times."""
        if not cls._running:
            return None
        training = Timed(by_steps)
        for watch in cls._running:
            watch.trainings.append(training)
        return Lap(training, device)


class Lap:
    """Times the steps of a training, without what is done between epochs.

    A GPU is waited for after recording, the first step and epochs alone: else no step would be
    prepared while the one before is computed.
    """

    def __init__(self, training: Timed, device: torch.device) -> None:
        self._training, self._device = training, device
        self._clock: Clock | None = None

    def begin(self) -> None:
        """A step begins, or passes are about to be recorded."""
        if self._clock is None:
            self._clock = Clock(waits=self._device.type == "cuda")

    def recorded(self, lengths: int) -> None:
        """Passes were recorded for so many lengths."""
        self._training.recorded = lengths
        self._training.recording = self._taken()

    def end(self, epoch: bool) -> None:
        """A step has ended, and with it perhaps an epoch."""
        timed = self._training
        timed.steps += 1
        if timed.steps == 1:
            timed.first = self._taken()
        elif epoch:
            timed.others += self._taken()

    def _taken(self) -> float:
        """Seconds since what was begun."""
        clock, self._clock = self._clock, None
        if clock is None:
            return 0.0
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return clock.seconds()
