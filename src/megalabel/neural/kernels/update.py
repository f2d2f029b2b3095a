"""The weights of a chunk moved by their gradient, which never leaves the kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from megalabel.neural.kernels.operands import operand, programs
from megalabel.neural.kernels.rounding import draw, round_randomly, spread
from megalabel.neural.kernels.tuning import Tile


@triton.jit
def gradient_tile(
    gradient,
    features,
    first_label,
    first_column,
    rows,
    labels,
    stride,
    width: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """A tile, M labels by N columns, of the weights' gradient."""
    sums = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, rows, K):
        if DESCRIPTORS:
            g = gradient.load([k, first_label])
            x = features.load([k, first_column])
        else:
            row = k + tl.arange(0, K)
            label = first_label + tl.arange(0, M)
            column = first_column + tl.arange(0, N)
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
    return sums


@triton.jit
def _halves(x, M: tl.constexpr, N: tl.constexpr):
    """The left and the right half of a tile, without moving numbers between threads."""
    return x.reshape(M, 2, N // 2).permute(0, 2, 1).split()


@triton.jit
def _pieces(x, M: tl.constexpr, N: tl.constexpr):
    """The tile in pieces of at most 64 columns."""
    if N > 128:
        left, right = _halves(x, M, N)
        return _halves(left, M, N // 2) + _halves(right, M, N // 2)
    elif N > 64:
        return _halves(x, M, N)
    else:
        return (x,)


@triton.jit
def _old(weights, labels, label, first_column, width: tl.constexpr, N: tl.constexpr):
    column = first_column + tl.arange(0, N)
    real = (label < labels)[:, None] & (column < width)[None, :]
    return tl.load(weights + label[:, None] * width + column[None, :], mask=real, other=0.0)


@triton.jit
def _move(
    sums,
    w,
    drawn,
    drawn_velocity,
    weights,
    velocity,
    pace,
    slots,
    residual,
    settings,
    labels,
    label,
    first_column,
    width: tl.constexpr,
    VELOCITY: tl.constexpr,
    PACE: tl.constexpr,
    COMPENSATE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    column = first_column + tl.arange(0, N)
    rate = tl.load(settings)
    real = (label < labels)[:, None] & (column < width)[None, :]
    place = label[:, None] * width + column[None, :]
    w = w.to(tl.float32)
    share = tl.load(settings + 1)
    decay = tl.load(settings + 2)
    if VELOCITY:
        before = tl.load(velocity + place, mask=real, other=0.0).to(tl.float32)
        move = sums * share + tl.load(settings + 3) * before
        if not PACE:
            move += decay * w
        words = spread(drawn_velocity, first_column, M, N)
        tl.store(velocity + place, round_randomly(move, words), mask=real)
        if PACE:
            by_label = tl.load(pace + label, mask=label < labels, other=0.0)
            move = move * by_label[:, None] + decay * w
        wanted = -rate * move
        moved = w + wanted
    else:
        wanted = sums * (-rate * share) + (-rate * decay) * w
        moved = (w + (-rate * decay) * w) + sums * (-rate * share)  # two operations, not three
    new = round_randomly(moved, spread(drawn, first_column, M, N))
    if COMPENSATE:
        slot = tl.load(slots + label, mask=label < labels, other=-1)
        kept = real & (slot >= 0)[:, None]
        at = residual + slot[:, None].to(tl.int64) * width + column[None, :]
        wanted -= tl.load(at, mask=kept, other=0.0).to(tl.float32)
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
    pace,
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
    PACE: tl.constexpr,
    COMPENSATE: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    width_tiles: tl.constexpr = (width + N - 1) // N
    Q: tl.constexpr = min(N, 64)
    tiles = tl.cdiv(labels, M) * width_tiles
    step = tl.load(counter).to(tl.int32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        width_tile = tile % width_tiles
        label_tile = tile // width_tiles
        label = label_tile * M + tl.arange(0, M)
        column = width_tile * N
        sums = gradient_tile(
            gradient,
            features,
            label_tile * M,
            column,
            rows,
            labels,
            stride,
            width,
            DESCRIPTORS,
            M,
            N,
            K,
        )
        # a piece of the tile at a time: weights and random bits of all of it spill from registers
        pieces = _pieces(sums, M, N)
        drawn = draw(seed, step, 0, first + label, column, M, Q)
        drawn_velocity = drawn
        if VELOCITY:
            drawn_velocity = draw(seed, step, 1, first + label, column, M, Q)
        ahead = _old(weights, labels, label, column, width, Q)
        for piece in tl.static_range(len(pieces)):
            old = ahead
            if piece + 1 < len(pieces):  # the next weights are on their way while these are moved
                ahead = _old(weights, labels, label, column + (piece + 1) * Q, width, Q)
            _move(
                pieces[piece],
                old,
                drawn,
                drawn_velocity,
                weights,
                velocity,
                pace,
                slots,
                residual,
                settings,
                labels,
                label,
                column + piece * Q,
                width,
                VELOCITY,
                PACE,
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
    pace: torch.Tensor | None = None,
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
    pace
        A factor of each label's step along its velocity, to which decay then adds on its own (as
        Adam's does); None: decay is part of what the velocity gathers.
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
        pace,
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
        PACE=pace is not None,
        COMPENSATE=slots is not None,
        DESCRIPTORS=descriptors,
        M=tile.m,
        N=tile.n,
        K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
