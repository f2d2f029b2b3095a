"""A dense head's step made of Triton kernels: bfloat16 weights, on a GPU.

All labels of a chunk are first taken for negatives, which needs nothing but the scores; the few
positives' gradients are found exactly beforehand and put in their places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.neural.heads.base import HeadLoss
from megalabel.neural.heads.optimisers import Sgd
from megalabel.neural.heads.plain import column_share, row_targets
from megalabel.neural.kernels.features import accumulate_features, splits_for
from megalabel.neural.kernels.forms import FOCAL, LOGISTIC, NORMALISER, SOFTMAX, SQUARED_HINGE
from megalabel.neural.kernels.negatives import gradients_in_place
from megalabel.neural.kernels.operands import describable
from megalabel.neural.kernels.positives import pair_scores, patch
from megalabel.neural.kernels.scores import score_gradients
from megalabel.neural.kernels.tuning import Tuning
from megalabel.neural.kernels.update import update_weights
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.heads.dense import DenseHead

_CHUNK_BYTES = 32 << 20


@dataclass(frozen=True)
class Form:
    """Which of the kernels' losses a loss is, for labels that a row does not have."""

    kind: int
    gamma: float = 0.0
    scale: Tensor | None = None


def recognise(loss: HeadLoss, labels: int, held: Tensor) -> Form | None:
    """The form whose gradient is the loss's own, up to a factor for each label; None: no form.

    The loss is asked, not its name: any loss with such a gradient runs fused.

    Parameters
    ----------
    labels
        Number of all labels.
    held
        The labels, (n,), whose factors are wanted.
    """
    if getattr(loss, "normalised", False):
        return Form(SOFTMAX.value, 1 / getattr(loss, "temperature", 1.0))
    if not getattr(loss, "separable", False):
        return None
    gamma = float(getattr(loss, "gamma", 0.0))
    candidates: list[tuple[int, Callable[[Tensor], Tensor]]] = [
        (LOGISTIC.value, torch.sigmoid),
        (SQUARED_HINGE.value, lambda s: 2 * (1 + s).clamp(min=0)),
        (FOCAL.value, lambda s: _focal(s, gamma)),
    ]
    share = column_share(loss, len(held), labels)

    def asked(score: float) -> Tensor:
        scores = torch.full((1, len(held)), score, device=held.device)
        return loss.gradient(scores, torch.zeros_like(scores), labels=held)[0].float() * share

    points = (-6.0, -2.5, -0.7, 0.3, 1.5, 4.0)
    answers = [asked(point) for point in points]
    for kind, formula in candidates:
        at = [float(formula(torch.tensor(point, dtype=torch.float64))) for point in points]
        scale = answers[3] / at[3]
        fits = all(
            torch.allclose(answer, scale * value, rtol=1e-4, atol=1e-7 * float(scale.abs().max()))
            for answer, value in zip(answers, at, strict=True)
        )
        if fits:
            alike = bool((scale - 1).abs().max() < 1e-5)
            return Form(kind, gamma, None if alike else scale.contiguous())
    return None


def _focal(s: Tensor, gamma: float) -> Tensor:
    p = torch.sigmoid(s)
    return p**gamma * (gamma * (1 - p) * torch.nn.functional.softplus(s) + p)


def step_for(head: DenseHead) -> FusedStep | None:
    """The fused step of a head, or None where only the plain one can do what it asks for."""
    if head.weights.dtype != torch.bfloat16 or not isinstance(head.optimiser, Sgd):
        return None
    if head.loss is None:
        return None
    held = torch.arange(head.first, head.last, device=head.weights.device)
    form = recognise(head.loss, head.labels, held)
    return None if form is None else FusedStep(form, head.tuning or Tuning())


class FusedStep:
    """What `plain_step` does, by kernels."""

    def __init__(self, form: Form, tuning: Tuning) -> None:
        self.form = form
        self.tuning = tuning

    def chunk(self, head: DenseHead, rows: int) -> int:
        """Labels at a time: what fills all multiprocessors evenly and stays in the cache."""
        chosen = head.chunk or self.tuning.chunk
        if chosen is not None:
            return -(-chosen // 8) * 8  # rows of a chunk's gradient start at multiples of 16 bytes
        unit = self.tuning.scores_tile.n
        if head.weights.is_cuda:
            processors = torch.cuda.get_device_properties(head.weights.device).multi_processor_count
            unit *= max(1, 2 * processors // -(-rows // self.tuning.scores_tile.m))
        return max(1, _CHUNK_BYTES // (2 * max(1, rows) * unit)) * unit

    def __call__(
        self, head: DenseHead, features: Tensor, targets: Targets, *, update: bool, valued: bool
    ) -> tuple[Tensor, Tensor]:
        tuning, form, weights = self.tuning, self.form, head.weights
        rows, width = features.shape
        x = features.to(torch.bfloat16).contiguous()
        row, label, entries = targets.rows, targets.indices - head.first, targets.values
        mass = None
        if form.kind == SOFTMAX.value:
            entries, mass = row_targets(head, targets)
        if len(weights) < head.labels:
            held = (label >= 0) & (label < len(weights))
            row, label, entries = row[held], label[held], entries[held]
        scores = pair_scores(x, weights, row, label)
        if head.bias is not None:
            scores += head.bias[label]
        size = min(self.chunk(head, rows), -(-len(weights) // 8) * 8)
        buffer = torch.empty((rows, size), dtype=torch.bfloat16, device=x.device)
        described = tuning.descriptors and describable(x, weights, buffer)
        chunks = [(a, min(a + size, len(weights))) for a in range(0, len(weights), size)]

        shift = None
        if mass is not None:
            normaliser = self._normaliser(head, x, buffer, chunks, described)
            logits = scores * form.gamma - normaliser[row]
            shift = normaliser - (mass * form.gamma).log()
            patched = form.gamma * (mass[row] * logits.exp() - entries)
            value = -(entries * logits).sum()
        else:
            patched, value = self._positives(head, scores, label, entries, valued)

        # the library's product adds to one sum, the kernel's splits to one each
        kernel = tuning.features == "fused"
        splits = 1
        if kernel and x.is_cuda:
            splits = splits_for(x.device, rows, width, tuning.features_tile)
        sums = torch.zeros((splits, rows, width), dtype=torch.float32, device=x.device)
        given = [head.learning_rate, 1 / rows, head.optimiser.weight_decay]
        optimiser = head.optimiser
        assert isinstance(optimiser, Sgd)
        settings = torch.tensor([*given, optimiser.momentum], device=x.device)
        for first, last in chunks:
            here = slice(first, last)
            gradient = buffer[:, : last - first]
            part = self._negatives(head, x, here, gradient, shift, valued, described)
            if part is not None:
                value = value + part.sum()
            patch(gradient, row, label, patched, first, last)
            if kernel:
                accumulate_features(
                    gradient,
                    weights[here],
                    sums,
                    tile=tuning.features_tile,
                    descriptors=described,
                )
            else:
                _library_sum(sums[0], gradient, weights[here])
            if not update:
                continue
            if head.bias is not None:
                by_bias = gradient.sum(0, dtype=torch.float32)
                head.bias[here] -= (head.learning_rate / rows) * by_bias
            slots = optimiser.slots
            update_weights(
                gradient,
                x,
                weights[here],
                settings=settings,
                counter=head.steps,
                seed=head.seed,
                first=head.first + first,
                tile=tuning.update_tile,
                velocity=None if optimiser.velocity is None else optimiser.velocity[here],
                slots=None if slots is None else slots[here],
                residual=optimiser.residual,
                descriptors=described,
            )
        return value / rows, sums.sum(0) / rows

    def _positives(
        self, head: DenseHead, scores: Tensor, label: Tensor, entries: Tensor, valued: bool
    ) -> tuple[Tensor, Tensor]:
        """The positives' gradients, and what they add to the loss of negatives in their places."""
        loss = head.loss
        assert loss is not None
        share = column_share(loss, 1, head.labels)
        columns = (scores[:, None], entries[:, None])
        ids = (label + head.first)[:, None]
        gradient = loss.gradient(*columns, labels=ids)[:, 0].float() * share
        value = torch.zeros((), device=scores.device)
        if valued:
            absent = loss(columns[0], torch.zeros_like(columns[1]), labels=ids)
            value = (loss(*columns, labels=ids) - absent).float().sum() * share
        return gradient, value

    def _negatives(
        self,
        head: DenseHead,
        x: Tensor,
        here: slice,
        gradient: Tensor,
        shift: Tensor | None,
        valued: bool,
        described: bool,
    ) -> Tensor | None:
        """Write the gradient of a chunk, as if no row had any of its labels."""
        form = self.form
        bias = None if head.bias is None else head.bias[here]
        scale = None if form.scale is None else form.scale[here]
        valued = valued and form.kind != SOFTMAX.value
        if self.tuning.scores == "library":
            torch.mm(x, head.weights[here].T, out=gradient)
            return gradients_in_place(
                gradient,
                form=form.kind,
                bias=bias,
                scale=scale,
                shift=shift,
                gamma=form.gamma,
                value=valued,
            )
        return score_gradients(
            x,
            head.weights[here],
            gradient,
            form=form.kind,
            tile=self.tuning.scores_tile,
            bias=bias,
            scale=scale,
            shift=shift,
            gamma=form.gamma,
            value=valued,
            descriptors=described,
        )

    def _normaliser(
        self,
        head: DenseHead,
        x: Tensor,
        buffer: Tensor,
        chunks: list[tuple[int, int]],
        described: bool,
    ) -> Tensor:
        """Each row's log-sum-exp of the scores of all labels."""
        normaliser = torch.full((len(x),), -torch.inf, device=x.device)
        for first, last in chunks:
            part = score_gradients(
                x,
                head.weights[first:last],
                buffer,
                form=NORMALISER.value,
                tile=self.tuning.scores_tile,
                bias=None if head.bias is None else head.bias[first:last],
                gamma=self.form.gamma,
                descriptors=described,
            )
            assert part is not None
            normaliser = torch.logaddexp(normaliser, part.logsumexp(0))
        return head.merge_normaliser(normaliser)


def _library_sum(sums: Tensor, a: Tensor, b: Tensor) -> None:
    """sums += a @ b, summed in float32."""
    if a.is_cuda:
        torch.addmm(sums, a, b, out_dtype=torch.float32, out=sums)
    else:
        sums += a.float() @ b.float()
