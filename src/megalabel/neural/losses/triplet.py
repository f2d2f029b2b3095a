"""Triplet loss with mined negatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from megalabel.base import Check, integer, number, one_of
from megalabel.neural.losses.base import Weights, missing
from megalabel.neural.losses.negatives import NegativesLoss
from megalabel.neural.losses.picking import softmax


class Triplet(NegativesLoss):
    """max(0, s_n - s_p + margin) over a row's positives p and the negatives n that are hard for p.

    Negatives are columns of target 0. Of those that come within the margin of a positive, some are
    taken, and the loss of the positive is the mean of theirs. The defaults, with `pick=1`, are
    those of NGAME (Dahiya et al. 2023).

    Parameters
    ----------
    margin : float
    mining : {"hardest", "semi-hard"}
        "semi-hard" leaves out negatives that score at least as high as the positive.
    negatives : int or "all"
        How many are taken, those of the highest scores.
    temperature : float, optional
        The mean weighs negatives by softmax(s / temperature). None: all alike.
    negative_weights : number or array (labels,), optional
        Factors of the losses of negatives.
    positive_weights, propensities, correction, reduction, pick, seed
        As of `Softmax`; a correction is an upper bound in the mean only with the one hardest
        negative, which a label that went missing can only make harder.

    Examples
    --------
    >>> scores, targets = torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> Triplet()(scores, targets)
    tensor([0.2000])
    """

    name = "triplet"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **NegativesLoss.PARAMETERS,
        "margin": number(0),
        "mining": one_of("hardest", "semi-hard"),
        "negatives": one_of("all") | integer(1),
        "temperature": missing | number(1e-6, 1e6),
    }

    def __init__(
        self,
        *,
        margin: float = 0.3,
        mining: str = "hardest",
        negatives: str | int = 10,
        temperature: float | None = 0.1,
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
        self.margin = margin
        self.mining = mining
        self.negatives = negatives

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors, exists = terms
        values = scores.new_zeros(len(scores))
        for weight, column in _positives(picked):
            violations, shares = self._mined(scores, column, exists)
            values = values + weight * (shares * factors * violations).sum(dim=1)
        return values

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        picked, factors, exists = terms
        gradient = torch.zeros_like(scores)
        for weight, column in _positives(picked):
            violations, shares = self._mined(scores, column, exists)
            slopes = shares * factors
            pulled = slopes.sum(dim=1, keepdim=True)
            if self.temperature is not None:  # the shares change with the scores too
                losses = factors * violations
                mean = (shares * losses).sum(dim=1, keepdim=True)
                slopes = slopes + shares * (losses - mean) / self.temperature
            gradient += weight[:, None] * slopes
            gradient.scatter_add_(1, column[:, None], -weight[:, None] * pulled)
        return gradient

    def _mined(self, scores: Tensor, column: Tensor, exists: Tensor) -> tuple[Tensor, Tensor]:
        """How far each column is within the margin of a positive, and its share of the mean."""
        violations = scores - scores.gather(1, column[:, None]) + self.margin
        taken = exists & (violations > 0)
        if self.mining == "semi-hard":
            taken &= violations < self.margin
        if self.negatives != "all" and int(self.negatives) < scores.shape[1]:
            hard = violations.masked_fill(~taken, -torch.inf).topk(int(self.negatives), dim=1)
            taken &= torch.zeros_like(taken).scatter_(1, hard.indices, True)
        if self.temperature is None:
            count = taken.sum(dim=1, keepdim=True).clamp(min=1)
            return violations, taken.to(scores.dtype) / count
        return violations, softmax(scores / self.temperature, taken)[1]


def _positives(picked: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Weights (rows,) and columns (rows,) of each row's first positive, its second, and so on."""
    most = int((picked > 0).sum(dim=1).max()) if picked.numel() else 0
    weights, columns = picked.topk(most, dim=1)
    return zip(weights.unbind(1), columns.unbind(1), strict=True)
