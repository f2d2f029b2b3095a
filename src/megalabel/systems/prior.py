"""prior: every text gets the most frequent labels. The floor that others must beat."""

from __future__ import annotations

from megalabel.data import Corpus
from megalabel.features import Tfidf
from megalabel.linear import Prior
from megalabel.machine import memory_available, memory_in_use
from megalabel.systems import System
from megalabel.systems.planning import Plan
from megalabel.tagger import Tagger


def prior(*, seed: int = 0) -> Tagger:
    """Label frequencies, whatever the text.

    Its scores are probabilities as they are, so there is nothing to calibrate.
    """
    return Tagger(Prior(), Tfidf(hashing=1), calibration=None, seed=seed, system="prior")


def plan(tagger: Tagger, corpus: Corpus) -> Plan:
    """Counting labels costs next to nothing."""
    vectors, model = 16 * len(corpus), 64 * len(corpus.labels)
    return Plan(memory_in_use() + vectors + model, model, 1e-7 * len(corpus), memory_available())


SYSTEM = System(
    name="prior",
    summary="the most frequent labels, whatever the text: the floor to beat",
    paper="baseline",
    cost="O(labels)",
    build=prior,
    plan=plan,
    cost_class="instant",
)
