"""Plan: what a fit will cost, said before it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.sparse import issparse

from megalabel.base import Component, clone
from megalabel.data import LabelSet

if TYPE_CHECKING:
    from megalabel.data import Corpus
    from megalabel.tagger import Tagger


@dataclass(frozen=True)
class Plan:
    """Peak memory, model size on disk, and time of a fit, as foreseen."""

    memory: int
    """Peak resident bytes of the process."""
    disk: int
    """Bytes of the model folder."""
    seconds: float
    available: int
    """Bytes of memory the machine has left for it."""

    @property
    def fits(self) -> bool:
        """Whether the memory suffices."""
        return self.memory <= self.available

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"fits": self.fits}


@dataclass(frozen=True)
class Trial:
    """Fits on two samples of a corpus, and what they foretell of the whole."""

    rows: tuple[int, int]
    seconds: tuple[float, float]
    model: tuple[int, int]
    """Bytes learned."""
    nonzeros: float
    """Feature values a text."""
    whole: int

    def scaled(self, values: tuple[float, float], least: float, most: float) -> float:
        """The value for the whole corpus by a power law through the two samples."""
        small, large = values
        if self.rows[0] == self.rows[1] or small <= 0:
            return large * self.whole / max(self.rows[1], 1)
        power = np.log(large / small) / np.log(self.rows[1] / self.rows[0])
        return float(large * (self.whole / self.rows[1]) ** np.clip(power, least, most))


def trial(tagger: Tagger, corpus: Corpus, rows: int = 8000, seed: int = 0) -> Trial:
    """Fit a tagger on samples of at most `rows` texts and half as many, without calibration."""
    large = np.sort(np.random.default_rng(seed).permutation(len(corpus))[:rows])
    small = large[::2]
    seconds, sizes, nonzeros = [], [], 0.0
    for sample in (small, large):
        part = corpus[sample]
        fitted = clone(tagger).set_params(calibration=None)
        started = time.perf_counter()
        fitted.fit(part)
        seconds.append(time.perf_counter() - started)
        sizes.append(learned_bytes(fitted))
        vectors = fitted.features_.transform(part[:2000])
        nonzeros = (vectors.nnz if issparse(vectors) else vectors.size) / max(1, vectors.shape[0])
    return Trial(
        (len(small), len(large)),
        (seconds[0], seconds[1]),
        (sizes[0], sizes[1]),
        nonzeros,
        len(corpus),
    )


def learned_bytes(value: Any) -> int:
    """The bytes of everything a component has learned."""
    if isinstance(value, Component):
        return sum(map(learned_bytes, value.learned().values()))
    if isinstance(value, LabelSet):
        return sum(
            c.nbytes
            for c in {id(c): c for c in (value.ids, value.names, value.texts)}.values()
            if c
        )
    if issparse(value):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    if isinstance(value, np.ndarray | pa.Array):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(map(learned_bytes, value.values()))
    return sum(map(learned_bytes, value)) if isinstance(value, list) else 0


def memory_in_use() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_available() -> int:
    """Bytes this process may grow to: what it has, and what the machine has left."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    return memory_in_use() + int(fields["MemAvailable"].split()[0]) * 1024
