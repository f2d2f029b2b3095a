"""Parts that are chosen by name: those of a package, one file each."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from megalabel.base import Component
from megalabel.errors import ParameterError

Part = TypeVar("Part", bound=Component)


class Registry(Generic[Part]):
    """All subclasses of a part that have a `name`: those in files of a package, and whatever else
    is defined.

    Parameters
    ----------
    what : str
        What a part is called in messages.
    kind : type
        The class that parts are subclasses of.
    package : str
        The package whose files they are in.
    """

    def __init__(self, what: str, kind: type[Part], package: str) -> None:
        self._what, self._kind, self._package = what, kind, package

    def kinds(self) -> dict[str, type[Part]]:
        """The classes by name."""
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")
        return {vars(kind)["name"]: kind for kind in _below(self._kind) if "name" in vars(kind)}

    def names(self) -> list[str]:
        """All names."""
        return sorted(self.kinds())

    def create(self, name: str, **parameters: Any) -> Part:
        """A part by name, with parameters of its own, which are checked."""
        kinds = self.kinds()
        if name not in kinds:
            raise ParameterError(
                f"unknown {self._what} {name!r}; there are {', '.join(sorted(kinds))}"
            )
        own = kinds[name].parameter_names()
        for key in parameters:
            if key not in own:
                near = difflib.get_close_matches(key, own, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(own)}"
                raise ParameterError(f"{name} has no parameter {key!r}; {hint}")
        part = kinds[name](**parameters)
        part.check_parameters()
        return part


def _below(kind: type[Part]) -> Iterator[type[Part]]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)
