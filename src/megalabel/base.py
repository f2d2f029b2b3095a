"""What every part of a tagger is: a component with declared parameters and learned state.

The constructor keeps its keyword arguments as they are, `fit` returns self, and what was learned is
kept in attributes whose names end in an underscore. That convention is all the model store needs:
parameters and learned attributes are saved and restored with no code in the component itself.
What a component learns is declared as its parameters are, with named axes: arrays are checked by it
when they come from a folder, and cut along "labels" when some labels are taken.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

from megalabel.errors import NotFittedError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

    Matrix: TypeAlias = csr_matrix | np.ndarray

LABELS = "labels"  # the axis along which arrays are cut when some labels are taken


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
    named = ", ".join(map(repr, values))
    return Check(
        lambda v: any(v is w or (type(v) is type(w) and v == w) for w in values),
        f"one of {named}" if len(values) > 1 else named,
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


def check_not_negative(owner: str, name: str, values: np.ndarray) -> None:
    """Raise a ValueError unless all of an array are finite and none is below 0, for `restore`."""
    import numpy as np

    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"{name} of {owner} must be finite numbers of at least 0")


@dataclass(frozen=True)
class Learned:
    """What a learned attribute may be.

    `check(owner, name, value, axes)` raises a ValueError unless a value is that; `axes` holds the
    lengths of the axes met so far, and gets those of the value. `take(value, numbers)` is the value
    for some of the labels.
    """

    check: Callable[[str, str, Any, dict[str, int]], None]
    take: Callable[[Any, np.ndarray], Any] = lambda value, numbers: value
    optional: bool = False


def array(dtype: Any, *axes: str | int) -> Learned:
    """An array of a type, or of one of several, with such axes.

    An axis is a length, a name whose length is the same in all arrays of the component, or a name
    and "+1": one more than that.
    """
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,)

    def check(owner: str, name: str, value: Any, known: dict[str, int]) -> None:
        found = next((d for d in dtypes if getattr(value, "dtype", None) == d), dtypes[0])
        shape = [axis if isinstance(axis, int) else _known(axis, known) for axis in axes]
        check_array(owner, name, value, found, tuple(shape))
        for axis, length in zip(axes, value.shape, strict=True):
            if isinstance(axis, str):
                _learn_axis(owner, name, axis, length, known)

    def take(value: Any, numbers: np.ndarray) -> Any:
        for at, axis in enumerate(axes):
            value = value.take(numbers, at) if axis == LABELS else value
        return value

    return Learned(check, take)


def part(kind: type[Any], axis: str | None = None) -> Learned:
    """An instance of a class, such as another component; `axis` names its length."""

    def check(owner: str, name: str, value: Any, known: dict[str, int]) -> None:
        if not isinstance(value, kind):
            raise ValueError(
                f"{name} of {owner} must be a {kind.__name__}, not {type(value).__name__}"
            )
        if isinstance(value, Component) and value.must_learn and not value.fitted:
            raise ValueError(f"{name} of {owner} must be a fitted {type(value).__name__}")
        if axis is not None:
            if _known(axis, known) not in (None, len(value)):
                raise ValueError(
                    f"{name} of {owner} must have {_known(axis, known)} {axis}, not {len(value)}"
                )
            _learn_axis(owner, name, axis, len(value), known)

    def take(value: Any, numbers: np.ndarray) -> Any:
        if isinstance(value, Component):
            return value.take_labels(numbers)
        return value.take(numbers) if axis == LABELS else value

    return Learned(check, take)


def value(check: Check) -> Learned:
    """A plain value: a number, a text, a list or dict of those."""

    def accept(owner: str, name: str, found: Any, known: dict[str, int]) -> None:
        if not check.accepts(found):
            raise ValueError(f"{name} of {owner} must be {check.expected}")

    return Learned(accept)


def list_of(item: Learned, axis: str | None = None) -> Learned:
    """A list; `axis` names its length. Named axes of an item are its own."""

    def check(owner: str, name: str, value: Any, known: dict[str, int]) -> None:
        wanted = None if axis is None else _known(axis, known)
        if not isinstance(value, list) or wanted not in (None, len(value)):
            size = "" if wanted is None else f" of {wanted} {axis}"
            raise ValueError(f"{name} of {owner} must be a list{size}")
        if axis is not None:
            _learn_axis(owner, name, axis, len(value), known)
        for at, one in enumerate(value):
            item.check(owner, f"{name}[{at}]", one, {})

    return Learned(check, lambda value, numbers: [item.take(one, numbers) for one in value])


def optional(learned: Learned) -> Learned:
    """The same, or None, or nothing at all: then the class's own attribute is the default."""

    def check(owner: str, name: str, value: Any, known: dict[str, int]) -> None:
        if value is not None:
            learned.check(owner, name, value, known)

    def take(value: Any, numbers: np.ndarray) -> Any:
        return None if value is None else learned.take(value, numbers)

    return replace(learned, check=check, take=take, optional=True)


def _known(axis: str, known: Mapping[str, int]) -> int | None:
    name, _, more = axis.partition("+")
    return known[name] + int(more or 0) if name in known else None


def _learn_axis(owner: str, name: str, axis: str, length: int, known: dict[str, int]) -> None:
    at, _, more = axis.partition("+")
    known[at] = length - int(more or 0)
    if known[at] < 0:
        raise ValueError(f"{name} of {owner} must not be empty")


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
    the start of `fit`; and `LEARNED`, what each learned attribute may be. Those may be numbers,
    strings, lists and dicts of those, NumPy arrays, CSR matrices, Arrow string arrays, label sets
    and other components.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {}
    LEARNED: ClassVar[Mapping[str, Learned] | None] = None
    """None: nothing that it learns is ever kept in a model folder, nor cut to some labels."""
    BY_LABEL: ClassVar[frozenset[str]] = frozenset()
    """Parameters that may be arrays with a value for each label."""
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
        if unknown := sorted(set(parameters) - set(cls.parameter_names())):
            raise ParameterError(
                f"{cls.__name__} has no parameter {unknown[0]!r}: made by a newer megalabel?"
            )
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

    @property
    def must_learn(self) -> bool:
        """Whether there is anything that it must have learned to be of use."""
        return any(not learned.optional for learned in (self.LEARNED or {}).values())

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take learned attributes back, in place of all others, as read from a model folder.

        Arrays may be read-only and mapped from disk, and may have been tampered with: all must be
        as declared, and pass `check_learned`. Raises ValueError.
        """
        self._check_declared(learned)
        for name in self.learned():
            delattr(self, name)
        for name, value in learned.items():
            setattr(self, name, value)
        self.check_learned()

    def check_learned(self) -> None:
        """Raise a ValueError where learned attributes do not fit together in a way that their
        declaration cannot say; and get ready what is made of them."""

    def _check_declared(self, learned: Mapping[str, Any]) -> dict[str, int]:
        """Raise a ValueError unless learned attributes are as declared; gives the named axes."""
        owner, axes, known = type(self).__name__, dict[str, int](), self.LEARNED or {}
        for name in learned:
            if name not in known:
                raise ValueError(f"{owner} keeps no {name}: made by a newer megalabel?")
        for name, declared in known.items():
            if name in learned:
                declared.check(owner, name, learned[name], axes)
            elif not declared.optional:
                raise ValueError(f"{owner} lacks {name}")
        return axes

    def for_labels(self, numbers: np.ndarray) -> Self:
        """An unfitted copy for some of the labels: arrays among its parameters are cut to them."""
        if hasattr(self, "__sklearn_clone__"):
            copied: Self = clone(self)
            return copied

        def cut(name: str, value: Any) -> Any:
            if name in self.BY_LABEL and is_array(value):
                import numpy as np

                return np.asarray(value)[numbers]
            if isinstance(value, Component):
                return value.for_labels(numbers)
            if isinstance(value, list | tuple):
                return type(value)(cut("", v) for v in value)
            return clone(value)

        return type(self)(**{k: cut(k, v) for k, v in self.get_params(deep=False).items()})

    def take_labels(self, numbers: Any) -> Self:
        """A copy, fitted as this one is, for some of the labels, in the order of their numbers.

        Arrays are cut along the axis "labels"; what knows no labels stays as it is.
        """
        if self.LEARNED is None:
            raise ParameterError(f"{type(self).__name__} cannot be cut to some of its labels")
        if self.must_learn:
            self.check_fitted()
        numbers = label_numbers(numbers, self._check_declared(self.learned()).get(LABELS))
        made = self.for_labels(numbers)
        made.restore(self._taken(numbers))
        return made

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """What is learned of some of the labels, by declaration; more where that cannot say it."""
        declared = self.LEARNED or {}
        return {k: declared[k].take(v, numbers) for k, v in self.learned().items()}

    def with_alike(self, label: int, labels: int, more: int) -> Self:
        """A copy that knows so many more labels after the `labels` there are, each as it knows the
        label of that number."""
        import numpy as np

        numbers = np.append(np.arange(labels), np.full(more, label))
        made = self.for_labels(numbers)
        if self.fitted:
            made.restore(self._taken(numbers))
        return made

    def with_labels(self, others: Sequence[Self], labels: Any) -> Self:
        """One of several, each fitted on the same rows for its own labels: this one and others;
        `labels` is the LabelSet of all of them in a row."""
        raise ParameterError(
            f"{type(self).__name__} cannot be merged from classifiers of some labels"
        )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        shown = [
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if not (value is defaults[name].default or _same(value, defaults[name].default))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def is_array(value: Any) -> bool:
    """Whether a parameter is an array, in whatever form it was given."""
    import numpy as np

    return isinstance(value, np.ndarray | list | tuple)


def label_numbers(numbers: Any, labels: int | None) -> np.ndarray:
    """Numbers of some of so many labels (None: not known), each once, as an array.

    Examples
    --------
    >>> label_numbers([2, 0], 3)
    array([2, 0])
    """
    import numpy as np

    found = np.asarray(numbers)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ParameterError(
            f"labels are taken by number, in one dimension, not {found.dtype} {found.shape}"
        )
    found = found.astype(np.int64)
    least, most = found.min(initial=0), found.max(initial=-1)
    if least < 0 or (labels is not None and most >= labels):
        raise ParameterError(
            f"there is no label {least if least < 0 else most}"
            f"{'' if labels is None else f': there are {labels}'}"
        )
    if len(np.unique(found)) != len(found):
        raise ParameterError("a label is taken twice")
    return found


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
