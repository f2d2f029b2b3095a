"""Foresight: the seconds and the memory that trials of a race are going to take."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from megalabel.data import Corpus
from megalabel.errors import MegalabelError
from megalabel.features import Tfidf
from megalabel.machine import memory_in_use
from megalabel.systems.trials import Candidate, Trial, Trials

# Seconds grow by a power of the texts: labels come with them. The second and third are its bounds
# where two trials tell.
_GROWTH, _LEAST, _MOST = 1.15, 0.8, 1.4
_TELLING = 0.5  # seconds; of less, most is not training
_SMALL = 4_000  # texts, and labels: a trial of fewer is over before it is planned
_SAMPLE = 2_000  # texts that tell how many values other features have
_UNKNOWN = 1.3  # times what a setting may take longer, besides for its features


@dataclass(frozen=True)
class _Known:
    """What a candidate takes on so many texts."""

    texts: int
    seconds: float
    memory: int
    """Bytes above those that the process holds."""
    growth: float = _GROWTH
    measured: bool = False

    def times(self, texts: int) -> float:
        return float((texts / max(1, self.texts)) ** self.growth)


class Foresight:
    """What candidates take: as their systems plan it, and once there were trials, as measured.

    Parameters
    ----------
    trials : Trials
    """

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._known: dict[str, _Known] = {}
        self._values: dict[str, float] = {}
        self._planning = [0.0, 0.0]  # seconds that passed, and that this process worked

    def plan(self, candidate: Candidate, texts: int) -> None:
        """Foresee by the plan of a system; a trial of few texts and labels is taken for nothing."""
        corpus = self._trials.corpus
        if texts <= _SMALL and len(corpus.labels) <= _SMALL:
            self._known[candidate.key] = _Known(texts, 0.0, 0)
            return
        held, started = memory_in_use(), (time.perf_counter(), time.process_time())
        tagger = candidate.create(self._trials.seed)
        plan = candidate.system.plan(tagger, self._trials.texts(texts))
        if candidate.system.cost_class != "gpu":  # for which a process waits
            self._planning[0] += time.perf_counter() - started[0]
            self._planning[1] += time.process_time() - started[1]
        # without seconds, its vectors alone are too much
        seconds = np.inf if plan.seconds is None or not plan.fits else plan.seconds
        self._known[candidate.key] = _Known(texts, seconds, max(0, plan.memory - held))

    def measured(self, trial: Trial) -> None:
        """Learn what a trial took."""
        before = self._known[trial.candidate.key]
        growth = before.growth
        if before.measured and before.texts < trial.texts and before.seconds > _TELLING:
            power = np.log(trial.seconds / before.seconds) / np.log(trial.texts / before.texts)
            growth = float(np.clip(power, _LEAST, _MOST))
        memory = int(before.memory * trial.texts / max(1, before.texts))
        known = _Known(trial.texts, trial.seconds, memory, growth, measured=True)
        self._known[trial.candidate.key] = known

    def tuned(self, candidate: Candidate, base: Candidate) -> None:
        """Foresee a candidate that has one more setting than another, by the number of values that
        its features have."""
        times, seed = _UNKNOWN, self._trials.seed
        if repr(candidate.create(seed).features) != repr(base.create(seed).features):
            times *= max(1.0, self._values_of(candidate) / max(1.0, self._values_of(base)))
        known = self._known[base.key]
        if "label_points" in candidate.settings.keys() - base.settings.keys():
            times *= 1 + len(self._trials.corpus.labels) / known.texts  # rows
        self._known[candidate.key] = replace(
            known, seconds=known.seconds * times, memory=int(known.memory * times)
        )

    def seconds(self, candidate: Candidate, texts: int) -> float:
        """What it takes to train a candidate on so many texts, and to rank those held out."""
        known = self._known[candidate.key]
        slower = 1.0 if known.measured else self._slower
        return slower * known.seconds * known.times(texts) if known.seconds else 0.0

    def most_texts(self, candidate: Candidate, seconds: float) -> int:
        """How many texts a candidate can be trained on within so many seconds."""
        known = self._known[candidate.key]
        times = seconds / max(1e-9, self.seconds(candidate, known.texts))
        return int(known.texts * max(0.0, times) ** (1 / known.growth))

    @property
    def _slower(self) -> float:
        """By how much all takes longer than plans say, which count no seconds that others have the
        machine: as planning did."""
        passed, worked = self._planning
        return max(1.0, passed / worked) if worked > _TELLING else 1.0

    def memory(self, candidate: Candidate, texts: int) -> int:
        """The peak of the process meanwhile, in bytes."""
        known = self._known[candidate.key]
        return memory_in_use() + int(known.memory * texts / max(1, known.texts))

    def _values_of(self, candidate: Candidate) -> float:
        """Feature values of a text."""
        if candidate.key not in self._values:
            sample = self._trials.texts(_SAMPLE)
            self._values[candidate.key] = _values(candidate, self._trials.seed, sample)
        return self._values[candidate.key]


def _values(candidate: Candidate, seed: int, sample: Corpus) -> float:
    features = candidate.create(seed).features or Tfidf()
    try:
        vectors: Any = features.fit_transform(sample)
    except MegalabelError:  # no term is frequent enough in so few texts
        return 0.0
    return float(vectors.nnz if issparse(vectors) else vectors.size) / max(1, len(sample))
