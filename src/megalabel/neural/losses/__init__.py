"""Losses, one file a family; each by name through `create`.

A file here defines a `Loss` with a `name`; that is all it takes to join the table and its tests.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from typing import Any

from megalabel.errors import ParameterError
from megalabel.neural.losses.base import Loss
from megalabel.neural.losses.bce import BCE
from megalabel.neural.losses.contrastive import SupervisedContrastive
from megalabel.neural.losses.decoupled import DecoupledSoftmax
from megalabel.neural.losses.focal import Focal
from megalabel.neural.losses.hinge import SquaredHinge
from megalabel.neural.losses.softmax import Softmax
from megalabel.neural.losses.triplet import Triplet

__all__ = [
    "BCE",
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


@cache
def _all() -> dict[str, type[Loss]]:
    found: dict[str, type[Loss]] = {}
    for module in pkgutil.iter_modules(__path__):
        for kind in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Loss) and "name" in vars(kind):
                found[kind.name] = kind
    return found


def names() -> list[str]:
    """The names of all losses.

    Examples
    --------
    >>> names()
    ['bce', 'contrastive', 'decoupled-softmax', 'focal', 'softmax', 'squared-hinge', 'triplet']
    """
    return sorted(_all())


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
    if name not in _all():
        raise ParameterError(f"unknown loss {name!r}; there are {', '.join(names())}")
    kind = _all()[name]
    own = kind.parameter_names()
    for key in parameters:
        if key not in own:
            near = difflib.get_close_matches(key, own, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(own)}"
            raise ParameterError(f"{name} has no parameter {key!r}; {hint}")
    loss = kind(**parameters)
    loss.check_parameters()
    return loss
