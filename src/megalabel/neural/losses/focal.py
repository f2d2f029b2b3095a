"""The focal loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import logsigmoid

from megalabel.base import Check, number
from megalabel.neural.losses.base import Form, Weights
from megalabel.neural.losses.separable import SeparableLoss


class Focal(SeparableLoss):
    """Binary cross entropy times (1 - the probability of the truth)^gamma (Lin et al. 2017).

    What is right already counts little. Its alpha is `positive_weights`, and one less alpha
    `negative_weights`.

    Parameters
    ----------
    gamma : float
        0: binary cross entropy.
    positive_weights, negative_weights, propensities, correction, relevance, reduction
        As of all losses that are a sum over labels.

    Examples
    --------
    >>> scores, targets = torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, 0.0]])
    >>> Focal()(scores, targets)
    tensor([0.0245])
    """

    name = "focal"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **SeparableLoss.PARAMETERS,
        "gamma": number(0, 100),
    }

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        positive_weights: Weights = None,
        negative_weights: Weights = None,
        propensities: ArrayLike | None = None,
        correction: str | None = None,
        relevance: bool = False,
        reduction: str = "sum",
    ) -> None:
        super().__init__(
            positive_weights=positive_weights,
            negative_weights=negative_weights,
            propensities=propensities,
            correction=correction,
            relevance=relevance,
            reduction=reduction,
        )
        self.gamma = gamma

    @property
    def form(self) -> Form:
        return Form("focal", self.gamma)

    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        positive, negative = terms
        return (positive * self._at(scores) + negative * self._at(-scores)).sum(dim=1)

    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        positive, negative = terms
        return positive * self._slope(scores) - negative * self._slope(-scores)

    def _at(self, margins: Tensor) -> Tensor:
        """The loss by the score times the sign of the truth."""
        return -(torch.sigmoid(-margins) ** self.gamma) * logsigmoid(margins)

    def _slope(self, margins: Tensor) -> Tensor:
        wrong, right = torch.sigmoid(-margins), torch.sigmoid(margins)
        return wrong**self.gamma * (self.gamma * right * logsigmoid(margins) - wrong)
