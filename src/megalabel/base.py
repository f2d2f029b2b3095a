"""What every part of a tagger is: a component with declared parameters and learned state.

The constructor keeps its keyword arguments as they are, `fit` returns self, and what was learned is
kept in attributes whose names end in an underscore. That convention is all the model store needs:
parameters and learned attributes are saved and restored with no code in the component itself.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

from megalabel.errors import NotFittedError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

    Matrix: TypeAlias = csr_matrix | np.ndarray


@dataclass(frozen=True)
class Check:
    """What a parameter may be: a test, and the words for it in an error message."""

    accepts: Callable[[Any], bool]
    expected: str

    def __or__(self, other: Check) -> Check:
        return Check(
            lambda v: self.accepts(v) or other.accepts(v), f"{self.expected} or {other.expected}"
        )


def integer(low: int | None = None, high: int | None = None) -> Check:
    """An integer within [low, high]."""
    return Check(lambda v: _is_int(v) and _within(v, low, high), f"an integer{_range(low, high)}")


def number(low: float | None = None, high: float | None = None) -> Check:
    """A finite number within [low, high]."""

    def accepts(v: Any) -> bool:
        real = _is_int(v) or isinstance(v, float) or type(v).__name__.startswith("float")
        return real and math.isfinite(v) and _within(v, low, high)

    return Check(accepts, f"a number{_range(low, high)}")


def one_of(*values: Any) -> Check:
    """One of the given values."""
    return Check(
        lambda v: any(v is w or (type(v) is type(w) and v == w) for w in values),
        "one of " + ", ".join(map(repr, values)),
    )


def boolean() -> Check:
    """True or False."""
    return Check(lambda v: isinstance(v, bool) or type(v).__name__ == "bool", "True or False")


def instance(kind: type) -> Check:
    """An instance of `kind`."""
    return Check(lambda v: isinstance(v, kind), f"a {kind.__name__}")


def sequence_of(check: Check, length: int | None = None) -> Check:
    """A list or tuple whose items all pass `check`."""
    size = f"{length} items" if length is not None else "items"
    return Check(
        lambda v: (
            isinstance(v, list | tuple)
            and (length is None or len(v) == length)
            and all(check.accepts(x) for x in v)
        ),
        f"a list of {size}, each {check.expected}",
    )


def check_argument(name: str, value: object, check: Check) -> None:
    """Raise a ParameterError that names the argument unless its value passes the check."""
    if not check.accepts(value):
        raise ParameterError(f"{name} must be {check.expected}, not {value!r}")


_Made = TypeVar("_Made")
# one for all: a component that had its own could neither be pickled nor copied
_MAKING = threading.RLock()


def made_once(owner: Any, name: str, make: Callable[[], _Made]) -> _Made:
    """An attribute that is made when it is first asked for, by one thread while others wait.

    None stands for what has not been made. It is set once it is whole, and not set by an error.

    Examples
    --------
    >>> part = Component()
    >>> made_once(part, "_answer", lambda: 42), made_once(part, "_answer", lambda: 43)
    (42, 42)
    """
    found: _Made | None = getattr(owner, name, None)
    if found is None:
        with _MAKING:
            found = getattr(owner, name, None)
            if found is None:
                found = make()
                setattr(owner, name, found)
    return found


def check_array(
    owner: str, name: str, value: Any, dtype: type, shape: tuple[int | None, ...]
) -> None:
    """Raise a ValueError unless `value` is an array of that type and shape (None: any length).

    For `restore`: what is read from a model folder may have been tampered with.
    """
    import numpy as np

    fits = (
        isinstance(value, np.ndarray)
        and value.dtype == dtype
        and value.ndim == len(shape)
        and all(want is None or want == have for want, have in zip(shape, value.shape, strict=True))
    )
    if not fits:
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        found = (
            f"{value.dtype} ({', '.join(map(str, value.shape))})"
            if isinstance(value, np.ndarray)
            else type(value).__name__
        )
        raise ValueError(f"{name} of {owner} must be {np.dtype(dtype)} ({wanted}), not {found}")


def _is_int(v: Any) -> bool:
    return not isinstance(v, bool) and hasattr(v, "__index__")


def _within(v: Any, low: float | None, high: float | None) -> bool:
    return bool((low is None or v >= low) and (high is None or v <= high))


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return f" of at most {high}" if high is not None else ""


class Component:
    """A part with parameters (constructor keywords) and learned state (attributes ending in _).

    Subclasses declare `PARAMETERS`, a check for each parameter, and call `check_parameters()` at
    the start of `fit`. Learned attributes may be numbers, strings, lists and dicts of those, NumPy
    arrays, CSR matrices, Arrow string arrays, label sets and other components.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {}
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset()
    """Parameters that change no result, such as where a log is written. They are no part of a
    fingerprint, and neither written to a model folder nor read from one."""

    origin: Path | None = None
    """The model folder that it was read from."""

    @classmethod
    def from_folder(cls, parameters: Mapping[str, Any]) -> Self:
        """A new one with parameters that a model folder brings, which are all checked."""
        if kept_out := sorted(cls.INCIDENTAL & set(parameters)):
            raise ParameterError(f"{cls.__name__} takes no {kept_out[0]!r} from a model folder")
        made = cls(**parameters)
        made.check_parameters()
        return made

    @classmethod
    def parameter_names(cls) -> list[str]:
        """The names of the constructor's parameters, in order."""
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with `deep`, also those of components among them, as `part__name`."""
        params = {name: getattr(self, name) for name in self.parameter_names()}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Component):
                    params |= {f"{name}__{k}": v for k, v in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; `part__name` reaches into a component."""
        names = self.parameter_names()
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if name not in names:
                inside = [k for k in self.get_params() if k.endswith(f"__{name}")]
                hint = f"did you mean {inside[0]}?" if inside else f"it has {', '.join(names)}"
                raise ParameterError(f"{type(self).__name__} has no parameter {name!r}; {hint}")
            if not inner:
                setattr(self, name, value)
            elif isinstance(part := getattr(self, name), Component):
                part.set_params(**{inner: value})
            else:
                raise ParameterError(
                    f"{name} of {type(self).__name__} is not set, so has no {inner!r}"
                )
        return self

    def check_parameters(self) -> None:
        """Raise a ParameterError that names the first parameter outside its declaration."""
        for name, check in self.PARAMETERS.items():
            value = getattr(self, name)
            if not check.accepts(value):
                raise ParameterError(
                    f"{name} of {type(self).__name__} must be {check.expected}, not {value!r}"
                )

    def check_machine(self) -> None:
        """Raise an error where this machine lacks what a fit needs, such as a GPU asked for.

        It is asked before a fit begins, and not of what is only to answer.
        """

    def check_parts(self) -> None:
        """Check the parameters, and the machine, of this component and of all its parts."""
        for part in (self, *self.get_params().values()):
            if isinstance(part, Component):
                part.check_parameters()
                part.check_machine()

    @property
    def fitted(self) -> bool:
        """Whether anything has been learned."""
        # backwards, as what was learned came last, and by a plain loop: this is asked with every
        # query
        for name in reversed(vars(self)):  # noqa: SIM110
            if name[-1] == "_" and name[0] != "_":
                return True
        return False

    def check_fitted(self) -> None:
        """Raise a NotFittedError unless fit has been called."""
        if not self.fitted:
            raise NotFittedError(f"this {type(self).__name__} has not been fitted; call fit first")

    def learned(self) -> dict[str, Any]:
        """The learned attributes by name: what is saved besides the parameters."""
        return {k: v for k, v in vars(self).items() if k.endswith("_") and not k.startswith("_")}

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take learned attributes back, as read from a model folder; check them for consistency.

        Arrays may be read-only and mapped from disk, and may have been tampered with: a component
        overrides this to check the shapes and types it relies on, raising ValueError.
        """
        for name, value in learned.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        shown = [
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if not (value is defaults[name].default or _same(value, defaults[name].default))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


_Part = TypeVar("_Part", bound=Component)


def with_learned(part: _Part, **learned: Any) -> _Part:
    """The part itself, with what it would have learned."""
    part.restore(learned)
    return part


def unfitted(part: _Part) -> _Part:
    """A part with the same parameters and nothing learned, whatever `clone` would keep."""
    return type(part)(**part.get_params(deep=False))


def clone(value: Any) -> Any:
    """A component with the same parameters and nothing learned; lists of them likewise."""
    if hasattr(value, "__sklearn_clone__"):  # data in the form of a component
        return value.__sklearn_clone__()
    if isinstance(value, Component):
        return type(value)(**{k: clone(v) for k, v in value.get_params(deep=False).items()})
    if isinstance(value, list | tuple):
        return type(value)(clone(v) for v in value)
    return value


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, int | float | str | tuple | list) and a == b
