"""The step of a sparse head by the native core: on CPUs, with nothing of rows by labels in memory.

It does what the plain step does, with the same random bits. The gradient by the scores is not
rounded between, so with bfloat16 weights the two differ by as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from megalabel import _native
from megalabel.neural.heads.steps.optimisers import Adam, Sgd
from megalabel.neural.heads.steps.plain import column_share, row_targets
from megalabel.neural.losses.separable import SeparableLoss
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.heads.sparse import SparseModule

_FORMS = {
    "logistic": _native.FanInForm.logistic,
    "squared-hinge": _native.FanInForm.squared_hinge,
    "focal": _native.FanInForm.focal,
    "softmax": _native.FanInForm.softmax,
}
_NONE = np.zeros(0, np.float32)
_ALL = np.zeros(0, np.uint8)


def step_for(head: SparseModule) -> NativeStep | None:
    """The native step of a head, or None where only the plain one can do what it asks for."""
    form, optimiser = getattr(head.loss, "form", None), head.optimiser
    if form is None or form.name not in _FORMS or not head.held:
        return None
    if optimiser.slots is not None or type(optimiser) not in (Sgd, Adam):
        return None
    return NativeStep(head)


def best_labels(
    head: SparseModule, features: Tensor, k: int, order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scores and labels of each row's k best, best first, ties to the lower label.

    The number of a label is that in `order`, where there is one.
    """
    labels = _labels(head)
    if order is not None:
        labels[: head.held] = order[head.first : head.last].numpy()
    ids, scores = _native.fan_in_best(
        layer=_layer(head, labels), rows=_rows(head, features), allowed=_ALL, k=min(k, head.held)
    )
    return torch.from_numpy(scores), torch.from_numpy(ids).long()


def _labels(head: SparseModule) -> np.ndarray:
    """The label at each place: those of a head follow one another."""
    groups, _, group = head.weights.shape
    labels = np.arange(head.first, head.first + groups * group, dtype=np.int32)
    labels[head.held :] = -1
    return labels


def _array(tensor: Tensor | None) -> np.ndarray:
    """The memory of a tensor; numbers of bfloat16 as their bits."""
    if tensor is None:
        return _NONE
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(np.uint16)
    if tensor.dtype == torch.int32:
        return np.asarray(tensor.numpy()).view(np.uint32)
    return np.asarray(tensor.numpy())


def _rows(head: SparseModule, features: Tensor) -> np.ndarray:
    """Features as the head sees them, in float32."""
    return np.asarray(features.detach().to(head.weights.dtype).float().contiguous().numpy())


def _layer(head: SparseModule, labels: np.ndarray) -> _native.FanIn:
    return _native.FanIn(
        indices=_array(head.indices),
        weights=_array(head.weights),
        scales=_NONE,
        bias=_array(head.bias).ravel(),
        labels=labels,
        width=head.width,
        label_count=head.labels,
    )


class NativeStep:
    """What `plain_step` does, by the native core."""

    value_every = 1

    def __init__(self, head: SparseModule) -> None:
        self.labels = _labels(head)
        self.places = np.full(head.labels, -1, np.int32)
        self.places[head.first : head.last] = np.arange(head.held)
        assert head.loss is not None
        self.weight, self.weights = 1.0, _NONE
        if isinstance(head.loss, SeparableLoss):
            # what all labels count for that a row does not have
            none = torch.zeros((1, head.labels))
            share = column_share(head.loss, head.labels, head.labels)
            weights = (head.loss.column_weights(none)[1][0] * share).float().expand(head.labels)
            if bool((weights != weights[0]).any()):
                self.weights = np.array(weights.numpy())
            self.weight = float(weights[0])

    def __call__(
        self, head: SparseModule, features: Tensor, targets: Targets, *, update: bool, valued: bool
    ) -> tuple[Tensor, Tensor]:
        loss = head.loss
        assert loss is not None
        assert loss.form is not None
        x = _rows(head, features)
        gradient = np.empty_like(x)
        value = _native.fan_in_step(
            layer=self._training(head),
            rows=x,
            truth=self._truth(head, features, targets),
            form=_FORMS[loss.form.name],
            number=loss.form.number,
            optimiser=self._optimiser(head),
            gradient=gradient,
            update=update,
            valued=valued,
        )
        return torch.tensor(value, dtype=torch.float32), torch.from_numpy(gradient)

    def normaliser(self, head: SparseModule, features: Tensor) -> Tensor:
        """Each row's log-sum-exp over the labels of a head, of scores as its loss takes them."""
        assert head.loss is not None
        assert head.loss.form is not None
        own = _native.fan_in_normalisers(
            layer=_layer(head, self.labels),
            rows=_rows(head, features),
            number=head.loss.form.number,
        )
        return torch.from_numpy(own)

    def _training(self, head: SparseModule) -> _native.FanInTraining:
        optimiser = head.optimiser
        none = np.zeros((0, 0, 0), np.float32 if head.weights.dtype == torch.float32 else np.uint16)
        squares = optimiser.square if isinstance(optimiser, Adam) else None
        return _native.FanInTraining(
            indices=_array(head.indices),
            weights=_array(head.weights),
            first=none if optimiser.moment is None else _array(optimiser.moment),
            second=none,
            squares=_array(squares).ravel(),
            bias=_array(head.bias).ravel(),
            labels=self.labels,
            places=self.places,
        )

    def _truth(self, head: SparseModule, features: Tensor, targets: Targets) -> _native.FanInTruth:
        """What each entry counts for, by row: the loss is a mean over the rows."""
        loss, rows = head.loss, max(1, len(features))
        assert loss is not None
        normalisers = masses = _NONE
        if isinstance(loss, SeparableLoss):
            share = column_share(loss, 1, head.labels)
            entries, ids = targets.values[:, None], targets.indices[:, None]
            positives, negatives = (w[:, 0] * share for w in loss.column_weights(entries, ids))
        else:
            positives, mass = row_targets(head, targets)
            negatives = torch.zeros_like(positives)
            own = self.normaliser(head, features)
            normalisers = np.asarray(head.merge_normaliser(own).numpy())
            masses = np.asarray((mass / rows).float().numpy())
        return _native.FanInTruth(
            starts=np.asarray(targets.indptr.numpy()),
            labels=targets.indices.to(torch.int32).numpy(),
            positives=np.asarray((positives / rows).float().contiguous().numpy()),
            negatives=np.asarray((negatives / rows).float().contiguous().numpy()),
            weights=self.weights / np.float32(rows),
            weight=self.weight / rows,
            normalisers=normalisers,
            masses=masses,
        )

    def _optimiser(self, head: SparseModule) -> _native.FanInOptimiser:
        optimiser = head.optimiser
        adam = isinstance(optimiser, Adam)
        betas = optimiser.betas if isinstance(optimiser, Adam) else (0.0, 0.0)
        return _native.FanInOptimiser(
            method=_native.FanInMethod.label_adam if adam else _native.FanInMethod.sgd,
            rate=head.rate,
            momentum=optimiser.momentum if isinstance(optimiser, Sgd) else 0.0,
            decay=optimiser.weight_decay,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=optimiser.epsilon if isinstance(optimiser, Adam) else 0.0,
            seed=head.seed & (2**64 - 1),
            step=head.step,
            first=head.first,
        )
