"""A few candidate labels a row: positives and hard negatives from a tree or an index."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from megalabel.neural.heads.base import HeadModule, best, best_of_chunks
from megalabel.neural.losses.base import Loss
from megalabel.neural.targets import Targets

SPARSE = 200_000  # labels from which on a step updates only those that it has seen
_DENSE = 64  # up to so many labels a candidate, scoring all of them is faster than fetching some


class ShortlistModule(HeadModule):
    """Scores only the labels that are shortlisted for each row.

    A shortlist is (rows, candidates) label ids; ids below 0 are padding, which no loss and no
    ranking looks at. Weights are ordinary parameters; with `sparse` their gradients hold only the
    shortlisted labels (for `neural.optimisers.RowAdam`).

    Parameters
    ----------
    width, labels
        Length of the features and number of labels.
    loss
        Any loss.
    bias
        Whether each label has a bias.
    sparse
        Whether the weights' gradients are sparse; None: above 200,000 labels.
    seed
        Of the initial weights.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads import ShortlistModule
    >>> head = ShortlistModule(4, 100, loss=None)
    >>> head.scores(torch.ones(1, 4), torch.tensor([[3, 8, -1]])).isinf()
    tensor([[False, False,  True]])
    """

    def __init__(
        self,
        width: int,
        labels: int,
        loss: Loss | None,
        *,
        bias: bool = True,
        sparse: bool | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(width, labels)
        self.loss = loss
        sparse = labels > SPARSE if sparse is None else sparse
        bound = 1 / math.sqrt(width)
        source = torch.Generator().manual_seed(seed)
        drawn = torch.rand((labels, width), generator=source) * (2 * bound) - bound
        self.weights = nn.Embedding(labels, width, sparse=sparse, _weight=drawn)
        self.bias = nn.Embedding(labels, 1, sparse=sparse) if bias else None
        if self.bias is not None:
            nn.init.zeros_(self.bias.weight)

    def forward(
        self, features: Tensor, targets: Targets, shortlist: Tensor | None = None
    ) -> Tensor:
        """The mean over rows of the loss of the shortlisted labels."""
        self.check(features, targets)
        if shortlist is None:
            raise ValueError("a shortlist head needs the labels to score: give a shortlist")
        if self.loss is None:
            raise ValueError("a head without a loss cannot learn")
        at, mask = self._candidates(features, shortlist)
        values = self.loss(self._scored(features, at), targets.of(shortlist), labels=at, mask=mask)
        return values.mean()

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores of the labels in each row of `shortlist`; minus infinity for padding."""
        self.check(features)
        at, mask = self._candidates(features, shortlist)
        return self._scored(features, at).float().masked_fill(~mask, -math.inf)

    @torch.no_grad()
    def top_k(
        self, features: Tensor, k: int, shortlist: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores and ids of the k best of the shortlisted labels, or of all, taken in chunks.

        Where a row has fewer candidates, the rest are minus infinity and -1.
        """
        self.check(features)
        if shortlist is not None:
            return _ranked(self.scores(features, shortlist), shortlist, k)
        return best_of_chunks(self._chunks(features.float()), k)

    def _chunks(self, features: Tensor) -> Iterator[tuple[Tensor, int]]:
        size = max(1, 2**22 // max(1, len(features)))
        for first in range(0, self.labels, size):
            scores = features @ self.weights.weight[first : first + size].float().T
            if self.bias is not None:
                scores = scores + self.bias.weight[first : first + size, 0]
            yield scores, first

    def _candidates(self, features: Tensor, shortlist: Tensor) -> tuple[Tensor, Tensor]:
        """Label ids with one of the row's in place of padding, and where they are real."""
        if shortlist.ndim != 2 or len(shortlist) != len(features):
            raise ValueError(
                f"a shortlist of shape {tuple(shortlist.shape)} does not fit "
                f"{len(features)} rows of features"
            )
        if not shortlist.is_cuda and shortlist.numel() and int(shortlist.max()) >= self.labels:
            raise ValueError(
                f"a shortlist names label {int(shortlist.max())}; there are {self.labels}"
            )
        return without_padding(shortlist), shortlist >= 0

    def _scored(self, features: Tensor, at: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.weight
        return shortlisted(features, self.weights.weight, bias, at, sparse=self.weights.sparse)


def without_padding(shortlist: Tensor) -> Tensor:
    """A shortlist that can be looked up: in place of padding, another candidate of the row, so that
    with sparse gradients no label is touched that is not a candidate; 0 where there is none.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads.shortlist import without_padding
    >>> without_padding(torch.tensor([[4, 9, -1], [-1, -1, -1]]))
    tensor([[4, 9, 9],
            [0, 0, 0]])
    """
    if not shortlist.shape[1]:
        return shortlist
    return torch.where(shortlist >= 0, shortlist, shortlist.amax(1, keepdim=True)).clamp(min=0)


def shortlisted(
    features: Tensor, weights: Tensor, bias: Tensor | None, at: Tensor, *, sparse: bool = False
) -> Tensor:
    """The scores of each row's own labels `at` (rows, candidates), of weights (labels, width) and a
    bias (labels, 1); with `sparse`, their gradients hold these labels alone.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads.shortlist import shortlisted
    >>> weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> shortlisted(torch.eye(2), weights, None, torch.tensor([[1], [0]]))
    tensor([[3.],
            [2.]])
    """
    if not sparse and len(weights) <= _DENSE * at.shape[1]:
        flat = None if bias is None else bias[:, 0]
        return functional.linear(features, weights, flat).gather(1, at)
    fetched = functional.embedding(at, weights, sparse=sparse).to(features.dtype)
    scores = torch.einsum("bd,bsd->bs", features, fetched)
    if bias is None:
        return scores
    return scores + functional.embedding(at, bias, sparse=sparse)[..., 0]


def _ranked(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The best of candidates, where minus infinity is padding and a label may come twice."""
    order = ids.argsort(dim=1, stable=True)
    ids, scores = ids.gather(1, order), scores.gather(1, order)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    scores = scores.masked_fill(again, -math.inf)
    found, at = best(scores, torch.where(scores == -math.inf, 0x7FFFFFFF, ids), k)
    return found, torch.where(found == -math.inf, -1, at)
