"""Plan: what a fit will cost, said before it starts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import issparse, vstack

from megalabel import _native
from megalabel.base import Component, clone
from megalabel.data import Corpus, LabelSet
from megalabel.errors import MegalabelError
from megalabel.features import Tfidf
from megalabel.judges import Cost
from megalabel.labels.points import as_label_points
from megalabel.linear.training import LANES
from megalabel.machine import memory_available, memory_in_use, peak_memory
from megalabel.tagger import as_calibrator

if TYPE_CHECKING:
    from megalabel.tagger import Tagger


_TOGETHER = 100_000  # texts that tell which labels come together: a plan has no time for more


@dataclass(frozen=True)
class Plan:
    """Peak memory, model size on disk, and time of a fit, as foreseen."""

    memory: int
    """Peak resident bytes of the process."""
    disk: int | None
    """Bytes of the model folder. None: not looked at, as the memory will not suffice."""
    seconds: float | None
    """None: likewise."""
    available: int
    """Bytes of memory the machine has left for it."""
    gpu_memory: int | None = None
    """Peak bytes on the GPU; None: it uses none."""
    gpu_available: int | None = None
    judging: Cost | None = None
    """What a judge costs at most; None: none is asked, or one that costs nothing."""

    @property
    def fits(self) -> bool:
        """Whether the memory suffices, and the GPU's."""
        enough = self.gpu_memory is None or self.gpu_memory <= (self.gpu_available or 0)
        return self.memory <= self.available and enough

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = asdict(self) | {"fits": self.fits}
        if self.judging is not None:
            told["judging"]["calls"] = self.judging.calls
        return told


def too_large(tagger: Tagger, corpus: Corpus, rows: int = 2_000) -> Plan | None:
    """The plan of a job whose vectors alone do not fit into memory; None: they do.

    A few texts tell, so that the answer comes at once.
    """
    some = np.sort(np.random.default_rng(tagger.seed).permutation(len(corpus))[:rows])
    sample: Any = corpus[some].features
    if corpus.texts is not None:
        features = Tfidf() if tagger.features is None else clone(tagger.features)
        try:
            sample = features.fit_transform(corpus[some])
        except MegalabelError:  # no term is frequent enough in so few texts
            return None
    values = sample.nnz if issparse(sample) else sample.size
    # vectors as they are made, and the copy that training works on
    memory = memory_in_use() + 2 * int(8 * values / len(some) * len(corpus))
    available = memory_available()
    return Plan(memory, None, None, available) if memory > available else None


def with_label_texts(tagger: Tagger, corpus: Corpus) -> Corpus:
    """The corpus with a text for each label point that a tagger learns from: what it costs."""
    points = as_label_points(tagger.label_points)
    if points is None or corpus.texts is None:
        return corpus
    numbers = points.chosen(corpus.label_counts)
    some = np.random.default_rng(tagger.seed).permutation(len(corpus))[:_TOGETHER]
    targets = points.targets_of(corpus.targets[np.sort(some)])[numbers]
    texts = points.texts_of(corpus.labels).take(pa.array(numbers))
    return Corpus(
        pa.concat_arrays([corpus.texts, texts]),
        targets=vstack([corpus.targets, targets], "csr"),
        labels=corpus.labels,
        source=corpus.source,
    )


@dataclass(frozen=True)
class Trial:
    """Fits on two samples of a corpus, the second twice the first, and what they foretell."""

    rows: tuple[int, int]
    seconds: tuple[float, float]
    """Of fitting, without calibration."""
    ranking: tuple[float, float]
    """Seconds to rank one text."""
    model: tuple[int, int]
    """Bytes learned."""
    terms: tuple[int, int]
    """Features learned."""
    nonzeros: float
    """Feature values a text."""
    whole: int
    """Texts of the whole corpus."""

    def line(self, values: tuple[float, float]) -> float:
        """The value for the whole corpus on the line through the two samples."""
        small, large = values
        slope = max(0.0, (large - small) / max(1, self.rows[1] - self.rows[0]))
        return float(large + slope * (self.whole - self.rows[1]))

    def power(self, values: tuple[float, float]) -> float:
        """The value for the whole corpus by a power law, at most in proportion: Heaps' law."""
        small, large = values
        if self.rows[0] == self.rows[1] or not 0 < small < large:
            return float(large)
        exponent = np.log(large / small) / np.log(self.rows[1] / self.rows[0])
        return float(large * (self.whole / self.rows[1]) ** min(1.0, exponent))


def trial(tagger: Tagger, corpus: Corpus, rows: int = 32_000) -> Trial:
    """Fit a tagger on samples of at most `rows` texts and half as many."""
    order = np.random.default_rng(tagger.seed).permutation(len(corpus))[:rows]
    measured = []
    # the first, small one is not counted: it pays for imports and the first touch of memory
    for count in (min(500, len(order)), max(1, len(order) // 2), len(order)):
        sample = corpus[np.sort(order[:count])]
        fitted = clone(tagger).set_params(calibration=None, label_points=None)
        started = time.perf_counter()
        fitted.fit(sample)
        fitting = time.perf_counter() - started
        queries = sample[:1000]
        started = time.perf_counter()
        fitted.rank(queries, 10)
        ranking = (time.perf_counter() - started) / len(queries)
        measured.append(
            (count, fitting, ranking, learned_bytes(fitted), fitted.features_.n_features)
        )
    vectors = fitted.features_.transform(queries)
    nonzeros = (vectors.nnz if issparse(vectors) else vectors.size) / len(queries)
    _, small, large = measured
    return Trial(
        rows=(small[0], large[0]),
        seconds=(small[1], large[1]),
        ranking=(small[2], large[2]),
        model=(small[3], large[3]),
        terms=(small[4], large[4]),
        nonzeros=nonzeros,
        whole=len(corpus),
    )


def learned_bytes(value: Any) -> int:
    """The bytes of everything a component has learned, as it is stored."""
    if isinstance(value, Component):
        return sum(map(learned_bytes, value.learned().values()))
    if isinstance(value, LabelSet):
        columns = {id(c): c for c in (value.ids, value.names, value.texts) if c is not None}
        return sum(map(learned_bytes, columns.values()))
    if issparse(value):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    if isinstance(value, pa.Array):  # by lengths, most of them a byte, in place of offsets
        return int(value.nbytes) - 7 * len(value)
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(map(learned_bytes, value.values()))
    return sum(map(learned_bytes, value)) if isinstance(value, list) else 0


# Bytes of libraries that a fit is the first to use, and those that calibration is.
_FIT_CODE, _CALIBRATION_CODE = 4 << 20, 8 << 20
_CELL = 60  # bytes that calibration takes for each label of a ranked text, its ranking included
_SPREAD = 1.07  # from run to run, allocators keep some per cent more or less


class Start(NamedTuple):
    """The memory of a process before it fits."""

    held: int
    peak: int
    available: int

    @classmethod
    def now(cls) -> Start:
        """What it is at this moment."""
        return cls(memory_in_use(), peak_memory(), memory_available())

    def peak_with(self, tagger: Tagger, texts: int, training: float, kept: float) -> int:
        """The peak of the process when it has fitted a tagger.

        Parameters
        ----------
        tagger : Tagger
        texts : int
            How many it is fitted on.
        training : float
            The most bytes that training adds to those that are held.
        kept : float
            What is left of them when the tagger is calibrated: rows and the model.
        """
        calibrating = 0.0
        if tagger.calibration is not None and (ranked := tagger.held_out(texts)):
            cells = ranked * as_calibrator(tagger.calibration).k
            calibrating = kept + _CALIBRATION_CODE + _CELL * cells
        fitting = self.held + _FIT_CODE + max(training, calibrating)
        # The corpus is read before a fit, which may take more; but a peak for which there is no
        # memory left is past.
        return int(max(_SPREAD * fitting, min(_SPREAD * self.peak, self.available)))


KEPT_ROWS = _native.MOST_KEPT_ROWS  # of more, a thread keeps no margins


def working_bytes(
    rows: int, width: int, entries: float, threads: float, loss: str = "squared-hinge"
) -> float:
    """Memory of a linear classifier's rows, their columns as the solver numbers them, and the
    buffers of threads that solve labels on all of them."""
    columns = 2 if width <= 2**16 else 4
    vectors, margins = (5, 3 if loss == "logistic" else 2)
    if rows > KEPT_ROWS:
        vectors, margins = (5, 2) if loss == "logistic" else (2, 0)
    own = LANES * 4 * (vectors * (width + 1) + margins * rows) + 20 * rows
    return (8 + columns) * entries + threads * own
