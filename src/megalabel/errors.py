"""The errors megalabel raises, each written for the person who reads it."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self


class MegalabelError(Exception):
    """Base of every error raised on purpose by megalabel."""


class DataError(MegalabelError, ValueError):
    """Input that cannot be read: says where it is, what was found and what was expected.

    `advice` holds the keywords of `megalabel.read` that would mend it; `on_command_line` names
    the options in their place.

    Examples
    --------
    >>> print(DataError("expected feature:value, found '3;5'", file="a.txt", line=7, column=9))
    a.txt, line 7, column 9: expected feature:value, found '3;5'
    >>> error = DataError("no column of text", file="a.csv", advice={"text_column": "Body"})
    >>> print(error)
    a.csv: no column of text: give text_column='Body'
    >>> print(error.on_command_line())
    a.csv: no column of text: give --text-column Body
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        column: int | None = None,
        advice: Mapping[str, str] | None = None,
    ) -> None:
        self.file, self.line, self.column = file, line, column
        self._bare, self.advice = message, dict(advice or {})
        keywords = ", ".join(f"{name}={value!r}" for name, value in self.advice.items())
        self.message = f"{message}: give {keywords}" if keywords else message
        super().__init__(self._placed(self.message))

    def on_command_line(self) -> str:
        """The message with options of the command line in place of keywords."""
        options = " ".join(
            f"--{name.replace('_', '-')} {shlex.quote(value)}"
            for name, value in self.advice.items()
        )
        return self._placed(f"{self._bare}: give {options}" if options else self._bare)

    def _placed(self, message: str) -> str:
        place = [str(self.file)] if self.file is not None else []
        place += [f"line {self.line}"] if self.line is not None else []
        place += [f"column {self.column}"] if self.column is not None else []
        return f"{', '.join(place)}: {message}" if place else message


class ParameterError(MegalabelError, ValueError):
    """A parameter that is unknown or outside what it may be."""


class ShapeError(MegalabelError, ValueError):
    """Two arrays whose shapes do not fit each other; names both."""


class NotFittedError(MegalabelError, ValueError, AttributeError):
    """Something was asked of a component that has learned nothing yet.

    Where scikit-learn is loaded, it is scikit-learn's NotFittedError too.
    """

    def __new__(cls, *args: object) -> Self:
        # whoever catches scikit-learn's error has loaded it, so that we need not
        ours: Any = cls
        theirs: Any = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", cls)
        error: Self = super().__new__(_joined(ours, theirs), *args)
        return error

    def __reduce__(self) -> tuple[type[NotFittedError], tuple[object, ...]]:
        return NotFittedError, self.args  # a class made on the spot cannot be found by its name


@functools.cache
def _joined(ours: type, theirs: type) -> Any:
    """A class that is both, by the name of ours."""
    if issubclass(ours, theirs):
        return ours
    return type(ours.__name__, (ours, theirs), {"__module__": ours.__module__})


class UnknownLabelError(MegalabelError, KeyError):
    """A label that the label set does not hold; suggests the nearest names."""

    KIND = "label"

    def __init__(self, label: object, similar: Iterable[str] = ()) -> None:
        self.label, self.similar = label, tuple(similar)
        hint = f"; did you mean {', '.join(map(repr, self.similar))}?" if self.similar else ""
        self.message = f"unknown {self.KIND} {label!r}{hint}"
        super().__init__(self.message)

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return self.message


class UnknownConceptError(UnknownLabelError):
    """A concept that the vocabulary does not hold; suggests the nearest names."""

    KIND = "concept"


class NotEnoughMemoryError(MegalabelError, MemoryError):
    """The memory of the machine or of its GPU does not suffice; says what would need less."""


class StoreError(MegalabelError):
    """A model folder that is damaged, incomplete, or not one of ours."""


class JudgeError(MegalabelError):
    """A judge of labels that does not answer, or refuses to."""


class BudgetError(MegalabelError):
    """What is to be asked of a judge would cost more than was allowed."""


class OutputError(MegalabelError, OSError):
    """A file or folder that could not be written; the message names it as it was given."""

    def __str__(self) -> str:  # OSError would show the error's number too
        return str(self.strerror)


class MissingExtraError(MegalabelError, ImportError):
    """An optional dependency is not installed; says which extra brings it."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"{module} is not installed: pip install 'megalabel[{extra}]'", name=module
        )
