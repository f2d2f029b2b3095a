"""A dense head's step made of Triton kernels: bfloat16 weights, on a GPU.

All labels of a chunk are first taken for negatives, which needs nothing but the scores; the few
positives' gradients are found exactly beforehand and put in their places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from megalabel.neural.heads.steps.plain import column_share, row_targets
from megalabel.neural.kernels.forms import KINDS, NORMALISER, SOFTMAX
from megalabel.neural.kernels.operands import describable, processors
from megalabel.neural.kernels.positives import pair_scores, patch
from megalabel.neural.kernels.scores import score_gradients
from megalabel.neural.kernels.squares import mean_squares
from megalabel.neural.kernels.tuning import Tuning
from megalabel.neural.kernels.update import update_weights
from megalabel.neural.losses.base import Loss
from megalabel.neural.losses.separable import SeparableLoss
from megalabel.neural.targets import Targets

if TYPE_CHECKING:
    from megalabel.neural.heads.dense import DenseModule
    from megalabel.neural.heads.learning import LearningModule

_CHUNK_BYTES = 136 << 20


@dataclass(frozen=True)
class KernelForm:
    """A loss as kernels compute it for labels that a row does not have."""

    kind: int
    number: float
    scale: Tensor | None
    """A factor for each label; None: 1."""


def form_of(loss: Loss, labels: int, held: Tensor) -> KernelForm | None:
    """What a loss declares as its form, for kernels; None: they do not compute it.

    Parameters
    ----------
    labels
        Number of all labels.
    held
        The labels, (n,), whose factors are wanted.
    """
    if loss.form is None:
        return None
    scale = None
    if isinstance(loss, SeparableLoss):
        none = torch.zeros((1, len(held)), device=held.device)
        scale = loss.column_weights(none, held)[1][0] * column_share(loss, len(held), labels)
        if bool((scale - 1).abs().max() < 1e-5):
            scale = None
    return KernelForm(KINDS[loss.form.name], loss.form.number, scale)


def step_for(head: DenseModule) -> FusedStep | None:
    """The fused step of a head, or None where only the plain one can do what it asks for."""
    if head.weights.dtype != torch.bfloat16:
        return None
    if head.loss is None or len(head.weights) == 0:
        return None
    held = torch.arange(head.first, head.last, device=head.weights.device)
    form = form_of(head.loss, head.labels, held)
    return None if form is None else FusedStep(form, head.tuning or Tuning())


@dataclass
class _Inputs:
    """What a batch brings to the chunks, all on the device."""

    x: Tensor
    row: Tensor
    label: Tensor
    patched: Tensor
    settings: Tensor
    shift: Tensor | None


class FusedStep:
    """What `plain_step` does, by kernels."""

    def __init__(self, form: KernelForm, tuning: Tuning) -> None:
        self.form = form
        self.tuning = tuning

    def chunk(self, head: DenseModule, rows: int) -> int:
        """Labels at a time: whole waves of tiles, so that no multiprocessor waits for the last."""
        most = (2**31 - 1) // max(rows, head.width)  # kernels count places within a chunk in int32
        chosen = head.chunk or self.tuning.chunk
        if chosen is not None:
            unit = 8  # rows of a chunk's gradient start at multiples of 16 bytes
            return min(-(-chosen // unit), most // unit) * unit
        tile = self.tuning.scores_tile
        unit = tile.n
        if head.weights.is_cuda:
            unit *= max(1, 2 * processors(head.weights.device) // -(-rows // tile.m))
        return max(1, min(_CHUNK_BYTES // (2 * rows), most) // unit) * unit

    def __call__(
        self, head: DenseModule, features: Tensor, targets: Targets, *, update: bool, valued: bool
    ) -> tuple[Tensor, Tensor]:
        rows = len(features)
        x = features.to(torch.bfloat16).contiguous()
        row, label, entries = targets.rows, targets.indices - head.first, targets.values
        mass = None
        if self.form.kind == SOFTMAX.value:
            entries, mass = row_targets(head, targets)
        if len(head.weights) < head.labels:
            held = (label >= 0) & (label < len(head.weights))
            row, label, entries = row[held], label[held], entries[held]
        scores = pair_scores(x, head.weights, row, label)
        if head.bias is not None:
            scores += head.bias[label]
        shift = None
        if mass is not None:
            cooling = self.form.number
            normaliser = self._normaliser(head, x)
            logits = scores * cooling - normaliser[row]
            shift = normaliser - (mass * cooling).log()
            patched = cooling * (mass[row] * logits.exp() - entries)
            value = -(entries * logits).sum()
        else:
            patched, value = at_positives(head, scores, label, entries, valued)
        share, kept = head.optimiser.rates()
        rates = (head.rate, share / rows, head.optimiser.weight_decay, kept)
        # from pinned memory, as a plain copy would wait for the step before
        settings = torch.tensor(rates, pin_memory=x.is_cuda).to(x.device, non_blocking=True)
        inputs = _Inputs(x, row, label, patched, settings, shift)
        rest, sums = self._chunks(head, inputs, update, valued)
        return (value + rest) / rows, sums / rows

    def _chunks(
        self, head: DenseModule, inputs: _Inputs, update: bool, valued: bool
    ) -> tuple[Tensor, Tensor]:
        """The sum of the negatives' losses and that of the features' gradients; the weights move.

        Nothing here waits for the device or depends on numbers that are on it.
        """
        tuning, weights, x = self.tuning, head.weights, inputs.x
        rows, width = x.shape
        buffer, chunks = self._plan(head, rows)
        described = tuning.descriptors and describable(x, weights, buffer)
        sums = torch.zeros((rows, width), dtype=torch.float32, device=x.device)
        values = []
        optimiser = head.optimiser
        for first, last in chunks:
            here = slice(first, last)
            gradient = buffer[:, : last - first]
            part = self._negatives(head, x, here, gradient, inputs.shift, valued, described)
            if part is not None:
                values.append(part)
            patch(gradient, inputs.row, inputs.label, inputs.patched, first, last)
            _add_product(sums, gradient, weights[here])
            if not update:
                continue
            if head.bias is not None:
                # plain descent for any optimiser: the mean gradient, not its share of a moment
                by_bias = gradient.sum(0, dtype=torch.float32) / rows
                head.bias[here] -= inputs.settings[0] * by_bias

            def squares(gradient: Tensor = gradient) -> Tensor:
                labels, tile = gradient.shape[1], tuning.update_tile
                return mean_squares(gradient, x, labels, tile=tile, descriptors=described) / rows**2

            update_weights(
                gradient,
                x,
                weights[here],
                settings=inputs.settings,
                counter=head.steps,
                seed=head.seed,
                first=head.first + first,
                tile=tuning.update_tile,
                velocity=None if optimiser.moment is None else optimiser.moment[here],
                pace=optimiser.pace(squares, first, last, head.step + 1),
                slots=None if optimiser.slots is None else optimiser.slots[here],
                residual=optimiser.residual,
                descriptors=described,
            )
        value = torch.cat(values).sum() if values else torch.zeros((), device=x.device)
        return value, sums

    def _plan(self, head: DenseModule, rows: int) -> tuple[Tensor, list[tuple[int, int]]]:
        """A buffer for the gradient by a chunk's scores, and the chunks."""
        count = len(head.weights)
        size = min(self.chunk(head, rows), -(-count // 8) * 8)
        buffer = torch.empty((rows, size), dtype=torch.bfloat16, device=head.weights.device)
        return buffer, [(a, min(a + size, count)) for a in range(0, count, size)]

    def _negatives(
        self,
        head: DenseModule,
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
        return score_gradients(
            x,
            head.weights[here],
            gradient,
            form=form.kind,
            tile=self.tuning.scores_tile,
            bias=bias,
            scale=scale,
            shift=shift,
            gamma=form.number,
            value=valued,
            descriptors=described,
        )

    def _normaliser(self, head: DenseModule, x: Tensor) -> Tensor:
        """Each row's log-sum-exp of the scores of all labels."""
        normaliser = torch.full((len(x),), -torch.inf, device=x.device)
        buffer, chunks = self._plan(head, len(x))
        described = self.tuning.descriptors and describable(x, head.weights)
        for first, last in chunks:
            part = score_gradients(
                x,
                head.weights[first:last],
                buffer,
                form=NORMALISER.value,
                tile=self.tuning.scores_tile,
                bias=None if head.bias is None else head.bias[first:last],
                gamma=self.form.number,
                descriptors=described,
            )
            assert part is not None
            normaliser = torch.logaddexp(normaliser, part.logsumexp(0))
        return head.merge_normaliser(normaliser)


def at_positives(
    head: LearningModule, scores: Tensor, label: Tensor, entries: Tensor, valued: bool
) -> tuple[Tensor, Tensor]:
    """The gradients by the scores of labels that rows have, and what having them adds to the loss
    (0 unless `valued`)."""
    loss = head.loss
    assert loss is not None
    share = column_share(loss, 1, head.labels)
    columns = (scores[:, None], entries[:, None])
    ids = (label + head.first)[:, None]
    gradient = loss.gradient(*columns, labels=ids)[:, 0].float() * share
    value = torch.zeros((), device=scores.device)
    if valued:
        without = loss(columns[0], torch.zeros_like(columns[1]), labels=ids)
        value = (loss(*columns, labels=ids) - without).float().sum() * share
    return gradient, value


def _add_product(sums: Tensor, a: Tensor, b: Tensor) -> None:
    """sums += a @ b, summed in float32."""
    if a.is_cuda:
        torch.addmm(sums, a, b, out_dtype=torch.float32, out=sums)
    else:
        sums += a.float() @ b.float()
