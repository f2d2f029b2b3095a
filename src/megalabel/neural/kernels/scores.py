"""Scores of a chunk of labels and, in the same kernel, the loss's gradient by them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from megalabel.neural.kernels.forms import (
    NORMALISER,
    SOFTMAX,
    negative_gradient,
    negative_value,
)
from megalabel.neural.kernels.operands import operand, programs
from megalabel.neural.kernels.tuning import Tile


@triton.jit
def _scores(
    features,
    weights,
    bias,
    scale,
    shift,
    out,
    partial,
    rows,
    labels,
    stride,
    gamma,
    width: tl.constexpr,
    FORM: tl.constexpr,
    BIAS: tl.constexpr,
    SCALE: tl.constexpr,
    VALUE: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    row_tiles = tl.cdiv(rows, M)
    tiles = row_tiles * tl.cdiv(labels, N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        # programs that read the same weights are neighbours: they find them in the cache
        row_tile = tile % row_tiles
        label_tile = tile // row_tiles
        row = row_tile * M + tl.arange(0, M)
        label = label_tile * N + tl.arange(0, N)
        sums = tl.zeros((M, N), dtype=tl.float32)
        for k in range(0, width, K):
            if DESCRIPTORS:
                x = features.load([row_tile * M, k])
                w = weights.load([label_tile * N, k])
            else:
                column = k + tl.arange(0, K)
                inside = column < width
                x = tl.load(
                    features + row[:, None] * width + column[None, :],
                    mask=(row < rows)[:, None] & inside[None, :],
                    other=0.0,
                )
                w = tl.load(
                    weights + label[:, None] * width + column[None, :],
                    mask=(label < labels)[:, None] & inside[None, :],
                    other=0.0,
                )
            sums = tl.dot(x, w.T, sums)
        real = (row < rows)[:, None] & (label < labels)[None, :]
        if BIAS:
            sums += tl.load(bias + label, mask=label < labels, other=0.0)[None, :]
        if FORM == NORMALISER:
            sums = tl.where((label < labels)[None, :], sums * gamma, -float("inf"))
            top = tl.max(sums, axis=1)
            total = tl.sum(tl.exp(sums - top[:, None]), axis=1)
            tl.store(partial + label_tile * rows + row, top + tl.log(total), mask=row < rows)
        else:
            if FORM == SOFTMAX:
                sums = sums * gamma - tl.load(shift + row, mask=row < rows, other=0.0)[:, None]
            gradient = negative_gradient(sums, gamma, FORM)
            if SCALE:
                by_label = tl.load(scale + label, mask=label < labels, other=0.0)
                gradient *= by_label[None, :]
            if VALUE:
                value = negative_value(sums, gamma, FORM)
                if SCALE:
                    value *= by_label[None, :]
                total = tl.sum(tl.sum(tl.where(real, value, 0.0), axis=1), axis=0)
                tl.store(partial + tile, total)
            at = out + row[:, None] * stride + label[None, :]
            tl.store(at, gradient.to(out.dtype.element_ty), mask=real)


def score_gradients(
    features: torch.Tensor,
    weights: torch.Tensor,
    out: torch.Tensor,
    *,
    form: int,
    tile: Tile,
    bias: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    shift: torch.Tensor | None = None,
    gamma: float = 0.0,
    value: bool = False,
    descriptors: bool = False,
) -> torch.Tensor | None:
    """Write the gradient of every (row, label), each as if the row did not have the label.

    Parameters
    ----------
    features, weights
        (rows, width) and (labels, width), contiguous, of one dtype.
    out
        (rows, at least labels) in that dtype; untouched by NORMALISER.
    form, gamma
        Which loss, of `kernels.forms`; gamma is the focal loss's exponent, and a factor of the
        scores for SOFTMAX and NORMALISER.
    bias, scale, shift
        Added to each label's score; a factor of each label's loss; taken from each row's scores
        (SOFTMAX).
    value
        Also return the sums of the loss, one for each tile.

    Returns
    -------
    Tensor or None
        With `value` the parts of the loss's value; for NORMALISER (tiles, rows) logarithms of sums
        of exponentials.
    """
    rows, labels = len(features), len(weights)
    row_tiles, label_tiles = triton.cdiv(rows, tile.m), triton.cdiv(labels, tile.n)
    partial = None
    if form == NORMALISER.value:
        partial = torch.empty((label_tiles, rows), dtype=torch.float32, device=out.device)
    elif value:
        partial = torch.empty(row_tiles * label_tiles, dtype=torch.float32, device=out.device)
    _scores[(programs(row_tiles * label_tiles, tile, out.device),)](
        operand(features, (tile.m, tile.k), descriptors),
        operand(weights, (tile.n, tile.k), descriptors),
        bias,
        scale,
        shift,
        out,
        partial,
        rows,
        labels,
        out.stride(0),
        gamma,
        width=features.shape[1],
        FORM=form,
        BIAS=bias is not None,
        SCALE=scale is not None,
        VALUE=value and form != NORMALISER.value,
        DESCRIPTORS=descriptors,
        M=tile.m,
        N=tile.n,
        K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return partial
