"""How a kernel is given a matrix that it reads in tiles."""

from __future__ import annotations

from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from megalabel.neural.kernels.tuning import Tile


def operand(matrix: torch.Tensor, block: tuple[int, int], descriptors: bool) -> Any:
    """The matrix itself, or a descriptor of its tiles for the bulk copy engine."""
    return TensorDescriptor.from_tensor(matrix, list(block)) if descriptors else matrix


def describable(*matrices: torch.Tensor) -> bool:
    """Whether the bulk copy engine can read them all: rows that start at multiples of 16 bytes."""
    return all(
        m.numel() > 0
        and m.data_ptr() % 16 == 0
        and m.stride(1) == 1
        and m.stride(0) * m.element_size() % 16 == 0
        for m in matrices
    )


def programs(tiles: int, tile: Tile, device: torch.device) -> int:
    """How many programs go through the tiles: one for each, or those that stay resident."""
    if tile.resident == 0 or device.type != "cuda":
        return tiles
    return min(tiles, tile.resident * processors(device))


def processors(device: torch.device) -> int:
    """The number of a GPU's multiprocessors."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
