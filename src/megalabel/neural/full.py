"""FullClassifier: an encoder and one linear classifier for every label, trained end to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

from megalabel.base import (
    Check,
    boolean,
    clone,
    instance,
    integer,
    number,
    one_of,
    with_learned,
)
from megalabel.checkpoints import Steps
from megalabel.data.examples import Examples
from megalabel.labels import LabelTree
from megalabel.neural.batches import Batch
from megalabel.neural.classifier import NeuralClassifier, held_out_rows, precision_at
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.encoding import encoded
from megalabel.neural.heads import DenseHead, Head, ShardedHead
from megalabel.neural.losses import Loss
from megalabel.neural.losses import create as create_loss
from megalabel.neural.processes import gathered_rows
from megalabel.neural.trainer import Trainer
from megalabel.rankers import DenseTree

_UNSEEN = -1e4  # the bias of a label that no row has: nothing speaks for it


class FullClassifier(NeuralClassifier):
    """An encoder under a head of all labels, without a shortlist.

    The head is trained by its own rule, in the pass that computes its gradients: neither the
    scores of all labels nor their gradients are ever held (Jain et al. 2023; Schultheis and
    Babbar).

    Parameters
    ----------
    encoder : Encoder
    trainer : Trainer, optional
        Its `head_learning_rate` is for each text of a batch, as the labels' weights move by the
        sum; with Adam it is for a step.
    loss : str or Loss
        By name (`neural.losses.create`), or as it is.
    bottleneck : int, optional
        Labels see the text through so many numbers: for very many labels.
    dropout : float
        The share of a text's vector that labels do not see, in training.
    precision : "auto", "bf16" or "float32"
        Of the labels' weights; "auto": bf16 where there is a GPU.
    optimiser : "sgd" or "adam"
        Of the labels' weights. Adam, with one second moment a label, takes twice the memory.
    momentum : float
        Of "sgd".
    compensate : float
        The share of labels, the most frequent ones, whose rounding errors are carried along.
    validation : float
        The share of rows held out to choose the best epoch by P@1; 0: the last one stays.
    frozen : bool
        Leave the encoder as it is and train the labels alone.
    seed : int

    Attributes
    ----------
    encoder_ : Encoder
    weights_ : float16 array (labels, width)
    bias_ : float32 array (labels,)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "encoder": instance(Encoder),
        "trainer": instance(Trainer) | one_of(None),
        "loss": instance(str) | instance(Loss),
        "bottleneck": integer(1) | one_of(None),
        "dropout": number(0, 1),
        "precision": one_of("auto", "bf16", "float32"),
        "optimiser": one_of("sgd", "adam"),
        "momentum": number(0, 1),
        "compensate": number(0, 1),
        "validation": number(0, 0.5),
        "frozen": boolean(),
        "seed": integer(0),
    }

    weights_: np.ndarray
    bias_: np.ndarray
    projection_: np.ndarray | None

    def __init__(
        self,
        encoder: Encoder,
        trainer: Trainer | None = None,
        *,
        loss: str | Loss = "bce",
        bottleneck: int | None = None,
        dropout: float = 0.5,
        precision: str = "auto",
        optimiser: str = "sgd",
        momentum: float = 0.0,
        compensate: float = 0.0,
        validation: float = 0.0,
        frozen: bool = False,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.trainer = trainer
        self.loss = loss
        self.bottleneck = bottleneck
        self.dropout = dropout
        self.precision = precision
        self.optimiser = optimiser
        self.momentum = momentum
        self.compensate = compensate
        self.validation = validation
        self.frozen = frozen
        self.seed = seed

    def _train(self, examples: Examples, steps: Steps) -> None:
        """Train the encoder and all labels together."""
        X, Y = examples.rows, examples.targets
        rows, judged = held_out_rows(examples, self.validation, self.seed)
        trainer = clone(self.training)
        if self.optimiser == "sgd":
            # published rates are for the sum over a batch, the head's loss is the mean
            trainer.head_learning_rate *= trainer.batch_of(len(rows))
        device = trainer.torch_device
        counts = examples.label_counts
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = self.encoder.begin(X, self.seed, trainer, steps, examples.columns)
            head = self._head(self.bottleneck or module.width, counts, Y.shape[0], device)
            model = FullModel(
                module,
                head,
                bottleneck=self.bottleneck,
                dropout=self.dropout,
                frozen=self.frozen,
            )
        evaluate = None
        if len(judged):
            seen, truth = X[judged], Y[judged]

            def evaluate() -> float:
                features = encoded(module, seen, trainer, what=model.features)
                ids = head.top_k(torch.from_numpy(features).to(device), 1)[1]
                return precision_at(ids.cpu().numpy(), truth)

        trainer.fit(model, X[rows], Y[rows], evaluate=evaluate, steps=steps)
        self.encoder_ = clone(self.encoder).keep(module)
        weights, bias = _learned(head)
        weights[torch.from_numpy(counts == 0).to(weights.device)] = 0
        self.weights_ = weights.to(torch.float16).cpu().numpy().copy()
        self.bias_ = np.where(counts > 0, bias.cpu().numpy(), _UNSEEN).astype(np.float32)
        self.projection_ = None
        if model.projection is not None:
            self.projection_ = model.projection.weight.detach().cpu().numpy().copy()

    def label_ranker(self) -> DenseTree:
        """All labels at once: a tree of one level."""
        return with_learned(
            DenseTree(),
            tree_=LabelTree.from_parents(np.full(len(self.labels_), -1)),
            weights_=[self.weights_],
            biases_=[self.bias_],
            labels_=self.labels_,
        )

    def encoder_levels(self) -> list[dict[str, Any]]:
        """The encoder's own vector, through the bottleneck if there is one."""
        if self.projection_ is None:
            return []
        return [{"layers": [], "weight": self.projection_, "bias": None}]

    def _head(self, width: int, counts: np.ndarray, rows: int, device: torch.device) -> Head:
        loss = create_loss(self.loss) if isinstance(self.loss, str) else self.loss
        half = self.precision == "bf16" or (self.precision == "auto" and device.type == "cuda")
        return full_head(
            width,
            counts,
            rows,
            loss,
            dtype=torch.bfloat16 if half else torch.float32,
            optimiser=self.optimiser,
            momentum=self.momentum,
            compensate=self.compensate,
            label_counts=counts,
            seed=self.seed,
            device=device,
        )


def full_head(width: int, counts: np.ndarray, rows: int, loss: Loss, **options: Any) -> Head:
    """A head of all labels, shared out over processes where there are several.

    At first every label is as likely as it is frequent, `counts` in so many rows: scores of 0 for
    all of them would throw the encoder about before it has learned anything.
    """
    kind = ShardedHead if distributed.is_initialized() else DenseHead
    head = kind(width, len(counts), loss, bias=True, **options)
    local = _local(head)
    share = (counts[local.first : local.last] + 0.5) / (rows + 1)
    assert local.bias is not None
    local.bias.copy_(torch.from_numpy(np.log(share / (1 - share))))
    return head


def _local(head: Head) -> DenseHead:
    """The labels that this process holds."""
    found = head.local if isinstance(head, ShardedHead) else head
    assert isinstance(found, DenseHead)
    return found


def _learned(head: Head) -> tuple[Tensor, Tensor]:
    """The weights and biases of all labels, from wherever they are."""
    local = _local(head)
    assert local.bias is not None
    both = torch.cat([local.weights.float(), local.bias[:, None]], 1)
    if isinstance(head, ShardedHead):
        both, _ = gathered_rows(both)
    return both[:, :-1], both[:, -1]


class FullModel(nn.Module):
    """An encoder, what narrows its vectors, and a head."""

    records = "encoder.forward"

    def __init__(
        self,
        encoder: EncoderModule,
        head: Head,
        *,
        bottleneck: int | None = None,
        dropout: float = 0.0,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(not frozen)
        self.projection = None
        if bottleneck is not None:
            self.projection = nn.Linear(encoder.width, bottleneck, bias=False)
            # vectors about as long as the encoder's, which is what labels' rates are meant for
            nn.init.orthogonal_(self.projection.weight)
        self.dropout = nn.Dropout(dropout)
        self.head = head

    def features(self, inputs: Any) -> Tensor:
        """The vectors that the head sees, without dropout."""
        made: Tensor = self.encoder(inputs)
        return (
            made if self.projection is None else nn.functional.linear(made, self.projection.weight)
        )

    def forward(self, batch: Batch) -> Tensor:
        # no row has labels where a process without a row of its own passes another's on
        features = self.dropout(self.features(batch.inputs))[: len(batch.targets)]
        loss: Tensor = self.head(features, batch.targets)
        return loss
