"""Labels in groups that share their inputs: what kernels are given, and how it is laid out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch import Tensor

WEIGHTS = (torch.float32, torch.bfloat16)
INDICES = (torch.int16, torch.uint16, torch.int32)


@dataclass
class Groups:
    """Weights of labels by groups, each with its own few inputs.

    Parameters
    ----------
    indices
        (groups, inputs): which features a group's labels read, ascending, no feature twice; int32,
        or where there are at most 65,536 features 16 bits, the numbers from 32,768 on as
        torch.int16 holds their bits (`Tensor.view`), or torch.uint16.
    weights
        (groups, inputs, size), float32 or bfloat16: those of a group's labels side by side.
    labels
        (groups * size,) int32: which label each place is; -1: none, never an answer.
    bias
        (groups, size) float32, or None.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.kernels.groups import Groups
    >>> indices = torch.tensor([[0, 3], [1, 2]], dtype=torch.int16)
    >>> labels = torch.tensor([2, 0, 1, -1], dtype=torch.int32)
    >>> groups = Groups(indices, torch.zeros(2, 2, 2), labels)
    >>> groups.check(width=4)
    >>> groups.places.tolist()
    [1, 2, 0]
    """

    indices: Tensor
    weights: Tensor
    labels: Tensor
    bias: Tensor | None = None
    _places: Tensor | None = field(default=None, repr=False)
    _bounds: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def inputs(self) -> int:
        """How many features a label reads."""
        return self.weights.shape[1]

    @property
    def size(self) -> int:
        """How many labels a group has."""
        return self.weights.shape[2]

    @property
    def places(self) -> Tensor:
        """(largest label + 1,) int32: the place of each label; -1: it is in no group."""
        if self._places is None:
            count = int(self.labels.max()) + 1 if len(self.labels) else 0
            places = torch.full((count,), -1, dtype=torch.int32, device=self.labels.device)
            order = torch.arange(len(self.labels), dtype=torch.int32, device=self.labels.device)
            real = self.labels >= 0
            places[self.labels[real].long()] = order[real]
            self._places = places
        return self._places

    def bounds(self, columns: int) -> Tensor:
        """The first place of each part of at most so many labels of a group, then the end."""
        if columns not in self._bounds:
            first = torch.arange(0, self.size, columns, device=self.weights.device)
            start = torch.arange(len(self), device=first.device)[:, None] * self.size
            end = first.new_full((1,), len(self) * self.size)
            self._bounds[columns] = torch.cat([(start + first).flatten(), end])
        return self._bounds[columns]

    def check(self, width: int) -> None:
        """Raise a ValueError that says what does not fit, the values of indices and labels too."""
        groups, inputs, size = self.weights.shape if self.weights.ndim == 3 else (0, 0, 0)
        if not (groups and inputs and size) or self.weights.dtype not in WEIGHTS:
            raise ValueError(
                "weights of groups are (groups, inputs, size), float32 or bfloat16, not "
                f"{tuple(self.weights.shape)} {self.weights.dtype}"
            )
        if self.indices.shape != (groups, inputs) or self.indices.dtype not in INDICES:
            raise ValueError(
                f"indices must be ({groups}, {inputs}) of 16 bits or int32, as the weights are, "
                f"not {tuple(self.indices.shape)} {self.indices.dtype}"
            )
        if self.labels.shape != (groups * size,) or self.labels.dtype != torch.int32:
            raise ValueError(
                f"labels must be ({groups * size},) int32, not {tuple(self.labels.shape)} "
                f"{self.labels.dtype}"
            )
        bias = self.bias
        if bias is not None and (bias.shape != (groups, size) or bias.dtype != torch.float32):
            raise ValueError(
                f"a bias must be ({groups}, {size}) float32, not {tuple(bias.shape)} {bias.dtype}"
            )
        parts = {"indices": self.indices, "weights": self.weights, "labels": self.labels}
        for name, part in (parts if bias is None else {**parts, "bias": bias}).items():
            if part.device != self.weights.device or not part.is_contiguous():
                raise ValueError(f"{name} must be contiguous, on {self.weights.device}")
        self._check_values(width)

    def _check_values(self, width: int) -> None:
        narrow = self.indices.dtype != torch.int32
        if narrow and width > 1 << 16:
            raise ValueError(f"indices of 16 bits do not reach {width} features; give int32")
        indices = self.indices.view(torch.int16) if narrow else self.indices
        indices = indices.int() & 0xFFFF if narrow else indices
        lowest, highest = int(indices.min()), int(indices.max())
        if lowest < 0 or highest >= width:
            raise ValueError(f"indices are {lowest} to {highest}; there are {width} features")
        if bool((indices.diff(dim=1) <= 0).any()):
            raise ValueError("indices of a group must ascend, no feature twice")
        real = self.labels[self.labels >= 0]
        if len(real.unique()) != len(real):
            raise ValueError("a label must be in one place only")


def on(device: torch.device) -> AbstractContextManager[object]:
    """Launch there, on its current stream, whatever device is the current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def by_feature(features: Tensor, dtype: torch.dtype, rows: int) -> Tensor:
    """(width, a multiple of `rows`): what each feature is in all rows, then zeros.

    So the rows of a feature, which a group reads together, lie side by side.
    """
    count, width = features.shape
    out = features.new_zeros((width, -(-max(count, 1) // rows) * rows), dtype=dtype)
    out[:, :count] = features.T
    return out


@triton.jit
def inputs_of(indices, group, slot, FAN: tl.constexpr, WIDE: tl.constexpr):
    """The features of some slots of a group; 0 beyond the last slot.

    As int64 where WIDE, as places in a matrix of features may then not fit 32 bits.
    """
    index = tl.load(indices + group * FAN + slot, mask=slot < FAN, other=0).to(tl.int32)
    if indices.dtype.element_ty.primitive_bitwidth == 16:
        index &= 0xFFFF
    return index.to(tl.int64) if WIDE else index


@triton.jit
def weights_of(weights, group, slot, column, FAN: tl.constexpr, GROUP: tl.constexpr):
    """(slots, columns) of a group's weights; zeros beyond them."""
    at = (group * FAN + slot)[:, None] * GROUP + column[None, :]
    real = (slot < FAN)[:, None] & (column < GROUP)[None, :]
    return tl.load(weights + at, mask=real, other=0.0)
