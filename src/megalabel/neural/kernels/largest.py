"""The largest of many 64-bit keys in each row: of blocks of them first, then of what is left."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from megalabel.neural.kernels.groups import on

BLOCK = 4096
NONE = -(2**63)
"""The key of nothing, below all others."""
_TOP = tl.constexpr(NONE)


@triton.jit
def _select(keys, out, count, blocks, k, BLOCK: tl.constexpr):
    row = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    place = block * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + row.to(tl.int64) * count + place, mask=place < count, other=_TOP)
    # as numbers without a sign the threshold is found from its highest bit to its lowest
    number = (key ^ _TOP).to(tl.uint64, bitcast=True)
    threshold = tl.full((1,), 0, dtype=tl.uint64)
    bit = tl.full((1,), 1, dtype=tl.uint64)
    bit = bit << 63
    above = tl.sum((number > 0).to(tl.int32), axis=0)
    left = 64
    while (left > 0) & (above > k):  # most often so many are above it long before the last bit
        tried = threshold | bit
        bit = bit >> 1
        left -= 1
        reached = tl.sum((number >= tried).to(tl.int32), axis=0)
        threshold = tl.where(reached >= k, tried, threshold)
        above = tl.where(reached >= k, reached, above)
    taken = (number >= threshold) & (number > 0)
    at = tl.cumsum(taken.to(tl.int32), axis=0) - 1
    here = out + (row.to(tl.int64) * blocks + block) * k
    tl.store(here + at, key, mask=taken & (at < k))


def largest(keys: Tensor, k: int, order: bool = True) -> Tensor:
    """(rows, k): the largest of each row's int64 keys, in descending order.

    Keys of a row are all different, but for `NONE`, of which there may be many. Without `order`
    there may be up to as many again that are not among the largest, and they come in any order.
    """
    k = min(k, keys.shape[1])
    while keys.shape[1] > 2 * k:
        if k > BLOCK // 4:  # too many to be held by a program
            return keys.topk(k, dim=1).values
        rows, count = keys.shape
        block = min(BLOCK, triton.next_power_of_2(count))
        blocks = triton.cdiv(count, block)
        out = torch.full((rows, blocks * k), NONE, dtype=torch.int64, device=keys.device)
        with on(keys.device):
            _select[(rows * blocks,)](
                keys.contiguous(), out, count, blocks, k, BLOCK=block, num_warps=8
            )
        keys = out
    return keys.sort(dim=1, descending=True).values[:, :k] if order else keys
