"""What heads have in common whose labels see few features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from megalabel.base import Check, instance, integer, number, one_of
from megalabel.data import LabelSet
from megalabel.neural.heads.base import Head, HeadModule
from megalabel.neural.heads.dense import (
    UNSEEN_BIAS,
    DenseModule,
    dense_bytes,
    dtype_of,
    log_odds,
)
from megalabel.neural.heads.parts import PartsModule, in_order
from megalabel.neural.heads.recent import ROWS
from megalabel.neural.heads.rewiring import Rewiring
from megalabel.neural.heads.sparse import PLACES, SparseModule
from megalabel.neural.losses.base import Loss
from megalabel.rankers import SparseLabels
from megalabel.rankers.fan_in import index_dtype

REWIRING = 40
"""Bytes that rewiring takes for a feature of a group while all are looked at."""
_FEWEST = 16  # features that a label sees, where a tenth would be fewer


class SparseHead(Head):
    """Labels that see few features, and which these are is learned too (`Rewiring`).

    With "sgd" the rate is so many times higher as there are more features than a label sees: then
    one that suits a dense head suits a sparse one.

    Subclasses say how many labels see the same ones (`group`), in which order labels are grouped,
    and how many of them see all.
    """

    ARRAYS = (
        "indices",
        "weights",
        "bias",
        "label_of_place",
        "head_labels",
        "head_weights",
        "head_bias",
    )
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "fan_in": integer(1) | one_of(None),
        "rewiring": instance(Rewiring) | one_of(None),
        "precision": one_of("auto", "bf16", "float32"),
        "optimiser": one_of("sgd", "adam"),
        "momentum": number(0, 1),
    }

    fan_in: int | None
    rewiring: Rewiring | None
    precision: str
    optimiser: str
    momentum: float
    group: int = 1

    @property
    def rate_per_text(self) -> bool:
        return self.optimiser == "sgd"

    @abstractmethod
    def order(self, counts: np.ndarray) -> tuple[np.ndarray, int]:
        """The labels in the order of their places, and how many of them see all features."""

    def fan_in_of(self, width: int) -> int:
        """How many features of so many a label sees."""
        return min(width, self.fan_in or max(_FEWEST, -(-width // 10)))

    def build(
        self,
        width: int,
        counts: np.ndarray,
        rows: int,
        loss: Loss | None,
        *,
        device: torch.device,
        seed: int,
        shard: tuple[int, int] | None = None,
    ) -> PartsModule:
        order, frequent = self.order(counts)
        labels = len(order)
        loss = in_order(loss, order)
        common: dict[str, Any] = {
            "dtype": dtype_of(self.precision, device),
            "optimiser": self.optimiser,
            "momentum": self.momentum,
            "bias": True,
            "seed": seed,
            "device": device,
        }
        parts: dict[str, Any] = {}
        if frequent:
            own = _share(0, frequent, 1, shard, labels)
            parts["frequent"] = DenseModule(width, labels, loss, shard=own, **common)
        if frequent < labels:
            parts["sparse"] = SparseModule(
                width,
                labels,
                loss,
                fan_in=self.fan_in_of(width),
                group=self.group,
                rewiring=Rewiring() if self.rewiring is None else self.rewiring,
                shard=_share(frequent, labels, self.group, shard, labels),
                **common,
            )
            if self.optimiser == "sgd":
                # a step changes a score by as much as that of a label which sees all features
                parts["sparse"].pace = width / self.fan_in_of(width)
        odds = torch.from_numpy(log_odds(counts[order], rows)).float()
        for part in parts.values():
            here = odds[part.first : part.last]
            part.bias.view(-1)[: len(here)] = here.to(device)
        return PartsModule(parts, order)

    def training_bytes(self, width: int, labels: int, rows: int) -> int:
        number = 4 if self.precision == "float32" else 2
        frequent = self.order(np.zeros(labels))[1]
        rest, fan_in = labels - frequent, self.fan_in_of(width)
        moments = 1 if self.optimiser == "adam" or self.momentum else 0
        connections = -(-rest // self.group) * fan_in
        kept = connections * (4 + self.group * number * (1 + moments))
        kept += rest * (4 + (4 if self.optimiser == "adam" else 0))
        # rewiring looks at all features at once, by the rows since the last time; a step at chunks
        # of what groups gather
        working = connections * REWIRING + PLACES * (4 * number + 16)
        working += 16 * (rows + ROWS) * width
        order = 16 * labels
        dense = 0
        if frequent:
            dense = dense_bytes(frequent, width, number, rows, self.optimiser, self.momentum)
        return kept + working + order + dense

    def keep(self, module: HeadModule, counts: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of `rankers.SparseLabels`; a label never seen comes last."""
        tensors = {name: tensor.cpu() for name, tensor in module.tensors().items()}
        width, group = module.width, self.group
        seen = np.append(counts > 0, False)  # -1: a place that no label has
        places = _array(tensors, "sparse_labels", np.int32, (0, group))
        silent = ~seen[places]
        weights = _array(tensors, "sparse_weights", np.float16, (0, self.fan_in_of(width), group))
        bias = _array(tensors, "sparse_bias", np.float32, (0, group))
        first = _array(tensors, "frequent_labels", np.int32, (0,))
        rising = np.argsort(first)
        head = _array(tensors, "frequent_weights", np.float16, (0, width))[rising]
        own = _array(tensors, "frequent_bias", np.float32, (0,))[rising]
        never = ~seen[first[rising]]
        weights[np.broadcast_to(silent[:, None], weights.shape)] = 0
        head[never] = 0
        return {
            "indices": _array(
                tensors, "sparse_indices", index_dtype(width), (0, self.fan_in_of(width))
            ),
            "weights": weights,
            "bias": np.where(silent, np.float32(UNSEEN_BIAS), bias),
            "label_of_place": places.reshape(-1),
            "head_labels": first[rising],
            "head_weights": head,
            "head_bias": np.where(never, np.float32(UNSEEN_BIAS), own),
        }

    def ranker(self, arrays: Mapping[str, np.ndarray], labels: LabelSet) -> SparseLabels:
        """The same layer by kernels of a processor."""
        made = SparseLabels()
        head = ("head_labels", "head_weights", "head_bias")
        some = len(arrays["head_labels"]) > 0
        made.restore(
            {
                "labels_": labels,
                "width_": int(arrays["head_weights"].shape[1]),
                **{f"{name}_": arrays[name] for name in self.ARRAYS if some or name not in head},
            }
        )
        return made


def _array(
    tensors: Mapping[str, torch.Tensor], name: str, dtype: Any, shape: tuple[int, ...]
) -> np.ndarray:
    """A tensor as an array of its own; of no rows where there is none."""
    if name not in tensors:
        return np.zeros(shape, dtype)
    tensor = tensors[name]
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy().astype(dtype)


def _share(
    start: int, stop: int, group: int, shard: tuple[int, int] | None, labels: int
) -> tuple[int, int]:
    """What a process holds of the labels from start to stop - 1, in whole groups; `shard` is its
    share of all."""
    if shard is None:
        return start, stop
    groups = -(-(stop - start) // group)
    first, last = (min(stop, start + group * (edge * groups // labels)) for edge in shard)
    return first, last
