"""Unbiased stochastic rounding to bfloat16, for use in kernels."""

from __future__ import annotations

import triton
import triton.language as tl

ROUNDS = tl.constexpr(
    7
)  # the fewest with which Philox passes BigCrush (Salmon et al. 2011, table 2)


@triton.jit
def random_halves(seed, step, stream, label, first_column, M: tl.constexpr, N: tl.constexpr):
    """(M, N) integers of 16 random bits, a function of seed, step, stream, label and column.

    One call of the generator gives the bits of eight columns, which one thread also loads and
    stores together.
    """
    group = first_column // 8 + tl.arange(0, N // 8)
    place = tl.zeros((M, N // 8), dtype=tl.int32)
    a, b, c, d = tl.philox(
        seed, place + label[:, None], place + group[None, :], step, stream, ROUNDS
    )
    words = tl.join(tl.join(a, b), tl.join(c, d))
    return tl.join(words & 0xFFFF, words >> 16).reshape(M, N)


@triton.jit
def round_randomly(x, halves):
    """A bfloat16 neighbour of x, of which x is the mean; bfloat16 numbers stay as they are."""
    bits = x.to(tl.uint32, bitcast=True)
    # an infinity stays one when bits are added below its own; a NaN might not
    bits += tl.where(x == x, halves, 0)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
