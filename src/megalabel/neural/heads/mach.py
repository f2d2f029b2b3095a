"""Labels hashed into buckets, several times over: a head far smaller than its labels."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from megalabel.base import Check, integer, number, one_of
from megalabel.data import LabelSet
from megalabel.errors import ParameterError
from megalabel.neural.heads.base import Head, HeadModule, best_of_chunks, refuse
from megalabel.neural.heads.dense import DenseModule, log_odds
from megalabel.neural.heads.parts import numbers_of_labels
from megalabel.neural.losses.base import Loss
from megalabel.neural.losses.bce import BCE
from megalabel.neural.targets import Targets
from megalabel.rankers.buckets import HashedLabels, hashed

_SCORES = 1 << 22  # held at a time


class MachHead(Head):
    """Labels hashed into few buckets, `tables` times over (Medini et al. 2019, MACH).

    A bucket applies to a text where one of its labels does; a label's score is the mean over the
    tables of what its buckets are likely. So the weights grow with the buckets and not with the
    labels.

    Parameters
    ----------
    tables : int
        How often labels are hashed.
    buckets : int, optional
        Of each table. None: a 50th of the labels, though no fewer than 256 or than there are
        labels.
    optimiser, momentum
        As of a `DenseHead`.
    """

    name = "mach"
    ARRAYS = ("buckets", "weights", "bias")
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "tables": integer(1),
        "buckets": integer(2) | one_of(None),
        "optimiser": one_of("sgd", "adam"),
        "momentum": number(0, 1),
    }

    def __init__(
        self,
        *,
        tables: int = 10,
        buckets: int | None = None,
        optimiser: str = "sgd",
        momentum: float = 0.0,
    ) -> None:
        self.tables = tables
        self.buckets = buckets
        self.optimiser = optimiser
        self.momentum = momentum

    @property
    def rate_per_text(self) -> bool:
        return self.optimiser == "sgd"

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
    ) -> MachModule:
        if shard is not None:
            raise ValueError("buckets are few: a head of them is not shared out over processes")
        labels = len(counts)
        own_numbers = numbers_of_labels(loss, labels)
        if own_numbers:
            raise ParameterError(
                f"labels that share buckets have no numbers of their own: {', '.join(own_numbers)} "
                "of the loss must be one number or None"
            )
        each = self.buckets or min(max(labels, 2), max(256, -(-labels // 50)))
        table = hashed(labels, self.tables, each, seed)
        total = self.tables * each
        own = DenseModule(
            width,
            total,
            BCE() if loss is None else loss,
            optimiser=self.optimiser,
            momentum=self.momentum,
            bias=True,
            seed=seed,
            device=device,
        )
        sums = np.bincount(table.ravel(), np.repeat(counts[None], self.tables, 0).ravel(), total)
        assert own.bias is not None
        own.bias.copy_(torch.from_numpy(log_odds(np.minimum(sums, rows), rows)))
        return MachModule(own, torch.from_numpy(table).long().to(device))

    def keep(self, module: HeadModule, counts: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of `rankers.HashedLabels`; a label never seen comes last."""
        tensors = {name: tensor.cpu() for name, tensor in module.tensors().items()}
        table = tensors["buckets"].numpy().astype(np.int32)
        table[:, counts == 0] = -1
        return {
            "buckets": table,
            "weights": tensors["weights"].to(torch.float16).numpy(),
            "bias": tensors["bias"].numpy().astype(np.float32),
        }

    def ranker(self, arrays: Mapping[str, np.ndarray], labels: LabelSet) -> HashedLabels:
        """The same by NumPy."""
        made = HashedLabels()
        made.restore({f"{name}_": arrays[name] for name in self.ARRAYS} | {"labels_": labels})
        return made


class MachModule(HeadModule):
    """A dense module of buckets, and the buckets (tables, labels) of each label."""

    buckets: Tensor

    def __init__(self, own: DenseModule, buckets: Tensor) -> None:
        super().__init__(own.width, buckets.shape[1])
        self.own = own
        self.register_buffer("buckets", buckets, False)

    def forward(
        self, features: Tensor, targets: Targets, shortlist: Tensor | None = None
    ) -> Tensor:
        """The mean loss of the rows' buckets; in training mode, also a step."""
        self.check(features, targets)
        refuse(shortlist)
        parts = [targets.grouped(table, self.own.labels) for table in self.buckets]
        return self.own(features, _joined(parts))  # type: ignore[no-any-return]

    @torch.no_grad()
    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores, as logits, and ids of each row's k best labels."""
        self.check(features)
        likely = self._likely(features)
        size = max(1, _SCORES // max(1, len(features)))

        def chunks() -> Iterator[tuple[Tensor, int]]:
            for first in range(0, self.labels, size):
                tables = self.buckets[:, first : first + size]
                yield self._mean(likely[:, table] for table in tables), first

        return best_of_chunks(chunks(), k)

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """The scores, as logits, of the labels in each row of `shortlist`."""
        self.check(features)
        known = (shortlist >= 0) & (shortlist < self.labels)
        likely, ids = self._likely(features), shortlist.where(known, 0)
        made = self._mean(likely.gather(1, table[ids]) for table in self.buckets)
        return made.masked_fill(~known, -math.inf)

    def _likely(self, features: Tensor) -> Tensor:
        scores = [part for part, _ in self.own.chunk_scores(features)]
        return torch.cat(scores, dim=1).sigmoid()

    def _mean(self, likely: Iterable[Tensor]) -> Tensor:
        """The scores, as logits, of labels by what the buckets of each table are likely."""
        total = functools.reduce(torch.add, likely)
        return (total / len(self.buckets)).logit(1e-7)

    def tensors(self) -> dict[str, Tensor]:
        """The weights of the buckets, and which each label has."""
        return {**self.own.tensors(), "buckets": self.buckets}


def _joined(parts: list[Any]) -> Targets:
    """The labels of all parts, of the same rows."""
    rows = torch.cat([part.rows for part in parts])
    indices = torch.cat([part.indices for part in parts])
    order = (rows * parts[0].labels + indices).argsort(stable=True)
    counts = torch.bincount(rows, minlength=len(parts[0]))
    return Targets(
        torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        indices[order],
        torch.cat([part.values for part in parts])[order],
        parts[0].labels,
    )
