"""A head as somebody else might write it: one class for its choices, one for its weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from megalabel.base import number
from megalabel.labels import LabelTree
from megalabel.neural.heads.base import Head, HeadModule, best_of_chunks
from megalabel.rankers import DenseTree


class PrunedHead(Head):
    """Weights without a bias, the small ones of which are set to zero after every step."""

    name = "pruned"
    ARRAYS = ("table",)
    PARAMETERS = {"threshold": number(0)}  # noqa: RUF012

    def __init__(self, *, threshold=0.01):
        self.threshold = threshold

    def build(self, width, counts, rows, loss, *, device, seed, shard=None):
        return PrunedModule(width, len(counts), loss, self.threshold, seed, shard).to(device)

    def keep(self, module, counts):
        return {"table": module.tensors()["table"].cpu().half().numpy()}

    def ranker(self, arrays, labels):
        made = DenseTree()
        made.restore(
            {
                "tree_": LabelTree.from_parents(np.full(len(labels), -1)),
                "weights_": [arrays["table"]],
                "biases_": [np.zeros(len(labels), np.float32)],
                "labels_": labels,
            }
        )
        return made


class PrunedModule(HeadModule):
    made: list = []  # noqa: RUF012

    def __init__(self, width, labels, loss, threshold, seed, shard=None):
        super().__init__(width, labels, shard)
        self.loss, self.threshold, self.updates = loss, threshold, []
        drawn = torch.randn((labels, width), generator=torch.Generator().manual_seed(seed))
        self.table = nn.Parameter(0.1 * drawn[self.first : self.last])
        self.made.append(self)

    def forward(self, features, targets, shortlist=None):
        self.check(features, targets)
        ids = torch.arange(self.first, self.last)
        wanted = targets.dense(self.first, self.last)
        return self.loss(features @ self.table.T, wanted, labels=ids).mean()

    def top_k(self, features, k):
        return best_of_chunks([(features @ self.table.T, self.first)], k)

    def scores(self, features, shortlist):
        held = (shortlist >= self.first) & (shortlist < self.last)
        every = features @ self.table.T
        at = (shortlist - self.first).where(held, 0)
        return every.gather(1, at).masked_fill(~held, -torch.inf)

    @torch.no_grad()
    def after_update(self, step, total):
        self.updates.append((step, total))
        self.table[self.table.abs() < self.threshold] = 0
