"""Supervised contrastive loss, over the similarities of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from numpy.typing import ArrayLike

from megalabel.base import Check, number
from megalabel.neural.losses.base import Weights
from megalabel.neural.losses.softmax import Softmax


class SupervisedContrastive(Softmax):
    """Mean over a row's positives of -log softmax(s / temperature) (Khosla et al. 2020, eq. 2).

    Scores are similarities of the batch's texts with each other (mask out the diagonal) or with a
    pool of labels; targets say which columns are positives of each row. The denominator holds all
    columns, other positives too.

    Parameters
    ----------
    temperature : float
        For similarities that are cosines.
    positive_weights, propensities, correction, reduction, pick, seed
        As of `Softmax`.

    Examples
    --------
    >>> import torch
    >>> scores, targets = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> SupervisedContrastive(temperature=1.0)(scores, targets)
    tensor([0.9076])
    """

    name = "contrastive"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **Softmax.PARAMETERS,
        "temperature": number(1e-6, 1e6),
    }

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        positive_weights: Weights = None,
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
