"""Stopwatch: how long the steps of trainings take, for plans."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, Self

import numpy as np
import torch

from megalabel.clock import Clock


@dataclass
class Timed:
    """The steps of one training."""

    by_steps: bool
    """Whether it was told how many, not how often to go through the rows."""
    seconds: list[float] = field(default_factory=list)
    """Of each step."""

    @property
    def step(self) -> float:
        """Of a step on average, without the first, which pays for what is done once."""
        return float(np.mean(self.seconds[1:] or self.seconds))


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
    >>> [len(training.seconds) for training in watch.trainings]
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
    """Notes when a step ends."""

    def __init__(self, training: Timed, device: torch.device) -> None:
        self._training, self._device = training, device
        self._start()

    def step(self) -> None:
        """A step has ended."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._training.seconds.append(self._clock.seconds())
        self._start()

    def _start(self) -> None:
        self._clock = Clock(waits=self._device.type == "cuda")
