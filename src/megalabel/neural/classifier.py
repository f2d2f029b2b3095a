"""What the neural classifiers share: an encoder, a trainer, and how what was trained answers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import clone, made_once
from megalabel.checkpoints import Checkpoint
from megalabel.data import Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import check_width
from megalabel.errors import DataError
from megalabel.features import Concat
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.encoders.levels import Levels
from megalabel.neural.encoding import encoded
from megalabel.neural.tokens import Tokens
from megalabel.neural.trainer import Trainer, memory_advice
from megalabel.neural.views import TextViews, Views, joined
from megalabel.parts import Classifier, Featurizer

RANKERS = ("one-vs-all", "trees")
_ONE_VS_ALL = 10_000  # labels
_ROWS = {
    "tokens": "the tokens of a Tokenizer",
    "words": "a matrix of words",
    "vectors": "an array of vectors",
}


class NeuralClassifier(Classifier):
    """A classifier over an encoder that is trained with it.

    It has two stages. In training it is torch; what answers are its `parts`: features that make
    vectors by the trained encoder, and a ranker of labels without torch. A tagger keeps, saves and
    exports the second stage alone.

    Subclasses have the parameters `encoder` and `trainer`, learn `encoder_`, and write `_train` and
    `label_ranker`.
    """

    encoder: Encoder
    trainer: Trainer | None
    encoder_: Encoder

    _module: EncoderModule | None = None
    _ranker: Classifier | None = None

    @property
    def reads_texts(self) -> bool:
        """Whether vectors will not do: the encoder reads the tokens of texts."""
        return self.encoder.reads == "tokens"

    @property
    def learns_label_points(self) -> bool:
        """True: targets are soft."""
        return True

    def _fit(self, examples: Examples) -> None:
        self.check_rows(examples.rows)
        examples = replace(examples, rows=self._as_read(examples.rows))
        self.forget()
        with memory_advice(self.training, len(examples)):
            self._train(examples, Checkpoint(self, *self.learned_from(examples)))

    def learned_from(self, examples: Examples) -> list[Any]:
        """Arrays and matrices that tell these examples from others, for a checkpoint."""
        # a matrix is one itself
        return [*getattr(examples.rows, "arrays", [examples.rows]), examples.targets]

    @abstractmethod
    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Learn from examples whose rows the encoder reads; `checkpoint` is that of this fit."""

    def _as_read(self, X: Any) -> Any:
        """Rows as the encoder reads them: words as a sparse matrix."""
        return csr_matrix(X, dtype=np.float32) if self.encoder.reads == "words" else X

    def forget(self) -> None:
        """Drop the modules that were made of what had been learned before."""
        self._module = self._ranker = None

    def check_rows(self, X: Any) -> None:
        """Raise an error unless X is what the encoder reads."""
        reads = self.encoder.reads
        kinds = {"tokens": isinstance(X, Tokens), "vectors": isinstance(X, np.ndarray)}
        if not kinds.get(reads, not kinds["tokens"]):
            raise DataError(
                f"{type(self).__name__} with {type(self.encoder).__name__} reads {_ROWS[reads]}, "
                f"not {type(X).__name__}"
            )

    @property
    def training(self) -> Trainer:
        """The trainer, or one with the defaults."""
        return Trainer() if self.trainer is None else self.trainer

    # ------------------------------------------------------------------ answering
    @abstractmethod
    def label_ranker(self) -> Classifier:
        """What ranks labels by `features`, without torch."""

    def rank(self, X: Any, k: int) -> Ranking:
        """The k best labels of rows as in training: the encoder's vectors, then the ranker."""
        return self._answering(X).rank(self.features(X), k)

    @property
    def may_miss(self) -> bool:
        """Whether the ranker may."""
        return made_once(self, "_ranker", self.label_ranker).may_miss

    def _rank_allowed(self, X: Any, k: int, allowed: np.ndarray) -> Ranking:
        return self._answering(X).rank_allowed(self.features(X), k, allowed)

    def _answering(self, X: Any) -> Classifier:
        """The ranker, once rows are what the encoder reads."""
        self.check_fitted()
        self.check_rows(X)
        return made_once(self, "_ranker", self.label_ranker)

    def features(self, X: Any) -> Any:
        """What the ranker sees of rows: by default the encoder's vectors."""
        module, levels = self.module(), self.encoder_levels()
        self.check_known(X)
        seen = Levels(module, levels, self.encoder_pooling()) if levels else module
        X = self._as_read(X)
        return encoded(seen.to(self.training.answering_device), X, self.training)

    def check_known(self, X: Any) -> None:
        """Raise a ShapeError where rows have words, or tokens, that the encoder does not know."""
        known = self.module().columns
        if X.shape[1] > known or not self.reads_texts:
            check_width(self, X, known)

    def encoder_levels(self) -> list[dict[str, Any]]:
        """What the ranker sees of the encoder (`neural.encoders.levels.Levels`): by default its own
        vector."""
        return []

    def encoder_pooling(self) -> str:
        """How the states of a layer become a vector that levels see."""
        return "auto"

    def parts(self, features: Featurizer) -> tuple[Featurizer, Classifier]:
        """The trained encoder with the features that it reads as one, and the ranker."""
        return self.encoding(features), self.label_ranker()

    def encoding(self, features: Featurizer) -> Featurizer:
        """Texts to what the ranker sees of the encoder, by fitted features that it reads."""
        trainer = self.training
        return self.encoder_.with_features(
            features,
            self.encoder_levels(),
            pooling=self.encoder_pooling(),
            device=trainer.device,
            precision=trainer.precision,
        )

    def module(self) -> EncoderModule:
        """The trained encoder, on the device where answers are computed."""
        device = self.training.answering_device
        return made_once(self, "_module", lambda: self.encoder_.module().to(device))

    def learned(self) -> dict[str, Any]:
        """Nothing: of a trained classifier its parts are kept."""
        return {}


class ViewsClassifier(NeuralClassifier):
    """A neural classifier whose labels are ranked by words and vectors side by side.

    Subclasses learn `ranker_`; None: labels are ranked by what `levels` see of the encoder alone.
    """

    ranker: Classifier | str | None
    ranker_: Classifier | None

    @property
    def weighs_label_points(self) -> bool:
        """Whether a linear classifier ranks, which does; the encoder is trained on all alike."""
        return self.ranker != "network"

    def check_rows(self, X: Any) -> None:
        """Raise a DataError unless X has both words and tokens."""
        if not isinstance(X, Views):
            raise DataError(
                f"{type(self).__name__} reads texts as words and as tokens (neural.TextViews), "
                f"not {type(X).__name__}"
            )

    def label_ranker(self) -> Classifier:
        """The linear classifier over words and vectors."""
        assert self.ranker_ is not None
        return self.ranker_

    def features(self, X: Views) -> Any:
        """What the ranker sees of rows: words and vectors side by side."""
        vectors = super().features(X.tokens)
        return vectors if self.ranker_ is None else joined(X.words, vectors)

    def encoding(self, features: Featurizer) -> Featurizer:
        """Texts to words and vectors side by side."""
        assert isinstance(features, TextViews)
        vectors = super().encoding(features.tokens_)
        return vectors if self.ranker_ is None else Concat.of([features.words_, vectors], norm=None)


def make_ranker(ranker: Classifier | str | None, labels: int, seed: int) -> Classifier:
    """A linear classifier over words and vectors: a copy of one that is given, or one by name;
    None: one-versus-all where labels are few enough to wait for it, else trees."""
    if isinstance(ranker, Classifier):
        given: Classifier = clone(ranker)
        return given
    if ranker == "one-vs-all" or (ranker is None and labels <= _ONE_VS_ALL):
        return OneVsAll(prune=0.05, precision="int8", seed=seed)
    return TreeClassifier(trees=3, beam=20, prune=0.05, precision="int8", seed=seed)


def held_out_rows(examples: Examples, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and texts to choose the best state by; none of few."""
    order = np.random.default_rng(seed).permutation(examples.texts)
    judged = np.sort(order[: int(len(order) * share)])
    return np.setdiff1d(np.arange(len(examples)), judged, assume_unique=True), judged


def precision_at(ids: np.ndarray, Y: csr_matrix, k: int = 1) -> float:
    """P@k of label numbers (rows, at least k)."""
    rows = np.repeat(np.arange(len(ids)), min(k, ids.shape[1]))
    found = np.asarray((Y > 0)[rows, ids[:, :k].ravel()]).ravel()
    return float(found.sum()) / max(1, len(ids) * k)
