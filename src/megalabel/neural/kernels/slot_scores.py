"""How much each input of a group matters to its labels: what rewiring prunes by."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from megalabel.neural.kernels.groups import Groups, on, weights_of


@triton.jit
def _slot_scores(
    weights,
    labels,
    out,
    FAN: tl.constexpr,
    GROUP: tl.constexpr,
    LARGEST: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    group = tl.program_id(0).to(tl.int64)
    for first in range(0, FAN, K):
        slot = first + tl.arange(0, K)
        sums = tl.zeros((K,), dtype=tl.float32)
        known = 0
        for first_column in range(0, GROUP, N):
            column = first_column + tl.arange(0, N)
            real = tl.load(labels + group * GROUP + column, mask=column < GROUP, other=-1) >= 0
            known += tl.sum(real.to(tl.int32), axis=0)
            w = tl.abs(weights_of(weights, group, slot, column, FAN, GROUP).to(tl.float32))
            w = tl.where(real[None, :], w, 0.0)
            if LARGEST:
                sums = tl.maximum(sums, tl.max(w, axis=1))
            else:
                sums += tl.sum(w, axis=1)
        if not LARGEST:
            sums /= tl.maximum(known, 1).to(tl.float32)
        tl.store(out + group * FAN + slot, sums, mask=slot < FAN)


def slot_scores(groups: Groups, *, largest: bool = False) -> Tensor:
    """(groups, inputs) float32: the mean size of an input's weights over a group's labels.

    With `largest` the size of the largest; places without a label do not count. No matrix of all
    weights' sizes is made on the way.
    """
    out = torch.empty(groups.weights.shape[:2], dtype=torch.float32, device=groups.weights.device)
    with on(out.device):
        _slot_scores[(len(groups),)](
            groups.weights,
            groups.labels,
            out,
            FAN=groups.inputs,
            GROUP=groups.size,
            LARGEST=largest,
            N=min(64, triton.next_power_of_2(groups.size)),
            K=min(128, triton.next_power_of_2(groups.inputs)),
            num_warps=4,
        )
    return out
