"""All labels at once: a dense matrix of weights that is trained in chunks of labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from megalabel.base import Check, number, one_of
from megalabel.data import LabelSet
from megalabel.labels import LabelTree
from megalabel.neural.heads.base import Head, HeadModule, best_of_chunks
from megalabel.neural.heads.learning import LearningModule, launches_kernels, mixed
from megalabel.neural.heads.steps.dense import DensePass
from megalabel.neural.heads.steps.optimisers import Optimiser, create
from megalabel.neural.heads.steps.plain import Pass, product
from megalabel.neural.losses.base import Loss
from megalabel.rankers import DenseTree

if TYPE_CHECKING:
    from megalabel.neural.kernels.tuning import Tuning

_CHUNK = 1 << 22  # scores at a time
UNSEEN_BIAS = -1e4  # the bias of a label that no row has: nothing speaks for it


class DenseHead(Head):
    """One vector of weights and a bias a label, trained on all labels in every step.

    At first every label is as likely as it is frequent: scores of 0 for all of them would throw the
    encoder about before it has learned anything.

    Parameters
    ----------
    precision : "auto", "bf16" or "float32"
        Of the labels' weights; "auto": bf16 where there is a GPU.
    optimiser : "sgd" or "adam"
        Of the labels' weights. Adam, with one second moment a label, takes twice the memory. The
        rate is for each text of a batch, as the weights move by the sum; with Adam for a step.
    momentum : float
        Of "sgd".
    compensate : float
        The share of labels, the most frequent ones, whose rounding errors are carried along.
    """

    name = "dense"
    ARRAYS = ("weights", "bias")
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "precision": one_of("auto", "bf16", "float32"),
        "optimiser": one_of("sgd", "adam"),
        "momentum": number(0, 1),
        "compensate": number(0, 1),
    }

    def __init__(
        self,
        *,
        precision: str = "auto",
        optimiser: str = "sgd",
        momentum: float = 0.0,
        compensate: float = 0.0,
    ) -> None:
        self.precision = precision
        self.optimiser = optimiser
        self.momentum = momentum
        self.compensate = compensate

    @property
    def rate_per_text(self) -> bool:
        return self.optimiser == "sgd"

    def build(
        self,
        width: int,
        counts: np.ndarray,
        rows: int,
        loss: Loss | None,
        *,
        device: torch.device,
        seed: int,
        shard: tuple[int, int] | None = None,
    ) -> DenseModule:
        module = DenseModule(
            width,
            len(counts),
            loss,
            dtype=dtype_of(self.precision, device),
            optimiser=self.optimiser,
            momentum=self.momentum,
            bias=True,
            compensate=self.compensate,
            label_counts=counts,
            seed=seed,
            shard=shard,
            device=device,
        )
        assert module.bias is not None
        odds = log_odds(counts[module.first : module.last], rows)
        module.bias.copy_(torch.from_numpy(odds))
        return module

    def training_bytes(self, width: int, labels: int, rows: int) -> int:
        number = 4 if self.precision == "float32" else 2
        return dense_bytes(labels, width, number, rows, self.optimiser, self.momentum)

    def keep(self, module: HeadModule, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Weights in half precision and biases, by which a label never seen comes last."""
        tensors, seen = module.tensors(), counts > 0
        weights = tensors["weights"].to(torch.float16).cpu().numpy()
        weights[~seen] = 0
        bias = np.where(seen, tensors["bias"].cpu().numpy(), UNSEEN_BIAS).astype(np.float32)
        return {"weights": weights, "bias": bias}

    def ranker(self, arrays: Mapping[str, np.ndarray], labels: LabelSet) -> DenseTree:
        """A tree of one level."""
        made = DenseTree()
        made.restore(
            {
                "tree_": LabelTree.from_parents(np.full(len(labels), -1)),
                "weights_": [arrays["weights"]],
                "biases_": [arrays["bias"]],
                "labels_": labels,
            }
        )
        return made


class DenseModule(LearningModule):
    """One vector of weights a label, trained on all labels in every step.

    Neither the scores of all labels, nor the gradient by them, nor the gradient of all weights
    ever exist: labels come in chunks, and of each chunk the features' gradient is taken, then the
    weights move. So the head has no parameters: calling it in training mode is a step of its
    optimiser at `learning_rate`, and the loss it returns gives the features' gradient by autograd.
    With bfloat16 weights there is no copy in higher precision: they are rounded stochastically, so
    that small steps are right on average (ELMO, section 5.5), or compensated (Kahan) for frequent
    labels.

    Everything random is a function of the seed, the step and the label: training resumed from a
    state dict goes on to the same weights.

    Parameters
    ----------
    width, labels
        Length of the features and number of labels.
    loss
        A loss that is a sum over labels (`separable`), or the cross-entropy of a softmax over all
        labels (`normalised`), which takes two passes.
    dtype
        Of the weights: torch.float32 or torch.bfloat16.
    optimiser
        "sgd", or "adam" (one second moment a label).
    momentum
        Of "sgd".
    weight_decay
        Times the learning rate, taken from the weights with every step.
    bias
        Whether each label has a bias (float32, trained by plain gradient descent).
    dropout
        Share of the features that are left out of a step.
    compensate
        Share of labels, the most frequent ones, whose rounding errors are kept and given back.
    label_counts
        How often each label occurs; needed where `compensate` is neither 0 nor 1.
    chunk
        Labels at a time; None: by the memory that a chunk takes.
    value_every
        The loss's value is computed in every so many-th step; steps between return the last one,
        while their gradients are right. None: in every step in plain torch, and in every 16th by
        kernels, which need the value for nothing else.
    seed
        Of initial weights, dropout and rounding.
    shard
        (first, last): hold the weights of these labels alone; see `ShardedModule`.
    tuning
        How the GPU kernels are cut (`kernels.tuning.Tuning`); results are the same.
    device
        Where the weights are made.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads import DenseModule
    >>> head = DenseModule(4, 6, loss=None, seed=1)
    >>> scores, labels = head.top_k(torch.ones(2, 4), 3)
    >>> labels.shape
    torch.Size([2, 3])
    """

    weights: Tensor
    bias: Tensor | None
    steps: Tensor
    value: Tensor

    def __init__(
        self,
        width: int,
        labels: int,
        loss: Loss | None,
        *,
        dtype: torch.dtype = torch.float32,
        optimiser: str = "sgd",
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        bias: bool = False,
        dropout: float = 0.0,
        compensate: float = 0.0,
        label_counts: Any = None,
        chunk: int | None = None,
        value_every: int | None = None,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        tuning: Tuning | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            width,
            labels,
            loss,
            dropout=dropout,
            value_every=value_every,
            seed=seed,
            shard=shard,
            device=device,
        )
        if dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"weights are torch.float32 or torch.bfloat16, not {dtype}")
        if chunk is not None and chunk < 1:
            raise ValueError(f"a chunk holds at least one label, not {chunk}")
        self.chunk = chunk
        self.tuning = tuning
        weights = _initial(self.first, self.last, width, dtype, seed, device)
        self.register_buffer("weights", weights)
        made = torch.zeros(len(weights), device=weights.device) if bias else None
        self.register_buffer("bias", made)
        held = _most_frequent(compensate, label_counts, labels)
        held = held[(held >= self.first) & (held < self.last)] - self.first
        self.optimiser: Optimiser = create(
            optimiser, weights, weight_decay=weight_decay, compensated=held, momentum=momentum
        )

    def begin_pass(self, features: Tensor) -> Pass:
        """The products of these features with the weights, and their gradients."""
        return DensePass(self, features)

    def step_of_kernels(self, device: torch.device) -> Any:
        """The step made of kernels, where there are kernels for what this head does."""
        if launches_kernels(device, self.tuning is not None):
            from megalabel.neural.heads.steps.fused import step_for

            return step_for(self)
        return None

    def chunks(self, rows: int) -> list[tuple[int, int]]:
        """First and last of the labels, counted from this head's first, that come together."""
        size = self.chunk or max(1, _CHUNK // max(1, rows))
        count = len(self.weights)
        return [(a, min(a + size, count)) for a in range(0, count, size)]

    @torch.no_grad()
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and ids of each row's k best labels, best first, ties to the lower id."""
        self.check(features)
        return best_of_chunks(self.chunk_scores(features), k)

    def chunk_scores(self, features: Tensor) -> Iterator[tuple[Tensor, int]]:
        """The scores of chunks of labels, each with the number of its first label."""
        x = features.to(self.weights.dtype)
        for first, last in self.chunks(len(x)):
            scores = product(x, self.weights[first:last].T)
            if self.bias is not None:
                scores += self.bias[first:last]
            yield scores, self.first + first

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist`; minus infinity where not held."""
        self.check(features)
        held = (shortlist >= self.first) & (shortlist < self.last)
        at = torch.where(held, shortlist - self.first, 0)
        x = features.to(self.weights.dtype).float()
        scores = torch.einsum("bd,bsd->bs", x, self.weights[at].float())
        if self.bias is not None:
            scores = scores + self.bias[at]
        return scores.masked_fill(~held, -math.inf)

    def tensors(self) -> dict[str, Tensor]:
        """The weights, and the biases where there are some."""
        bias = {} if self.bias is None else {"bias": self.bias}
        return {"weights": self.weights, **bias}

    def extra_repr(self) -> str:
        return f"width={self.width}, labels={self.labels}, dtype={self.weights.dtype}"


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """Of the weights on a device.

    Examples
    --------
    >>> dtype_of("auto", torch.device("cpu"))
    torch.float32
    """
    half = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if half else torch.float32


def dense_bytes(
    labels: int, width: int, number: int, rows: int, optimiser: str, momentum: float
) -> int:
    """What a dense module takes on a GPU: weights and moments in numbers of so many bytes, biases,
    and chunks of scores and of gradients by weights."""
    moments = 1 if optimiser == "adam" or momentum else 0
    kept = labels * (width * number * (1 + moments) + 4 + (4 if optimiser == "adam" else 0))
    chunk = min(labels, max(1, _CHUNK // max(1, rows)))
    return kept + chunk * (16 * rows + 12 * width) + 16 * rows * width


def log_odds(counts: np.ndarray, rows: int) -> np.ndarray:
    """What says that labels are as likely as they are frequent.

    Examples
    --------
    >>> log_odds(np.array([0, 4]), 8).round(2).tolist()
    [-2.83, 0.0]
    """
    share = (counts + 0.5) / (rows + 1)
    made: np.ndarray = np.log(share / (1 - share))
    return made


def _initial(
    first: int,
    last: int,
    width: int,
    dtype: torch.dtype,
    seed: int,
    device: torch.device | str | None,
) -> Tensor:
    """Uniform weights as of a linear layer; those of a label are the same in any shard."""
    weights = torch.empty((last - first, width), dtype=dtype, device=device)
    bound = 1 / math.sqrt(width)
    block = 1 << 14
    for start in range(first // block * block, last, block):
        source = torch.Generator(weights.device).manual_seed(mixed(seed, start))
        drawn = torch.rand((block, width), generator=source, device=weights.device)
        here = slice(max(first, start), min(last, start + block))
        part = drawn[here.start - start : here.stop - start]
        weights[here.start - first : here.stop - first] = part * (2 * bound) - bound
    return weights


def _most_frequent(share: float, counts: Any, labels: int) -> Tensor:
    """The most frequent labels, so many as `share` of all, in ascending order."""
    if not 0 <= share <= 1:
        raise ValueError(f"compensate is a share from 0 to 1, not {share}")
    if share in (0, 1):
        return torch.arange(int(share) * labels)
    if counts is None:
        raise ValueError(f"compensate={share} needs label_counts: how often each label occurs")
    counts = torch.as_tensor(counts)
    if counts.shape != (labels,):
        raise ValueError(f"label_counts of shape {tuple(counts.shape)} for {labels} labels")
    order = torch.argsort(counts, descending=True, stable=True)
    return order[: round(share * labels)].sort().values
