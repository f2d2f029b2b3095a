"""What the neural systems share: an encoder with its tokenizer, and what training costs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.base import Classifier, Featurizer, clone
from megalabel.data import Corpus
from megalabel.errors import MissingExtraError
from megalabel.systems.planning import Plan, learned_bytes, memory_available, memory_in_use
from megalabel.tagger import Tagger

if TYPE_CHECKING:
    from megalabel.neural import Encoder, Tokenizer

_TRIED = 2_000  # texts that a plan tokenises and trains a few steps on


def neural() -> Any:
    """The neural room; an error that says what to install where torch is not there."""
    try:
        import megalabel.neural as room
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "neural") from None
    return room


def encoder_parts(encoder: Any, max_length: int, **assembled: Any) -> tuple[Tokenizer, Encoder]:
    """A tokenizer and an encoder: of a model by its name or folder, or made of the corpus's own
    texts (None)."""
    room = neural()
    if encoder is None:
        return room.Tokenizer(max_length=max_length), room.AssembledEncoder(**assembled)
    if isinstance(encoder, str):
        source = room.Tokenizer(encoder, max_length=max_length)
        return source, room.PretrainedEncoder(encoder)
    return room.Tokenizer(getattr(encoder, "source", None), max_length=max_length), encoder


def several(classifier: Classifier, models: int, combine: str) -> Classifier:
    """So many of a classifier, each from its own seed; one is the classifier itself."""
    if models == 1:
        return classifier
    made: Classifier = neural().Ensemble(classifier, models, combine=combine)
    return made


def neural_tagger(
    classifier: Classifier, features: Featurizer, system: str, calibrate: bool, seed: int
) -> Tagger:
    """A neural classifier over its features. Calibration holds a few texts out of training, which
    is not done a second time."""
    calibration = "isotonic" if calibrate else None
    return Tagger(
        classifier, features, calibration, holdout=0.05, refit=False, seed=seed, system=system
    )


def plan_neural(tagger: Tagger, corpus: Corpus) -> Plan:
    """A few steps are trained on some of the texts: steps take the time they take then, and
    everything else grows with the texts."""
    room = neural()
    classifier: Any = tagger.classifier
    if isinstance(classifier, room.Ensemble):
        ensemble = classifier
        one = plan_neural(clone(tagger).set_params(classifier=ensemble.model), corpus)
        return replace(
            one,
            disk=None if one.disk is None else one.disk * ensemble.models,
            seconds=None if one.seconds is None else one.seconds * ensemble.models,
        )
    available, held = memory_available(), memory_in_use()
    order = np.random.default_rng(tagger.seed).permutation(len(corpus))
    sample = corpus[np.sort(order[:_TRIED])]
    watch = room.MemoryWatch()

    def fitted(steps: int, texts: Corpus) -> tuple[float, Tagger]:
        made = clone(tagger).set_params(calibration=None)
        made.classifier.trainer = clone(made.classifier.training).set_params(
            steps=steps, epochs=None, batch=batch, log=None
        )
        started = time.perf_counter()
        made.fit(texts)
        return time.perf_counter() - started, made

    trainer = classifier.training
    rows = len(corpus) - tagger.held_out(len(corpus))
    batch = min(trainer.batch_of(rows), len(sample))
    fitted(1, sample[:200])  # not counted: it pays for what is done once
    few, _ = fitted(2, sample)
    more, made = fitted(6, sample)
    step = max(0.0, more - few) / 4
    growth = len(corpus) / len(sample)
    seconds = max(0.0, few - 2 * step) * growth + step * trainer.total_steps(rows)
    # an encoder and its optimiser stay as large as they are; words, tokens and vectors grow with
    # the texts, each word and token taking about twice the bytes of its letters
    letters = 0 if sample.texts is None else int(sample.texts.nbytes)
    encoder: Encoder = vars(made.classifier_)["encoder_"]
    width = encoder.module().width
    memory = held + watch.peak + (growth - 1) * (4 * letters + 12 * width * len(sample))
    learned = learned_bytes(made.features_) + learned_bytes(made.classifier_)
    disk = learned + learned_bytes(corpus.labels) + 8 * len(corpus.labels)
    return Plan(int(memory), int(disk), seconds, available, watch.device_peak, watch.device_total)
