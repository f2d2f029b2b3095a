"""What the neural systems share: an encoder with its tokenizer, and what training costs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from megalabel.base import Classifier, Featurizer, clone
from megalabel.data import Corpus
from megalabel.errors import MissingExtraError
from megalabel.systems.planning import Plan, learned_bytes, memory_available, memory_in_use
from megalabel.tagger import Tagger

if TYPE_CHECKING:
    from megalabel.neural import Encoder, Tokenizer

_TRIED = 4_000  # texts that a plan tries at most
_SECONDS, _MOST_SECONDS = 3.0, 15.0  # that trying takes, where a tenth of the job is not between
_ON_DEVICE = 256  # bytes of a text's candidates on a GPU


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
    everything else grows with the texts. That takes some seconds, or a tenth of the job."""
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
    trainer = classifier.training
    rows = len(corpus) - tagger.held_out(len(corpus))
    batch = min(trainer.batch_of(rows), len(corpus))
    watch = room.MemoryWatch()
    total = trainer.total_steps(rows)
    sizes = np.zeros(len(corpus)) if corpus.texts is None else _letters(corpus)
    order = np.random.default_rng(tagger.seed).permutation(len(corpus))
    # the longest texts need the most memory; their time pays for what is done once
    once = _Tried(tagger, corpus[np.sort(np.argsort(-sizes, kind="stable")[:batch])], batch, 2)
    small = tried = _Tried(tagger, corpus[np.sort(order[:batch])], batch, 2)
    budget = min(_MOST_SECONDS, max(_SECONDS, small.seconds_for(len(corpus), total) / 10))
    steps = max(2, min(6, total // 20))
    left = budget - once.seconds - small.seconds - steps * small.steps
    texts = min(_TRIED, len(corpus), int(left / max(1e-9, small.rest + small.own) * batch))
    if texts >= min(2 * batch, len(corpus)):
        tried = _Tried(tagger, corpus[np.sort(order[:texts])], batch, steps)
    seconds = tried.seconds_for(len(corpus), total, small) + max(0.0, once.rest - small.rest)
    # an encoder and its optimiser stay as large as they are; words, tokens and vectors grow with
    # the texts, each word and token taking about twice the bytes of its letters
    more = len(corpus) - tried.texts
    letters = 0 if corpus.texts is None else corpus.texts.nbytes / len(corpus)
    encoder: Encoder = vars(tried.fitted.classifier_)["encoder_"]
    width = encoder.module().width
    memory = held + watch.peak + more * (4 * letters + 12 * width)
    learned = learned_bytes(tried.fitted.features_) + learned_bytes(tried.fitted.classifier_)
    disk = learned + learned_bytes(corpus.labels) + 8 * len(corpus.labels)
    device = watch.device_peak
    if device is not None:
        device += _ON_DEVICE * more
    return Plan(int(memory), int(disk), seconds, available, device, watch.device_total)


class _Tried:
    """A fit on some texts, of a few steps a training, and what took how long."""

    def __init__(self, tagger: Tagger, texts: Corpus, batch: int, steps: int) -> None:
        self.texts, made = len(texts), clone(tagger).set_params(calibration=None)
        made.classifier.trainer = clone(made.classifier.training).set_params(
            steps=steps, epochs=None, batch=batch, log=None
        )
        started = time.perf_counter()
        with neural().Stopwatch() as watch:
            self.fitted = made.fit(texts)
        self.seconds = time.perf_counter() - started
        trainings = watch.trainings
        self.steps = sum((t.step for t in trainings if t.by_steps), 0.0)
        """Seconds of a step of each training."""
        # an encoder may train on the texts by itself, for the longer the more there are
        self.own = sum((t.step * len(t.seconds) for t in trainings if not t.by_steps), 0.0)
        self.rest = self.seconds - sum(sum(t.seconds) for t in trainings)

    def seconds_for(self, texts: int, steps: int, fewer: _Tried | None = None) -> float:
        """Seconds of a fit with so many steps a training. What is not steps grows with the texts,
        in proportion, or on the line from a fit on fewer texts where that is flatter."""
        slope = self.rest / self.texts
        if fewer is not None and fewer.texts < self.texts:
            between = (self.rest - fewer.rest) / (self.texts - fewer.texts)
            slope = min(slope, max(0.0, between))
        rest = self.rest + slope * (texts - self.texts)
        return rest + self.own * texts / self.texts + self.steps * steps


def _letters(corpus: Corpus) -> np.ndarray:
    """How long each text is."""
    return np.asarray(pc.binary_length(corpus.texts))
