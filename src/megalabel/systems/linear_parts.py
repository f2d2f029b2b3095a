"""What the linear systems share: features, calibration, and what they cost."""

from __future__ import annotations

import time

import numpy as np

import megalabel
from megalabel.base import Classifier, clone
from megalabel.calibration import Isotonic
from megalabel.data import Corpus, LabelSet
from megalabel.features import Tfidf
from megalabel.systems.planning import (
    Plan,
    learned_bytes,
    memory_available,
    memory_in_use,
    trial,
)
from megalabel.tagger import Tagger

_LANES = 16  # labels solved side by side (native/newton.hpp)
_SAMPLE = 8 * _LANES  # labels of a trial


def linear_tagger(
    classifier: Classifier, system: str, min_df: int | float, calibrate: bool, seed: int
) -> Tagger:
    """A linear classifier over tf-idf. Calibration trains it a second time, without some texts."""
    calibration = Isotonic() if calibrate else None
    return Tagger(classifier, Tfidf(min_df=min_df), calibration, seed=seed, system=system)


def solver_bytes(texts: int, features: int, nonzeros: float) -> float:
    """The memory of training above the vectors: a copy of the rows, and each thread's buffers."""
    buffers = _LANES * 4 * (6 * (features + 1) + 4 * texts)
    return 12 * nonzeros + 8 * texts + megalabel.get_threads() * buffers


def plan_one_vs_all(tagger: Tagger, corpus: Corpus) -> Plan:
    """Training a sample of labels on all texts tells the time of all of them."""
    started = time.perf_counter()
    fitted = clone(tagger).set_params(calibration=None)
    features = fitted.features if corpus.texts is not None else None
    features = clone(features) if features is not None else megalabel.features.Precomputed()
    vectors = features.fit_transform(corpus)
    making = time.perf_counter() - started
    labels = len(corpus.labels)
    chosen = np.sort(np.random.default_rng(tagger.seed).permutation(labels)[:_SAMPLE])
    part = clone(fitted.classifier)
    for name in ("positive_costs", "negative_costs"):
        if (costs := getattr(part, name)) is not None:
            setattr(part, name, np.asarray(costs)[chosen])
    started = time.perf_counter()
    part.fit(vectors, corpus.targets[:, chosen], LabelSet.numbered(len(chosen)))
    scale = labels / max(1, len(chosen))
    training = (time.perf_counter() - started) * scale
    model = learned_bytes(part) * scale + learned_bytes(features) + learned_bytes(corpus.labels)
    nonzeros = float(np.count_nonzero(vectors.data)) if hasattr(vectors, "nnz") else vectors.size
    training_bytes = solver_bytes(vectors.shape[0], vectors.shape[1], nonzeros)
    memory = memory_in_use() + training_bytes + 2 * model
    times = 2 if tagger.calibration is not None else 1
    return Plan(int(memory), int(model), making + times * training, memory_available())


def plan_tree(tagger: Tagger, corpus: Corpus) -> Plan:
    """Time and size grow with the texts, as two trials on samples tell."""
    made = trial(tagger, corpus)
    nonzeros = made.nonzeros * len(corpus)
    terms = int(made.power(made.terms))
    model = made.line(made.model)
    memory = memory_in_use() + 8 * nonzeros + solver_bytes(len(corpus), terms, nonzeros) + 2 * model
    times = 2 if tagger.calibration is not None else 1
    return Plan(int(memory), int(model), times * made.line(made.seconds), memory_available())
