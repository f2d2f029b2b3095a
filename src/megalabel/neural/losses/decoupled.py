"""Decoupled softmax."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from megalabel.neural.losses.negatives import NegativesLoss
from megalabel.neural.losses.picking import softmax


class DecoupledSoftmax(NegativesLoss):
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
    temperature: float

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors, _ = terms
        scores = scores / self.temperature
        negatives = torch.logsumexp(scores + factors.log(), dim=1, keepdim=True)
        return -(picked * logsigmoid(scores - negatives)).sum(dim=1)

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors, _ = terms
        scores = scores / self.temperature
        negatives = torch.logsumexp(scores + factors.log(), dim=1, keepdim=True)
        pushed = picked * torch.sigmoid(negatives - scores)
        _, shares = softmax(scores + factors.log(), None)
        return (pushed.sum(dim=1, keepdim=True) * shares - pushed) / self.temperature
