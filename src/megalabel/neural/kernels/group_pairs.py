"""The exact scores of the few labels that rows do have, where labels are in groups."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from megalabel.neural.kernels.groups import Groups, inputs_of, on


@triton.jit
def _pairs(
    features,
    indices,
    weights,
    bias,
    row,
    place,
    out,
    width: tl.constexpr,
    FAN: tl.constexpr,
    GROUP: tl.constexpr,
    BIAS: tl.constexpr,
    K: tl.constexpr,
):
    pair = tl.program_id(0)
    at = tl.load(place + pair).to(tl.int64)
    group = at // GROUP
    x = features + tl.load(row + pair).to(tl.int64) * width
    sums = tl.zeros((K,), dtype=tl.float32)
    for first_slot in range(0, FAN, K):
        slot = first_slot + tl.arange(0, K)
        index = inputs_of(indices, group, slot, FAN, True)
        inside = slot < FAN
        w = tl.load(weights + (group * FAN + slot) * GROUP + at % GROUP, mask=inside, other=0.0)
        sums += w.to(tl.float32) * tl.load(x + index, mask=inside, other=0.0).to(tl.float32)
    score = tl.sum(sums, axis=0)
    if BIAS:
        score += tl.load(bias + at)
    tl.store(out + pair, score)


def pair_scores(features: Tensor, groups: Groups, row: Tensor, place: Tensor) -> Tensor:
    """The scores of pairs of a row of features, which are in the weights' type, and a place."""
    out = torch.empty(len(row), dtype=torch.float32, device=features.device)
    if len(row):
        with on(out.device):
            _pairs[(len(row),)](
                features,
                groups.indices,
                groups.weights,
                groups.bias,
                row,
                place,
                out,
                width=features.shape[1],
                FAN=groups.inputs,
                GROUP=groups.size,
                BIAS=groups.bias is not None,
                K=min(256, triton.next_power_of_2(groups.inputs)),
                num_warps=1,
            )
    return out
