"""What an evaluation gives: named values that print, compare and serialise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from megalabel.errors import ParameterError

if TYPE_CHECKING:
    from rich.table import Table


class _Values(Mapping[str, float]):
    """Values by name that print as a table, in a terminal with colours too."""

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
    def _cells(self) -> list[list[str]]:
        """The table's cells, the header first."""

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in cells
        )
        return "\n".join(line.rstrip() for line in lines)

    def __rich__(self) -> Table:
        from rich.table import Table

        header, *rows = self._cells()
        table = Table(header[0])
        for name in header[1:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        return table


class Evaluation(_Values):
    """Metric values by name, as fractions: `evaluation["P@5"]`.

    Parameters
    ----------
    values : mapping of str to float
        A name is a metric and, where there is one, its cutoff: `nDCG@5`.
    rows : int
        How many rows they were measured on.

    Examples
    --------
    >>> evaluation = Evaluation({"P@1": 0.82134, "P@5": 0.6}, rows=1000)
    >>> print(evaluation)
    % of 1,000 rows     @1     @5
    P                82.13  60.00
    >>> evaluation.to_dict(percent=True)
    {'P@1': 82.134, 'P@5': 60.0, 'rows': 1000}
    """

    def __init__(self, values: Mapping[str, float], rows: int) -> None:
        super().__init__(values)
        self.rows = int(rows)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value:.4f}" for name, value in self.items())
        return f"Evaluation({shown}, rows={self.rows})"

    def to_dict(self, percent: bool = False) -> dict[str, Any]:
        """Values and `rows`, ready for JSON; as fractions, or rounded in percent for people."""
        values = {name: round(100 * v, 3) if percent else v for name, v in self.items()}
        return {**values, "rows": self.rows}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Back from `to_dict()`."""
        return cls({k: v for k, v in values.items() if k != "rows"}, rows=values["rows"])

    def compare(self, other: Evaluation) -> Comparison:
        """This evaluation beside another, with the differences."""
        return Comparison(self, other)

    def _cells(self) -> list[list[str]]:
        names = {name: name.partition("@")[::2] for name in self}
        cutoffs = sorted({cutoff for _, cutoff in names.values()}, key=lambda c: (len(c), c))
        rows: dict[str, dict[str, str]] = {}
        for name, (metric, cutoff) in names.items():
            rows.setdefault(metric, {})[cutoff] = f"{100 * self[name]:.2f}"
        return [
            [f"% of {self.rows:,} rows", *(f"@{cutoff}" if cutoff else "" for cutoff in cutoffs)],
            *(
                [metric, *(cells.get(cutoff, "") for cutoff in cutoffs)]
                for metric, cells in rows.items()
            ),
        ]


class Comparison(_Values):
    """The differences `first - second` of the metrics that two evaluations share.

    Examples
    --------
    >>> first, second = Evaluation({"P@1": 0.8}, rows=10), Evaluation({"P@1": 0.75}, rows=10)
    >>> print(first.compare(second))
    %    first  second  difference
    P@1  80.00   75.00       +5.00
    """

    def __init__(self, first: Evaluation, second: Evaluation) -> None:
        super().__init__({name: first[name] - second[name] for name in first if name in second})
        if not self:
            raise ParameterError(f"no metric in common: {list(first)} and {list(second)}")
        self.first, self.second = first, second

    def __repr__(self) -> str:
        return f"Comparison({', '.join(f'{name}={v:+.4f}' for name, v in self.items())})"

    def _cells(self) -> list[list[str]]:
        return [
            ["%", "first", "second", "difference"],
            *(
                [
                    name,
                    f"{100 * self.first[name]:.2f}",
                    f"{100 * self.second[name]:.2f}",
                    f"{100 * difference:+.2f}",
                ]
                for name, difference in self.items()
            ),
        ]
