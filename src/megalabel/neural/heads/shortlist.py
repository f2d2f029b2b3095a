"""A few candidate labels a row: positives and hard negatives from a tree or an index."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from megalabel.neural.heads.base import Head, HeadLoss, best, best_of_chunks
from megalabel.neural.targets import Targets


class ShortlistHead(Head):
    """Scores only the labels that are shortlisted for each row.

    A shortlist is (rows, candidates) label ids; ids below 0 are padding, which no loss and no
    ranking looks at. Weights are ordinary parameters; with `sparse` their gradients hold only the
    shortlisted labels (for torch.optim.SparseAdam and SGD).

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
    >>> from megalabel.neural.heads import ShortlistHead
    >>> head = ShortlistHead(4, 100, loss=None)
    >>> head.scores(torch.ones(1, 4), torch.tensor([[3, 8, -1]])).isinf()
    tensor([[False, False,  True]])
    """

    def __init__(
        self,
        width: int,
        labels: int,
        loss: HeadLoss | None,
        *,
        bias: bool = True,
        sparse: bool | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(width, labels)
        self.loss = loss
        sparse = labels > 200_000 if sparse is None else sparse
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
        """Label ids with 0 in place of padding, and where they are real."""
        if shortlist.ndim != 2 or len(shortlist) != len(features):
            raise ValueError(
                f"a shortlist of shape {tuple(shortlist.shape)} does not fit "
                f"{len(features)} rows of features"
            )
        if not shortlist.is_cuda and shortlist.numel() and int(shortlist.max()) >= self.labels:
            raise ValueError(
                f"a shortlist names label {int(shortlist.max())}; there are {self.labels}"
            )
        mask = shortlist >= 0
        return torch.where(mask, shortlist, 0), mask

    def _scored(self, features: Tensor, at: Tensor) -> Tensor:
        scores = torch.einsum("bd,bsd->bs", features, self.weights(at).to(features.dtype))
        if self.bias is not None:
            scores = scores + self.bias(at)[..., 0]
        return scores


def _ranked(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The best of candidates, where minus infinity is padding and a label may come twice."""
    order = ids.argsort(dim=1, stable=True)
    ids, scores = ids.gather(1, order), scores.gather(1, order)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    scores = scores.masked_fill(again, -math.inf)
    found, at = best(scores, torch.where(scores == -math.inf, 0x7FFFFFFF, ids), k)
    return found, torch.where(found == -math.inf, -1, at)
