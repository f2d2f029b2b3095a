"""What a loss is: values by row, and their gradient by the scores in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.autograd.function import once_differentiable

from megalabel.base import Check, Component, number
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels.propensity import check_propensities

Weights: TypeAlias = float | ArrayLike | None

# the numbers themselves are looked at once, when they become a tensor: there may be millions
array = Check(lambda v: hasattr(v, "__len__") and not isinstance(v, str), "one number a label")
missing = Check(lambda v: v is None, "None")
weights = missing | array | number(0)


@dataclass(frozen=True)
class Form:
    """A formula that fused kernels know, by name.

    | name | for a label that does not apply | `number` |
    |---|---|---|
    | "logistic" | log(1 + exp(s)) | |
    | "squared-hinge" | max(0, 1 + s)² | |
    | "focal" | σ(s)^number log(1 + exp(s)) | gamma |
    | "softmax" | of all labels: -Σ t log softmax(number s) | 1 / temperature |

    The first three are times the label's weight as a negative (`SeparableLoss.column_weights`), t
    of the last is from `PickLoss.row_targets`.
    """

    name: str
    number: float = 0.0


class Loss(Component, ABC):
    """A loss of scores (rows, columns) against targets of the same shape.

    Columns are all labels, or labels that were shortlisted for each row, or the texts or labels of
    a batch that each row is compared with. Targets are soft: from 0 to 1, how surely each applies.

    A subclass says what does not depend on the scores (`_terms`: weights, and what is drawn), the
    values and their gradient. Autograd uses that gradient too, so values need not be safe to
    differentiate, and only scores and terms are kept for it.
    """

    name: ClassVar[str]
    """What `losses.create` knows it by."""
    separable: ClassVar[bool] = False
    """Whether it is a sum over labels, each by itself, so that labels can be done in chunks."""
    normalised: ClassVar[bool] = False
    """Whether it is -Σ t log softmax(s / `temperature`), with t from `row_targets`, so that labels
    can be done in chunks twice: for the sum of the exponentials, then for the gradient."""

    @property
    def form(self) -> Form | None:
        """The formula by which fused kernels compute it; None: they do not."""
        return None

    positive_weights: Weights
    propensities: ArrayLike | None
    correction: str | None

    def __call__(
        self,
        scores: Tensor,
        targets: Tensor,
        *,
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        step: int = 0,
    ) -> Tensor:
        """The loss of each row, (rows,), in float32 or better, differentiable by the scores.

        Parameters
        ----------
        scores, targets : tensors (rows, columns)
        labels : integer tensor (rows, columns) or (columns,), optional
            Which label each column is, to look up its weights. By default column j is label j.
        mask : bool tensor (rows, columns), optional
            False where a column is padding, of which nothing is looked at.
        step : int
            The number of the batch: what is drawn, where anything is, depends on it and the seed.
        """
        terms = self._checked_terms(scores, targets, labels, mask, step)
        return _ClosedForm.apply(self, scores, mask, *terms)  # type: ignore[no-any-return, no-untyped-call]

    def gradient(
        self,
        scores: Tensor,
        targets: Tensor,
        *,
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        step: int = 0,
    ) -> Tensor:
        """The gradient of the sum of the values by the scores, in their type, without autograd."""
        with torch.no_grad():
            terms = self._checked_terms(scores, targets, labels, mask, step)
            return self._gradient(_working(scores, mask), mask, *terms).to(scores.dtype)

    # ------------------------------------------------------------ what a loss consists of
    @abstractmethod
    def _terms(
        self, targets: Tensor, labels: Tensor | None, mask: Tensor | None, step: int
    ) -> tuple[Tensor, ...]:
        """What values and gradient need besides scores; targets are 0 outside the mask."""

    @abstractmethod
    def _values(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        """(rows,); scores are 0 outside the mask."""

    @abstractmethod
    def _gradient(self, scores: Tensor, mask: Tensor | None, *terms: Tensor) -> Tensor:
        """(rows, columns): the gradient of the sum of `_values`."""

    # ------------------------------------------------------------ parameters
    def check_parameters(self) -> None:
        """Raise a ParameterError that names the first parameter outside its declaration."""
        super().check_parameters()
        if (self.propensities is None) != (self.correction is None):
            raise ParameterError(
                f"{type(self).__name__} corrects for missing labels by propensities and correction "
                f"together; correction is {self.correction!r} and propensities are "
                f"{'not ' if self.propensities is None else ''}given"
            )

    def _of_columns(
        self, parameter: str, like: Tensor, labels: Tensor | None, mask: Tensor | None
    ) -> Tensor | float:
        """A parameter with a number for each label, for the columns of `like`; 1 if not given."""
        given = getattr(self, parameter)
        if given is None:
            return 1.0
        table = self._table(parameter, given, like)
        if not table.ndim:
            return table
        if labels is None:
            if len(table) != like.shape[1]:
                raise ShapeError(
                    f"{parameter} are of {len(table)} labels, but the scores are "
                    f"{tuple(like.shape)}; give labels to say which label each column is"
                )
            return table
        if mask is not None:  # padding may be numbered as no label is
            labels = labels.expand(like.shape).masked_fill(~mask, 0)
        return table[labels]

    def _table(self, parameter: str, given: Any, like: Tensor) -> Tensor:
        """A parameter as a tensor; kept, as checking and moving it takes longer than using it."""
        kept: dict[Any, tuple[Any, Tensor]] = self.__dict__.setdefault("_tables", {})
        key = (parameter, like.device, like.dtype)
        if key in kept and kept[key][0] is given:
            return kept[key][1]
        if parameter == "propensities":
            values = check_propensities(given)
        else:
            values = np.asarray(given, np.float64)
            if values.ndim > 1 or not (np.isfinite(values) & (values >= 0)).all():
                raise ParameterError(
                    f"{parameter} of {type(self).__name__} must be numbers of at least 0, one a "
                    f"label, not {given!r}"
                )
        table = torch.tensor(values, dtype=like.dtype, device=like.device)
        kept[key] = given, table
        return table

    def _checked_terms(
        self,
        scores: Tensor,
        targets: Tensor,
        labels: Tensor | None,
        mask: Tensor | None,
        step: int,
    ) -> tuple[Tensor, ...]:
        if not scores.is_floating_point():
            raise ParameterError(f"scores must be of a float type, not {scores.dtype}")
        if scores.shape != targets.shape:
            raise ShapeError(
                f"scores are {tuple(scores.shape)} but targets are {tuple(targets.shape)}"
            )
        targets = self._checked_targets(targets.to(_working_type(scores)), labels, mask)
        return self._terms(targets, labels, mask, step)

    def _checked_targets(
        self, targets: Tensor, labels: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Targets with nothing outside the mask, once all shapes and parameters are right."""
        self.check_parameters()
        shape = targets.shape
        if len(shape) != 2:
            raise ShapeError(f"scores and targets must be (rows, columns), not {tuple(shape)}")
        if labels is not None and labels.shape not in (shape, shape[1:]):
            raise ShapeError(f"labels are {tuple(labels.shape)} but targets are {tuple(shape)}")
        if mask is None:
            return targets
        if mask.shape != shape or mask.dtype != torch.bool:
            raise ShapeError(
                f"mask must be bool {tuple(shape)}, not {mask.dtype} {tuple(mask.shape)}"
            )
        return targets.masked_fill(~mask, 0)


class _ClosedForm(torch.autograd.Function):
    """Values whose backward is the loss's own gradient."""

    @staticmethod
    def forward(
        ctx: Any, loss: Loss, scores: Tensor, mask: Tensor | None, *terms: Tensor
    ) -> Tensor:
        ctx.loss = loss
        ctx.save_for_backward(scores, mask, *terms)
        return loss._values(_working(scores, mask), mask, *terms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        scores, mask, *terms = ctx.saved_tensors
        gradient = ctx.loss._gradient(_working(scores, mask), mask, *terms)
        gradient = (gradient * upstream[:, None]).to(scores.dtype)
        return None, gradient, None, *(None for _ in terms)


def _working_type(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)


def _working(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores in float32 or better, 0 outside the mask, where anything may be."""
    scores = scores.to(_working_type(scores))
    return scores if mask is None else scores.masked_fill(~mask, 0)
