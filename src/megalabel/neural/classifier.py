"""What the neural classifiers share: an encoder, a trainer, and how texts become vectors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.base import clone, made_once
from megalabel.checkpoints import Steps
from megalabel.data.examples import Examples
from megalabel.errors import DataError
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.neural.batches import lengths_of, rows_on
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.tokens import Tokens
from megalabel.neural.trainer import Trainer, memory_advice
from megalabel.parts import Classifier
from megalabel.progress import progress

RANKERS = ("one-vs-all", "trees")
_ONE_VS_ALL = 10_000  # labels
_AT_ONCE = 64  # texts encoded together at least
_TOKENS = 65_536  # on a GPU as many as have so many tokens


class NeuralClassifier(Classifier):
    """A classifier over an encoder that is trained with it.

    Subclasses have the parameters `encoder` and `trainer`, learn `encoder_`, and write `_train`.
    """

    encoder: Encoder
    trainer: Trainer | None
    encoder_: Encoder

    _module: EncoderModule | None = None

    @property
    def reads_texts(self) -> bool:
        """Whether vectors will not do: the encoder reads the tokens of texts."""
        return self.encoder.reads == "tokens"

    def _fit(self, examples: Examples) -> None:
        self.check_rows(examples.rows)
        self.forget()
        with memory_advice(self.training, len(examples)):
            arrays = getattr(examples.rows, "arrays", [examples.rows])  # a matrix is one itself
            self._train(examples, Steps(self, *arrays, examples.targets))

    @abstractmethod
    def _train(self, examples: Examples, steps: Steps) -> None:
        """Learn from examples whose rows the encoder reads; `steps` are those of this fit."""

    def forget(self) -> None:
        """Drop the modules that were made of what had been learned before."""
        self._module = None

    def check_rows(self, X: Any) -> None:
        """Raise an error unless X is what the encoder reads."""
        if self.reads_texts != isinstance(X, Tokens):
            wanted = "the tokens of a Tokenizer" if self.reads_texts else "a matrix of words"
            raise DataError(
                f"{type(self).__name__} with {type(self.encoder).__name__} reads {wanted}, "
                f"not {type(X).__name__}"
            )

    @property
    def training(self) -> Trainer:
        """The trainer, or one with the defaults."""
        return Trainer() if self.trainer is None else self.trainer

    def device(self) -> torch.device:
        """Where answers are computed."""
        return self.training.answering_device

    def module(self) -> EncoderModule:
        """The trained encoder, on its device."""
        return made_once(self, "_module", lambda: self.encoder_.module().to(self.device()))

    def restore(self, learned: Any) -> None:
        """Take the learned state back; the module is made when it is first asked."""
        super().restore(learned)
        self.forget()
        if not isinstance(self.encoder_, Encoder):
            raise ValueError(f"encoder_ of {type(self).__name__} is not an encoder")


@torch.inference_mode()
def encoded(module: EncoderModule, X: Any, trainer: Trainer, *, what: Any = None) -> np.ndarray:
    """The vectors of all rows, float32; `what(inputs)` in place of the module's own forward.

    Rows of like length are taken together, and each batch has the same number of rows, so that a
    row's vector hardly depends on which others are asked for.
    """
    device = next(module.parameters()).device
    lengths = lengths_of(X)
    size = encoded_at_once(lengths, device)
    order = np.argsort(-lengths, kind="stable")  # the shorter ones fit into memory of the longest
    forward = module if what is None else what
    parts: list[Tensor] = []
    was_training = module.training
    module.eval()
    with progress("encoding texts", len(order)) as bar, trainer.arithmetic(device):
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            parts.append(forward(rows_on(X, rows, device)).float().cpu())
            bar.advance(len(rows))
    module.train(was_training)
    if not parts:
        return np.zeros((0, module.width), np.float32)
    made = np.empty((len(order), parts[0].shape[1]), np.float32)
    made[order] = torch.cat(parts).numpy()
    return made


def encoded_at_once(lengths: np.ndarray, device: torch.device) -> int:
    """How many rows are encoded in one batch, of such lengths."""
    if device.type != "cuda":
        return _AT_ONCE
    return max(_AT_ONCE, _TOKENS // max(1, int(lengths.max(initial=1))))


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
