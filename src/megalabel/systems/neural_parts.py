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
_SECONDS = 3.0  # what trying takes where a tenth of the job is less
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
    # the longest texts need the most memory; their time is not counted, it pays for what is done
    # once, but it tells how much can be tried
    sizes = np.zeros(len(corpus)) if corpus.texts is None else _letters(corpus)
    longest = np.argsort(-sizes, kind="stable")[:batch]
    first = _Tried(tagger, corpus[np.sort(longest)], batch, steps=2)
    budget = max(_SECONDS, first.foreseen(corpus, trainer.total_steps(rows)) / 10)
    texts = int((budget - first.seconds) * len(longest) / max(1e-9, first.rest))
    order = np.random.default_rng(tagger.seed).permutation(len(corpus))
    sample = corpus[np.sort(order[: min(_TRIED, max(batch, texts))])]
    tried = _Tried(tagger, sample, batch, steps=6)
    seconds = tried.foreseen(corpus, trainer.total_steps(rows))
    # an encoder and its optimiser stay as large as they are; words, tokens and vectors grow with
    # the texts, each word and token taking about twice the bytes of its letters
    growth = len(corpus) / len(sample)
    letters = 0 if sample.texts is None else int(sample.texts.nbytes)
    encoder: Encoder = vars(tried.fitted.classifier_)["encoder_"]
    width = encoder.module().width
    memory = held + watch.peak + (growth - 1) * (4 * letters + 12 * width * len(sample))
    learned = learned_bytes(tried.fitted.features_) + learned_bytes(tried.fitted.classifier_)
    disk = learned + learned_bytes(corpus.labels) + 8 * len(corpus.labels)
    device = watch.device_peak
    if device is not None:
        device += _ON_DEVICE * (len(corpus) - len(sample))
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
        # an encoder may train on the texts by itself, for so long as they are many
        cut = [training for training in watch.trainings if training.total == steps]
        self.steps: float = sum(training.step for training in cut)
        """Seconds of a step of each training."""
        self.rest: float = self.seconds - sum(sum(training.seconds) for training in cut)

    def foreseen(self, corpus: Corpus, steps: int) -> float:
        """Seconds with so many steps a training; what is not steps grows with the texts."""
        return self.rest * len(corpus) / self.texts + self.steps * steps


def _letters(corpus: Corpus) -> np.ndarray:
    """How long each text is."""
    return np.asarray(pc.binary_length(corpus.texts))
