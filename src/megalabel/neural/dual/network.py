"""DualModel: texts and labels through one encoder, and a vector for each label beside it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from megalabel.data.matrix import normalised_rows
from megalabel.neural.dual.batches import DualBatch
from megalabel.neural.dual.caching import encoded_in_chunks, rows_in_chunks
from megalabel.neural.encoders import EncoderModule
from megalabel.neural.encoding import encoded
from megalabel.neural.losses import Loss
from megalabel.neural.models import Group, Model
from megalabel.neural.targets import Targets
from megalabel.neural.trainer import Trainer

CELLS = 1 << 24  # scores of texts and labels held at a time


class View(nn.Module):
    """What is seen of an encoder's vectors: a linear map, a tanh, a scaling to length one, or some
    of these."""

    def __init__(
        self,
        width: int,
        narrow: int | None,
        *,
        tanh: bool = False,
        unit: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width = narrow or width
        self.linear = None if narrow is None else nn.Linear(width, narrow)
        self.tanh, self.unit = tanh and narrow is not None, unit
        self.dropout = nn.Dropout(0.0 if narrow is None else dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        made = vectors if self.linear is None else self.linear(vectors)
        made = self.dropout(made.tanh() if self.tanh else made)
        return normalize(made) if self.unit else made

    def arrays(self) -> dict[str, Any]:
        """The view as `features.projected` takes it."""
        state = {"weight": None, "bias": None}
        if self.linear is not None:
            for name in state:
                state[name] = getattr(self.linear, name).detach().float().cpu().numpy().copy()
        return {**state, "tanh": self.tanh, "unit": self.unit}


@dataclass(frozen=True)
class Objective:
    """How one half of a model learns: the dual encoder, or the labels' own vectors."""

    loss: Loss
    """Of the scores of texts (rows) and labels (columns)."""
    share: float = 1.0
    """What it counts."""
    symmetric: bool = False
    """Whether labels look for their texts as much as texts for their labels."""
    auxiliary: Loss | None = None
    """A second loss of the same scores, which is added."""

    def __call__(self, texts: Tensor, labels: Tensor, batch: DualBatch) -> Tensor:
        """The mean loss of a batch by the vectors of its texts and of its labels."""
        total = _mean(self.loss, texts, labels, batch.targets, batch.hidden)
        if self.symmetric:
            turned = _transposed(batch.targets), _transposed(batch.hidden)
            total = (total + _mean(self.loss, labels, texts, *turned)) / 2
        if self.auxiliary is not None:
            total = total + _mean(self.auxiliary, texts, labels, batch.targets, batch.hidden)
        return self.share * total


class DualModel(Model):
    """Texts and labels through an encoder, compared; and texts compared with labels' own vectors.

    Parameters
    ----------
    encoder : EncoderModule
        Of texts.
    label_encoder : EncoderModule
        The same, or another one.
    view : View
        What texts and labels are compared by.
    objective : Objective, optional
        How that is learned; None: not at all.
    classifier_view : View, optional
        What is seen of texts where they are compared with labels' own vectors; None: labels have
        none.
    classifier_objective : Objective, optional
    trainer : Trainer
    labels : int
    bias : float array (labels,), optional
        What the biases of labels' own vectors begin with; None: they have none.
    bank : int, optional
        Keep the vector that each of so many texts had when it was last learned from.
    projection_rate : float
        The rate of views, in rates of the encoder.
    """

    bank: Tensor | None

    def __init__(
        self,
        encoder: EncoderModule,
        label_encoder: EncoderModule,
        view: View,
        objective: Objective | None,
        classifier_view: View | None,
        classifier_objective: Objective | None,
        trainer: Trainer,
        *,
        labels: int,
        bias: np.ndarray | None = None,
        bank: int | None = None,
        projection_rate: float = 2.0,
    ) -> None:
        super().__init__()
        self.encoder, self.label_encoder = encoder, label_encoder
        self.view, self.classifier_view = view, classifier_view
        self.objective, self.classifier_objective = objective, classifier_objective
        self.trainer, self.projection_rate = trainer, projection_rate
        self.table: nn.Embedding | None = None
        self.biases: nn.Embedding | None = None
        if classifier_view is not None:
            self.table = nn.Embedding(labels, classifier_view.width, sparse=True)
            nn.init.normal_(self.table.weight, std=classifier_view.width**-0.5)
            if bias is not None:
                self.biases = nn.Embedding(labels, 1, sparse=True)
                values = torch.from_numpy(np.asarray(bias, np.float32)[:, None])
                self.biases.weight.data.copy_(values)
        made = None if bank is None else torch.zeros(bank, view.width, dtype=torch.float16)
        self.register_buffer("bank", made)

    def groups(self) -> dict[str, Group]:
        views = [self.view] if self.classifier_view is None else [self.view, self.classifier_view]
        groups = {
            "encoder": Group([self.encoder, self.label_encoder]),
            "views": Group(views, factor=self.projection_rate),
        }
        if self.table is not None:
            own = [self.table] if self.biases is None else [self.table, self.biases]
            groups["classifier"] = Group(own, "head_learning_rate")
        return groups

    def forward(self, batch: DualBatch) -> Tensor:
        seen = encoded_in_chunks(self.encoder, batch.texts)
        total = seen.new_zeros(())
        if self.objective is not None:
            texts = self.view(seen)
            labels = self.view(encoded_in_chunks(self.label_encoder, batch.names))
            total = total + self.objective(texts, labels, batch)
            if self.bank is not None:
                self.bank[torch.from_numpy(batch.rows)] = texts.detach().half()
        if self.classifier_objective is not None:
            assert self.classifier_view is not None
            assert self.table is not None
            texts, own = self.classifier_view(seen), self.table(batch.labels)
            if self.biases is not None:
                texts = torch.cat([texts, torch.ones_like(texts[:, :1])], 1)
                own = torch.cat([own, self.biases(batch.labels)], 1)
            total = total + self.classifier_objective(texts, own, batch)
        return total

    # ------------------------------------------------------------------ as it answers
    def seen_texts(self, X: Any) -> np.ndarray:
        """What texts are compared with labels by; from the bank where there is one."""
        if self.bank is not None:
            return self.bank.float().cpu().numpy()
        return encoded(self.encoder, X, self.trainer, what=lambda x: self.view(self.encoder(x)))

    def seen_labels(self, Z: Any) -> np.ndarray:
        """What labels are compared with texts by."""
        encoder = self.label_encoder
        return encoded(encoder, Z, self.trainer, what=lambda z: self.view(encoder(z)))

    def views(self, cosines: bool) -> list[View]:
        """What texts are seen by where both halves answer, by cosines or by products as learned."""
        if self.classifier_view is None:
            return [self.view]
        own = copy(self.classifier_view)
        own.unit = cosines
        return [self.view, own]

    def label_halves(self, Z: Any, cosines: bool) -> tuple[list[np.ndarray], np.ndarray]:
        """Of each half the vectors of all labels, by which it scores them, and their biases."""
        texts = self.seen_labels(Z)
        none = np.zeros(len(texts), np.float32)
        if self.table is None:
            return [texts], none
        own = self.table.weight.detach().float().cpu().numpy()
        if cosines:
            return [texts, normalised_rows(own)], none
        first, second = (
            1.0 if objective is None else temperature_of(objective.loss)
            for objective in (self.objective, self.classifier_objective)
        )
        bias = none if self.biases is None else self.biases.weight.detach()[:, 0].cpu().numpy()
        return [texts / first, own / second], bias / second

    def seen_by_both(self, X: Any, Z: Any, cosines: bool) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of texts and of labels whose products are the scores of both halves."""
        views = self.views(cosines)

        def seen(x: Any) -> Tensor:
            vectors = self.encoder(x)
            return torch.cat([*(v(vectors) for v in views), torch.ones_like(vectors[:, :1])], 1)

        halves, bias = self.label_halves(Z, cosines)
        return encoded(self.encoder, X, self.trainer, what=seen), np.hstack(
            [*halves, bias[:, None]]
        )


class TableModel(Model):
    """A vector for each label over vectors of texts that stay as they are: what the label's text
    says, and a correction that is learned, together of length one.

    Parameters
    ----------
    vectors : float array (labels, width)
        Of the labels' texts.
    objective : Objective
        How corrections are learned.
    """

    base: Tensor

    def __init__(self, vectors: np.ndarray, objective: Objective) -> None:
        super().__init__()
        self.register_buffer("base", torch.from_numpy(np.array(vectors, np.float32)))
        self.table = nn.Embedding(len(vectors), vectors.shape[1], sparse=True)
        nn.init.zeros_(self.table.weight)
        self.objective = objective

    def groups(self) -> dict[str, Group]:
        return {"classifier": Group([self.table], "head_learning_rate")}

    def own(self, labels: Tensor) -> Tensor:
        """The vectors of some labels."""
        return normalize(self.base[labels] + self.table(labels))

    def forward(self, batch: DualBatch) -> Tensor:
        return self.objective(batch.texts[0], self.own(batch.labels), batch)

    def seen_texts(self, X: np.ndarray) -> np.ndarray:
        """The vectors of texts as they are."""
        return X

    @torch.no_grad()
    def seen_labels(self, Z: Any = None) -> np.ndarray:
        """The vectors of all labels."""
        every = torch.arange(len(self.base), device=self.base.device)
        return np.asarray(self.own(every).cpu().numpy())


def temperature_of(loss: Loss) -> float:
    """What a loss divides scores by.

    Examples
    --------
    >>> from megalabel.neural import BCE, DecoupledSoftmax
    >>> temperature_of(DecoupledSoftmax(temperature=0.1)), temperature_of(BCE())
    (0.1, 1.0)
    """
    return float(getattr(loss, "temperature", 1.0))


def _mean(loss: Loss, rows: Tensor, columns: Tensor, targets: Targets, hidden: Targets) -> Tensor:
    """The mean loss of those rows that have a positive."""

    def values(some: Tensor, others: Tensor, start: int) -> Tensor:
        part = slice(start, start + len(some))
        left_out = _dense(hidden, part) > 0
        mask = None if not len(hidden.indices) else ~left_out
        return loss(some @ others.T, _dense(targets, part), mask=mask)

    losses = rows_in_chunks(values, rows, columns, CELLS)
    some = targets.indptr.diff() > 0
    return (losses * some).sum() / some.sum().clamp(min=1)


def _dense(targets: Targets, rows: slice) -> Tensor:
    """Some rows of targets, as a matrix."""
    if rows.start == 0 and rows.stop >= len(targets):
        return targets.dense(0, targets.labels)
    first, last = targets.indptr[rows.start], targets.indptr[min(rows.stop, len(targets))]
    indptr = targets.indptr[rows.start : rows.stop + 1] - first
    part = Targets(indptr, targets.indices[first:last], targets.values[first:last], targets.labels)
    return part.dense(0, part.labels)


def _transposed(targets: Targets) -> Targets:
    """Columns for rows."""
    order = torch.argsort(targets.indices, stable=True)
    counts = torch.bincount(targets.indices, minlength=targets.labels)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Targets(indptr, targets.rows[order], targets.values[order], len(targets))
