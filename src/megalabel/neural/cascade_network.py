"""The network of CascadeClassifier: one pass of an encoder, label clusters from coarse to fine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from megalabel.labels import LabelTree
from megalabel.neural.batches import Batch
from megalabel.neural.encoders import EncoderModule, pooled
from megalabel.neural.heads.base import best
from megalabel.neural.heads.shortlist import shortlisted
from megalabel.neural.losses import BCE
from megalabel.neural.models import Group, Model, Pass
from megalabel.neural.targets import Targets

_NONE = 0x7FFFFFFF  # a number behind all labels'
_SURELY = 1e6  # added to the scores of what is true: it comes before everything else


@dataclass(frozen=True)
class Shape:
    """What a network is made of besides an encoder and a tree: of each level, from the top."""

    layers: Sequence[Sequence[int]]
    """The layers whose vectors the level sees, side by side; none: the encoder's own vector."""
    widths: Sequence[int | None]
    """What they are projected to; None: they are not."""
    dropouts: Sequence[float]
    beams: Sequence[int]
    """Of the nodes whose children the next level sees; one less than levels."""
    pooling: str
    input_dropout: float = 0.0
    """Of vectors that are projected."""
    prediction: str = "weighted"


class Cascade(Model):
    """An encoder whose layers tell ever finer clusters of labels apart.

    The first level scores all of its nodes; each later one the children of those nodes that the
    level above finds most likely, and in training of all true ones.
    """

    label_of_leaf: Tensor
    batches: Tensor
    """How many were seen in training."""
    detached: int = 0
    """In so many of them, at first, the last level does not move the encoder."""

    def __init__(
        self, encoder: EncoderModule, tree: LabelTree, shape: Shape, state_width: int
    ) -> None:
        super().__init__()
        self.encoder, self.shape = encoder, shape
        self._wanted = sorted({layer for layers in shape.layers for layer in layers})
        self.loss = BCE(reduction="mean")
        starts = [torch.from_numpy(s.copy()) for s in tree.levels_]
        self.heads = [
            LevelHead(
                starts[t],
                len(shape.layers[t]) * state_width or encoder.width,
                shape.widths[t],
                shape.input_dropout,
                shape.dropouts[t],
            )
            for t in range(len(starts))
        ]
        self.levels = nn.ModuleList(self.heads)
        # the node of each label on each level
        node = torch.from_numpy(tree.leaf_of_label.copy()).long()
        for t in reversed(range(len(starts))):
            self.register_buffer(f"node_{t}", node, persistent=False)
            node = torch.bucketize(node, starts[t], right=True) - 1
        labels = torch.from_numpy(tree.label_of_leaf_.copy()).long()
        self.register_buffer("label_of_leaf", labels, persistent=False)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def groups(self) -> dict[str, Group]:
        return {
            "encoder": Group([self.encoder]),
            "levels": Group([self.levels], "head_learning_rate"),
        }

    def passes(self) -> list[Pass]:
        if self._wanted:
            return [Pass(self.encoder, self, "pooled_layers")]
        return [Pass(self.encoder, self.encoder, "forward")]

    @property
    def width(self) -> int:
        """Of what `vectors` gives."""
        return sum(level.width for level in self.heads)

    def vectors(self, inputs: Any) -> Tensor:
        """What all levels see of each text, side by side: (rows, width)."""
        seen = self._seen(inputs)
        if self.detached and self.training:
            still = self.batches < self.detached
            seen[-1] = torch.where(still, seen[-1].detach(), seen[-1])
        return torch.cat([level.narrowed(x) for level, x in zip(self.heads, seen, strict=True)], 1)

    def _seen(self, inputs: Any) -> list[Tensor]:
        """What each level sees of the encoder."""
        if not self._wanted:
            return [self.encoder(inputs)] * len(self.heads)
        made = dict(zip(self._wanted, self.pooled_layers(inputs), strict=True))
        return [torch.cat([made[layer] for layer in layers], 1) for layers in self.shape.layers]

    def pooled_layers(self, inputs: Any) -> list[Tensor]:
        """The vectors of each layer that some level sees."""
        states = self.encoder.hidden(inputs)
        return [pooled(states[layer], inputs.mask, self.shape.pooling) for layer in self._wanted]

    def forward(self, batch: Batch) -> Tensor:
        """The sum over levels of the mean loss of what they score."""
        vectors = self.vectors(batch.inputs)
        losses = []
        for level in self.walk(vectors, batch.targets):
            assert level.truth is not None
            losses.append(self.loss(level.scores, level.truth, mask=level.mask).mean())
        if self.training:
            self.batches += 1
        return torch.stack(losses).sum()

    @torch.no_grad()
    def top_k(self, vectors: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and labels, best first, of what `vectors` gives; minus infinity and the number of
        labels in places that the beam does not fill."""
        above = total = vectors
        for level in self.walk(vectors):
            own = functional.logsigmoid(level.scores)
            total = own
            if level.places is not None and self.shape.prediction == "weighted":
                total = own + above.gather(1, level.places)
            above = own
        leaves = torch.arange(total.shape[1], device=total.device).expand_as(total)
        if level.shortlist is not None:
            leaves = level.shortlist
            total = total.masked_fill(leaves < 0, -math.inf)
        labels = self.label_of_leaf[leaves.clamp(min=0)].masked_fill(leaves < 0, _NONE)
        scores, found = best(total, labels, k)
        left = (0, k - scores.shape[1])
        scores = functional.pad(scores, left, value=-math.inf)
        found = functional.pad(found, left, value=_NONE)
        count = len(self.label_of_leaf)
        return scores.exp().where(found < count, -math.inf), found.clamp(max=count)

    def walk(self, vectors: Tensor, targets: Targets | None = None) -> Iterator[Scored]:
        """Score level after level. With targets, no true node is missed on the way."""
        parts = torch.split(vectors, [level.width for level in self.heads], 1)
        shortlist = places = None
        for t, level in enumerate(self.heads):
            scored = level(parts[t], shortlist, places)
            wanted = self.shape.beams[t] if t + 1 < len(self.heads) else 0
            order = scored.scores.detach().float()
            if scored.mask is not None:
                order = order.masked_fill(~scored.mask, -math.inf)
            if targets is not None:
                true = self.targets(targets, t)
                scored.truth = (
                    true.dense(0, level.nodes) if shortlist is None else true.of(shortlist)
                )
                order = order + _SURELY * (scored.truth > 0)
                wanted = max(wanted, targets.most)
            yield scored
            if t + 1 < len(self.heads):
                likely = order.topk(min(wanted, order.shape[1]), 1).indices
                parents = likely if shortlist is None else shortlist.gather(1, likely)
                shortlist = self.heads[t + 1].below(parents)
                places = likely.repeat_interleave(shortlist.shape[1] // likely.shape[1], 1)

    def targets(self, targets: Targets, t: int) -> Targets:
        """The nodes of a level that each text belongs to."""
        return targets.grouped(getattr(self, f"node_{t}"), self.heads[t].nodes)


@dataclass
class Scored:
    """What a level makes of a batch."""

    scores: Tensor
    shortlist: Tensor | None
    """The nodes that scores are of, -1 where there is none; None: all nodes."""
    mask: Tensor | None
    places: Tensor | None
    """Where the parent of each stands in the scores of the level above."""
    truth: Tensor | None = None


class LevelHead(nn.Module):
    """The nodes of one level of the tree, each with its weights."""

    starts: Tensor

    def __init__(
        self,
        starts: Tensor,
        inputs: int,
        width: int | None,
        input_dropout: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.width, self.nodes = width or inputs, int(starts[-1])
        self.input_dropout, self.dropout = input_dropout, dropout
        self.projection = None if width is None else nn.Linear(inputs, width)
        bound = 1 / math.sqrt(self.width)
        self.weights = nn.Parameter(torch.empty(self.nodes, self.width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(self.nodes))
        self.register_buffer("starts", starts, persistent=False)
        self._most = int(starts.diff().max())  # children of a parent

    def narrowed(self, vectors: Tensor) -> Tensor:
        """What the level sees of its layers' vectors."""
        if self.projection is not None:
            kept = functional.dropout(vectors, self.input_dropout, self.training)
            vectors = self.projection(kept)
        return functional.dropout(vectors, self.dropout, self.training)

    def below(self, parents: Tensor) -> Tensor:
        """The children of each row's parents, side by side; -1 where there is none."""
        first = self.starts[parents.clamp(min=0)][..., None]
        last = self.starts[parents + 1][..., None]
        numbers = first + torch.arange(self._most, device=parents.device)
        there = (numbers < last) & (parents >= 0)[..., None]
        return numbers.where(there, -1).flatten(1)

    def forward(self, features: Tensor, shortlist: Tensor | None, places: Tensor | None) -> Scored:
        if shortlist is None:
            scores = functional.linear(features, self.weights, self.bias)
            return Scored(scores, None, None, None)
        mask = shortlist >= 0
        at = shortlist.clamp(min=0)
        scores = shortlisted(features, self.weights, self.bias[:, None], at)
        return Scored(scores, shortlist, mask, places)
