"""An auxiliary loss of coarse labels, which teaches the encoder until a sparse head can."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.base import Check, instance, integer, number, one_of
from megalabel.data import LabelSet
from megalabel.neural.heads.base import Head, HeadModule
from megalabel.neural.heads.dense import DenseHead, DenseModule
from megalabel.neural.heads.grouped_fan_in import cluster_labels
from megalabel.neural.heads.learning import LearningModule
from megalabel.neural.losses.base import Loss
from megalabel.neural.losses.bce import BCE
from megalabel.neural.targets import Targets
from megalabel.parts import Classifier

_CLUSTER = 64  # labels of a cluster, of very many


class AuxiliaryHead(Head):
    """A head beside which a dense one learns clusters of labels, for a while.

    What reaches the encoder through a sparse head says little at first. So the loss is (1 - c)
    times the head's own and c times the binary cross-entropy of the clusters that a text's labels
    are in; c falls with a cosine to 0, and then the dense head is dropped (Ullah et al. 2024).

    Parameters
    ----------
    head : str or Head
        What stays: by name (`heads.create`), or as it is.
    share : float
        c at first.
    until : float
        The share of the training after which c is 0.
    clusters : int, optional
        How many, at least half of it. None: of 64 labels at most, or of as many as there are
        clusters.

    Examples
    --------
    >>> head = AuxiliaryHead("fixed-fan-in", share=0.4, until=0.2)
    >>> [round(head.share_at(done), 2) for done in (0, 0.1, 0.2, 0.3)]
    [0.4, 0.2, 0.0, 0.0]
    """

    name = "auxiliary"
    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "head": instance(str) | instance(Head),
        "share": number(0, 1),
        "until": number(0, 1),
        "clusters": integer(2) | one_of(None),
    }

    _cluster_of: np.ndarray | None = None

    def __init__(
        self,
        head: str | Head = "fixed-fan-in",
        *,
        share: float = 0.4,
        until: float = 0.15,
        clusters: int | None = None,
    ) -> None:
        self.head = head
        self.share = share
        self.until = until
        self.clusters = clusters

    @property
    def inner(self) -> Head:
        """The head that stays."""
        from megalabel.neural.heads import create

        return create(self.head) if isinstance(self.head, str) else self.head

    @property
    def ARRAYS(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the head that stays."""
        return self.inner.ARRAYS

    @property
    def rate_per_text(self) -> bool:
        return self.inner.rate_per_text

    def share_at(self, done: float) -> float:
        """c after a share of the training."""
        if done >= self.until:
            return 0.0
        return self.share * 0.5 * (1 + math.cos(math.pi * done / self.until))

    def prepared(self, rows: Any, targets: csr_matrix, seed: int) -> Self:
        """The same head, which knows the clusters of labels."""
        made = copy.copy(self)
        made.head = self.inner.prepared(rows, targets, seed)
        labels = targets.shape[1]
        tree = cluster_labels(rows, targets, self._size(labels), seed)
        made._cluster_of = (
            np.zeros(labels, np.int32)
            if tree.depth == 0
            else tree.parents(tree.depth)[tree.leaf_of_label]
        )
        return made

    def _size(self, labels: int) -> int:
        """How many labels a cluster has at most."""
        if self.clusters is not None:
            return max(2, -(-labels // self.clusters))
        return max(2, min(_CLUSTER, math.ceil(math.sqrt(labels))))

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
    ) -> AuxiliaryModule:
        if self._cluster_of is None:
            raise ValueError("an auxiliary head needs clusters of labels: call prepared() first")
        inner = self.inner
        main = inner.build(width, counts, rows, loss, device=device, seed=seed, shard=shard)
        clusters = int(self._cluster_of.max()) + 1
        meta = None
        if self.share_at(0) > 0:
            share = None if shard is None else tuple(c * clusters // len(counts) for c in shard)
            meta = DenseModule(
                width,
                clusters,
                BCE(),
                optimiser=getattr(inner, "optimiser", "sgd"),
                bias=True,
                seed=seed,
                shard=share,  # type: ignore[arg-type]
                device=device,
            )
        return AuxiliaryModule(main, meta, torch.from_numpy(self._cluster_of), self.share_at)

    def training_bytes(self, width: int, labels: int, rows: int) -> int | None:
        own = self.inner.training_bytes(width, labels, rows)
        clusters = 2 * -(-labels // self._size(labels))
        coarse = DenseHead(precision="float32", optimiser=getattr(self.inner, "optimiser", "sgd"))
        return None if own is None else own + coarse.training_bytes(width, clusters, rows)

    def keep(self, module: HeadModule, counts: np.ndarray) -> dict[str, np.ndarray]:
        """What the head that stays keeps."""
        return self.inner.keep(module, counts)

    def ranker(self, arrays: Mapping[str, np.ndarray], labels: LabelSet) -> Classifier:
        """What the head that stays gives."""
        return self.inner.ranker(arrays, labels)


class AuxiliaryModule(HeadModule):
    """A module, and beside it for a while another one of clusters of its labels.

    Parameters
    ----------
    main, meta
        Of labels, and of clusters; None: c is 0 from the start.
    cluster_of
        The cluster of each label.
    share_at
        c after a share of the training.
    """

    cluster_of: Tensor
    done: Tensor

    def __init__(
        self, main: HeadModule, meta: DenseModule | None, cluster_of: Tensor, share_at: Any
    ) -> None:
        super().__init__(main.width, main.labels, (main.first, main.last))
        self.main = main
        self.meta = meta
        self.share_at = share_at
        device = next(main.buffers()).device
        self.register_buffer("cluster_of", cluster_of.long().to(device), False)
        self.register_buffer("done", torch.zeros((), dtype=torch.float64, device=device))
        self._done: float | None = 0.0
        main.merge_normaliser = self._merged  # type: ignore[method-assign]
        self.register_load_state_dict_pre_hook(AuxiliaryModule._fit_state)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(AuxiliaryModule._forget)  # type: ignore[no-untyped-call]

    def _merged(self, normaliser: Tensor) -> Tensor:
        return self.merge_normaliser(normaliser)  # perhaps replaced since

    @staticmethod
    def _fit_state(module: AuxiliaryModule, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """Of a state with clusters and a module without, or the other way round, neither stays."""
        own = [name for name in state if name.startswith(f"{prefix}meta.")]
        if not own:
            module.drop()
        elif module.meta is None:
            for name in own:
                del state[name]

    def _forget(self, _: Any) -> None:
        self._done = None

    @property
    def share(self) -> float:
        """What the loss of clusters counts for now."""
        if self._done is None:
            self._done = float(self.done)
        return 0.0 if self.meta is None else float(self.share_at(self._done))

    def forward(
        self, features: Tensor, targets: Targets, shortlist: Tensor | None = None
    ) -> Tensor:
        """The mean loss of the rows, in training of labels and clusters."""
        c = self.share if self.training else 0.0
        for module in _learning(self.main):
            module.share = 1 - c
        value = self.main(features, targets, shortlist)
        if not c or self.meta is None:
            return value  # type: ignore[no-any-return]
        self.meta.share = c
        coarse = targets.grouped(self.cluster_of, self.meta.labels)
        return (1 - c) * value + c * self.meta(features, coarse)  # type: ignore[no-any-return]

    def after_update(self, step: int, total: int) -> None:
        """So many steps of all have been made; clusters are dropped when their time is over."""
        self._done = step / total
        self.done.fill_(self._done)
        if self.share == 0:
            self.drop()

    def drop(self) -> None:
        """Free what clusters take."""
        if self.meta is None:
            return
        for module in self.meta.modules():  # the trainer still knows the module
            for name in module._buffers:
                module._buffers[name] = None
        self.meta = None

    def top_k(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Of labels alone."""
        return self.main.top_k(features, k)

    def scores(self, features: Tensor, shortlist: Tensor) -> Tensor:
        """Of labels alone."""
        return self.main.scores(features, shortlist)

    def tensors(self) -> dict[str, Tensor]:
        """Those of the labels."""
        return self.main.tensors()


def _learning(module: HeadModule) -> Iterator[LearningModule]:
    for inner in module.modules():
        if isinstance(inner, LearningModule):
            yield inner
