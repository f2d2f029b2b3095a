"""Losses that are a sum over labels, each by itself: what one-versus-all needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from numpy.typing import ArrayLike
from torch import Tensor

from megalabel.base import Check, boolean, one_of
from megalabel.neural.losses.base import Loss, Weights, array, missing, weights


class SeparableLoss(Loss):
    """Σ over columns of a l(s, 1) + b l(s, 0), where a and b are from `column_weights`.

    A soft target y is a positive of weight y and a negative of weight 1 - y.

    Parameters
    ----------
    positive_weights, negative_weights : number or array (labels,), optional
        What a label's loss weighs where it applies, and where it does not; as of
        `labels.label_costs`.
    propensities : array (labels,), optional
        How likely each label was annotated where it applies; as of `labels.label_propensities`.
    correction : {None, "surrogate", "unbiased"}
        Against labels that the annotation is short of. "surrogate": positives weigh 2/p - 1 times
        as much, which is convex. "unbiased": its mean over what goes missing is the loss of the
        complete labels; not bounded from below, so to measure with, not to train.
    relevance : bool
        Targets are relevances of any size: above 0 the label applies and its loss weighs that
        much, at 0 it is a negative of weight 1.
    reduction : {"sum", "mean"}
        Over the columns of a row; padding does not count.
    """

    separable = True
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "positive_weights": weights,
        "negative_weights": weights,
        "propensities": missing | array,
        "correction": one_of(None, "surrogate", "unbiased"),
        "relevance": boolean(),
        "reduction": one_of("sum", "mean"),
    }

    def __init__(
        self,
        *,
        positive_weights: Weights = None,
        negative_weights: Weights = None,
        propensities: ArrayLike | None = None,
        correction: str | None = None,
        relevance: bool = False,
        reduction: str = "sum",
    ) -> None:
        self.positive_weights = positive_weights
        self.negative_weights = negative_weights
        self.propensities = propensities
        self.correction = correction
        self.relevance = relevance
        self.reduction = reduction

    def column_weights(
        self, targets: Tensor, labels: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What each column's loss as a positive and its loss as a negative weigh, (rows, columns).

        They are all that the loss takes from anything but the scores: a fused kernel needs no more.
        """
        return self._terms(self._checked_targets(targets, labels, mask), labels, mask, 0)

    def _terms(
        self, targets: Tensor, labels: Tensor | None, mask: Tensor | None, step: int
    ) -> tuple[Tensor, Tensor]:
        applies = (targets > 0).to(targets.dtype) if self.relevance else targets.clamp(max=1)
        positive = targets * self._of_columns("positive_weights", targets, labels, mask)
        if self.correction is not None:
            p = self._of_columns("propensities", targets, labels, mask)
            if self.correction == "unbiased":
                applies, positive = applies / p, positive / p
            else:
                positive = positive * (2 / p - 1)
        negative = (1 - applies) * self._of_columns("negative_weights", targets, labels, mask)
        if mask is not None:
            negative = negative.masked_fill(~mask, 0)
        if self.reduction == "mean":
            columns = targets.shape[1] if mask is None else mask.sum(dim=1, keepdim=True).clamp(1)
            positive, negative = positive / columns, negative / columns
        return positive, negative
