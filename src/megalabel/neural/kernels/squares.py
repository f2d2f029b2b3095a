"""The mean square of each label's gradient, which itself never leaves the kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from megalabel.neural.kernels.operands import operand, programs
from megalabel.neural.kernels.tuning import Tile
from megalabel.neural.kernels.update import gradient_tile


@triton.jit
def _squares(
    gradient,
    features,
    sums,
    rows,
    labels,
    stride,
    width: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    width_tiles: tl.constexpr = (width + N - 1) // N
    tiles = tl.cdiv(labels, M) * width_tiles
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        width_tile = tile % width_tiles
        first = tile // width_tiles * M
        # columns beyond the width are zeros
        part = gradient_tile(
            gradient,
            features,
            first,
            width_tile * N,
            rows,
            labels,
            stride,
            width,
            DESCRIPTORS,
            M,
            N,
            K,
        )
        label = first + tl.arange(0, M)
        at = sums + width_tile * labels + label
        tl.store(at, tl.sum(part * part, axis=1), mask=label < labels)


def mean_squares(
    gradient: torch.Tensor,
    features: torch.Tensor,
    labels: int,
    *,
    tile: Tile,
    descriptors: bool = False,
) -> torch.Tensor:
    """(labels,): the mean over columns of the squares of gradient^T features, float32."""
    rows, width = features.shape
    width_tiles = triton.cdiv(width, tile.n)
    sums = torch.empty((width_tiles, labels), dtype=torch.float32, device=features.device)
    _squares[(programs(triton.cdiv(labels, tile.m) * width_tiles, tile, features.device),)](
        operand(gradient[:, :labels], (tile.k, tile.m), descriptors),
        operand(features, (tile.k, tile.n), descriptors),
        sums,
        rows,
        labels,
        gradient.stride(0),
        width=width,
        DESCRIPTORS=descriptors,
        M=tile.m,
        N=tile.n,
        K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return sums.sum(0) / width
