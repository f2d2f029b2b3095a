"""The features' gradient: a product whose long side, the labels, is split over programs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from megalabel.neural.kernels.operands import operand, processors
from megalabel.neural.kernels.tuning import Tile


@triton.jit
def _accumulate(
    gradient,
    weights,
    sums,
    rows,
    labels,
    stride,
    per_split,
    width: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    # programs of one split read the same labels, so they are neighbours
    row_tiles = tl.cdiv(rows, M)
    width_tiles: tl.constexpr = (width + N - 1) // N
    row_tile = tl.program_id(0) % row_tiles
    width_tile = tl.program_id(0) // row_tiles % width_tiles
    split = tl.program_id(0) // (row_tiles * width_tiles)
    row = row_tile * M + tl.arange(0, M)
    column = width_tile * N + tl.arange(0, N)
    # every split adds to a sum of its own, chunk after chunk: the order is always the same
    at = sums + (split * rows + row[:, None]) * width + column[None, :]
    real = (row < rows)[:, None] & (column < width)[None, :]
    part = tl.load(at, mask=real, other=0.0)
    for k in range(split * per_split, min((split + 1) * per_split, labels), K):
        if DESCRIPTORS:
            g = gradient.load([row_tile * M, k])
            w = weights.load([k, width_tile * N])
        else:
            label = k + tl.arange(0, K)
            g = tl.load(
                gradient + row[:, None] * stride + label[None, :],
                mask=(row < rows)[:, None] & (label < labels)[None, :],
                other=0.0,
            )
            w = tl.load(
                weights + label[:, None] * width + column[None, :],
                mask=(label < labels)[:, None] & (column < width)[None, :],
                other=0.0,
            )
        part = tl.dot(g, w, part)
    tl.store(at, part, mask=real)


def splits_for(device: torch.device, rows: int, width: int, tile: Tile) -> int:
    """So many splits that every multiprocessor has two programs."""
    tiles = triton.cdiv(rows, tile.m) * triton.cdiv(width, tile.n)
    return max(1, 2 * processors(device) // int(tiles))


def accumulate_features(
    gradient: torch.Tensor,
    weights: torch.Tensor,
    sums: torch.Tensor,
    *,
    tile: Tile,
    descriptors: bool = False,
) -> None:
    """Add gradient @ weights to `sums` (splits, rows, width), of which the whole is the sum.

    Each split has a range of the chunk's labels; results do not depend on timing.
    """
    splits, rows, width = sums.shape
    labels = len(weights)
    per_split = triton.cdiv(triton.cdiv(labels, tile.k), splits) * tile.k
    _accumulate[(triton.cdiv(rows, tile.m) * triton.cdiv(width, tile.n) * splits,)](
        operand(gradient[:, :labels], (tile.m, tile.k), descriptors),
        operand(weights, (tile.k, tile.n), descriptors),
        sums,
        rows,
        labels,
        gradient.stride(0),
        per_split,
        width=width,
        DESCRIPTORS=descriptors,
        M=tile.m,
        N=tile.n,
        K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
