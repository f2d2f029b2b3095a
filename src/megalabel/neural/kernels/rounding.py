"""Unbiased stochastic rounding to bfloat16, for use in kernels."""

from __future__ import annotations

import triton
import triton.language as tl

from megalabel.neural.kernels.forms import PTX

ROUNDS = tl.constexpr(
    7
)  # the fewest with which Philox passes BigCrush (Salmon et al. 2011, table 2)

# a multiplier whose numbers fill the plane evenly at every distance (Steele and Vigna 2022), and
# its second and fourth power, modulo 2**32
FACTOR = tl.constexpr(0xADB4A92D)
FACTOR_2 = tl.constexpr(0xADB4A92D**2 % 2**32)
FACTOR_4 = tl.constexpr(0xADB4A92D**4 % 2**32)


@triton.jit
def draw(seed, step, stream, label, first_column, M: tl.constexpr, N: tl.constexpr):
    """Four (M, N // 8) matrices of random words, for up to four times N columns.

    Random bits cost more than all else that is done to a weight, so one call of the generator
    serves 32 of them: a word each for eight columns in a row, in four places 64 columns apart.
    """
    group = first_column // 256 * 8 + first_column % 64 // 8 + tl.arange(0, N // 8)
    place = tl.zeros((M, N // 8), dtype=tl.int32)
    return tl.philox(seed, place + label[:, None], place + group[None, :], step, stream, ROUNDS)


@triton.jit
def spread(drawn, first_column, M: tl.constexpr, N: tl.constexpr):
    """(M, N) words whose upper halves are 16 random bits, for N columns (at most 64) of a draw.

    The numbers of eight columns are a multiplicative generator's that starts with their word.
    """
    which = first_column // 64 % 4
    a, b, c, d = drawn
    word = tl.where(which < 2, tl.where(which == 0, a, b), tl.where(which == 2, c, d))
    turn = tl.arange(0, 8)
    factor = tl.where(turn & 1 != 0, FACTOR, 1).to(tl.uint32)
    factor *= tl.where(turn & 2 != 0, FACTOR_2, 1).to(tl.uint32)
    factor *= tl.where(turn & 4 != 0, FACTOR_4, 1).to(tl.uint32)
    return (word.to(tl.uint32)[:, :, None] * factor[None, None, :]).reshape(M, N)


@triton.jit
def fresh(number):
    """The same numbers, as if they came from elsewhere.

    What is worked out from them is not kept in registers through a loop where it never changes,
    nor worked out again by every thread that needs it.
    """
    if PTX:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [number], dtype=number.dtype, is_pure=False, pack=1
        )
    else:
        return number


@triton.jit
def words_of(
    seed,
    step,
    stream,
    label,
    first_slot,
    first_column,
    GROUP: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    """(M, N) such words for weights (slots, labels of a group), those of slots one after another.

    What they are of is the group's first label and the place in the group's whole row of weights.
    """
    EACH: tl.constexpr = 8 if GROUP % 8 == 0 else 1  # weights that a word serves
    TURN: tl.constexpr = 256 // GROUP  # slots whose words come from the same calls
    WHOLE: tl.constexpr = N == GROUP and GROUP % 8 == 0 and GROUP <= 64 and M % TURN == 0
    EVERY: tl.constexpr = 4 if WHOLE else 1
    slot = tl.arange(0, M // EVERY)
    if WHOLE:
        slot = slot // (TURN // 4) * TURN + slot % (TURN // 4)
    first = first_column + tl.arange(0, N // EACH) * EACH
    place = (fresh(first_slot + slot))[:, None] * GROUP + first[None, :]
    number = tl.zeros((M // EVERY, N // EACH), dtype=tl.int32) + label.to(tl.int32)
    draws = place // 256 * 8 + place % 64 // 8
    a, b, c, d = tl.philox(seed, number, draws, step, stream, ROUNDS)
    if WHOLE:  # the four words of a call are of four runs of slots
        word = tl.join(tl.join(a, c), tl.join(b, d))
        word = word.reshape(M // TURN, TURN // 4, N // EACH, 4).permute(0, 3, 1, 2)
        word = word.reshape(M, N // EACH)
        turn = tl.zeros((M, N // EACH), dtype=tl.int32)
    else:
        which = place // 64 % 4
        word = tl.where(which < 2, tl.where(which == 0, a, b), tl.where(which == 2, c, d))
        turn = place % 8
    turn = turn[:, :, None] + tl.arange(0, EACH)[None, None, :]
    factor = tl.where(turn & 1 != 0, FACTOR, 1).to(tl.uint32)
    factor *= tl.where(turn & 2 != 0, FACTOR_2, 1).to(tl.uint32)
    factor *= tl.where(turn & 4 != 0, FACTOR_4, 1).to(tl.uint32)
    return (fresh(word.to(tl.uint32))[:, :, None] * factor).reshape(M, N)


@triton.jit
def round_randomly(x, words):
    """A bfloat16 neighbour of x, of which x is the mean; bfloat16 numbers stay as they are."""
    if PTX:
        # two at a time; a NaN, whose bits might overflow, takes its neighbour along
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b;
            .reg .pred lost;
            shr.u32 a, $3, 16;
            shr.u32 b, $4, 16;
            add.u32 a, a, $1;
            add.u32 b, b, $2;
            prmt.b32 a, a, b, 0x7632;
            setp.nan.f32 lost, $5, $6;
            selp.b32 $0, 0x7FFF7FFF, a, lost;
            }""",
            "=r,r,r,r,r,f,f",
            [x.to(tl.uint32, bitcast=True), words, x],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        bits = x.to(tl.uint32, bitcast=True)
        bits += tl.where(x == x, words >> 16, 0)
        return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
