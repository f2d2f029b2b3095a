"""mix: several systems trained on one corpus, and one answer of what all of them say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from megalabel import systems
from megalabel.base import Check, boolean, clone, instance, integer, number, one_of, sequence_of
from megalabel.data import Corpus
from megalabel.mixing import FEWEST, FORMS, mix, with_members
from megalabel.parts import Calibrator, Decision
from megalabel.preparing import in_random_order
from megalabel.systems import System
from megalabel.systems.composed import Composed
from megalabel.systems.lexical import suits as names_are_found
from megalabel.systems.planning import Plan
from megalabel.tagger import Tagger

MEMBERS = ("xr-linear", "knn")


class Mixed(Composed):
    """A tagger of several members: trained on most texts, mixed on the others, trained on all.

    Of fewer than 40 texts none can be held out: there the first member answers alone.

    Parameters
    ----------
    members : list of str or Tagger, optional
        Names of systems, or taggers that are not fitted. One alone is ranked anew. By default
        xr-linear and knn and, where labels have names that texts may hold, lexical.
    form, names, shortlist
        As for `mixing.mix`.
    holdout : float
        The share of texts that the mix is learned from.
    most_held_out : int
        At most so many texts are.
    refit : bool or "auto"
        Whether members are trained again, on all texts; "auto": where more than a twentieth of them
        was held out.
    calibration, decision, seed
        As for `Tagger`.

    Examples
    --------
    >>> from megalabel.data.synthetic import generate
    >>> shop = generate(texts=1_000, labels=200).corpus
    >>> tagger = Mixed(["knn", "xr-linear"]).fit(shop)
    >>> tagger.system, tagger.provenance_["mix"]["members"]
    ('mix', ['knn', 'xr-linear'])
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **Composed.PARAMETERS,
        "members": sequence_of(instance(str) | instance(Tagger)) | one_of(None),
        "form": one_of("auto", *FORMS),
        "names": boolean(),
        "shortlist": integer(1),
        "holdout": number(0.01, 0.5),
        "most_held_out": integer(FEWEST),
        "refit": one_of(True, False, "auto"),
    }

    name: ClassVar[str] = "mix"

    def __init__(
        self,
        members: Sequence[str | Tagger] | None = None,
        *,
        form: str = "auto",
        names: bool = True,
        shortlist: int = 40,
        holdout: float = 0.2,
        most_held_out: int = 8_000,
        refit: bool | str = "auto",
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
        self.members = members
        self.form = form
        self.names = names
        self.shortlist = shortlist
        self.holdout = holdout
        self.most_held_out = most_held_out
        self.refit = refit

    @classmethod
    def of(cls, tagger: Tagger) -> Mixed:
        """One tagger alone, ranked anew, and calibrated and decided as it would be."""
        shared = ("calibration", "decision", "calibration_texts", "seed")
        return cls([tagger], **{name: getattr(tagger, name) for name in shared})

    def taggers(self, corpus: Corpus) -> list[Tagger]:
        """The members for a corpus, not fitted, and not calibrated: the mix learns what their
        scores mean."""
        members = self.members
        if members is None:
            members = (*MEMBERS, "lexical") if names_are_found(corpus) else MEMBERS
        made = [
            systems.create(one, seed=self.seed) if isinstance(one, str) else clone(one)
            for one in members
        ]
        return [one.set_params(calibration=None, decision=None) for one in made]

    def trainings(self, texts: int) -> int:
        """How often members are trained."""
        again = self.held_out(texts) > texts / 20 if self.refit == "auto" else bool(self.refit)
        return 2 if again else 1

    def held_out(self, texts: int) -> int:
        """How many texts the mix is learned from."""
        return min(self.most_held_out, max(FEWEST, int(texts * self.holdout)))

    def _compose(self, corpus: Corpus) -> Tagger:
        if len(corpus) < 2 * FEWEST:
            alone = self.taggers(corpus)[0].set_params(
                calibration=self.calibration, decision=self.decision
            )
            return alone.fit(corpus)
        order = in_random_order(corpus.targets, self.seed)
        held_out, rest = np.split(order, [self.held_out(len(corpus))])
        first = corpus[np.sort(rest)]
        made = mix(
            [tagger.fit(first) for tagger in self.taggers(corpus)],
            corpus[np.sort(held_out)],
            form=self.form,
            names=self.names,
            shortlist=self.shortlist,
            calibration=self.calibration,
            decision=self.decision,
            held_out=True,
        )
        if self.trainings(len(corpus)) > 1:
            made = with_members(
                made, [tagger.fit(corpus) for tagger in self.taggers(corpus)], corpus
            )
        return made


def create(
    *,
    members: Sequence[str] | None = None,
    form: str = "auto",
    names: bool = True,
    shortlist: int = 40,
    holdout: float = 0.2,
    seed: int = 0,
) -> Tagger:
    """Systems by name, mixed in the form that is best on texts held out."""
    return Mixed(members, form=form, names=names, shortlist=shortlist, holdout=holdout, seed=seed)


def plan(tagger: Tagger, corpus: Corpus) -> Plan:
    """The members one after another, each beside the models of those before."""
    assert isinstance(tagger, Mixed)
    plans = [systems.get(one.system or "").plan(one, corpus) for one in tagger.taggers(corpus)]
    disk = [one.disk or 0 for one in plans]
    memory = max(one.memory + sum(disk[:place]) for place, one in enumerate(plans))
    seconds = sum(one.seconds or 0.0 for one in plans) * tagger.trainings(len(corpus))
    return Plan(memory, sum(disk), seconds, plans[0].available)


SYSTEM = System(
    name="mix",
    summary="several systems as one: means, a stack or boosted trees over what each says",
    paper="Wolpert 1992 (stacking); Friedman 2001 (boosted trees)",
    cost="twice that of its members",
    build=create,
    plan=plan,
)
