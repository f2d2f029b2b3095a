"""The weights of a chunk moved by their gradient, which never leaves the kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from megalabel.neural.kernels.operands import operand, programs
from megalabel.neural.kernels.rounding import random_halves, round_randomly
from megalabel.neural.kernels.tuning import Tile


@triton.jit
def _halves(x, M: tl.constexpr, N: tl.constexpr):
    """The left and the right half of a tile, without moving numbers between threads."""
    return x.reshape(M, 2, N // 2).permute(0, 2, 1).split()


@triton.jit
def _old(weights, labels, label, first_column, width: tl.constexpr, N: tl.constexpr):
    column = first_column + tl.arange(0, N)
    real = (label < labels)[:, None] & (column < width)[None, :]
    return tl.load(weights + label[:, None] * width + column[None, :], mask=real, other=0.0)


@triton.jit
def _move(
    sums,
    w,
    weights,
    velocity,
    slots,
    residual,
    settings,
    counter,
    seed,
    labels,
    first,
    label,
    first_column,
    width: tl.constexpr,
    VELOCITY: tl.constexpr,
    COMPENSATE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    column = first_column + tl.arange(0, N)
    rate = tl.load(settings)
    step = tl.load(counter).to(tl.int32)
    real = (label < labels)[:, None] & (column < width)[None, :]
    place = label[:, None] * width + column[None, :]
    w = w.to(tl.float32)
    move = sums * tl.load(settings + 1) + tl.load(settings + 2) * w
    if VELOCITY:
        before = tl.load(velocity + place, mask=real, other=0.0).to(tl.float32)
        move += tl.load(settings + 3) * before
        halves = random_halves(seed, step, 1, first + label, first_column, M, N)
        tl.store(velocity + place, round_randomly(move, halves), mask=real)
    halves = random_halves(seed, step, 0, first + label, first_column, M, N)
    new = round_randomly(w - rate * move, halves)
    if COMPENSATE:
        slot = tl.load(slots + label, mask=label < labels, other=-1)
        kept = real & (slot >= 0)[:, None]
        at = residual + slot[:, None].to(tl.int64) * width + column[None, :]
        wanted = -rate * move - tl.load(at, mask=kept, other=0.0).to(tl.float32)
        nearest = (w + wanted).to(tl.bfloat16)
        lost = (nearest.to(tl.float32) - w) - wanted
        tl.store(at, lost.to(tl.bfloat16), mask=kept)
        new = tl.where(kept, nearest, new)
    tl.store(weights + place, new, mask=real)


@triton.jit
def _update(
    gradient,
    features,
    weights,
    velocity,
    slots,
    residual,
    settings,
    counter,
    seed,
    rows,
    labels,
    first,
    stride,
    width: tl.constexpr,
    VELOCITY: tl.constexpr,
    COMPENSATE: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    width_tiles: tl.constexpr = (width + N - 1) // N
    Q: tl.constexpr = N // 4
    tiles = tl.cdiv(labels, M) * width_tiles
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        width_tile = tile % width_tiles
        label_tile = tile // width_tiles
        label = label_tile * M + tl.arange(0, M)
        sums = tl.zeros((M, N), dtype=tl.float32)
        for k in range(0, rows, K):
            if DESCRIPTORS:
                g = gradient.load([k, label_tile * M])
                x = features.load([k, width_tile * N])
            else:
                row = k + tl.arange(0, K)
                column = width_tile * N + tl.arange(0, N)
                g = tl.load(
                    gradient + row[:, None] * stride + label[None, :],
                    mask=(row < rows)[:, None] & (label < labels)[None, :],
                    other=0.0,
                )
                x = tl.load(
                    features + row[:, None] * width + column[None, :],
                    mask=(row < rows)[:, None] & (column < width)[None, :],
                    other=0.0,
                )
            sums = tl.dot(g.T, x, sums)
        # a quarter of the tile at a time: weights and random bits of all of it spill from registers
        left, right = _halves(sums, M, N)
        quarters = _halves(left, M, N // 2) + _halves(right, M, N // 2)
        ahead = _old(weights, labels, label, width_tile * N, width, Q)
        for quarter in tl.static_range(4):
            old = ahead
            if quarter < 3:  # the next weights are on their way while these are moved
                ahead = _old(weights, labels, label, width_tile * N + (quarter + 1) * Q, width, Q)
            _move(
                quarters[quarter],
                old,
                weights,
                velocity,
                slots,
                residual,
                settings,
                counter,
                seed,
                labels,
                first,
                label,
                width_tile * N + quarter * Q,
                width,
                VELOCITY,
                COMPENSATE,
                M,
                Q,
            )


def update_weights(
    gradient: torch.Tensor,
    features: torch.Tensor,
    weights: torch.Tensor,
    *,
    settings: torch.Tensor,
    counter: torch.Tensor,
    seed: int,
    first: int,
    tile: Tile,
    velocity: torch.Tensor | None = None,
    slots: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    descriptors: bool = False,
) -> None:
    """weights <- rounded(weights - rate * (share * gradient^T features + decay * weights)).

    Parameters
    ----------
    gradient, features
        (rows, at least labels) and (rows, width).
    weights, velocity
        (labels, width) bfloat16 of the chunk, changed in place; velocity is momentum's.
    settings
        float32 on the device: rate, share, decay, momentum.
    counter, seed, first
        Step (on the device), seed and number of the chunk's first label: what random bits are of.
    slots, residual
        For each label of the chunk its row of `residual`, where what rounding lost is kept, or -1.
    """
    rows, width = features.shape
    labels = len(weights)
    tiles = triton.cdiv(labels, tile.m) * triton.cdiv(width, tile.n)
    _update[(programs(tiles, tile, weights.device),)](
        operand(gradient[:, :labels], (tile.k, tile.m), descriptors),
        operand(features, (tile.k, tile.n), descriptors),
        weights,
        velocity,
        slots,
        residual,
        settings,
        counter,
        seed,
        rows,
        labels,
        first,
        gradient.stride(0),
        width=width,
        VELOCITY=velocity is not None,
        COMPENSATE=slots is not None,
        DESCRIPTORS=descriptors,
        M=tile.m,
        N=tile.n,
        K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
