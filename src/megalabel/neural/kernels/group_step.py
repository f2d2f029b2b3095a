"""A training step of labels in groups: scores, gradients and the weights' move in one kernel.

A program takes one group at a time (64 labels of it at most). It reads the group's features of all
rows once, a tile of rows after another: the scores' product, the loss's gradient in registers, then
its two products with the weights and with the features, which are still at hand. The features'
gradient is added to memory; that of the weights stays in registers until they move. Where a label
reads more inputs than one tile holds, the gradient by the scores of one group is put aside.

Every label is taken for a negative. What is different for the few that rows do have is added to the
sums afterwards, some pairs of a row and a label at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from megalabel.neural.kernels.forms import (
    PTX,
    SQUARED_HINGE,
    negative_gradient,
    negative_value,
)
from megalabel.neural.kernels.groups import Groups, by_feature, inputs_of, on, weights_of
from megalabel.neural.kernels.operands import processors
from megalabel.neural.kernels.rounding import round_randomly, words_of
from megalabel.neural.kernels.tuning import GroupTuning

UNIT = tl.constexpr(4294967296.0)  # 1 in fixed point
LIMIT = tl.constexpr(1073741824.0)
NEVER = tl.constexpr(-1e30)  # the score of a place without a label: no loss has a gradient there
PAIRS = 16  # positives at a time: the least that the matrix units take
# by `GroupTuning.sums`: what the features' gradient is added up in, and in how many copies
SUMS = {"fixed": (torch.int64, 1), "float32": (torch.float32, 1), "float16": (torch.float16, 8)}


@triton.jit
def _value(scores, by_label, real, gamma, FORM: tl.constexpr):
    """The sum of the loss of labels that no row has."""
    value = negative_value(scores, gamma, FORM) * by_label[None, :]
    return tl.sum(tl.sum(tl.where(real[:, None], value, 0.0), axis=1), axis=0)


@triton.jit
def _folded(gradient, real, ACROSS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Sums of some rows: of those that one thread holds."""
    gradient = tl.where(real[:, None], gradient, 0.0)
    if ACROSS:
        return tl.sum(tl.sum(gradient.reshape(M // 8, 4, 2, N), axis=2), axis=0)
    else:
        return tl.sum(gradient.reshape(M // 16, 2, 8, N), axis=1).reshape(M // 2, N)


@triton.jit
def scattered(number):
    """The same numbers, of which the compiler does not know that they follow one another."""
    if PTX:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [number], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        return number


@triton.jit
def _add(sums, index, slot, row, stride, value, FAN: tl.constexpr):
    """Add a tile (slots, rows) to the features' gradient; beyond the batch these go nowhere.

    They are added too, as a limit within a row would keep additions from being made by vectors.
    """
    real = (slot < FAN)[:, None]
    if sums.dtype.element_ty == tl.int64:
        # integers are added one by one: neighbours must be of neighbouring threads, not of one
        at = index[:, None] * stride + scattered(row)[None, :]
    else:
        at = index[:, None] * stride + row[None, :]
    tl.atomic_add(sums + at, _summand(value, sums), mask=real, sem="relaxed")


@triton.jit
def _summand(value, sums):
    """A number as it is added up: in fixed point, or in a float's bits."""
    if sums.dtype.element_ty == tl.int64:
        return (tl.minimum(tl.maximum(value, -LIMIT), LIMIT) * UNIT).to(tl.int64)
    else:
        return value.to(sums.dtype.element_ty)


@triton.jit
def _teach(
    features,
    sums,
    weights,
    order,
    pair_place,
    pair_row,
    pair_score,
    pair_gradient,
    scale,
    first_place,
    first,
    last,
    slot_weights,
    index,
    inside,
    stride,
    moves,
    gamma,
    FORM: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    PAIRS: tl.constexpr,
    N: tl.constexpr,
):
    """Add what is different where rows do have a label: to sums, biases and weights."""
    by_bias = tl.zeros((N,), dtype=tl.float32)
    for pair in tl.range(first, last, PAIRS, num_stages=1):
        at = pair + tl.arange(0, PAIRS)
        real = at < last
        which = tl.load(order + at, mask=real, other=0)
        place = tl.load(pair_place + at, mask=real, other=0)
        row = tl.load(pair_row + which, mask=real, other=0)
        score = tl.load(pair_score + which, mask=real, other=0.0)
        absent = negative_gradient(score, gamma, FORM)
        if SCALE:
            absent *= tl.load(scale + place, mask=real, other=0.0)
        change = tl.load(pair_gradient + which, mask=real, other=0.0) - absent
        change = tl.where(real, change, 0.0)
        both = inside[:, None] & real[None, :]
        column = (place - first_place).to(tl.int32)
        w = tl.load(weights + slot_weights[:, None] + column[None, :], mask=both, other=0.0)
        by_input = _summand(w.to(tl.float32) * change[None, :], sums)
        where = index[:, None] * stride + row[None, :]
        tl.atomic_add(sums + where, by_input, mask=both, sem="relaxed")
        x = tl.load(features + where, mask=both, other=0.0)
        own = column[:, None] == tl.arange(0, N)[None, :]
        changes = tl.where(own, change[:, None], 0.0)
        by_bias += tl.sum(changes, axis=0)
        moves = tl.dot(x, changes.to(x.dtype), moves, input_precision=PRECISION)
    return by_bias, moves


@triton.jit
def _move(
    weights,
    velocity,
    gradient,
    settings,
    group,
    first_label,
    first_slot,
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
    slot = first_slot + tl.arange(0, K)
    column = first_column + tl.arange(0, N)
    at = (group * FAN + slot)[:, None] * GROUP + column[None, :]
    real = (slot < FAN)[:, None] & (column < GROUP)[None, :]
    label = first_label + group * GROUP  # what random bits are of
    rate = tl.load(settings)
    share = tl.load(settings + 1)
    decay = tl.load(settings + 2)
    HALF: tl.constexpr = weights.dtype.element_ty == tl.bfloat16
    # read again: kept in registers all the while, they would take the place of other work
    w = tl.load(weights + at, mask=real, other=0.0).to(tl.float32)
    if VELOCITY:
        before = tl.load(velocity + at, mask=real, other=0.0).to(tl.float32)
        move = gradient * share + tl.load(settings + 3) * before + decay * w
        if HALF:
            words = words_of(seed, step, 1, label, first_slot, first_column, GROUP, K, N)
            tl.store(velocity + at, round_randomly(move, words), mask=real)
        else:
            tl.store(velocity + at, move, mask=real)
        moved = w - rate * move
    else:
        moved = (w + (-rate * decay) * w) + gradient * (-rate * share)
    if HALF:
        words = words_of(seed, step, 0, label, first_slot, first_column, GROUP, K, N)
        tl.store(weights + at, round_randomly(moved, words), mask=real)
    else:
        tl.store(weights + at, moved, mask=real)


@triton.jit
def _train(
    features,
    sums,
    sums_of_pairs,
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
    aside,
    seed,
    first_label,
    rows,
    stride,
    units,
    copies,
    apart,
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
    WIDE: tl.constexpr,
    PAIRS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    parts: tl.constexpr = (GROUP + N - 1) // N
    whole: tl.constexpr = FAN <= K  # a tile holds all inputs
    # products of 64 labels by rows: the gradient is then at hand for that of labels by inputs
    across: tl.constexpr = N >= 64
    dtype: tl.constexpr = weights.dtype.element_ty
    tiles = tl.cdiv(rows, M)
    step = tl.load(counter).to(tl.int32)
    program = tl.program_id(0).to(tl.int64)
    wide = program * 0  # added to the numbers of loops: places of weights need 64 bits
    sums += program % copies * apart
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
        start = tl.where(known, shift, NEVER)
        # threads add up what they hold
        by_bias = tl.zeros((4, N) if across else (M // 2, N), dtype=tl.float32)
        if not whole:
            kept = aside + program * stride * N + tl.arange(0, N)[None, :]
            for tile in range(tiles):
                row = tile * M + tl.arange(0, M)
                scores = tl.zeros((M, N), dtype=tl.float32) + start[None, :]
                for first_slot in range(0, FAN, K):
                    slot = first_slot + tl.arange(0, K)
                    index = inputs_of(indices, group, slot, FAN, WIDE)
                    x = tl.load(
                        features + (index[:, None] * stride + row[None, :]),
                        mask=(slot < FAN)[:, None],
                        other=0.0,
                    )
                    w = weights_of(weights, group, slot, column, FAN, GROUP)
                    scores = tl.dot(x.T, w, scores, input_precision=PRECISION)
                gradient = negative_gradient(scores, gamma, FORM) * by_label[None, :]
                if VALUE:
                    total += _value(scores, by_label, row < rows, gamma, FORM)
                by_bias += _folded(gradient, row < rows, across, M, N)
                tl.store(kept + row[:, None] * N, gradient.to(dtype))
            tl.debug_barrier()  # what is put aside is read by other threads than wrote it
        taught = tl.zeros((N,), dtype=tl.float32)
        for first_slot in range(0, FAN, K):
            slot = first_slot + tl.arange(0, K)
            index = inputs_of(indices, group, slot, FAN, WIDE)
            w = weights_of(weights, group, slot, column, FAN, GROUP)
            moves = tl.zeros((N, K) if across else (K, N), dtype=tl.float32)
            for tile in range(tiles):
                row = tile * M + tl.arange(0, M)
                at = index[:, None] * stride + row[None, :]
                x = tl.load(features + at, mask=(slot < FAN)[:, None], other=0.0)
                if whole:
                    if across:
                        scores = tl.dot(w.T, x, input_precision=PRECISION).T + start[None, :]
                    else:
                        scores = tl.dot(x.T, w, input_precision=PRECISION) + start[None, :]
                    gradient = negative_gradient(scores, gamma, FORM) * by_label[None, :]
                    if VALUE:
                        total += _value(scores, by_label, row < rows, gamma, FORM)
                    by_bias += _folded(gradient, row < rows, across, M, N)
                    g = gradient.to(dtype)
                else:
                    g = tl.load(kept + row[:, None] * N)
                live = True
                if FORM == SQUARED_HINGE:  # most tiles have nothing to teach
                    live = tl.max(tl.max((g != 0.0).to(tl.int32), axis=1), axis=0) > 0
                if live:
                    by_input = tl.dot(w, g.T, input_precision=PRECISION)
                    _add(sums, index, slot, row, stride, by_input, FAN)
                    if across:
                        moves = tl.dot(g.T, x.T, moves, input_precision=PRECISION)
                    else:
                        moves = tl.dot(x, g, moves, input_precision=PRECISION)
            taught, moves = _teach(
                features,
                sums_of_pairs,
                weights,
                order,
                pair_place,
                pair_row,
                pair_score,
                pair_gradient,
                scale,
                group * GROUP + first_column,
                tl.load(starts + unit),
                tl.load(starts + unit + 1),
                (group * FAN + slot) * GROUP + first_column,
                index,
                slot < FAN,
                stride,
                moves.T if across else moves,
                gamma,
                FORM,
                SCALE,
                PRECISION,
                PAIRS,
                N,
            )
            if sums.dtype.element_ty == tl.int64:  # fixed point knows no NaN
                wrong = tl.sum(tl.sum(moves * 0.0, axis=1), axis=0)
                tl.atomic_max(lost, 1, mask=wrong != wrong, sem="relaxed")
            if UPDATE:
                _move(
                    weights,
                    velocity,
                    moves,
                    settings,
                    group,
                    first_label,
                    first_slot,
                    first_column,
                    seed,
                    step,
                    VELOCITY,
                    FAN,
                    GROUP,
                    K,
                    N,
                )
        if UPDATE and BIAS:
            total_of_rows = taught + tl.sum(by_bias, axis=0)
            moved = shift - tl.load(settings) * tl.load(settings + 4) * total_of_rows
            tl.store(bias + place, moved, mask=known)
    if VALUE:
        tl.store(partial + program, total)


@dataclass(frozen=True)
class Tiles:
    """How many rows of the batch, labels of a group and inputs of theirs come together.

    And how many programs there are on a multiprocessor, with how many registers a thread.
    """

    rows: int
    labels: int
    inputs: int
    resident: int
    registers: int


def tiles_for(rows: int, groups: Groups, tuning: GroupTuning) -> Tiles:
    """Tiles that fit the multiprocessor's registers and its shared memory, for any shape."""
    whole = groups.weights.dtype == torch.float32  # twice the memory, and products in three parts
    labels = min(64, max(16, triton.next_power_of_2(groups.size)))
    most = 64 if whole else 8192 // labels if labels > 32 else 256
    inputs = min(most, max(16, triton.next_power_of_2(groups.inputs)))
    area = tuning.area // 4 if whole else tuning.area // (1 + (tuning.sums == "fixed"))
    most = min(128, triton.next_power_of_2(max(rows, 1)))
    three = labels < 64 and not whole  # programs fit, where a third of the registers will do
    resident, registers = tuning.resident, tuning.registers
    return Tiles(
        max(16, min(most, area // inputs)),
        labels,
        inputs,
        (3 if three else 2) if resident is None else resident,
        (168 if three else 0) if registers is None else registers,
    )


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
    programs = min(units, tiles.resident * processors(device) if device.type == "cuda" else 4)
    x = by_feature(features, weights.dtype, tiles.rows)
    dtype, copies = SUMS[tuning.sums]
    sums = torch.zeros((copies, *x.shape), dtype=dtype, device=device)
    # there is no instruction that adds a single number of 16 bits
    sums_of_pairs = sums[0] if copies == 1 else torch.zeros_like(x, dtype=torch.float32)
    lost = torch.zeros((), dtype=torch.int32, device=device)
    partial = torch.empty(programs, dtype=torch.float32, device=device) if value else None
    aside = None
    if groups.inputs > tiles.inputs:
        aside = weights.new_empty((programs, x.shape[1], tiles.labels))
    starts, places, order = positives.located(tiles, groups)
    with on(device):
        _train[(programs,)](
            x,
            sums,
            sums_of_pairs,
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
            aside,
            seed,
            first_label,
            rows,
            x.shape[1],
            units,
            len(sums),
            sums[0].numel(),
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
            WIDE=sums[0].numel() >= 1 << 31,
            PAIRS=PAIRS,
            M=tiles.rows,
            N=tiles.labels,
            K=tiles.inputs,
            num_warps=tuning.warps,
            num_stages=tuning.stages,
            **({"maxnreg": tiles.registers} if tiles.registers else {}),
        )
    if dtype == torch.int64:
        floats = sums[0, :, :rows].double() / UNIT.value
        total = floats.masked_fill_(lost > 0, torch.nan).float()
    else:
        total = sums.sum(0, dtype=torch.float32)[:, :rows]
        if copies > 1:
            total += sums_of_pairs[:, :rows]
    return total.T.contiguous(), partial
