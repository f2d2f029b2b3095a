"""Softmax cross entropy of the labels of a row."""

from __future__ import annotations

from torch import Tensor

from megalabel.neural.losses.base import Form
from megalabel.neural.losses.picking import PickLoss, softmax


class Softmax(PickLoss):
    """-Σ t log softmax(s): the cross entropies of a row's labels, each against all columns.

    | | `reduction="mean"` | `reduction="sum"` |
    |---|---|---|
    | `pick="all"` | pick-all-labels, normalised | pick-all-labels |
    | `pick=1` | pick-one-label | the same, times the number of labels |
    | `pick=3` | pick-some-labels | |

    (Menon et al. 2019, Multilabel reductions.)

    Examples
    --------
    >>> import torch
    >>> scores, targets = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    >>> Softmax()(scores, targets)
    tensor([1.4076])
    >>> Softmax(propensities=[0.9, 0.7, 0.6], correction="bound")(scores, targets)
    tensor([2.0706])
    >>> Softmax(pick=1).row_targets(targets, step=3)
    tensor([[1., 0., 0.]])
    """

    name = "softmax"
    normalised = True
    temperature: float = 1.0

    @property
    def form(self) -> Form:
        return Form("softmax", 1 / self.temperature)

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        (picked,) = terms
        scores = scores / self.temperature
        total, _ = softmax(scores, mask)
        return (picked * (total - scores)).sum(dim=1)

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        (picked,) = terms
        _, shares = softmax(scores / self.temperature, mask)
        return (picked.sum(dim=1, keepdim=True) * shares - picked) / self.temperature
