"""The loss's gradient by scores that are already there, written over them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from megalabel.neural.kernels.forms import SOFTMAX, negative_gradient, negative_value


@triton.jit
def _negatives(
    scores,
    bias,
    scale,
    shift,
    partial,
    labels,
    stride,
    gamma,
    FORM: tl.constexpr,
    BIAS: tl.constexpr,
    SCALE: tl.constexpr,
    VALUE: tl.constexpr,
    N: tl.constexpr,
):
    row = tl.program_id(1)
    label = tl.program_id(0) * N + tl.arange(0, N)
    real = label < labels
    at = scores + row * stride + label
    s = tl.load(at, mask=real, other=0.0).to(tl.float32)
    if BIAS:
        s += tl.load(bias + label, mask=real, other=0.0)
    if FORM == SOFTMAX:
        s = s * gamma - tl.load(shift + row)
    gradient = negative_gradient(s, gamma, FORM)
    if SCALE:
        by_label = tl.load(scale + label, mask=real, other=0.0)
        gradient *= by_label
    if VALUE:
        value = negative_value(s, gamma, FORM)
        if SCALE:
            value *= by_label
        at_value = partial + row * tl.num_programs(0) + tl.program_id(0)
        tl.store(at_value, tl.sum(tl.where(real, value, 0.0), axis=0))
    tl.store(at, gradient.to(scores.dtype.element_ty), mask=real)


def gradients_in_place(
    scores: torch.Tensor,
    *,
    form: int,
    bias: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    shift: torch.Tensor | None = None,
    gamma: float = 0.0,
    value: bool = False,
    block: int = 2048,
) -> torch.Tensor | None:
    """Overwrite (rows, labels) scores by the gradient, as `scores.score_gradients` gives it."""
    rows, labels = scores.shape
    blocks = triton.cdiv(labels, block)
    partial = (
        torch.empty(rows * blocks, dtype=torch.float32, device=scores.device) if value else None
    )
    _negatives[(blocks, rows)](
        scores,
        bias,
        scale,
        shift,
        partial,
        labels,
        scores.stride(0),
        gamma,
        FORM=form,
        BIAS=bias is not None,
        SCALE=scale is not None,
        VALUE=value,
        N=block,
        num_warps=8,
    )
    return partial
