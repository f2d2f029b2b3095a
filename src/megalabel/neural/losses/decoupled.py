"""Decoupled softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import logsigmoid

from megalabel.base import Check, number
from megalabel.neural.losses.base import Weights, weights
from megalabel.neural.losses.picking import PickLoss, softmax


class DecoupledSoftmax(PickLoss):
    """Softmax cross entropy where a row's positives do not compete (DEXML, Gupta et al. 2024).

    The term of a positive p is -log(exp(s_p) / (exp(s_p) + Σ exp(s_n))) over the negatives n, the
    columns of target 0. With one positive it is the softmax; without negatives it is 0.

    Parameters
    ----------
    temperature : float
        Scores are divided by it: 0.05 for cosines, 1 for products of embeddings of any length.
    negative_weights : number or array (labels,), optional
        Factors of exp(s_n).
    positive_weights, propensities, correction, reduction, pick, seed
        As of `Softmax`. With a correction the loss is an upper bound in the mean, as a label that
        went missing only adds to the denominators.

    Examples
    --------
    >>> scores, targets = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> DecoupledSoftmax(temperature=1.0)(scores, targets)
    tensor([0.2201])
    """

    name = "decoupled-softmax"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **PickLoss.PARAMETERS,
        "temperature": number(1e-6, 1e6),
        "negative_weights": weights,
    }

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        positive_weights: Weights = None,
        negative_weights: Weights = None,
        propensities: ArrayLike | None = None,
        correction: str | None = None,
        reduction: str = "mean",
        pick: str | int = "all",
        seed: int = 0,
    ) -> None:
        super().__init__(
            positive_weights=positive_weights,
            propensities=propensities,
            correction=correction,
            reduction=reduction,
            pick=pick,
            seed=seed,
        )
        self.temperature = temperature
        self.negative_weights = negative_weights

    def _terms(
        self, targets: Tensor, labels: Tensor | None, mask: Tensor | None, step: int
    ) -> tuple[Tensor, ...]:
        (picked,) = super()._terms(targets, labels, mask, step)
        factors = torch.ones_like(targets) * self._of_columns(
            "negative_weights", targets, labels, mask
        )
        exists = targets == 0 if mask is None else (targets == 0) & mask
        return picked, factors.log().masked_fill(~exists, -torch.inf)

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors = terms
        scores = scores / self.temperature
        negatives = torch.logsumexp(scores + factors, dim=1, keepdim=True)
        return -(picked * logsigmoid(scores - negatives)).sum(dim=1)

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors = terms
        scores = scores / self.temperature
        negatives = torch.logsumexp(scores + factors, dim=1, keepdim=True)
        pushed = picked * torch.sigmoid(negatives - scores)
        _, shares = softmax(scores + factors, None)
        return (pushed.sum(dim=1, keepdim=True) * shares - pushed) / self.temperature
