"""Stochastic rounding in plain torch, with the random bits that the kernels use."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS, FACTOR = 7, 0xADB4A92D  # as in kernels/rounding.py
_WORD = 0xFFFFFFFF


def _multiply(factor: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of a product of two 32-bit words."""
    product = word * factor  # wraps around at 64 bits, which leaves the bits right
    return (product >> 32) & _WORD, product & _WORD


def philox(seed: int, counter: tuple[Tensor, Tensor, int, int]) -> tuple[Tensor, ...]:
    """Four words of 32 random bits for each counter (Salmon et al. 2011), as int64."""
    a, b = (word & _WORD for word in counter[:2])
    c, d = (torch.full_like(a, word & _WORD) for word in counter[2:])
    low, high = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(ROUNDS):
        c_high, c_low = _multiply(0xCD9E8D57, c)
        a_high, a_low = _multiply(0xD2511F53, a)
        a, b, c, d = c_high ^ b ^ low, c_low, a_high ^ d ^ high, a_low
        low, high = (low + 0x9E3779B9) & _WORD, (high + 0xBB67AE85) & _WORD
    return a, b, c, d


def random_halves(seed: int, step: int, stream: int, labels: Tensor, width: int) -> Tensor:
    """(labels, width) integers of 16 random bits: a function of seed, step, label and column.

    `stream` tells apart what is rounded in one step: weights, moments. A call of the generator
    gives a word each to eight columns in a row, in four places 64 columns apart; the numbers of the
    eight are a multiplicative generator's that starts with their word.
    """
    blocks = -(-width // 256)
    group = torch.arange(blocks * 8, device=labels.device)
    place = torch.zeros((len(labels), len(group)), dtype=torch.int64, device=labels.device)
    drawn = philox(seed, (place + labels[:, None], place + group, step, stream))
    words = torch.stack([word.reshape(len(labels), blocks, 8) for word in drawn], dim=2)
    factors = torch.tensor([pow(FACTOR, turn, 2**32) for turn in range(8)], device=labels.device)
    numbers = (words[..., None] * factors) & _WORD
    return (numbers >> 16).reshape(len(labels), -1)[:, :width]


def round_randomly(x: Tensor, halves: Tensor) -> Tensor:
    """A bfloat16 neighbour of each float32, of which it is the mean; exact values stay.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads.steps.rounding import round_randomly
    >>> round_randomly(torch.tensor([1.5, 1 + 2**-9]), torch.tensor([0xFFFF, 0xC000])).tolist()
    [1.5, 1.0078125]
    """
    bits = x.float().contiguous().view(torch.int32)
    finite = (bits & 0x7F800000) != 0x7F800000
    rounded = (bits + halves.to(torch.int32)) & ~0xFFFF
    return torch.where(finite, rounded.view(torch.float32), x).to(torch.bfloat16)
