"""The likelihood of relevance by a cosine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from megalabel.base import Check, integer, number, one_of
from megalabel.neural.losses.base import Weights
from megalabel.neural.losses.negatives import NegativesLoss


class CosineLikelihood(NegativesLoss):
    """-log of the likelihood of a row's positives and of its negatives, where a column of score s
    is relevant with probability P(s) = certainty exp(steepness (s - 1)) (SiameseXML, Dahiya et al.
    2021); divided by the steepness.

    The term of a positive p is -log P(s_p) and the mean of -log(1 - P(s_n)) over the negatives n
    that are looked at, columns of target 0. Scores are cosines; beyond 1 a
    negative costs more in a straight line, and a positive no less.

    Parameters
    ----------
    certainty : float
        The probability at a cosine of 1; below 1, so that no negative costs infinitely much.
    steepness : float
        How fast it falls with the cosine.
    negatives : int or "all"
        How many are looked at, those of the highest scores.
    least : float
        A negative that costs less than this costs nothing.
    temperature : float
        Scores are divided by it; cosines are not to be.
    negative_weights : number or array (labels,), optional
        Factors of the costs of negatives.
    positive_weights, propensities, correction, reduction, pick, seed
        As of `Softmax`; a correction is an upper bound in the mean only with the one hardest
        negative, which a label that went missing can only make harder.

    Examples
    --------
    >>> scores, targets = torch.tensor([[1.0, 0.2, -0.4]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> CosineLikelihood(certainty=0.9, steepness=1.5)(scores, targets)
    tensor([0.2146])
    """

    name = "cosine-likelihood"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **NegativesLoss.PARAMETERS,
        "certainty": number(1e-6, 1 - 1e-6),
        "steepness": number(1e-6),
        "negatives": one_of("all") | integer(1),
        "least": number(0),
    }

    temperature: float

    def __init__(
        self,
        *,
        certainty: float = 0.9,
        steepness: float = 1.5,
        negatives: str | int = 10,
        least: float = 0.0,
        temperature: float = 1.0,
        positive_weights: Weights = None,
        negative_weights: Weights = None,
        propensities: ArrayLike | None = None,
        correction: str | None = None,
        reduction: str = "mean",
        pick: str | int = "all",
        seed: int = 0,
    ) -> None:
        super().__init__(
            temperature=temperature,
            positive_weights=positive_weights,
            negative_weights=negative_weights,
            propensities=propensities,
            correction=correction,
            reduction=reduction,
            pick=pick,
            seed=seed,
        )
        self.certainty = certainty
        self.steepness = steepness
        self.negatives = negatives
        self.least = least

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors, exists = terms
        scores = scores / self.temperature
        surprise = (1 - scores).clamp(min=0) - math.log(self.certainty) / self.steepness
        negatives = (factors * self._shares(scores, exists) * self._cost(scores)).sum(dim=1)
        return (picked * surprise).sum(dim=1) + picked.sum(dim=1) * negatives

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors, exists = terms
        scores = scores / self.temperature
        odds = self.certainty * torch.exp(self.steepness * (scores.clamp(max=1) - 1))
        slopes = self._shares(scores, exists) * odds / (1 - odds)
        pushed = picked.sum(dim=1, keepdim=True) * factors * slopes
        return (pushed - picked * (scores < 1)) / self.temperature

    def _cost(self, scores: Tensor) -> Tensor:
        """What each column costs as a negative."""
        near = scores.clamp(max=1)
        odds = self.certainty * torch.exp(self.steepness * (near - 1))
        beyond = (scores - near) * self.certainty / (1 - self.certainty)
        return beyond - torch.log1p(-odds) / self.steepness

    def _shares(self, scores: Tensor, exists: Tensor) -> Tensor:
        """What each column counts in the mean of negatives: 0 for those not looked at."""
        taken = exists
        if self.negatives != "all" and int(self.negatives) < scores.shape[1]:
            hard = scores.masked_fill(~exists, -torch.inf).topk(int(self.negatives), dim=1)
            taken = taken & torch.zeros_like(taken).scatter_(1, hard.indices, True)
        taken = taken & (self._cost(scores) >= self.least)
        return taken.to(scores.dtype) / taken.sum(dim=1, keepdim=True).clamp(min=1)
