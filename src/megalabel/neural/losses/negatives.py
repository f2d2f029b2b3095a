"""Losses of a row's labels, each against the labels of a batch that the row does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from numpy.typing import ArrayLike
from torch import Tensor

from megalabel.base import Check, number
from megalabel.neural.losses.base import Weights, weights
from megalabel.neural.losses.picking import PickLoss


class NegativesLoss(PickLoss):
    """Σ over the labels p of a row of t l(s_p, negatives), negatives being columns of target 0.

    Parameters
    ----------
    temperature : float
        Scores are divided by it: 0.05 for cosines, 1 for products of embeddings of any length.
    negative_weights : number or array (labels,), optional
        How much each label counts as a negative.
    positive_weights, propensities, correction, reduction, pick, seed
        As of `Softmax`.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **PickLoss.PARAMETERS,
        "temperature": number(1e-6, 1e6),
        "negative_weights": weights,
    }

    temperature: float | None

    def __init__(
        self,
        *,
        temperature: float | None = 0.05,
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
        """The weights of labels picked; those of negatives, 0 elsewhere; and where negatives are,
        whose weights may be 0 too."""
        (picked,) = super()._terms(targets, labels, mask, step)
        exists = targets == 0 if mask is None else (targets == 0) & mask
        factors = self._of_columns("negative_weights", targets, labels, mask)
        return picked, exists.to(targets.dtype) * factors, exists
