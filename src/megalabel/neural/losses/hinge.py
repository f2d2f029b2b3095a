"""The squared hinge."""

from __future__ import annotations

import torch
from torch import Tensor

from megalabel.neural.losses.base import Form
from megalabel.neural.losses.separable import SeparableLoss


class SquaredHinge(SeparableLoss):
    """max(0, 1 - s)² where a label applies, max(0, 1 + s)² where it does not.

    With `relevance=True` and as targets how many of a text's labels are in each cluster, it is the
    loss that XR-Transformer's code fine-tunes with; with rows of targets that sum to 1 and a number
    for `negative_weights`, that of its paper.

    Examples
    --------
    >>> scores, counts = torch.tensor([[0.5, -2.0, 0.0]]), torch.tensor([[3.0, 0.0, 0.0]])
    >>> SquaredHinge(relevance=True)(scores, counts)
    tensor([1.7500])
    """

    name = "squared-hinge"
    form = Form("squared-hinge")

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        positive, negative = terms
        short, over = torch.relu(1 - scores), torch.relu(1 + scores)
        return (positive * short**2 + negative * over**2).sum(dim=1)

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        positive, negative = terms
        return 2 * (negative * torch.relu(1 + scores) - positive * torch.relu(1 - scores))
