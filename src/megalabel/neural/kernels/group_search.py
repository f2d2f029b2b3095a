"""The best labels of rows, where labels are in groups: all weights are read once, in order.

Of each block of labels (a group, or several small ones) only the best is written. The k best labels
of a row are in the k blocks whose best are best, so those blocks alone are scored again.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from megalabel.neural.kernels.groups import Groups, by_feature, inputs_of, on, weights_of
from megalabel.neural.kernels.largest import NONE, largest
from megalabel.neural.kernels.operands import processors
from megalabel.neural.kernels.tuning import GroupTuning

BLOCK = 32  # labels of a block at least
MORE = 8  # blocks more than labels wanted: sums in another order differ in their last bits
ROWS = 64  # at a time
_NONE = tl.constexpr(NONE)


@triton.jit
def _key(score, label):
    """One integer: the score's bits in the order of floats, then the label from high to low."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    return tl.where(label >= 0, (ordered << 32) | (0x7FFFFFFF - label).to(tl.int64), _NONE)


@triton.jit
def _best(
    features,
    indices,
    weights,
    labels,
    bias,
    group,
    first_column,
    row,
    stride,
    FAN: tl.constexpr,
    GROUP: tl.constexpr,
    BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """The key of the best label of a group (at most N labels of it) for each row."""
    column = first_column + tl.arange(0, N)
    place = group * GROUP + column
    label = tl.load(labels + place, mask=column < GROUP, other=-1)
    scores = tl.zeros((M, N), dtype=tl.float32)
    for first_slot in tl.static_range(0, FAN, K):
        slot = first_slot + tl.arange(0, K)
        index = inputs_of(indices, group, slot, FAN, True)
        w = weights_of(weights, group, slot, column, FAN, GROUP)
        read = features + index[:, None] * stride + row[None, :]
        x = tl.load(read, mask=(slot < FAN)[:, None], other=0.0)
        scores = tl.dot(x.T, w, scores, input_precision=PRECISION)
    if BIAS:
        scores += tl.load(bias + place, mask=label >= 0, other=0.0)[None, :]
    scores = tl.where((label >= 0)[None, :], scores, -float("inf"))
    top = tl.max(scores, axis=1)
    ties = (scores == top[:, None]) & (label >= 0)[None, :]
    lowest = tl.min(tl.where(ties, label[None, :], 0x7FFFFFFF), axis=1)
    return _key(top, tl.where(lowest < 0x7FFFFFFF, lowest, -1))


@triton.jit
def _search(
    features,
    indices,
    weights,
    labels,
    bias,
    keys,
    rows,
    stride,
    groups,
    blocks,
    FAN: tl.constexpr,
    GROUP: tl.constexpr,
    EACH: tl.constexpr,
    BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    STAGES: tl.constexpr,
):
    parts: tl.constexpr = (GROUP + N - 1) // N
    row = tl.program_id(1) * M + tl.arange(0, M)
    wide = tl.program_id(0).to(tl.int64) * 0  # places of weights need 64 bits
    for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=STAGES):
        if EACH * parts == 1:
            best = _best(
                features,
                indices,
                weights,
                labels,
                bias,
                block + wide,
                0,
                row,
                stride,
                FAN,
                GROUP,
                BIAS,
                PRECISION,
                M,
                N,
                K,
            )
        else:
            best = tl.full((M,), _NONE, dtype=tl.int64)
            last = tl.minimum(EACH, groups - block * EACH) * parts
            for part in range(last):
                other = _best(
                    features,
                    indices,
                    weights,
                    labels,
                    bias,
                    (block + wide) * EACH + part // parts,
                    part % parts * N,
                    row,
                    stride,
                    FAN,
                    GROUP,
                    BIAS,
                    PRECISION,
                    M,
                    N,
                    K,
                )
                best = tl.maximum(best, other)
        tl.store(keys + row.to(tl.int64) * blocks + block, best, mask=row < rows)


@triton.jit
def _again(
    features,
    indices,
    weights,
    labels,
    bias,
    best,
    places,
    keys,
    count,
    groups,
    width: tl.constexpr,
    FAN: tl.constexpr,
    GROUP: tl.constexpr,
    EACH: tl.constexpr,
    BIAS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """The keys of all labels of the block that one of a row's best labels is in."""
    parts: tl.constexpr = (GROUP + N - 1) // N
    row = (tl.program_id(0) // count).to(tl.int64)
    key = tl.load(best + tl.program_id(0))
    found = key > _NONE
    first = tl.load(places + (0x7FFFFFFF - (key & 0xFFFFFFFF)), mask=found, other=-1)
    block = tl.where(found, first // (GROUP * EACH), -1).to(tl.int64)
    for part in range(EACH * parts):
        group = block * EACH + part // parts
        column = part % parts * N + tl.arange(0, N)
        here = (block >= 0) & (group < groups)
        real = column < tl.where(here, GROUP, 0)
        place = group * GROUP + column
        label = tl.load(labels + place, mask=real, other=-1)
        scores = tl.zeros((N,), dtype=tl.float32)
        if here:
            for first_slot in range(0, FAN, K):
                slot = first_slot + tl.arange(0, K)
                index = inputs_of(indices, group, slot, FAN, True)
                w = weights_of(weights, group, slot, column, FAN, GROUP).to(tl.float32)
                x = tl.load(features + row * width + index, mask=slot < FAN, other=0.0)
                scores += tl.sum(w * x.to(tl.float32)[:, None], axis=0)
            if BIAS:
                scores += tl.load(bias + place, mask=real, other=0.0)
        at = (tl.program_id(0).to(tl.int64) * EACH * parts + part) * N + tl.arange(0, N)
        tl.store(keys + at, _key(scores, label))


def cut(tuning: GroupTuning, rows: int, labels: int) -> tuple[int, int]:
    """Warps of a program and programs on a multiprocessor, for a tile of rows by labels.

    Of few rows all time is reading weights: the more programs, the more reads under way.
    """
    few = rows <= 16
    warps = tuning.search_warps or (max(1, labels // 32) if few else 4)
    return warps, tuning.search_resident or (16 // warps if few else 4)


def top_groups(
    features: Tensor, groups: Groups, k: int, tuning: GroupTuning
) -> tuple[Tensor, Tensor]:
    """Scores (rows, k) and labels of each row's best labels, best first, ties to the lower label.

    float32 and int64. Where there are fewer labels than k, minus infinity and -1 fill the rows up.
    """
    size = groups.size
    labels = min(64, max(16, triton.next_power_of_2(size)))
    each = max(1, BLOCK // size)
    inputs = min(64 if groups.weights.dtype == torch.float32 else 128,
                 max(16, triton.next_power_of_2(groups.inputs)))  # fmt: skip
    found = []
    for part in features.to(groups.weights.dtype).split(4 * ROWS):
        found.append(_top(part.contiguous(), groups, k, each, labels, inputs, tuning))
    keys = torch.cat(found) if found else torch.empty((0, k), dtype=torch.int64)
    none = keys == NONE
    scores, ids = decoded(keys.masked_fill(none, 0))
    return scores.masked_fill(none, -torch.inf), ids.masked_fill(none, -1)


def _top(
    features: Tensor,
    groups: Groups,
    k: int,
    each: int,
    labels: int,
    inputs: int,
    tuning: GroupTuning,
) -> Tensor:
    """(rows, k) keys of the best labels, in descending order."""
    rows, width = features.shape
    device, size = features.device, groups.size
    tile = min(ROWS, max(16, triton.next_power_of_2(rows)))
    x = by_feature(features, features.dtype, tile)
    blocks = triton.cdiv(len(groups), each)
    keys = torch.empty((rows, blocks), dtype=torch.int64, device=device)
    warps, resident = cut(tuning, tile, labels)
    resident = resident * processors(device) if device.type == "cuda" else 4
    shared = {
        "FAN": groups.inputs,
        "GROUP": size,
        "EACH": each,
        "BIAS": groups.bias is not None,
        "N": labels,
        "K": inputs,
    }
    arrays = (groups.indices, groups.weights, groups.labels, groups.bias)
    with on(device):
        _search[(min(blocks, resident), x.shape[1] // tile)](
            x,
            *arrays,
            keys,
            rows,
            x.shape[1],
            len(groups),
            blocks,
            PRECISION="tf32" if features.dtype == torch.bfloat16 else "tf32x3",
            M=tile,
            STAGES=tuning.search_stages,
            num_warps=warps,
            **shared,
        )
        best = largest(keys, k + MORE, order=False)
        count = best.shape[1]
        parts = triton.cdiv(size, labels)
        keys = torch.empty((rows, count * each * parts * labels), dtype=torch.int64, device=device)
        _again[(rows * count,)](
            features,
            *arrays,
            best,
            groups.places,
            keys,
            count,
            len(groups),
            width=width,
            num_warps=4,
            **shared,
        )
    best = largest(keys, k)
    if best.shape[1] < k:
        best = torch.nn.functional.pad(best, (0, k - best.shape[1]), value=NONE)
    return best


def decoded(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The scores and the labels that keys are of."""
    ordered, labels = keys >> 32, 0x7FFFFFFF - (keys & 0xFFFFFFFF)
    bits = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered)
    return bits.to(torch.int32).view(torch.float32), labels
