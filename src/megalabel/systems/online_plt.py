"""online-plt: a probabilistic label tree that goes on learning and takes in new labels."""

from __future__ import annotations

from megalabel.calibration import Joint
from megalabel.data import Corpus
from megalabel.features import Tfidf
from megalabel.linear import OnlineTree
from megalabel.machine import memory_available, memory_in_use
from megalabel.systems import System
from megalabel.systems.planning import Plan, too_large, trial, with_label_texts
from megalabel.tagger import Tagger


def online_plt(
    *,
    arity: int = 16,
    max_leaf: int = 15,
    passes: int = 3,
    rate: float = 1.0,
    prune: float = 0.1,
    hashing: int | None = 2**20,
    min_df: int | float = 1,
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """A tree of logistic regressions learned text by text, over hashed words."""
    classifier = OnlineTree(
        arity=arity, max_leaf=max_leaf, passes=passes, rate=rate, prune=prune, seed=seed
    )
    # with hashing, words that come later have their columns already
    features = Tfidf(hashing=hashing, min_df=min_df)
    calibration = Joint() if calibrate else None
    return Tagger(classifier, features, calibration, seed=seed, system="online-plt")


def plan(tagger: Tagger, corpus: Corpus) -> Plan:
    """A pass makes new weights beside the old ones."""
    corpus = with_label_texts(tagger, corpus)
    if (refusal := too_large(tagger, corpus)) is not None:
        return refusal
    made = trial(tagger, corpus)
    model = made.line(made.model)
    memory = memory_in_use() + 8 * made.nonzeros * len(corpus) + 2 * model
    times = tagger.trainings(len(corpus))
    return Plan(int(memory), int(model), times * made.line(made.seconds), memory_available())


SYSTEM = System(
    name="online-plt",
    summary="a tree of logistic classifiers that goes on learning and takes in new labels",
    paper="Jasinska-Kobus et al. 2021 (online probabilistic label trees); napkinXC",
    cost="O(passes x words of all texts x labels of a text x depth x arity)",
    build=online_plt,
    plan=plan,
)
