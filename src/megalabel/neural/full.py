"""FullClassifier: an encoder and one linear classifier for every label, trained end to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.base import (
    Check,
    boolean,
    clone,
    instance,
    integer,
    number,
    one_of,
)
from megalabel.checkpoints import Checkpoint
from megalabel.data.examples import Examples
from megalabel.neural.batches import Batch, TextSource
from megalabel.neural.classifier import NeuralClassifier, held_out_rows, precision_at
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.encoding import encoded
from megalabel.neural.heads import Head, HeadModule, begin
from megalabel.neural.heads import create as create_head
from megalabel.neural.losses import Loss
from megalabel.neural.losses import create as create_loss
from megalabel.neural.models import Group, Model, Pass
from megalabel.neural.trainer import Trainer
from megalabel.parts import Classifier
from megalabel.rankers.rectified import Rectified


class FullClassifier(NeuralClassifier):
    """An encoder under a head of all labels, without a shortlist.

    The dense head is trained by its own rule, in the pass that computes its gradients: neither the
    scores of all labels nor their gradients are ever held (Jain et al. 2023; Schultheis and
    Babbar).

    Parameters
    ----------
    encoder : Encoder
    trainer : Trainer, optional
        Its `head_learning_rate` is for each text of a batch where the head says so, else for a
        step.
    head : str or Head
        By name (`neural.heads.create`), or as it is.
    loss : str or Loss
        By name (`neural.losses.create`), or as it is.
    bottleneck : int, optional
        Labels see the text through so many numbers: for very many labels.
    intermediate : int, optional
        Labels see the text through so many rectified numbers, of a layer that is trained with the
        encoder: far more than the encoder gives, for heads whose labels see few of them.
    dropout : float
        The share of a text's vector that labels do not see, in training.
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
        What the dense head keeps; another one keeps arrays of its own.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "encoder": instance(Encoder),
        "trainer": instance(Trainer) | one_of(None),
        "head": instance(str) | instance(Head),
        "loss": instance(str) | instance(Loss),
        "bottleneck": integer(1) | one_of(None),
        "intermediate": integer(1) | one_of(None),
        "dropout": number(0, 1),
        "validation": number(0, 0.5),
        "frozen": boolean(),
        "seed": integer(0),
    }

    weights_: np.ndarray
    bias_: np.ndarray
    projection_: np.ndarray | None
    layer_: tuple[np.ndarray, np.ndarray] | None

    def __init__(
        self,
        encoder: Encoder,
        trainer: Trainer | None = None,
        *,
        head: str | Head = "dense",
        loss: str | Loss = "bce",
        bottleneck: int | None = None,
        intermediate: int | None = None,
        dropout: float = 0.5,
        validation: float = 0.0,
        frozen: bool = False,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.trainer = trainer
        self.head = head
        self.loss = loss
        self.bottleneck = bottleneck
        self.intermediate = intermediate
        self.dropout = dropout
        self.validation = validation
        self.frozen = frozen
        self.seed = seed

    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Train the encoder and all labels together."""
        X, Y = examples.rows, examples.targets
        rows, judged = held_out_rows(examples, self.validation, self.seed)
        trainer, chosen = clone(self.training), self.chosen_head().prepared(X, Y, self.seed)
        loss = create_loss(self.loss) if isinstance(self.loss, str) else self.loss
        if chosen.rate_per_text:
            # published rates are for the sum over a batch, the head's loss is the mean
            trainer.head_learning_rate *= trainer.batch_of(len(rows))
        device = trainer.torch_device
        counts = examples.label_counts
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = self.encoder.begin(X, self.seed, trainer, checkpoint, examples.columns)
            width = self.intermediate or self.bottleneck or module.width
            head = begin(
                chosen, width, counts, examples.n_texts, loss, device=device, seed=self.seed
            )
            model = FullModel(
                module,
                head,
                bottleneck=self.bottleneck,
                intermediate=self.intermediate,
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

        trainer.fit(model, TextSource(X[rows], Y[rows]), evaluate=evaluate, checkpoint=checkpoint)
        self.encoder_ = clone(self.encoder).keep(module)
        for name, array in chosen.keep(head, np.maximum(counts, examples.taught)).items():
            setattr(self, f"{name}_", array)
        self.projection_ = None
        if model.projection is not None:
            self.projection_ = model.projection.weight.detach().cpu().numpy().copy()
        self.layer_ = None
        if model.layer is not None:
            weight, bias = (p.detach().cpu() for p in (model.layer.weight, model.layer.bias))
            self.layer_ = weight.numpy().copy(), bias.numpy().copy()

    def label_ranker(self) -> Classifier:
        """What the head gives: it ranks by the vectors of texts."""
        head = self.chosen_head()
        arrays = {name: getattr(self, f"{name}_") for name in head.ARRAYS}
        ranker = head.ranker(arrays, self.labels_)
        return ranker if self.layer_ is None else Rectified.over(ranker, *self.layer_)

    def encoder_levels(self) -> list[dict[str, Any]]:
        """The encoder's own vector, through the bottleneck if there is one."""
        if self.projection_ is None:
            return []
        return [{"layers": [], "weight": self.projection_, "bias": None}]

    def chosen_head(self) -> Head:
        """The head, made where it is given by name."""
        return create_head(self.head) if isinstance(self.head, str) else self.head


class FullModel(Model):
    """An encoder, what narrows its vectors, and a head."""

    def __init__(
        self,
        encoder: EncoderModule,
        head: HeadModule,
        *,
        bottleneck: int | None = None,
        intermediate: int | None = None,
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
        self.layer = None
        if intermediate is not None:
            self.layer = nn.Linear(bottleneck or encoder.width, intermediate)
            nn.init.kaiming_uniform_(self.layer.weight, nonlinearity="relu")
        self.dropout = nn.Dropout(dropout)
        self.head = head

    def groups(self) -> dict[str, Group]:
        below = [m for m in (self.encoder, self.projection, self.layer) if m is not None]
        return {"encoder": Group(below), "head": Group([self.head], "head_learning_rate")}

    def passes(self) -> list[Pass]:
        return [Pass(self.encoder, self.encoder, "forward")]

    def features(self, inputs: Any) -> Tensor:
        """The vectors that the head sees, without dropout."""
        made: Tensor = self.encoder(inputs)
        if self.projection is not None:
            made = nn.functional.linear(made, self.projection.weight)
        return made if self.layer is None else torch.relu(self.layer(made))

    def forward(self, batch: Batch) -> Tensor:
        # no row has labels where a process without a row of its own passes another's on
        features = self.dropout(self.features(batch.inputs))[: len(batch.targets)]
        loss: Tensor = self.head(features, batch.targets)
        return loss
