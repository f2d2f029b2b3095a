"""Binary cross entropy."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from megalabel.neural.losses.base import Form
from megalabel.neural.losses.separable import SeparableLoss


class BCE(SeparableLoss):
    """Binary cross entropy of the sigmoid: ln(1 + exp(-s)) where a label applies, ln(1 + exp(s)).

    Examples
    --------
    >>> scores, targets = torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, 0.0]])
    >>> BCE()(scores, targets)
    tensor([0.4402])
    >>> BCE().gradient(scores, targets)
    tensor([[-0.1192,  0.2689]])
    """

    name = "bce"
    form = Form("logistic")

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        positive, negative = terms
        return -(positive * logsigmoid(scores) + negative * logsigmoid(-scores)).sum(dim=1)

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        positive, negative = terms
        return (positive + negative) * torch.sigmoid(scores) - positive
