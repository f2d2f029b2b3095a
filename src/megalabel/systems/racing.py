"""Race: the best tagger for a corpus that can be had within some seconds and some memory.

Candidates are trained on a share of the texts and compared on texts held out; the better half goes
on, on twice as many texts (successive halving). Then the settings of those that are left are
tried, one after another; the best are trained on all texts that are not held out, mixed where that
is better, and trained once more on all texts.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import le
from typing import Any

from megalabel import systems
from megalabel.base import clone
from megalabel.data import Corpus
from megalabel.decision import TopK
from megalabel.errors import MegalabelError
from megalabel.features import NameWords
from megalabel.machine import has_gpu_device, memory_available, memory_in_use
from megalabel.mixing import mix, with_members
from megalabel.parts import Calibrator, Decision
from megalabel.rankers.mix import Mix
from megalabel.systems import COST_CLASSES, LABEL_POINTS_RACE
from megalabel.systems.foresight import Foresight
from megalabel.systems.trials import BY, Candidate, Trial, Trials, complementary
from megalabel.tagger import Tagger, calibrator_for
from megalabel.units import duration, size

log = logging.getLogger(__name__)

FEWEST = 40
"""Texts; of fewer none can be held out, and there is no race."""
_SHARE = 2_000  # texts that candidates are trained on at least, if there are so many
_HALVINGS = 2  # the first share is a quarter, unless that takes too long
_FIRST = 8  # the first round may take one part of so many of the budget
_TUNED = 500  # texts held out; fewer do not tell one setting from another
_MIXED = 200  # texts held out; fewer do not tell whether a mix is better
_LEFT = 3  # candidates; with so many, there are no more rounds
_MEMBERS = 4  # of a mix, at most
_TRIALS = 8  # of settings, that are to fit into the budget
_BUDGET = 120.0  # seconds
_TWICE = 2.0  # times what the cheapest linear system takes on all texts, where that is more
_SPARE = 1.2  # times the seconds foreseen that must be left
_MIXING = 0.1  # the share of the budget that is left for mixing and calibration
_WORTHWHILE = 1.2  # times as many texts, for a last training where there is no time for all
_FEW = 20  # one part of so many of the texts, held out, is not worth a second training
_NEURAL_TEXTS, _NEURAL_BUDGET = 5_000, 3600.0  # what encoders take at least, without a GPU


class Race:
    """A race of systems on a corpus, within a budget.

    Parameters
    ----------
    corpus : Corpus
    budget : float, optional
        Seconds. None: two minutes, or, where that is more, what the cheapest linear system takes.
    memory : int, optional
        Bytes that the process may grow to; None: what the machine has left.
    seed : int
    clock : callable
        Gives seconds.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        budget: float | None = None,
        memory: int | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock, self._started = clock, clock()
        self._earlier = 0.0  # seconds of trials that an earlier run has finished
        self._corpus, self._trials = corpus, Trials(corpus, seed, clock)
        self._foresight = Foresight(self._trials)
        self.memory = memory_available() if memory is None else memory
        self._asked, self._budget = budget, _BUDGET if budget is None else budget
        self._told: list[Trial] = []
        self._left_out: dict[str, str] = {}
        self._won: dict[str, Any] = {}

    # ------------------------------------------------------------------ running
    def run(
        self,
        *,
        calibration: Calibrator | str | None = "joint",
        decision: Decision | None = None,
        calibration_texts: int = 5_000,
    ) -> Tagger:
        """The best tagger, fitted; calibration and decision are as for `Tagger`."""
        members = self._members(self._tuned(self._halved()))
        held_out = self._trials.held_out
        made, members = self._mixed(members, calibration, decision)
        if made is None:
            made = self._trials.trained(members[0])
            _settle(made, held_out, calibration, decision, calibration_texts)
        made = self._completed(made, members)
        race = self._described(made)
        log.info("race: %s won after %s", race["winner"], duration(race["seconds"]))
        made.provenance_ = made.provenance_ | {"race": race}
        return made

    def _halved(self) -> list[Trial]:
        """The candidates that are left after rounds on ever more texts."""
        candidates, count = self._first_round()
        while True:
            trials = self._round(candidates, count)
            left = _better_half(trials)
            if len(left) <= _LEFT or count == self._trials.whole:
                return left
            candidates = [trial.candidate for trial in left]
            count = min(self._trials.whole, 2 * count)

    def _round(self, candidates: Sequence[Candidate], count: int) -> list[Trial]:
        trials = [self._try(one, count) for one in candidates]
        if done := [trial for trial in trials if trial.done]:
            return done
        # the budget is too short for any of them: the cheapest that does not fail has to do
        untried = [trial.candidate for trial in trials if trial.error is None]
        for one in sorted(untried, key=lambda one: one.system.cost_class != "cheap"):
            trial = self._trials.run(one, count)
            self._note(trial)
            if trial.done:
                return [trial]
        raise next(trial.error for trial in self._told if trial.error is not None)

    def _tuned(self, trials: list[Trial]) -> list[Trial]:
        """What was tried of the candidates left, on as many texts as there is time for: with their
        defaults, and with other settings."""
        trials = self._affordable(trials)
        if len(self._trials.held_out) < _TUNED:
            return trials
        first, count = trials[0], self._trials.whole
        ends = sum(self._end(trial.candidate, count) for trial in _unlike(trials))
        while count > first.texts and (
            _TRIALS * self._foresight.seconds(first.candidate, count) > self._free - ends
        ):
            count = max(first.texts, count // 2)
        if count > first.texts:
            trials = self._affordable(self._round([trial.candidate for trial in trials], count))
        # the cheapest first: its settings are tried in the time of one of the others
        every, unlike = list(trials), sorted(_unlike(trials), key=lambda trial: trial.seconds)
        for trial in unlike:
            others = [other for other in unlike if other is not trial]
            every += self._settings(trial, sum(self._ends(others)))
        return every

    def _affordable(self, trials: list[Trial]) -> list[Trial]:
        """The best trial that there is time for, when it comes to train it on all texts, and those
        that there is time for besides. Where it is short, the cheapest of those that are as good
        comes first."""
        ordered = sorted(self._in_time(trials), key=lambda trial: -trial.score)
        if sum(self._ends(ordered[:1])) > self._free / 2:
            alike = [one for one in ordered if le(*ordered[0].above(one))]
            cheapest = min(alike, key=lambda one: self._end(one.candidate, one.texts))
            ordered = [cheapest, *(one for one in ordered if one is not cheapest)]
        chosen = ordered[:1]
        for trial in ordered[1:]:
            if sum(self._ends([*chosen, trial])) <= self._free:
                chosen.append(trial)
        return chosen

    def _in_time(self, trials: list[Trial]) -> list[Trial]:
        """Those whose candidates can be trained on all texts; all of them if none can."""
        useful = [trial for trial in trials if trial.candidate.system.cost_class != "instant"]
        in_time = [trial for trial in useful if sum(self._ends([trial])) <= self._free]
        return in_time or trials

    def _ends(self, trials: Sequence[Trial]) -> Iterator[float]:
        return (self._end(trial.candidate, trial.texts) for trial in trials)

    def _settings(self, best: Trial, ends: float) -> Iterator[Trial]:
        """Trials of a system's settings, one after another, each beside those that were better;
        features for which there is no time are tried with the cheapest system of its kind."""
        kind, count = best.candidate.system.cost_class, best.texts
        alike = [
            trial
            for trial in self._told
            if trial.done and trial.texts == count and trial.candidate.system.cost_class == kind
        ]
        cheapest = min(alike, key=lambda trial: trial.seconds)
        for setting in best.candidate.system.race:
            known = best.candidate.settings
            if any(name in known and name != "features" for name in setting):
                continue  # a better value was found already
            if setting is LABEL_POINTS_RACE and not self._names:
                continue
            candidate = best.candidate.with_setting(setting)
            if self._corpus.texts is None and self._alike(candidate, best.candidate):
                continue
            trial = self._try_setting(candidate, best, ends)
            if not trial.done and "features" in setting and cheapest.seconds < best.seconds:
                trial = self._try_setting(cheapest.candidate.with_setting(setting), cheapest, ends)
            if not trial.done:
                continue
            yield trial
            better, error = trial.above(best)
            if better > error:
                best = trial

    def _try_setting(self, candidate: Candidate, base: Trial, ends: float) -> Trial:
        """A trial of a candidate that has one more setting than that of another trial."""
        self._foresight.tuned(candidate, base.candidate)
        return self._try(candidate, base.texts, ends)

    @cached_property
    def _names(self) -> bool:
        """Whether labels have names that a text may hold."""
        return self._corpus.texts is not None and NameWords.useful(self._corpus.labels)

    def _alike(self, *candidates: Candidate) -> bool:
        """Whether candidates differ in features alone."""
        seed = self._trials.seed
        return len({repr(one.create(seed).classifier) for one in candidates}) == 1

    def _members(self, trials: list[Trial]) -> list[Trial]:
        """The best trial and those that a mix with it gains from, trained on all texts that are not
        held out, or on as many as there is time for."""
        most = _MEMBERS if len(self._trials.held_out) >= _MIXED else 1
        whole = self._trials.whole
        in_time = self._in_time(trials)
        # the best of each kind first: unlike members add more to a mix than to a mean
        unlike = _unlike(sorted(in_time, key=lambda trial: -trial.score))
        others = complementary(in_time, self._trials.held_out.targets, most)
        chosen = [*unlike, *(one for one in others if one not in unlike)][:most]
        for trial in trials:
            if trial not in chosen:
                trial.tagger = None
        best = chosen[0]
        if best.texts < whole and self._foresight.seconds(best.candidate, whole) > self._left:
            count = self._foresight.most_texts(best.candidate, self._free / _SPARE)
            if count > _WORTHWHILE * best.texts:
                more = self._trials.run(best.candidate, min(count, whole), keep=True)
                self._note(more)
                best = more if more.done else best
            return [best]
        members: list[Trial] = []
        for trial in chosen:
            again = sum(self._end(member.candidate, whole) for member in members)
            if members and again + sum(self._ends([trial])) > self._free:
                continue
            if trial.texts < whole:
                trial = self._trials.run(trial.candidate, whole)
                self._note(trial)
            if trial.done:
                members.append(trial)
        best = max(members, key=lambda trial: trial.score, default=best)
        kind = best.candidate.system.kind
        # a mix of fewer is one of unlike members
        members.sort(key=lambda one: (one is not best, one.candidate.system.kind == kind))
        return members or [best]

    def _mixed(
        self, members: list[Trial], calibration: Calibrator | str | None, decision: Decision | None
    ) -> tuple[Tagger | None, list[Trial]]:
        """The best mix of the first members, and who they are; None: the first alone is better."""
        best = members[0]
        self._won = {"winner": str(best.candidate), BY: best.score}
        made: Tagger | None = None
        if len(self._trials.held_out) < _MIXED:
            return made, members[:1]
        trained = [self._trials.trained(member) for member in members]
        chosen, took = 1, 0.0
        for count in range(len(members), 0, -1):
            again = sum(self._end(one.candidate, one.texts) for one in members[:count])
            if took and 1.5 * took + again > self._left:
                break  # there is no time for another
            started, names = self._clock(), " and ".join(map(_named, members[:count]))
            try:
                mixed = mix(
                    trained[:count],
                    self._trials.held_out,
                    calibration=calibration,
                    decision=decision,
                    held_out=True,
                )
            except MegalabelError as error:
                log.warning("there is no mix of %s: %s", names, error)
                continue
            took = self._clock() - started
            told = mixed.provenance_["mix"]
            score = told["held_out"][told["form"]][BY]
            log.info("mix of %s: %s %.2f %%", names, BY, 100 * score)
            if score > max(self._won[BY], told["held_out"]["member 0"][BY]):
                made, chosen = mixed, count
                self._won = {"winner": f"mix of {names}", BY: score}
        return made, members[:chosen]

    def _completed(self, first: Tagger, members: list[Trial]) -> Tagger:
        """The same, trained on all texts if there is time for it."""
        texts = len(self._corpus)
        again = sum(self._foresight.seconds(member.candidate, texts) for member in members)
        if _SPARE * again > self._left:
            log.info("there is no time to train on the texts held out, too")
            return first
        trained = [self._trials.fitted(member.candidate, self._corpus) for member in members]
        if isinstance(first.classifier_, Mix):
            return with_members(first, trained, self._corpus)
        [final] = trained
        final.calibration, final.decision = first.calibration, first.decision
        learned = {name: first.learned()[name] for name in ("metrics_", "reliability_")}
        if first.calibration_ is not None:
            learned["calibration_"] = first.calibration_.for_counts(final.label_counts_)
        final.restore(final.learned() | learned | {"decision_": first.decision_})
        return final

    # ------------------------------------------------------------------ candidates
    def _candidates(self) -> Iterator[Candidate]:
        """Systems that take part, the cheapest first."""
        known = [systems.get(name) for name in systems.names()]
        raced = [system for system in known if system.cost_class is not None]
        for system in sorted(raced, key=lambda system: COST_CLASSES.index(system.cost_class or "")):
            if system.cost_class == "gpu" and (why := self._no_encoder()):
                self._left_out[system.name] = why
            elif system.suits is None or system.suits(self._corpus):
                yield Candidate(system)

    def _no_encoder(self) -> str:
        """Why no encoder is trained; empty where it is."""
        if self._corpus.texts is None or len(self._corpus) < _NEURAL_TEXTS:
            return "for more texts"
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        if not has_gpu_device() and self._budget < _NEURAL_BUDGET:
            return "there is no GPU"
        return ""

    def _first_round(self) -> tuple[list[Candidate], int]:
        """Who takes part in the first round, all of them planned, and on how many texts it is."""
        count = self._trials.whole
        for _ in range(_HALVINGS):
            # rounded up, so that rounds of twice as many texts end with all of them
            count = -(-count // 2) if count >= 2 * _SHARE else count
        candidates = [one for one in self._candidates() if self._plan(one, count)]
        if self._asked is None:
            good = [one for one in candidates if one.system.cost_class in ("linear", "dear")]
            self._budget = max(_BUDGET, _TWICE * min(map(self._end, good), default=0.0))
        for place, candidate in enumerate(candidates):
            thrifty = candidate.system.thrifty
            if thrifty is not None and self._end(candidate) > self._budget / 2:
                cheaper = candidate.with_setting(thrifty)
                if self._plan(cheaper, count):
                    candidates[place] = cheaper
        while count >= 2 * _SHARE and (
            sum(self._foresight.seconds(one, count) for one in self._possible(candidates))
            > self._budget / _FIRST
        ):
            count = -(-count // 2)
        return candidates, count

    def _plan(self, candidate: Candidate, count: int) -> bool:
        """Plan a candidate; False: that fails."""
        try:
            self._foresight.plan(candidate, count)
        except Exception as error:  # of whatever kind, as in a trial
            self._told.append(Trial(candidate, count, error=error))
            return False
        return True

    def _possible(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that could end within the budget."""
        return [one for one in candidates if self._end(one) <= self._budget] or [*candidates[:1]]

    # ------------------------------------------------------------------ time and memory
    def foreseen(self) -> tuple[float, int]:
        """Seconds that the race may take, and bytes that the process is going to have: as the
        candidate does that takes the most, twice, as members of a mix are held beside each other.
        """
        candidates, _ = self._first_round()
        texts = len(self._corpus)
        held = memory_in_use()
        possible = self._possible(candidates)
        most = max((self._foresight.memory(one, texts) for one in possible), default=held)
        return self._budget, min(self.memory, 2 * most - held)

    @property
    def _left(self) -> float:
        return self._budget - self._earlier - (self._clock() - self._started)

    @property
    def _free(self) -> float:
        """Seconds left for trials and for training on all texts."""
        return self._left - _MIXING * self._budget

    def _end(self, candidate: Candidate, tried: int = 0) -> float:
        """Seconds to train a candidate on all texts but those held out, if more than were tried,
        and on all, if that makes a difference."""
        whole, texts = self._trials.whole, len(self._corpus)
        counts = [whole] * (tried < whole) + [texts] * (texts - whole > texts / _FEW)
        return _SPARE * sum(self._foresight.seconds(candidate, count) for count in counts)

    def _try(self, candidate: Candidate, count: int, ends: float = 0.0) -> Trial:
        """A trial, unless it cannot end within budget and memory; `ends` are the seconds that
        others take in the end."""
        seconds = _SPARE * self._foresight.seconds(candidate, count)
        needed = seconds + self._end(candidate, count) + ends
        memory = self._foresight.memory(candidate, len(self._corpus))
        if memory > self.memory or seconds == float("inf"):
            refused = f"would take {size(memory)} of memory"
            trial = Trial(candidate, count, refused=refused)
        elif needed > self._free:
            refused = f"would take {duration(needed)}, with the training on all texts"
            trial = Trial(candidate, count, refused=refused)
        else:
            trial = self._trials.run(candidate, count)
        self._note(trial)
        return trial

    def _note(self, trial: Trial) -> None:
        self._told.append(trial)
        if trial.done:
            self._foresight.measured(trial)
        if trial.kept:
            self._earlier += trial.seconds

    def _described(self, made: Tagger) -> dict[str, Any]:
        """What is kept of the race that a tagger has won, ready for JSON."""
        return {
            **self._won,
            "texts": made.n_texts_,
            "held_out": len(self._trials.held_out),
            "budget": self._budget,
            "seconds": round(self._budget - self._left, 3),
            "trials": [trial.to_dict() for trial in self._told],
            "left_out": self._left_out,
        }


def _named(trial: Trial) -> str:
    return str(trial.candidate)


def _unlike(trials: Sequence[Trial]) -> list[Trial]:
    """The first trial of each kind."""
    kinds = [trial.candidate.system.kind for trial in trials]
    return [trial for place, trial in enumerate(trials) if kinds[place] not in kinds[:place]]


def _better_half(trials: Sequence[Trial]) -> list[Trial]:
    """The better half, and of each other kind the best, but for the floor: one that is much cheaper
    may be as good on all texts, and unlike members are worth most in a mix."""
    ordered = sorted(trials, key=lambda trial: -trial.score)
    half = -(-len(ordered) // 2)
    kinds = [trial.candidate.system.kind for trial in ordered]
    return [
        trial
        for place, trial in enumerate(ordered)
        if place < half or kinds[place] not in {*kinds[:place], "instant"}
    ]


def _settle(
    fitted: Tagger,
    held_out: Corpus,
    calibration: Calibrator | str | None,
    decision: Decision | None,
    texts: int,
) -> None:
    """Calibrate a tagger, as deep as its decision looks, on at most so many texts that it has not
    seen, and let the decision learn from them."""
    if calibration is not None and held_out.targets.nnz:
        rule = TopK() if decision is None else clone(decision)
        fitted.calibrate(held_out[:texts], method=calibrator_for(calibration, rule))
    fitted.set_decision(decision, held_out)
