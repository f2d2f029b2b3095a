"""The named systems: each one a short file that puts parts together.

A file here defines `SYSTEM`; that is all it takes to join the table, the command line and the
contract tests.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from megalabel.base import boolean, check_argument
from megalabel.errors import ParameterError

if TYPE_CHECKING:
    from megalabel.data import Corpus
    from megalabel.systems.planning import Plan
    from megalabel.tagger import Tagger

__all__ = ["COST_CLASSES", "LABEL_POINTS_RACE", "System", "create", "get", "names"]

COST_CLASSES = ("instant", "cheap", "linear", "dear", "gpu")
"""What a fit costs, from little to much: next to nothing; an index; in proportion to the words of
all texts; to the labels too; the training of an encoder."""


LABEL_POINTS_RACE = {"label_points": "self"}
"""A setting for the race of a system: the names of labels as rows of training, where they have
names."""


@dataclass(frozen=True)
class System:
    """A recipe: how to build a tagger, what it is good for, and what it costs."""

    name: str
    summary: str
    paper: str
    cost: str
    """Training cost in a few words, for the table."""
    build: Callable[..., Tagger]
    """Flat keyword parameters to a Tagger."""
    plan: Callable[..., Plan]
    """Peak memory, disk and time of fitting a tagger on a corpus: a function of both."""
    prepares: bool = False
    """Whether `plan` also takes `prepared`, what `Tagger.prepare` gave, so that the features which
    it looks at are made once."""
    plans_itself: bool = False
    """Whether a fit plans what it does, so that nobody need do so before."""
    unlabelled: bool = False
    """Whether it needs no text with labels, and looks at none."""
    cost_class: str | None = None
    """What a fit costs, one of `COST_CLASSES`; None: it takes no part in the race of `auto`."""
    family: str | None = None
    """What it goes by, where that is unlike all else; None: others of its cost are like it."""
    race: tuple[Mapping[str, Any], ...] = ()
    """Settings besides the defaults that the race tries, one after another."""
    thrifty: Mapping[str, Any] | None = None
    """Settings that take much less time than the defaults, for a race where these take too long."""
    suits: Callable[[Corpus], bool] | None = None
    """Whether it is worth a trial on a corpus; None: on any."""

    @property
    def kind(self) -> str | None:
        """Systems of another kind add more to a mix than those of the same."""
        return self.family or self.cost_class

    @property
    def neural(self) -> bool:
        """Whether it trains an encoder, which needs torch."""
        return "encoder" in self.parameters() and not self.unlabelled

    def parameters(self) -> dict[str, Any]:
        """The recipe's own parameters and their defaults."""
        return {n: p.default for n, p in inspect.signature(self.build).parameters.items()}

    def to_dict(self) -> dict[str, Any]:
        """What is said of it, ready for JSON."""
        fields = ("name", "summary", "paper", "cost")
        return {f: getattr(self, f) for f in fields} | {"parameters": self.parameters()}


@cache
def _all() -> dict[str, System]:
    found = {}
    for module in pkgutil.iter_modules(__path__):
        system = getattr(importlib.import_module(f"{__name__}.{module.name}"), "SYSTEM", None)
        if system is not None:
            found[system.name] = system
    return found


def names() -> list[str]:
    """The names of all systems.

    Examples
    --------
    >>> [name for name in names() if "plt" in name]
    ['online-plt', 'plt']
    """
    return sorted(_all())


def get(name: str) -> System:
    """A system by name."""
    if name not in _all():
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}"
        raise ParameterError(f"unknown system {name!r}; {hint}")
    return _all()[name]


def create(name: str, **parameters: Any) -> Tagger:
    """A tagger made by a named recipe.

    Parameters
    ----------
    name : str
        One of `names()`.
    **parameters
        The recipe's own keywords, those of `Tagger`, or `part__name` for any of a part. With
        `rerank=True` its labels are ranked anew by what a mix of it alone learns (`systems.mix`).

    Examples
    --------
    >>> create("knn", neighbours=30, features__min_df=2).classifier.neighbours
    30
    """
    rerank = parameters.pop("rerank", False)
    check_argument("rerank", rerank, boolean())
    if rerank:
        from megalabel.systems.mix import Mixed

        return Mixed.of(create(name, **parameters))
    system = get(name)
    own = system.parameters()
    tagger = system.build(**{k: v for k, v in parameters.items() if k in own})
    others = {k: v for k, v in parameters.items() if k not in own}
    for key in others:
        if "__" not in key and key not in tagger.parameter_names():
            near = difflib.get_close_matches(key, own, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(own)}."
            raise ParameterError(
                f"{name} has no parameter {key!r}; {hint} Those of its parts are spelled part.name "
                "on the command line and part__name in Python."
            )
    if any(key.startswith("label_points__") for key in others):
        from megalabel.labels.points import as_label_points

        given = as_label_points(others.pop("label_points", None) or "self")
        tagger.set_params(label_points=given)
    return tagger.set_params(**others)
