"""A training step of labels in groups: scores, gradients and the weights' move in one kernel.

A program takes one group at a time (64 labels of it at most). It reads the group's features of all
rows once, a tile of rows after another: the scores' product, the loss's gradient in registers, then
its two products with the weights and with the features, which are still at hand. The features'
gradient is added to memory; that of the weights stays in registers until they move. Where a label
reads more inputs than one tile holds, the gradient by the scores of one group is put aside.

Every label is taken for a negative, and the gradient changed where a row has it: what changes is
put in its places of a small matrix of the program's own, which only groups with positives read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from megalabel.neural.kernels.forms import SQUARED_HINGE, negative_gradient, negative_value
from megalabel.neural.kernels.groups import Groups, by_feature, inputs_of, on, weights_of
from megalabel.neural.kernels.operands import processors
from megalabel.neural.kernels.rounding import round_randomly, words_of
from megalabel.neural.kernels.tuning import GroupTuning

UNIT = tl.constexpr(4294967296.0)  # 1 in fixed point
LIMIT = tl.constexpr(1073741824.0)
PAIRS = 128  # positives put in place at a time


@triton.jit
def _put(
    changes,
    first_place,
    order,
    pair_place,
    pair_row,
    pair_score,
    pair_gradient,
    scale,
    first,
    last,
    gamma,
    ZERO: tl.constexpr,
    FORM: tl.constexpr,
    SCALE: tl.constexpr,
    N: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Put what positives change in its places, or zeros there again."""
    for pair in range(first, last, PAIRS):
        at = pair + tl.arange(0, PAIRS)
        real = at < last
        which = tl.load(order + at, mask=real, other=0)
        place = tl.load(pair_place + at, mask=real, other=0)
        row = tl.load(pair_row + which, mask=real, other=0)
        change = tl.zeros((PAIRS,), dtype=tl.float32)
        if not ZERO:
            score = tl.load(pair_score + which, mask=real, other=0.0)
            absent = negative_gradient(score, gamma, FORM)
            if SCALE:
                absent *= tl.load(scale + place, mask=real, other=0.0)
            change = tl.load(pair_gradient + which, mask=real, other=0.0) - absent
        tl.store(changes + row * N + (place - first_place), change, mask=real)


@triton.jit
def _gradient(
    scores,
    row,
    known,
    by_label,
    changes,
    any_pairs,
    rows,
    gamma,
    FORM: tl.constexpr,
    SCALE: tl.constexpr,
    N: tl.constexpr,
):
    """The gradient by a tile of scores: of negatives, changed where a row has the label."""
    gradient = negative_gradient(scores, gamma, FORM)
    if SCALE:
        gradient *= by_label[None, :]
    gradient = tl.where((row < rows)[:, None] & known[None, :], gradient, 0.0)
    column = tl.arange(0, N)
    changed = column < tl.where(any_pairs, N, 0)
    place = row[:, None] * N + column[None, :]
    return gradient + tl.load(changes + place, mask=changed[None, :], other=0.0)


@triton.jit
def _add(sums, index, slot, row, stride, value, FAN: tl.constexpr):
    """Add a tile (slots, rows) to the features' gradient; beyond the batch these are zeros.

    They are added too, as a limit within a row would keep additions from being made by fours.
    """
    at = sums + index[:, None] * stride + row[None, :]
    real = (slot < FAN)[:, None]
    if sums.dtype.element_ty == tl.int64:
        fixed = (tl.minimum(tl.maximum(value, -LIMIT), LIMIT) * UNIT).to(tl.int64)
        tl.atomic_add(at, fixed, mask=real, sem="relaxed")
    else:
        tl.atomic_add(at, value, mask=real, sem="relaxed")


@triton.jit
def _move(
    weights,
    velocity,
    w,
    sums,
    settings,
    group,
    first_label,
    slot,
    first_column,
    seed,
    step,
    VELOCITY: tl.constexpr,
    FAN: tl.constexpr,
    GROUP: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
):
    """Move a tile of weights by their gradient, as `Sgd` does."""
    column = first_column + tl.arange(0, N)
    at = (group * FAN + slot)[:, None] * GROUP + column[None, :]
    real = (slot < FAN)[:, None] & (column < GROUP)[None, :]
    label = first_label + group * GROUP  # what random bits are of
    rate = tl.load(settings)
    share = tl.load(settings + 1)
    decay = tl.load(settings + 2)
    HALF: tl.constexpr = weights.dtype.element_ty == tl.bfloat16
    w = w.to(tl.float32)
    if VELOCITY:
        before = tl.load(velocity + at, mask=real, other=0.0).to(tl.float32)
        move = sums * share + tl.load(settings + 3) * before + decay * w
        if HALF:
            words = words_of(seed, step, 1, label, slot, first_column, GROUP, K, N)
            tl.store(velocity + at, round_randomly(move, words), mask=real)
        else:
            tl.store(velocity + at, move, mask=real)
        moved = w - rate * move
    else:
        moved = (w + (-rate * decay) * w) + sums * (-rate * share)
    if HALF:
        words = words_of(seed, step, 0, label, slot, first_column, GROUP, K, N)
        tl.store(weights + at, round_randomly(moved, words), mask=real)
    else:
        tl.store(weights + at, moved, mask=real)


@triton.jit
def _train(
    features,
    sums,
    indices,
    weights,
    labels,
    bias,
    velocity,
    scale,
    starts,
    order,
    pair_place,
    pair_row,
    pair_score,
    pair_gradient,
    settings,
    counter,
    partial,
    lost,
    changes,
    aside,
    seed,
    first_label,
    rows,
    stride,
    units,
    gamma,
    FAN: tl.constexpr,
    GROUP: tl.constexpr,
    FORM: tl.constexpr,
    BIAS: tl.constexpr,
    SCALE: tl.constexpr,
    VELOCITY: tl.constexpr,
    VALUE: tl.constexpr,
    UPDATE: tl.constexpr,
    PRECISION: tl.constexpr,
    PAIRS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    parts: tl.constexpr = (GROUP + N - 1) // N
    dtype: tl.constexpr = weights.dtype.element_ty
    tiles = tl.cdiv(rows, M)
    step = tl.load(counter).to(tl.int32)
    program = tl.program_id(0).to(tl.int64)
    wide = program * 0  # added to the numbers of loops: places of weights need 64 bits
    total = 0.0
    for unit in tl.range(tl.program_id(0), units, tl.num_programs(0)):
        group = unit // parts + wide
        first_column = unit % parts * N
        column = first_column + tl.arange(0, N)
        place = group * GROUP + column
        known = tl.load(labels + place, mask=column < GROUP, other=-1) >= 0
        shift = tl.zeros((N,), dtype=tl.float32)
        by_label = tl.full((N,), 1.0, dtype=tl.float32)
        if BIAS:
            shift = tl.load(bias + place, mask=known, other=0.0)
        if SCALE:
            by_label = tl.load(scale + place, mask=known, other=0.0)
        by_bias = tl.zeros((N,), dtype=tl.float32)
        first_pair = tl.load(starts + unit)
        last_pair = tl.load(starts + unit + 1)
        any_pairs = first_pair < last_pair
        own = changes + program * stride * N
        first_place = group * GROUP + first_column
        tl.debug_barrier()  # the zeros of the group before are there
        _put(
            own,
            first_place,
            order,
            pair_place,
            pair_row,
            pair_score,
            pair_gradient,
            scale,
            first_pair,
            last_pair,
            gamma,
            False,
            FORM,
            SCALE,
            N,
            PAIRS,
        )
        tl.debug_barrier()  # other threads read them than put them there
        if FAN <= K:
            slot = tl.arange(0, K)
            index = inputs_of(indices, group, slot, FAN)
            w = weights_of(weights, group, slot, column, FAN, GROUP)
            moves = tl.zeros((K, N), dtype=tl.float32)
            read = features + index[:, None] * stride + tl.arange(0, M)[None, :]
            for tile in range(tiles):
                row = tile * M + tl.arange(0, M)
                x = tl.load(read + tile * M, mask=(slot < FAN)[:, None], other=0.0)
                scores = tl.dot(x.T, w, input_precision=PRECISION) + shift[None, :]
                gradient = _gradient(
                    scores, row, known, by_label, own, any_pairs, rows, gamma, FORM, SCALE, N
                )
                if VALUE:
                    real = (row < rows)[:, None] & known[None, :]
                    value = negative_value(scores, gamma, FORM) * by_label[None, :]
                    total += tl.sum(tl.sum(tl.where(real, value, 0.0), axis=1), axis=0)
                live = True
                if FORM == SQUARED_HINGE:  # most tiles have nothing to teach
                    live = tl.max(tl.max((gradient != 0.0).to(tl.int32), axis=1), axis=0) > 0
                if live:
                    by_bias += tl.sum(gradient, axis=0)
                    g = gradient.to(dtype)
                    by_input = tl.dot(w, g.T, input_precision=PRECISION)
                    _add(sums, index, slot, row, stride, by_input, FAN)
                    moves = tl.dot(x, g, moves, input_precision=PRECISION)
            wrong = tl.sum(tl.sum(moves * 0.0, axis=1), axis=0)
            tl.atomic_max(lost, 1, mask=wrong != wrong, sem="relaxed")
            if UPDATE:
                _move(
                    weights,
                    velocity,
                    w,
                    moves,
                    settings,
                    group,
                    first_label,
                    slot,
                    first_column,
                    seed,
                    step,
                    VELOCITY,
                    FAN,
                    GROUP,
                    K,
                    N,
                )
        else:
            kept = aside + program * stride * N + tl.arange(0, N)[None, :]
            for tile in range(tiles):
                row = tile * M + tl.arange(0, M)
                scores = tl.zeros((M, N), dtype=tl.float32) + shift[None, :]
                for first_slot in range(0, FAN, K):
                    slot = first_slot + tl.arange(0, K)
                    index = inputs_of(indices, group, slot, FAN)
                    w = weights_of(weights, group, slot, column, FAN, GROUP)
                    read = features + index[:, None] * stride + row[None, :]
                    x = tl.load(read, mask=(slot < FAN)[:, None], other=0.0)
                    scores = tl.dot(x.T, w, scores, input_precision=PRECISION)
                gradient = _gradient(
                    scores, row, known, by_label, own, any_pairs, rows, gamma, FORM, SCALE, N
                )
                if VALUE:
                    real = (row < rows)[:, None] & known[None, :]
                    value = negative_value(scores, gamma, FORM) * by_label[None, :]
                    total += tl.sum(tl.sum(tl.where(real, value, 0.0), axis=1), axis=0)
                by_bias += tl.sum(gradient, axis=0)
                tl.store(kept + row[:, None] * N, gradient.to(dtype))
            tl.debug_barrier()  # what is put aside is read by other threads than wrote it
            for first_slot in range(0, FAN, K):
                slot = first_slot + tl.arange(0, K)
                index = inputs_of(indices, group, slot, FAN)
                w = weights_of(weights, group, slot, column, FAN, GROUP)
                moves = tl.zeros((K, N), dtype=tl.float32)
                for tile in range(tiles):
                    row = tile * M + tl.arange(0, M)
                    g = tl.load(kept + row[:, None] * N)
                    live = True
                    if FORM == SQUARED_HINGE:
                        live = (
                            tl.max(tl.max((g.to(tl.float32) != 0.0).to(tl.int32), axis=1), axis=0)
                            > 0
                        )
                    if live:
                        read = features + index[:, None] * stride + row[None, :]
                        x = tl.load(read, mask=(slot < FAN)[:, None], other=0.0)
                        by_input = tl.dot(w, g.T, input_precision=PRECISION)
                        _add(sums, index, slot, row, stride, by_input, FAN)
                        moves = tl.dot(x, g, moves, input_precision=PRECISION)
                wrong = tl.sum(tl.sum(moves * 0.0, axis=1), axis=0)
                tl.atomic_max(lost, 1, mask=wrong != wrong, sem="relaxed")
                if UPDATE:
                    _move(
                        weights,
                        velocity,
                        w,
                        moves,
                        settings,
                        group,
                        first_label,
                        slot,
                        first_column,
                        seed,
                        step,
                        VELOCITY,
                        FAN,
                        GROUP,
                        K,
                        N,
                    )
        tl.debug_barrier()  # nothing is put anywhere before all have read
        _put(
            own,
            first_place,
            order,
            pair_place,
            pair_row,
            pair_score,
            pair_gradient,
            scale,
            first_pair,
            last_pair,
            gamma,
            True,
            FORM,
            SCALE,
            N,
            PAIRS,
        )
        if UPDATE and BIAS:
            moved = shift - tl.load(settings) * tl.load(settings + 4) * by_bias
            tl.store(bias + place, moved, mask=known)
    if VALUE:
        tl.store(partial + program, total)


@dataclass(frozen=True)
class Tiles:
    """How many rows of the batch, labels of a group and inputs of theirs come together."""

    rows: int
    labels: int
    inputs: int


def tiles_for(rows: int, groups: Groups, tuning: GroupTuning) -> Tiles:
    """Tiles that fit the multiprocessor's registers and its shared memory, for any shape."""
    whole = groups.weights.dtype == torch.float32  # twice the memory, and products in three parts
    labels = min(64, max(16, triton.next_power_of_2(groups.size)))
    most = 64 if whole else 8192 // labels if labels > 32 else 256
    inputs = min(most, max(16, triton.next_power_of_2(groups.inputs)))
    area = tuning.area // 4 if whole else tuning.area // (1 + tuning.deterministic)
    most = min(128, triton.next_power_of_2(max(rows, 1)))
    return Tiles(max(16, min(most, area // inputs)), labels, inputs)


@dataclass(frozen=True)
class Positives:
    """The labels that rows do have: each by its row, its place in the groups (both int64), its
    score and the loss's gradient by it (both float32)."""

    row: Tensor
    place: Tensor
    score: Tensor
    gradient: Tensor

    def located(self, tiles: Tiles, groups: Groups) -> tuple[Tensor, Tensor, Tensor]:
        """Where those of each program's part of a group start, the places in that order, and which
        pairs they are of."""
        places, order = self.place.sort(stable=True)
        starts = torch.searchsorted(places, groups.bounds(tiles.labels), out_int32=True)
        return starts, places, order


def train_groups(
    features: Tensor,
    groups: Groups,
    positives: Positives,
    *,
    form: int,
    settings: Tensor,
    counter: Tensor,
    seed: int,
    tuning: GroupTuning,
    gamma: float = 0.0,
    scale: Tensor | None = None,
    velocity: Tensor | None = None,
    first_label: int = 0,
    update: bool = True,
    value: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Move all weights by a batch's loss; returns the sum of its gradients by the features.

    Parameters
    ----------
    features
        (rows, width), of any float type; products are in the weights' type.
    form, gamma
        Which loss, of `kernels.forms`, and its number; not a softmax.
    settings
        float32 on the device: rate, share, decay and momentum of the weights, as of
        `kernels.update`, then the share of the gradient by the biases.
    counter, seed, first_label
        Step (on the device), seed and number of the first label: what random bits are of. A group
        takes those that `random_halves` gives for its first label, counted as if every place had
        one, and `inputs * size` columns.
    scale
        (groups, size): a factor of each label's loss.
    velocity
        Of momentum; like the weights.
    value
        Also return the sums of the loss, one for each program, as if no row had any label.

    Returns
    -------
    Tensor
        (rows, width) float32.
    Tensor or None
    """
    rows = len(features)
    weights, device = groups.weights, groups.weights.device
    tiles = tiles_for(rows, groups, tuning)
    parts = triton.cdiv(groups.size, tiles.labels)
    units = len(groups) * parts
    programs = min(units, tuning.resident * processors(device) if device.type == "cuda" else 4)
    x = by_feature(features, weights.dtype, tiles.rows)
    fixed = torch.int64 if tuning.deterministic else torch.float32
    sums = torch.zeros(x.shape, dtype=fixed, device=device)
    lost = torch.zeros((), dtype=torch.int32, device=device)
    partial = torch.empty(programs, dtype=torch.float32, device=device) if value else None
    place = (programs, x.shape[1], tiles.labels)
    changes = torch.zeros(place, dtype=torch.float32, device=device)
    aside = None
    if groups.inputs > tiles.inputs:
        aside = weights.new_empty(place)
    starts, places, order = positives.located(tiles, groups)
    with on(device):
        _train[(programs,)](
            x,
            sums,
            groups.indices,
            weights,
            groups.labels,
            groups.bias,
            velocity,
            scale,
            starts,
            order,
            places,
            positives.row,
            positives.score,
            positives.gradient,
            settings,
            counter,
            partial,
            lost,
            changes,
            aside,
            seed,
            first_label,
            rows,
            x.shape[1],
            units,
            gamma,
            FAN=groups.inputs,
            GROUP=groups.size,
            FORM=form,
            BIAS=groups.bias is not None,
            SCALE=scale is not None,
            VELOCITY=velocity is not None,
            VALUE=value,
            UPDATE=update,
            PRECISION="tf32" if weights.dtype == torch.bfloat16 else "tf32x3",
            PAIRS=PAIRS,
            M=tiles.rows,
            N=tiles.labels,
            K=tiles.inputs,
            num_warps=tuning.warps,
            num_stages=tuning.stages,
        )
    if tuning.deterministic:
        floats = sums[:, :rows].double() / UNIT.value
        sums = floats.masked_fill_(lost > 0, torch.nan).float()  # fixed point knows no NaN
    return sums[:, :rows].T.contiguous(), partial
