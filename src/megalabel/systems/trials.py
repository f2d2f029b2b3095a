"""Trials: systems trained on some texts of a corpus and measured on others that none of them sees.

A finished trial is kept where fits are checkpointed, and is not done again.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zipfile import BadZipFile

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import checkpoints, store, systems
from megalabel.base import Component
from megalabel.calibration import Platt
from megalabel.checkpoints import Checkpoint
from megalabel.data import Corpus, Ranking
from megalabel.errors import MegalabelError
from megalabel.features import Concat, Tfidf
from megalabel.metrics.instance import ratio
from megalabel.outputs import replacing_file
from megalabel.preparing import in_random_order
from megalabel.systems import System
from megalabel.tagger import Tagger

log = logging.getLogger(__name__)

CUTOFF = 10
BY = f"nDCG@{CUTOFF}"
"""What trials are compared by."""
_WIDTH = 30  # labels of a text that are kept of a trial's ranking
MOST_HELD_OUT, _ENOUGH = 8_000, 1_000
_KEPT = "trial.npz"


@dataclass(frozen=True)
class Candidate:
    """A system with settings of its own."""

    system: System
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [f"{name}={_brief(value)}" for name, value in self.settings.items()]
        return ", ".join([self.system.name, *shown])

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return f"{self.system.name} {dict(self.settings)!r}"

    def create(self, seed: int) -> Tagger:
        """A tagger of it that is not calibrated."""
        made = systems.create(self.system.name, **{"seed": seed, **self.settings})
        return made.set_params(calibration=None, decision=None)

    def with_setting(self, setting: Mapping[str, Any]) -> Candidate:
        """The same with one more setting, or another value of one."""
        return Candidate(self.system, {**self.settings, **setting})


@dataclass(eq=False)
class Trial:
    """What came of a candidate that was trained on so many texts."""

    candidate: Candidate
    texts: int
    seconds: float = 0.0
    ranking: Ranking | None = None
    """Of the texts held out."""
    gains: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The nDCG of each of them; none without a result."""
    precision: float = 0.0
    """The share of them whose best label is right."""
    refused: str = ""
    """Why it was not done."""
    error: Exception | None = None
    """What ended it."""
    tagger: Tagger | None = None
    """What was trained, where it is kept."""
    kept: bool = False
    """True if it was finished by an earlier run."""

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return len(self.gains) > 0

    @property
    def score(self) -> float:
        """The mean nDCG of the texts held out; 0 without a result."""
        return float(self.gains.mean()) if self.done else 0.0

    def above(self, other: Trial) -> tuple[float, float]:
        """By how much it is better than another, and the standard error of that over the texts."""
        difference = self.gains - other.gains
        error = difference.std() / np.sqrt(max(1, len(difference)))
        return float(difference.mean()), float(error)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        settings = {
            name: repr(value) if isinstance(value, Component | tuple) else value
            for name, value in self.candidate.settings.items()
        }
        told: dict[str, Any] = {"name": str(self.candidate), "system": self.candidate.system.name}
        told |= {"settings": settings, "texts": self.texts}
        if not self.done:
            failed = f"failed: {str(self.error) or type(self.error).__name__}"
            return told | {"problem": self.refused or failed, "refused": bool(self.refused)}
        return told | {
            BY: self.score,
            "P@1": self.precision,
            "seconds": round(self.seconds, 3),
        }


class Trials:
    """Texts of a corpus held out, and trials that are measured on them.

    Parameters
    ----------
    corpus : Corpus
    seed : int
        Fixes which texts are held out, and everything random in a trial.
    clock : callable
        Gives seconds.

    Attributes
    ----------
    held_out : Corpus
        A tenth of the texts: at most 8,000, and up to a fifth where that is less than 1,000. Of
        their labels those that other texts carry: all others will have texts in the end, while in a
        trial only what learns from their names could find them.
    whole : int
        How many texts are left to train on.
    """

    def __init__(
        self, corpus: Corpus, seed: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.corpus, self.seed = corpus, seed
        n = len(corpus)
        count = min(MOST_HELD_OUT, max(n // 10, min(n // 5, _ENOUGH)))
        order = in_random_order(corpus.targets, seed)
        self._held_out, self._order = np.sort(order[:count]), order[count:]
        held_out, carried = corpus[self._held_out], corpus.targets[self._order].indices
        self._carried = np.bincount(carried, minlength=len(corpus.labels)) > 0
        self.held_out = _with_labels(held_out, self._carried)
        self.whole = len(self._order)
        self._clock = clock
        self._goes_on = False  # whether a trial was finished by an earlier run
        self._digest: np.ndarray | None = None

    def texts(self, count: int) -> Corpus:
        """So many of the texts to train on; more of them hold fewer."""
        return self.corpus[np.sort(self._order[:count])]

    def run(self, candidate: Candidate, count: int, *, keep: bool = False) -> Trial:
        """Train a candidate on so many texts and rank those held out, unless that was done before.

        What was trained stays with the trial if it is of all texts, or is to be kept. An error ends
        the trial alone.
        """
        trial = Trial(candidate, count)
        try:
            checkpoint = self._checkpoint(candidate, count)
            if not self._taken_up(trial, checkpoint):
                self._do(trial, checkpoint)
                trial.tagger = trial.tagger if keep or count == self.whole else None
        except Exception as error:  # of whatever kind: another candidate may do better
            log.info("%s failed: %s", candidate, error)
            return Trial(candidate, count, error=error)
        assert trial.ranking is not None
        trial.gains = gains(trial.ranking, self.held_out.targets)
        trial.precision = float(gains(trial.ranking, self.held_out.targets, 1).mean())
        when = ", by an earlier run" if trial.kept else ""
        log.info(
            "%s on %s texts: %s %.2f %%%s", candidate, f"{count:,}", BY, 100 * trial.score, when
        )
        return trial

    def _do(self, trial: Trial, checkpoint: Checkpoint) -> None:
        started, work = self._clock(), checkpoint.file("work")
        with checkpoints.kept_in(work):
            fitted = self.fitted(trial.candidate, self.texts(trial.texts))
            trial.ranking = _with_ids(fitted.rank(self.held_out, _WIDTH), self._carried)
        trial.seconds = self._clock() - started
        trial.tagger = fitted
        if (file := checkpoint.file(_KEPT)) is not None:
            with replacing_file(file) as fresh:
                ids, scores = trial.ranking.ids, trial.ranking.scores
                np.savez(fresh, ids=ids, scores=scores, seconds=np.array(trial.seconds))
            shutil.rmtree(file.with_name("work"), ignore_errors=True)

    def fitted(self, candidate: Candidate, corpus: Corpus) -> Tagger:
        """A candidate trained on a corpus, without calibration."""
        return candidate.create(self.seed).fit(corpus)

    def trained(self, trial: Trial) -> Tagger:
        """What a trial has trained, which is kept from now on where fits are; trained anew where it
        was not kept."""
        model = self._checkpoint(trial.candidate, trial.texts).file("model")
        if trial.tagger is None and model is not None and store.is_model(model):
            trial.tagger = Tagger.load(model)
        if trial.tagger is None:
            trial.tagger = self.fitted(trial.candidate, self.texts(trial.texts))
        if model is not None and not store.is_model(model):
            trial.tagger.save(model)
        return trial.tagger

    def _checkpoint(self, candidate: Candidate, count: int) -> Checkpoint:
        return Checkpoint(candidate.create(self.seed), *self._identity(count))

    def _identity(self, count: int) -> tuple[np.ndarray, ...]:
        """What tells a trial on so many of these texts from others."""
        if self._digest is None:
            told = [self.corpus.texts, self.corpus.features, self.corpus.targets]
            digest = store.fingerprint([*told, self.corpus.excluded])
            self._digest = np.frombuffer(bytes.fromhex(digest), np.uint8)
        return self._digest, self._held_out, self._order[:count]

    def _taken_up(self, trial: Trial, checkpoint: Checkpoint) -> bool:
        """Whether the trial was finished by an earlier run; then it is as it was."""
        file = checkpoint.file(_KEPT)
        if file is None or not file.exists():
            return False
        try:
            with np.load(file, allow_pickle=False) as arrays:
                trial.ranking = Ranking(arrays["ids"], arrays["scores"], self.corpus.labels)
                trial.seconds = float(arrays["seconds"])
        except (OSError, EOFError, ValueError, KeyError, BadZipFile, MegalabelError):
            return False
        trial.kept = len(trial.ranking) == len(self.held_out)
        if trial.kept and not self._goes_on:
            log.info("going on from an earlier run: the trials that it finished are not run again")
        self._goes_on |= trial.kept
        return trial.kept


def _brief(value: Any) -> str:
    """A setting in a few words."""
    if isinstance(value, Concat):
        return " + ".join(map(_brief, value.parts))
    if not isinstance(value, Tfidf):
        return repr(value)
    low, high = value.ngram_range
    runs = "" if high == 1 else f" {low}" if low == high else f" {low} to {high}"
    return ("words" if value.analyzer == "word" else "letters") + runs


def gains(ranking: Ranking, targets: csr_matrix, k: int = CUTOFF) -> np.ndarray:
    """The nDCG@k of each text, as `evaluate` has their mean; with k=1 it is P@1."""
    n, width = targets.shape
    positive = csr_matrix(targets > 0)
    true = np.repeat(np.arange(n), np.diff(positive.indptr)) * np.int64(width + 1)
    ids = ranking.ids[:, :k].astype(np.int64)
    cells = np.arange(n)[:, None] * np.int64(width + 1) + np.minimum(ids, width)
    hit = np.isin(cells, true + positive.indices)
    discounts = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.append(0.0, np.cumsum(discounts))[np.minimum(np.diff(positive.indptr), k)]
    return ratio(hit @ discounts[: ids.shape[1]], ideal)


def complementary(trials: Sequence[Trial], targets: csr_matrix, most: int) -> list[Trial]:
    """The best trial, and those that add to it: each raises the nDCG of the mean of probabilities
    by more than its standard error."""
    ordered = sorted(trials, key=lambda trial: -trial.score)
    chosen, left = ordered[:1], ordered[1:]
    if not left:
        return chosen
    rows = {id(trial): _probabilities(trial.ranking, targets) for trial in ordered}
    total, before = rows[id(chosen[0])], chosen[0].gains
    while left and len(chosen) < most:
        sums = [total + rows[id(trial)] for trial in left]
        every = [gains(Ranking.from_csr(s, CUTOFF, _labels(trials)), targets) for s in sums]
        best = int(np.argmax([gain.mean() for gain in every]))
        difference = every[best] - before
        if difference.mean() <= difference.std() / np.sqrt(len(difference)):
            break
        total, before = sums[best], every[best]
        chosen.append(left.pop(best))
    return chosen


def _with_labels(corpus: Corpus, kept: np.ndarray) -> Corpus:
    """A corpus with some of its labels; the others are known, but no text carries them."""
    targets = corpus.targets.copy()
    targets.data[~kept[targets.indices]] = 0
    targets.eliminate_zeros()
    return Corpus(
        corpus.texts,
        corpus.features,
        targets,
        corpus.labels,
        ids=corpus.ids,
        excluded=corpus.excluded,
        source=corpus.source,
    )


def _with_ids(ranking: Ranking, kept: np.ndarray) -> Ranking:
    """A ranking without other labels; those behind them move up."""
    others = ranking.present & ~np.append(kept, False)[ranking.ids]
    rows, places = np.nonzero(others)
    cells = (np.ones(len(rows), np.float32), (rows, ranking.ids[rows, places]))
    return ranking.without(csr_matrix(cells, (len(ranking), len(kept))))


def _labels(trials: Sequence[Trial]) -> Any:
    assert trials[0].ranking is not None
    return trials[0].ranking.labels


def _probabilities(ranking: Ranking | None, targets: csr_matrix) -> csr_matrix:
    """A ranking's scores on a scale that others share."""
    assert ranking is not None
    return Platt(k=_WIDTH).fit(ranking, targets).apply(ranking).to_csr()
