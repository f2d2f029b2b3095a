"""auto: the best of all systems for a corpus, found by a race within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from megalabel.base import Check, number, one_of
from megalabel.data import Corpus
from megalabel.parts import Calibrator, Decision
from megalabel.systems import System
from megalabel.systems.composed import Composed
from megalabel.systems.knn import knn
from megalabel.systems.knn import plan as plan_knn
from megalabel.systems.planning import Plan
from megalabel.systems.racing import FEWEST, Race
from megalabel.tagger import Tagger
from megalabel.units import bytes_of, seconds_of


def _read_by(read: Any, expected: str) -> Check:
    """A text that a function can read."""

    def accepts(value: Any) -> bool:
        try:
            return isinstance(value, str) and read(value) > 0
        except ValueError:
            return False

    return Check(accepts, expected)


class Auto(Composed):
    """A tagger of the system that wins a race on the corpus that it is fitted on.

    Parameters
    ----------
    budget : float or str, optional
        Seconds that the race may take, or a time such as "90s", "10m" or "2h". None: two minutes,
        or, where that is more, what the cheapest linear system takes.
    memory : int or str, optional
        Bytes that the process may grow to, or a size such as "4G". None: what the machine has.
    calibration, decision, calibration_texts, seed
        As for `Tagger`.

    Examples
    --------
    >>> from megalabel.data.synthetic import generate
    >>> shop = generate(texts=1_000, labels=200).corpus
    >>> tagger = Auto(budget="20s").fit(shop)
    >>> tagger.provenance_["race"]["texts"]
    1000
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **Composed.PARAMETERS,
        "budget": number(1e-3)
        | _read_by(seconds_of, "a time such as '90s', '10m' or '2h'")
        | one_of(None),
        "memory": number(1) | _read_by(bytes_of, "a size such as '500M' or '4G'") | one_of(None),
    }

    name: ClassVar[str] = "auto"

    def __init__(
        self,
        *,
        budget: float | str | None = None,
        memory: int | str | None = None,
        calibration: Calibrator | str | None = "joint",
        decision: Decision | None = None,
        calibration_texts: int = 5_000,
        seed: int = 0,
    ) -> None:
        super().__init__(
            calibration=calibration,
            decision=decision,
            calibration_texts=calibration_texts,
            seed=seed,
        )
        self.budget = budget
        self.memory = memory

    def race(self, corpus: Corpus) -> Race:
        """The race on a corpus, not yet run."""
        budget = seconds_of(self.budget) if isinstance(self.budget, str) else self.budget
        memory = bytes_of(self.memory) if isinstance(self.memory, str) else self.memory
        return Race(corpus, budget=budget, memory=memory, seed=self.seed)

    def _compose(self, corpus: Corpus) -> Tagger:
        shared = ("calibration", "decision", "calibration_texts")
        given = {name: getattr(self, name) for name in shared}
        if len(corpus) >= FEWEST:
            return self.race(corpus).run(**given)
        # what needs no texts held out
        return knn(seed=self.seed).set_params(**given).fit(corpus)

    def __repr__(self) -> str:
        """The parameters and, once fitted, who won."""
        own = super().__repr__()
        race = self.provenance_.get("race") if self.fitted else None
        return own if race is None else f"{own}, fitted: {race['winner']} won"


def auto(
    *, budget: float | str | None = None, memory: int | str | None = None, seed: int = 0
) -> Tagger:
    """The system that wins a race within so many seconds and so much memory."""
    return Auto(budget=budget, memory=memory, seed=seed)


def plan(tagger: Tagger, corpus: Corpus) -> Plan:
    """The budget, and memory within its bound; the model is taken to be as large as that of nearest
    neighbours, which holds all texts."""
    assert isinstance(tagger, Auto)
    seconds, memory = tagger.race(corpus).foreseen()
    foreseen = plan_knn(knn(seed=tagger.seed), corpus)
    return Plan(memory, foreseen.disk, seconds, foreseen.available)


SYSTEM = System(
    name="auto",
    summary="the best of the systems, and of mixes of them, for a corpus: a race within a budget",
    paper="Jamieson and Talwalkar 2016 (successive halving)",
    cost="the budget",
    build=auto,
    plan=plan,
    plans_itself=True,
)
