"""The few labels that rows do have: their exact scores, and their gradients put in place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _pair_scores(features, weights, row, label, out, width: tl.constexpr, K: tl.constexpr):
    pair = tl.program_id(0)
    x = features + tl.load(row + pair).to(tl.int64) * width
    w = weights + tl.load(label + pair).to(tl.int64) * width
    sums = tl.zeros((K,), dtype=tl.float32)
    for k in range(0, width, K):
        column = k + tl.arange(0, K)
        inside = column < width
        a = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        sums += a * b
    tl.store(out + pair, tl.sum(sums, axis=0))


@triton.jit
def _patch(gradient, row, label, value, pairs, first, last, stride, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = pair < pairs
    r = tl.load(row + pair, mask=real, other=0).to(tl.int64)
    c = tl.load(label + pair, mask=real, other=-1).to(tl.int64)
    v = tl.load(value + pair, mask=real, other=0.0)
    here = real & (c >= first) & (c < last)
    tl.store(gradient + r * stride + (c - first), v.to(gradient.dtype.element_ty), mask=here)


def pair_scores(
    features: torch.Tensor, weights: torch.Tensor, row: torch.Tensor, label: torch.Tensor
) -> torch.Tensor:
    """The products of pairs of rows of two matrices, summed in float32."""
    out = torch.empty(len(row), dtype=torch.float32, device=features.device)
    if len(row):
        width = features.shape[1]
        block = min(1024, triton.next_power_of_2(width))
        _pair_scores[(len(row),)](features, weights, row, label, out, width=width, K=block)
    return out


def patch(
    gradient: torch.Tensor,
    row: torch.Tensor,
    label: torch.Tensor,
    value: torch.Tensor,
    first: int,
    last: int,
) -> None:
    """Set gradient[row, label - first] to value for the pairs whose label is in [first, last)."""
    if len(row):
        grid = (triton.cdiv(len(row), 256),)
        _patch[grid](gradient, row, label, value, len(row), first, last, gradient.stride(0), 256)
