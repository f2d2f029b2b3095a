"""Outlook: what is said of a fit before it starts, without keeping anybody waiting."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from megalabel import systems
from megalabel.errors import NotEnoughMemoryError
from megalabel.systems.neural_parts import has_gpu, rough_seconds
from megalabel.systems.planning import too_large
from megalabel.units import duration, size

if TYPE_CHECKING:
    from megalabel.data import Corpus
    from megalabel.preparing import Prepared
    from megalabel.systems.planning import Plan
    from megalabel.tagger import Tagger

log = logging.getLogger(__name__)

_PLANNED = 100_000  # texts; fewer hardly fail, and a plan would take as long as the job
_FEW = 200  # texts; of fewer, a step says little about the time
_LONG = 15 * 60  # seconds


@dataclass(frozen=True)
class Outlook:
    """About what a fit takes."""

    seconds: float | None
    """None: not looked at, or not known."""
    plan: Plan | None
    """Memory, disk and time, where the job is large enough to be planned."""
    advice: str | None
    """What would take less time, where the fit takes long for want of a GPU."""
    prepared: Prepared | None = None
    """Features that were made to know: `Tagger.fit` takes them up."""

    @property
    def long(self) -> bool:
        """Whether somebody who starts it must know how long it takes."""
        return self.seconds is not None and self.seconds >= _LONG

    def check(self) -> None:
        """Raise a NotEnoughMemoryError if the fit needs more memory than there is."""
        plan = self.plan
        if plan is None or plan.fits:
            return
        needed, there, where = plan.memory, plan.available, ""
        if needed <= there:
            needed, there, where = plan.gpu_memory or 0, plan.gpu_available or 0, " on the GPU"
        raise NotEnoughMemoryError(
            f"this job needs about {size(needed)} of memory{where} and there is {size(there)}"
        )

    def __str__(self) -> str:
        """One sentence for people; empty where nothing is known."""
        if self.seconds is None:
            return ""
        memory = "" if self.plan is None else f", {size(self.plan.memory)} of memory"
        advice = "" if self.advice is None else f": {self.advice}"
        return f"expected: about {duration(self.seconds)}{memory}{advice}"


def outlook(tagger: Tagger, corpus: Corpus) -> Outlook:
    """About what a fit takes: by its plan where it is large, else, where an encoder is trained, by
    a few steps on a few texts, which take about two seconds or less than a hundredth of the job."""
    system = systems.get(tagger.system or "")
    if system.plans_itself:
        return Outlook(None, None, None)
    if len(corpus) >= _PLANNED and system.prepares:
        if (refusal := too_large(tagger, corpus)) is not None:
            return Outlook(None, refusal, None)
        prepared = tagger.prepare(corpus)
        plan = system.plan(tagger, corpus, prepared)
        return Outlook(plan.seconds, plan, None, prepared)
    if len(corpus) >= _PLANNED:
        plan = system.plan(tagger, corpus)
        made = Outlook(plan.seconds, plan, None)
    elif system.neural and len(corpus) >= _FEW:
        try:
            made = Outlook(rough_seconds(tagger, corpus), None, None)
        except NotEnoughMemoryError:
            raise
        except Exception:  # this only estimates: what is wrong, the fit says
            log.debug("no estimate", exc_info=True)
            made = Outlook(None, None, None)
    else:
        return Outlook(None, None, None)
    if not made.long or not system.neural or has_gpu(tagger):
        return made
    return Outlook(made.seconds, made.plan, _ADVICE)


_ADVICE = (
    "the encoder is trained without a GPU, which would take a small part of that. A smaller "
    "`encoder`, texts cut shorter (`max_length`) and fewer `epochs` take less; a linear system, "
    "such as xr-linear, takes minutes"
)
