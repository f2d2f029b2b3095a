"""Units of work: what a fit of many labels is made of, and who runs them.

A `Job` cuts a fit into units, stage by stage: the units of a stage are known when the stage before
is assembled. Each is some seconds of work, made of arrays and numbers alone, and gives the same
result wherever and in whatever order it is run. `execute` runs a job; units that a checkpoint keeps
are not run again.

    with work.using(executor):
        tagger.fit(corpus)

An executor is any callable that takes a job and some of its units and yields a part for each, in
their order. By default units are run here, one after another: threads work inside a unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.checkpoints import Checkpoint
from megalabel.progress import Progress, progress


@dataclass(frozen=True)
class Unit:
    """A piece of a fit."""

    name: str
    """What it is called within its fit; it names a checkpoint."""
    size: int
    """How many labels or nodes it trains, for progress."""
    arrays: Mapping[str, np.ndarray]
    numbers: Mapping[str, bool | float | str]


class Job(ABC):
    """A fit made of units."""

    title: str
    """What is being done, for progress."""
    size: int
    """How many labels or nodes there are in all."""
    rows: csr_matrix
    """What every unit reads."""

    @abstractmethod
    def units(self) -> Sequence[Unit]:
        """The units of the next stage; none if all stages are assembled."""

    @staticmethod
    @abstractmethod
    def run(rows: csr_matrix, unit: Unit) -> csr_matrix:
        """The part that a unit gives. It depends on nothing but its arguments."""

    @abstractmethod
    def assemble(self, parts: Iterable[csr_matrix]) -> None:
        """Take the parts of a stage, in the order of its units."""


Executor: TypeAlias = Callable[[Job, Sequence[Unit]], Iterator[csr_matrix]]


def in_turn(job: Job, units: Sequence[Unit]) -> Iterator[csr_matrix]:
    """Run units here, one after another."""
    return (job.run(job.rows, unit) for unit in units)


_EXECUTOR: ContextVar[Executor] = ContextVar("executor", default=in_turn)


@contextmanager
def using(executor: Executor) -> Iterator[None]:
    """Fits within have their units run by an executor."""
    token = _EXECUTOR.set(executor)
    try:
        yield
    finally:
        _EXECUTOR.reset(token)


def execute(job: Job, checkpoint: Checkpoint) -> None:
    """Run all units of a job, but for those that a checkpoint keeps."""
    with progress(job.title, job.size) as bar:
        while units := job.units():
            job.assemble(_parts(job, units, checkpoint, bar))
            del units  # its arrays are not to be held while the next stage is made


def _parts(
    job: Job, units: Sequence[Unit], checkpoint: Checkpoint, bar: Progress
) -> Iterator[csr_matrix]:
    """The part of each unit, as kept or as run now and kept."""
    kept = {unit.name for unit in units if checkpoint.keeps(unit.name)}
    fresh = _EXECUTOR.get()(job, [unit for unit in units if unit.name not in kept])
    for unit in units:
        part = checkpoint.kept(unit.name) if unit.name in kept else next(fresh)
        if part is None:  # damaged
            part = job.run(job.rows, unit)
            kept.discard(unit.name)
        if unit.name not in kept:
            checkpoint.keep(unit.name, part)
        yield part
        bar.advance(unit.size)
