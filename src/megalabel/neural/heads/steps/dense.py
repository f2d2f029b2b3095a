"""A dense matrix of weights, a chunk of labels at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.neural.heads.steps.plain import Pass, move, product

if TYPE_CHECKING:
    from megalabel.neural.heads.dense import DenseModule


class DensePass(Pass):
    """The products of features with rows of weights."""

    def __init__(self, head: DenseModule, features: Tensor) -> None:
        self.head = head
        self.dtype = head.weights.dtype
        self.x = features.to(self.dtype)
        self.gradient = torch.zeros(self.x.shape, dtype=torch.float32, device=self.x.device)

    def chunks(self) -> list[tuple[int, int]]:
        return self.head.chunks(len(self.x))

    def scores(self, first: int, last: int) -> Tensor:
        scores = product(self.x, self.head.weights[first:last].T)
        return scores if self.head.bias is None else scores + self.head.bias[first:last]

    def learn(self, first: int, last: int, by_score: Tensor, *, update: bool) -> None:
        head, rows = self.head, max(1, len(self.x))
        self.gradient += product(by_score, head.weights[first:last])
        if update:
            ids = torch.arange(head.first + first, head.first + last, device=by_score.device)
            move(head, first, last, product(by_score.T, self.x) / rows, ids)
            if head.bias is not None:
                head.bias[first:last] -= head.rate * by_score.float().sum(0) / rows
