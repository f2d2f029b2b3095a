"""Losses of a row's labels together: a term for each label that applies, against all columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from megalabel.base import Check, integer, one_of
from megalabel.errors import ParameterError
from megalabel.neural.losses.base import Loss, Weights, array, missing, weights


class PickLoss(Loss):
    """Σ over columns of t l(s), where t, the weight of each label picked, is from `row_targets`.

    A row without labels costs nothing.

    Parameters
    ----------
    positive_weights : number or array (labels,), optional
        What the term of each label weighs.
    propensities : array (labels,), optional
        How likely each label was annotated where it applies; as of `labels.label_propensities`.
    correction : {None, "surrogate", "bound", "unbiased"}
        Against labels that the annotation is short of. "unbiased", where there is one, is of the
        sum of cross entropies: y/p. "bound" has a mean over what goes missing of at least the
        loss of the complete labels: of a sum, y/p; of a mean, (y/p) / (y + Σ of the others' y/p).
        "surrogate", as for other losses, is the one to train with: the bound.
    reduction : {"mean", "sum"}
        Over the row's labels, in proportion to their targets: pick-all-labels, normalised or not.
    pick : "all" or int
        How many labels of each row are drawn, in proportion to their t; 1 is pick-one-label. The
        mean over draws is the loss of all.
    seed : int
        With `step`, fixes what is drawn.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "positive_weights": weights,
        "propensities": missing | array,
        "correction": one_of(None, "surrogate", "bound", "unbiased"),
        "reduction": one_of("mean", "sum"),
        "pick": one_of("all") | integer(1),
        "seed": integer(0),
    }

    def __init__(
        self,
        *,
        positive_weights: Weights = None,
        propensities: ArrayLike | None = None,
        correction: str | None = None,
        reduction: str = "mean",
        pick: str | int = "all",
        seed: int = 0,
    ) -> None:
        self.positive_weights = positive_weights
        self.propensities = propensities
        self.correction = correction
        self.reduction = reduction
        self.pick = pick
        self.seed = seed

    def check_parameters(self) -> None:
        """Raise a ParameterError that names the first parameter outside its declaration."""
        super().check_parameters()
        if self.correction == "unbiased" and not (self.normalised and self.reduction == "sum"):
            raise ParameterError(
                f"{type(self).__name__} with reduction={self.reduction!r} has no unbiased "
                "correction to train with; take 'bound', or estimate it by labels.losses"
            )

    def row_targets(
        self,
        targets: Tensor,
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        step: int = 0,
    ) -> Tensor:
        """t, (rows, columns): what the term of each column weighs; 0 where the target is 0.

        A row's positives are enough: columns of target 0 change nothing, nor what is drawn.
        """
        return self._terms(self._checked_targets(targets, labels, mask), labels, mask, step)[0]

    def _terms(
        self, targets: Tensor, labels: Tensor | None, mask: Tensor | None, step: int
    ) -> tuple[Tensor, ...]:
        picked = targets
        if self.correction is not None:
            picked = targets / self._of_columns("propensities", targets, labels, mask)
        if self.reduction == "mean":
            # with propensities of 1 or none this is the target's share of the row's
            total = targets + picked.sum(dim=1, keepdim=True) - picked
            picked = picked / total.masked_fill(targets <= 0, 1)
        picked = picked * self._of_columns("positive_weights", targets, labels, mask)
        return (picked if self.pick == "all" else self._drawn(picked, int(self.pick), step),)

    def _drawn(self, picked: Tensor, count: int, step: int) -> Tensor:
        """`count` labels of each row, by systematic sampling: one random number a row.

        Points at equal distances go through the labels laid end to end: how often a label is
        drawn is within 1 of what is expected, so with enough draws none is left out.
        """
        ends = picked.cumsum(dim=1)
        total = ends[:, -1:]
        random = np.random.default_rng((self.seed, step)).random((len(picked), 1), np.float32)
        start = torch.from_numpy(random).to(picked)
        # a row of no weight has nothing to draw; a start just below 1 may be rounded to it
        points = (ends / total.masked_fill(total <= 0, 1) * count + start).floor().clamp(max=count)
        drawn = points.diff(dim=1, prepend=torch.zeros_like(start))
        return drawn * (total / count)


def softmax(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The logarithm of the sum of exponentials (rows, 1), 0 over nothing; and the softmax."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    total = torch.logsumexp(scores, dim=1, keepdim=True)
    total = total.masked_fill(total == -torch.inf, 0)
    return total, torch.exp(scores - total)
