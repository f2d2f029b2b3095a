"""Losses, one file a family; each by name through `create`.

A file here defines a `Loss` with a `name`; that is all it takes to join the table and its tests.
"""

from __future__ import annotations

from typing import Any

from megalabel.neural.losses.base import Loss
from megalabel.neural.losses.bce import BCE
from megalabel.neural.losses.contrastive import SupervisedContrastive
from megalabel.neural.losses.decoupled import DecoupledSoftmax
from megalabel.neural.losses.focal import Focal
from megalabel.neural.losses.hinge import SquaredHinge
from megalabel.neural.losses.likelihood import CosineLikelihood
from megalabel.neural.losses.softmax import Softmax
from megalabel.neural.losses.triplet import Triplet
from megalabel.neural.registry import Registry

__all__ = [
    "BCE",
    "CosineLikelihood",
    "DecoupledSoftmax",
    "Focal",
    "Loss",
    "Softmax",
    "SquaredHinge",
    "SupervisedContrastive",
    "Triplet",
    "create",
    "names",
]


_REGISTRY = Registry("loss", Loss, __name__)  # type: ignore[type-abstract]


def names() -> list[str]:
    """The names of all losses.

    Examples
    --------
    >>> names()  # doctest: +ELLIPSIS
    ['bce', 'contrastive', 'cosine-likelihood', 'decoupled-softmax', ..., 'triplet']
    """
    return _REGISTRY.names()


def create(name: str, **parameters: Any) -> Loss:
    """A loss by name.

    Parameters
    ----------
    name : str
        One of `names()`.
    **parameters
        Its own.

    Examples
    --------
    >>> create("focal", gamma=1.5)
    Focal(gamma=1.5)
    """
    return _REGISTRY.create(name, **parameters)
