"""Groups of labels that share the features they see, a chunk of groups at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.neural.heads.steps.plain import Pass, move, product

if TYPE_CHECKING:
    from megalabel.neural.heads.sparse import SparseModule

UNSEEN = -1e4
"""The score of places that no label has: no loss looks at it."""


class SparsePass(Pass):
    """The features of each group are gathered once; then it is a small dense layer.

    Where the gradients of a chunk's scores are mostly zeros, as the squared hinge's are of labels
    that are far from a row, groups without any other are left out of the way back.
    """

    def __init__(self, head: SparseModule, features: Tensor, *, skip: bool = True) -> None:
        self.head = head
        self.dtype = head.weights.dtype
        self.x = features.to(self.dtype).T.contiguous()  # a feature's numbers side by side
        self.sums = torch.zeros(self.x.shape, dtype=torch.float32, device=self.x.device)
        # to look for zeros, a GPU would be waited for
        self.skip = skip and not self.x.is_cuda

    @property
    def gradient(self) -> Tensor:  # type: ignore[override]
        return self.sums.T

    def chunks(self) -> list[tuple[int, int]]:
        return self.head.chunks(self.x.shape[1])

    def scores(self, first: int, last: int) -> Tensor:
        head, group = self.head, self.head.group
        here = slice(first // group, last // group)
        indices = head.indices[here]
        self.gathered = self.x.index_select(0, indices.reshape(-1)).view(*indices.shape, -1)
        scores = product(head.weights[here].transpose(1, 2), self.gathered)
        if head.bias is not None:
            scores += head.bias[here, :, None]
        scores = scores.flatten(0, 1)
        scores[max(0, head.held - first) :] = UNSEEN
        return scores.T

    def learn(self, first: int, last: int, by_score: Tensor, *, update: bool) -> None:
        head, group = self.head, self.head.group
        here = slice(first // group, last // group)
        rows = max(1, by_score.shape[0])
        back = by_score.T.reshape(here.stop - here.start, group, len(by_score))
        indices, weights, gathered = head.indices[here], head.weights[here], self.gathered
        seen: Tensor | None = None
        if self.skip:
            seen = back.flatten(1).any(1).nonzero()[:, 0]
            seen = None if len(seen) == len(back) else seen
        if seen is not None:
            indices, weights, gathered = indices[seen], weights[seen], gathered[seen]
        some = back if seen is None else back[seen]
        by_feature = product(weights, some)
        self.sums.index_add_(0, indices.reshape(-1), by_feature.flatten(0, 1))
        if not update:
            return
        gradient = product(gathered, some.transpose(1, 2)) / rows
        if seen is not None:
            whole = gradient.new_zeros((len(back), *gradient.shape[1:]))
            whole[seen] = gradient
            gradient = whole
        numbers = torch.arange(first, last, group, device=by_score.device)
        move(head, here.start, here.stop, gradient, head.first + numbers)
        if head.bias is not None:
            head.bias[here] -= head.rate * back.float().sum(2) / rows
