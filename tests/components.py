"""All classes of components that megalabel has, for tests that hold for each of them."""

from __future__ import annotations

import importlib
import pkgutil

import megalabel
from megalabel.base import Component


def every_component() -> set[type[Component]]:
    """All classes of components that megalabel has, abstract ones too."""
    for found in pkgutil.walk_packages(megalabel.__path__, "megalabel."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    kinds, left = set(), [Component]
    while left:
        left += (below := left.pop().__subclasses__())
        kinds |= {kind for kind in below if kind.__module__.startswith("megalabel.")}
    return kinds
