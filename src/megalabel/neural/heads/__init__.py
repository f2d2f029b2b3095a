"""Heads: from features to labels, one file each; each by name through `create`.

A file here defines a `Head` with a `name`; that is all it takes to join the table.
"""

from __future__ import annotations

from typing import Any

from megalabel.neural.heads.auxiliary import AuxiliaryHead
from megalabel.neural.heads.base import Head, HeadModule
from megalabel.neural.heads.dense import DenseHead, DenseModule
from megalabel.neural.heads.fixed_fan_in import FixedFanInHead
from megalabel.neural.heads.grouped_fan_in import FrequentAndSparseHead, GroupedFanInHead
from megalabel.neural.heads.mach import MachHead
from megalabel.neural.heads.parts import PartsModule
from megalabel.neural.heads.rewiring import Rewiring
from megalabel.neural.heads.sharded import ShardedModule, begin
from megalabel.neural.heads.shortlist import ShortlistModule
from megalabel.neural.heads.sparse import SparseModule
from megalabel.neural.registry import Registry

__all__ = [
    "AuxiliaryHead",
    "DenseHead",
    "DenseModule",
    "FixedFanInHead",
    "FrequentAndSparseHead",
    "GroupedFanInHead",
    "Head",
    "HeadModule",
    "MachHead",
    "PartsModule",
    "Rewiring",
    "ShardedModule",
    "ShortlistModule",
    "SparseModule",
    "begin",
    "create",
    "names",
]

_REGISTRY = Registry("head", Head, __name__)  # type: ignore[type-abstract]


def names() -> list[str]:
    """The names of all heads.

    Examples
    --------
    >>> "dense" in names()
    True
    """
    return _REGISTRY.names()


def create(name: str, **parameters: Any) -> Head:
    """A head by name.

    Parameters
    ----------
    name : str
        One of `names()`.
    **parameters
        Its own.

    Examples
    --------
    >>> create("dense", optimiser="adam")
    DenseHead(optimiser='adam')
    """
    return _REGISTRY.create(name, **parameters)
