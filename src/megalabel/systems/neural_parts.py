"""What the neural systems share: an encoder with its tokenizer, and what training costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

import megalabel
from megalabel.base import clone
from megalabel.clock import Clock
from megalabel.data import Corpus
from megalabel.errors import ParameterError
from megalabel.features import Concat, Precomputed, Tfidf
from megalabel.features.static_folder import is_static
from megalabel.machine import memory_available, memory_in_use
from megalabel.parts import Classifier, Featurizer
from megalabel.rankers import Ensemble
from megalabel.systems.planning import (
    Plan,
    learned_bytes,
    with_label_texts,
    working_bytes,
)
from megalabel.tagger import Tagger

if TYPE_CHECKING:
    from megalabel.neural import Encoder, Tokenizer

FROZEN = "frozen:"  # before a model that is not trained itself
_LETTERS, _FEWEST = 20_000_000, 1_000  # bytes and texts whose features a plan makes
_ROUGH_LETTERS = 1_000_000  # bytes of those that a rough estimate makes
_ROUGH_TEXTS = 4  # that it tries at least
_NEW_WORDS = 0.8  # the highest power of the texts that a ranker's size is
# seconds that trying takes, where a twentieth of the job is not between
_SECONDS, _MOST_SECONDS = 2.0, 15.0
_SECOND = 8  # batches of the second size that is tried, if there is time for them
_ON_DEVICE = 256  # bytes of a text's candidates on a GPU


def neural() -> Any:
    """The neural room; an error that says what to install where torch is not there."""
    import megalabel.neural

    return megalabel.neural


def encoder_parts(encoder: Any, max_length: int, **assembled: Any) -> tuple[Featurizer, Encoder]:
    """An encoder, and the features that it reads.

    It learns from the corpus's own texts ("bag"; "assembled", with parameters of its own), is a
    model by its name or folder ("frozen:" before it: which is not trained itself), or is given as
    it is.
    """
    room = neural()
    if encoder == "bag":
        encoder = room.BagEncoder()
    elif encoder == "assembled":
        encoder = room.AssembledEncoder(**assembled)
    elif isinstance(encoder, str) and encoder.startswith(FROZEN):
        encoder = room.FrozenEncoder(encoder.removeprefix(FROZEN))
    elif isinstance(encoder, str):
        static = is_static(encoder)
        encoder = room.StaticEncoder(encoder) if static else room.PretrainedEncoder(encoder)
    if encoder.reads == "vectors":
        vectors: Featurizer = encoder.features(max_length)
        return vectors, encoder
    if encoder.reads == "words":
        return Tfidf(), encoder
    return room.Tokenizer(getattr(encoder, "source", None), max_length=max_length), encoder


def token_parts(encoder: Any, max_length: int) -> tuple[Tokenizer, Encoder]:
    """The same, for systems that read tokens: a tokenizer and an encoder."""
    features, made = encoder_parts(encoder, max_length)
    if made.reads != "tokens":
        raise ParameterError(
            f"{type(made).__name__} reads {made.reads}: take an encoder that reads tokens"
        )
    return features, made  # type: ignore[return-value]


def dual_parts(
    encoder: Any, max_length: int, ranker: Any
) -> tuple[Featurizer, Encoder, tuple[float, float]]:
    """What dual encoders begin with: features, with words beside tokens where a ranker reads them,
    an encoder, and the rates that suit it and the vectors of labels."""
    room = neural()
    if encoder == "bag":  # texts and labels share it: nothing stands between their words
        encoder = room.BagEncoder(residual=None)
    features, made = encoder_parts(encoder, max_length, pretrain_epochs=0)
    if ranker is not None and made.reads == "vectors":
        raise ParameterError(
            f"{type(made).__name__} reads vectors, and a ranker reads words beside tokens: take "
            "another encoder, or leave out ranker"
        )
    if ranker is not None and made.reads == "tokens":
        features = room.TextViews(Tfidf(), features)
    # what has learned before is to be moved less
    learned_before = isinstance(made, room.PretrainedEncoder)
    return features, made, (1e-4, 1e-3) if learned_before else (5e-3, 1e-2)


def speaking_labels(corpus: Corpus) -> bool:
    """Whether labels of a corpus are known by more than their numbers, and its rows by texts."""
    names = corpus.labels.names if corpus.labels.texts is None else corpus.labels.texts
    return corpus.texts is not None and not pc.all(pc.utf8_is_decimal(names)).as_py()


def scaled(loss: Any, temperature: float) -> Any:
    """A loss by name, of scores divided by a temperature where it has one; or one as it is."""
    if not isinstance(loss, str):
        return loss
    made = neural().losses.create(loss)
    known = "temperature" in made.parameter_names()
    return made.set_params(temperature=temperature) if known else made


def several(classifier: Classifier, models: int, combine: str) -> Classifier:
    """So many of a classifier, each from its own seed; one is the classifier itself."""
    if models == 1:
        return classifier
    made: Classifier = Ensemble(classifier, models, combine=combine)
    return made


def neural_tagger(
    classifier: Classifier, features: Featurizer, system: str, calibrate: bool, seed: int
) -> Tagger:
    """A neural classifier over its features. Calibration holds a few texts out of training, which
    is not done a second time."""
    calibration = "joint" if calibrate else None
    return Tagger(
        classifier, features, calibration, holdout=0.05, refit=False, seed=seed, system=system
    )


def full_tagger(
    system: str,
    encoder: Any,
    head: Any,
    *,
    max_length: int,
    epochs: float | None,
    batch: int | None,
    learning_rate: float | None,
    head_learning_rate: float | None,
    device: str,
    calibrate: bool,
    seed: int,
    **classifier: Any,
) -> Tagger:
    """An encoder under a head of all labels, trained end to end; `classifier` are parameters of
    `FullClassifier`."""
    room = neural()
    features, made = encoder_parts(encoder, max_length, pretrain_epochs=0)
    if learning_rate is None:  # what has learned before is to be moved less
        learning_rate = 1e-4 if isinstance(made, room.PretrainedEncoder) else 2e-3
    if head_learning_rate is None:  # scores of longer vectors move by more
        head_learning_rate = 0.01 if isinstance(made, room.FrozenEncoder) else 0.05
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        device=device,
        seed=seed,
    )
    full = room.FullClassifier(made, trainer, head=head, seed=seed, **classifier)
    return neural_tagger(full, features, system, calibrate, seed)


def encoder_of_few(encoder: Any) -> Any:
    """An encoder for labels that see few features. The fewer there are, the more it matters that
    training leaves some out: so "bag" leaves out fewer."""
    return neural().BagEncoder(dropout=0.2) if encoder == "bag" else encoder


def rewired(fraction: float, every: int | None, growth: str) -> Any:
    """How the systems exchange features: within each group, as rare labels have small weights, of
    which a share of the layer would exchange most."""
    return neural().Rewiring(
        fraction=fraction, falls=True, every=every, growth=growth, scope="group"
    )


def plan_neural(tagger: Tagger, corpus: Corpus) -> Plan:
    """What a fit costs: its features, its steps, what is done once, and the rest.

    Features are made as the fit makes them. Then ever more batches are trained on, of short texts
    and long ones as in the fit, until two seconds or a twentieth of the job have passed. Each
    training has its number of steps, of the seconds that one takes on average; all else, such as a
    linear ranker, is on the line through the last two trials.
    """
    room = neural()
    classifier: Any = tagger.classifier
    if isinstance(classifier, Ensemble):
        ensemble = classifier
        one = plan_neural(clone(tagger).set_params(classifier=ensemble.model), corpus)
        return replace(
            one,
            disk=None if one.disk is None else one.disk * ensemble.models,
            seconds=None if one.seconds is None else one.seconds * ensemble.models,
        )
    corpus = with_label_texts(tagger, corpus)
    available, held, watch = memory_available(), memory_in_use(), room.MemoryWatch()
    job = _Trials(tagger, corpus)
    known = job.gpu_bytes()
    if known is not None and known > (watch.device_total or 0):  # no step could be tried
        return Plan(held, None, None, available, known, watch.device_total)
    # the longest texts need the most memory, and their time pays for what is done once
    first = job.tried(job.order[-job.longest :])
    fewer = tried = job.tried(job.spread(1))
    spent, batches = tried.seconds, 1
    while batches < job.batches:
        share = max(_SECONDS, job.seconds(fewer, tried) / 20)
        most = _MOST_SECONDS - first.seconds
        each = tried.step + (tried.rest + tried.own) / batches
        more, possible = (int((left - spent - tried.step) / each) for left in (share, most))
        if batches == 1:  # a single size does not tell what grows with the texts
            more = max(more, _SECOND)
        more = min(job.batches, more, possible)
        if more < min(2 * batches, job.batches):
            break
        fewer, tried, batches = tried, job.tried(job.spread(more)), more
        spent += tried.seconds
    once = first.rest - job.line(fewer.texts, fewer.rest, tried.texts, tried.rest, first.texts)
    seconds = job.making + max(0.0, once) + job.seconds(fewer, tried)
    # what grows with the texts: vectors of the encoder and what a ranker works in; and beyond those
    # whose features were made, words and tokens, each of about twice the bytes of its letters
    more, unseen = len(corpus) - tried.texts, len(corpus) - job.made
    memory = max(held + watch.peak + 12 * tried.width * more, tried.held + job.ranking(tried))
    memory += 4 * job.letters * unseen
    # there are as many words as the root of the texts (Heaps' law)
    disk = learned_bytes(job.features) * (len(corpus) / job.made) ** 0.5
    disk += tried.network + job.power(fewer.texts, fewer.ranker, tried.texts, tried.ranker)
    disk += learned_bytes(corpus.labels) + 8 * len(corpus.labels)
    device = watch.device_peak
    if device is not None:
        device += _ON_DEVICE * more
    return Plan(int(memory), int(disk), seconds, available, device, watch.device_total)


def rough_seconds(tagger: Tagger, corpus: Corpus) -> float:
    """About how long a fit takes, by steps alone: features and rankers, which take minutes where
    steps take hours, are not looked at."""
    classifier: Any = tagger.classifier
    if isinstance(classifier, Ensemble):
        one = clone(tagger).set_params(classifier=classifier.model)
        return rough_seconds(one, corpus) * int(classifier.models)
    return _Trials(tagger, with_label_texts(tagger, corpus), _ROUGH_LETTERS).rough_seconds()


def has_gpu(tagger: Tagger) -> bool:
    """Whether the encoder of a tagger is trained on a GPU."""
    classifier: Any = tagger.classifier
    if isinstance(classifier, Ensemble):
        classifier = classifier.model
    return bool(classifier.training.torch_device.type == "cuda")


@dataclass(frozen=True)
class _Trial:
    """A fit on some texts, of a few steps a training, and what took how long."""

    texts: int
    seconds: float
    step: float
    """Seconds of a step of each training, added up."""
    recording: float
    """Likewise, of recording passes for one length of texts."""
    own: float
    """Seconds of what an encoder has trained by itself, for the longer the more texts there are."""
    rest: float
    """Seconds of everything else."""
    network: int
    """Bytes learned, but for those of features and of a linear ranker."""
    ranker: int
    """The bytes of that."""
    width: int
    """Of what is held of a text beside its words: mostly the encoder's vector."""
    held: int
    """Bytes of memory that were in use at its end."""


class _Trials:
    """A corpus as a neural classifier gets it, to be tried in part."""

    def __init__(self, tagger: Tagger, corpus: Corpus, letters: int = _LETTERS) -> None:
        # to calibrate takes next to no time
        # and label points are among the texts
        self._tagger = clone(tagger).set_params(calibration=None, label_points=None)
        self._whole = len(corpus)
        trainer = vars(tagger)["classifier"].training
        self._on_gpu = trainer.torch_device.type == "cuda"
        self._clock = partial(Clock, waits=self._on_gpu)
        self.letters = 0 if corpus.texts is None else corpus.texts.nbytes / len(corpus)
        self.made = int(min(len(corpus), max(_FEWEST, letters / max(1, self.letters))))
        if vars(tagger)["classifier"].encoder.reads == "vectors":  # most of the job is to make them
            self.made = min(len(corpus), _FEWEST)
        random = np.random.default_rng(tagger.seed).permutation(len(corpus))[: self.made]
        self._corpus = corpus[np.sort(random)]
        clock = Clock()
        features = tagger.features if corpus.texts is not None else Precomputed()
        self.features = clone(features) if features is not None else Tfidf()
        self._vectors = self.features.fit_transform(self._corpus)
        self.making = clock.seconds() * len(corpus) / self.made
        """Seconds of all texts' features."""
        rows = len(corpus) - tagger.held_out(len(corpus))
        self.batch = min(trainer.batch_of(rows), self.made)
        self._steps: int = trainer.total_steps(rows)
        room = neural()
        lengths = room.batches.lengths_of(getattr(self._vectors, "tokens", self._vectors))
        order = np.random.default_rng(tagger.seed).permutation(self.made)
        self.order = order[np.argsort(lengths[order], kind="stable")]
        """The texts by length."""
        self.batches = -(-self.made // self.batch)
        at_once = room.encoding.encoded_at_once(lengths, trainer.torch_device)
        self.longest = min(self.made, max(self.batch, at_once)) if self._on_gpu else self.batch
        """How many of the longest texts need as much of a GPU's memory as all do."""
        self._lengths = len(room.recorded.padded_lengths(lengths))

    def gpu_bytes(self) -> int | None:
        """Bytes of a GPU that the job is known to take before it is tried; None: not known, or on
        no GPU."""
        classifier: Any = vars(self._tagger)["classifier"]
        if not (self._on_gpu and isinstance(classifier, neural().FullClassifier)):
            return None
        labels = len(self._corpus.labels)
        known: int | None = neural().gpu_bytes(classifier, self._vectors, labels, self._whole)
        return known

    def spread(self, batches: int) -> np.ndarray:
        """The texts of some batches of the fit, from short ones to long ones."""
        at = ((np.arange(batches) + 0.5) * self.batches / batches).astype(np.int64)
        return self.order[np.isin(np.arange(self.made) // self.batch, at)]

    def tried(self, rows: np.ndarray) -> _Trial:
        """Each batch of the given texts is trained on once."""
        tagger = clone(self._tagger)
        steps = 1 + -(-len(rows) // self.batch)  # the first is not counted
        tagger.classifier.trainer = clone(tagger.classifier.training).set_params(
            steps=steps, epochs=None, batch=self.batch, log=None
        )
        rows = np.sort(rows)
        some = self._corpus[rows]
        prepared = tagger.prepared(self.features, self._vectors[rows], some)
        clock = self._clock()
        with neural().Stopwatch() as watch:
            tagger.fit_prepared(prepared, some)
        seconds = clock.seconds()
        features, classifier = tagger.features_, tagger.classifier_
        joined = isinstance(features, Concat)  # words and vectors, for a linear ranker
        ranker = learned_bytes(classifier) if joined else 0
        network = learned_bytes(features) + learned_bytes(classifier)
        vectors = (features.parts_[-1] if joined else features).transform(some[:1])
        return _Trial(
            texts=len(rows),
            seconds=seconds,
            step=sum((t.step for t in watch.trainings if t.by_steps), 0.0),
            recording=sum(t.recording / max(1, t.recorded) for t in watch.trainings),
            own=sum((t.step * t.steps for t in watch.trainings if not t.by_steps), 0.0),
            rest=seconds - sum(t.seconds for t in watch.trainings),
            network=network - learned_bytes(self.features) - ranker,
            ranker=ranker,
            width=vectors.shape[1],
            held=memory_in_use(),
        )

    def rough_seconds(self) -> float:
        """Of the whole job, from two steps on a batch, or on a part of it where more would be over
        a hundredth of what the job reads: the time of a CPU grows with the texts."""
        batch = self.spread(1)
        texts = len(batch)
        if not self._on_gpu:
            read = min(self._whole // 100, len(batch) * self._steps // 200)
            texts = min(texts, max(_ROUGH_TEXTS, read))
        trial = self.tried(batch[np.linspace(0, len(batch) - 1, texts).astype(np.int64)])
        whole = replace(trial, step=trial.step * len(batch) / texts)
        return self.seconds(whole, whole)

    def ranking(self, trial: _Trial) -> float:
        """Bytes in which a linear ranker of all texts works, if there is one."""
        words = getattr(self._vectors, "words", None)
        if words is None or not trial.ranker:
            return 0.0
        entries = self._whole * (words.nnz / self.made + trial.width)
        width = words.shape[1] + trial.width
        threads = megalabel.get_threads()
        return 4 * trial.width * self._whole + working_bytes(self._whole, width, entries, threads)

    def seconds(self, fewer: _Trial, more: _Trial) -> float:
        """Of the whole job but for its features, from two trials."""
        rest = self.line(fewer.texts, fewer.rest, more.texts, more.rest, self._whole)
        rest += more.own * self._whole / more.texts + more.recording * self._lengths
        return rest + more.step * self._steps

    @staticmethod
    def line(fewer: int, small: float, more: int, large: float, texts: int) -> float:
        """A value for so many texts on the line from fewer texts to more: rising, though never more
        than in proportion; as it is where there is no line."""
        slope = (large - small) / (more - fewer) if fewer < more else 0.0
        return large + min(max(0.0, slope), large / more) * (texts - more)

    def power(self, fewer: int, small: float, more: int, large: float) -> float:
        """Bytes of a ranker for all texts: a power of the texts, as more of them have fewer and
        fewer words of a label that are new."""
        rises = fewer < more and 0 < small < large
        exponent = np.log(large / small) / np.log(more / fewer) if rises else 0.0
        return float(large * (self._whole / more) ** min(_NEW_WORDS, exponent))
