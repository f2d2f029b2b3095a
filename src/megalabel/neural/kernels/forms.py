"""The losses of a label that a text does not have, by its score, for use in kernels."""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

LOGISTIC = tl.constexpr(0)
SQUARED_HINGE = tl.constexpr(1)
FOCAL = tl.constexpr(2)
SOFTMAX = tl.constexpr(3)
NORMALISER = tl.constexpr(4)  # no gradient: the logarithm of the sum of exponentials

# the forms that a loss may declare, by name (losses.base.Form)
KINDS = {
    "logistic": LOGISTIC.value,
    "squared-hinge": SQUARED_HINGE.value,
    "focal": FOCAL.value,
    "softmax": SOFTMAX.value,
}

# neither Triton's interpreter nor a GPU of another maker reads PTX
PTX = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)


@triton.jit
def sigmoid(s):
    """1 / (1 + exp(-s)); in PTX without the care that tiny and huge quotients need, as none occur.

    A third of the instructions: this is done for every label of every row.
    """
    if PTX:
        return tl.inline_asm_elementwise(
            """{
            .reg .f32 t;
            mul.f32 t, $1, 0fBFB8AA3B;
            ex2.approx.ftz.f32 t, t;
            add.f32 t, t, 0f3F800000;
            rcp.approx.ftz.f32 $0, t;
            }""",
            "=f,f",
            [s],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return 1.0 / (1.0 + tl.exp(tl.minimum(-s, 80.0)))


@triton.jit
def softplus(s):
    """log(1 + exp(s)), without overflow and without a logarithm, which takes long.

    log(1 + t) / t is a polynomial to 3e-7 where t is in [0, 1], so that tiny values are right too:
    there are many of them.
    """
    t = tl.exp(-tl.abs(s))
    series = 0.0434938998 - 0.00837115255 * t
    series = -0.106850029 + series * t
    series = 0.176874767 + series * t
    series = -0.244747742 + series * t
    series = 0.332719284 + series * t
    series = -0.499971745 + series * t
    series = 0.999999781 + series * t
    return tl.maximum(s, 0.0) + t * series


@triton.jit
def negative_gradient(s, gamma, FORM: tl.constexpr):
    """The derivative by the score; for SOFTMAX s is the score less the row's normaliser."""
    if FORM == LOGISTIC:
        return sigmoid(s)
    elif FORM == SQUARED_HINGE:
        return 2.0 * tl.maximum(1.0 + s, 0.0)
    elif FORM == FOCAL:
        rest = softplus(s)  # -log(1 - p)
        log_p = s - rest
        p = tl.exp(log_p)
        return tl.exp(gamma * log_p) * (gamma * (1.0 - p) * rest + p)
    else:
        return tl.exp(s)


@triton.jit
def negative_value(s, gamma, FORM: tl.constexpr):
    """The loss itself (nothing for SOFTMAX, whose value comes from the normaliser)."""
    if FORM == LOGISTIC:
        return softplus(s)
    elif FORM == SQUARED_HINGE:
        margin = tl.maximum(1.0 + s, 0.0)
        return margin * margin
    elif FORM == FOCAL:
        rest = softplus(s)
        return tl.exp(gamma * (s - rest)) * rest
    else:
        return s * 0.0
