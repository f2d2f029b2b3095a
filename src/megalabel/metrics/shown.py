"""Values by name, and tables of them for people."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from megalabel import html
from megalabel.errors import ParameterError
from megalabel.metrics.plain import questions

if TYPE_CHECKING:
    from rich.console import Group

HEADLINE = ("P", "R", "nDCG", "PSP", "PSP-raw", "macro-F1", "coverage", "ECE", "ECE-debiased")
"""The metrics that a summary for programs has."""

NOT_PERCENT = ("log-loss",)
"""Metrics that are not fractions and are shown as they are."""


def shown_value(name: str, value: float) -> float:
    """A metric's value as people read it: in percent, if it is a fraction."""
    return value if name.partition("@")[0] in NOT_PERCENT else 100 * value


def shown_name(name: str) -> str:
    """A metric's name in a table in percent, which says of some that they are not.

    Examples
    --------
    >>> shown_name("P@5"), shown_name("log-loss@5")
    ('P@5', 'log-loss@5 (not in %)')
    """
    return f"{name} (not in %)" if name.partition("@")[0] in NOT_PERCENT else name


def json_value(name: str, value: float, percent: bool) -> float:
    """A metric's value for JSON: as it is, or rounded and as people read it."""
    return round(shown_value(name, value), 3) if percent else value


def group_name(low: int | None, high: int | None) -> str:
    """A short name for a group of whole numbers, as it fits below a bar.

    Examples
    --------
    >>> group_name(5, 5), group_name(6, 1_000), group_name(100, None), group_name(None, None)
    ('5', '6–1,000', '100+', 'none')
    """
    if low is None:
        return "none"
    if high is None:
        return f"{low:,}+"
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def headline(names: Iterable[str]) -> list[str]:
    """Those of some names of values that belong to the headline.

    Examples
    --------
    >>> headline(["P@1", "Jaccard@1", "macro-F1@5"])
    ['P@1', 'macro-F1@5']
    """
    return [name for name in names if name.partition("@")[0] in HEADLINE]


class Shown:
    """A table of cells, the header first, with notes below; also for terminals and notebooks."""

    def __init__(self, cells: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
        self.cells, self.notes = cells, notes

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.cells, strict=True)]
        lines = (
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in self.cells
        )
        return "\n".join([*(line.rstrip() for line in lines), *self.notes])

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table

        header, *rows = self.cells
        table = Table(header[0])
        for name in header[1:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        return Group(table, *(f"[yellow]{escape(note)}[/]" for note in self.notes))

    def _repr_html_(self) -> str:
        header, *rows = self.cells
        return html.sheet(header[0], ["", *header[1:]], rows, self.notes, numbers=True)


class Values(Mapping[str, float]):
    """Values by name that print as a table."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = {str(name): float(value) for name, value in values.items()}

    def __getitem__(self, name: str) -> float:
        if name not in self._values:
            raise KeyError(f"{name!r} was not measured; there are {', '.join(self._values)}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @abstractmethod
    def _cells(self, names: Sequence[str]) -> list[list[str]]:
        """The cells of a table of these values, the header first."""

    @abstractmethod
    def _plain_cells(self, asked: Mapping[str, str]) -> list[list[str]]:
        """The cells of a table of the values that answer these questions, the header first."""

    def table(self, *metrics: str) -> Shown:
        """A table in percent of some metrics (`"P"`, `"macro-F1"`, …), or of all, with warnings
        below."""
        names = self._of(metrics) if metrics else list(self)
        if not names:
            raise ParameterError(f"none of {', '.join(metrics)} was measured")
        return Shown(self._cells(names), () if metrics else self.warnings)

    @property
    def warnings(self) -> list[str]:
        """What to beware of in reading the values."""
        return []

    def __str__(self) -> str:
        return str(self._plain())

    def __rich__(self) -> Group:
        return self._plain().__rich__()

    def _repr_html_(self) -> str:
        return self._plain()._repr_html_()

    def _plain(self) -> Shown:
        """The values that answer a question in plain words, or else all."""
        asked = questions(self)
        return Shown(self._plain_cells(asked) if asked else self._cells(list(self)))

    def _of(self, metrics: Sequence[str]) -> list[str]:
        return [name for name in self if name.partition("@")[0] in metrics]

    def _headline(self) -> list[str]:
        return headline(self) or list(self)
