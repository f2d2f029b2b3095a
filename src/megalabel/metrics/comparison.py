"""Two evaluations side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import ParameterError
from megalabel.metrics.bootstrap import p_values, percentiles
from megalabel.metrics.shown import Values, json_value, shown_name, shown_value

if TYPE_CHECKING:
    from megalabel.metrics.result import Evaluation


class Comparison(Values):
    """The differences `first - second` of the metrics that two evaluations share.

    Where both were measured on the same texts there are, by name, `intervals` of the differences
    and the `p_values` of a paired bootstrap test: the chance of a difference as large, either way,
    if there was none. They are empty otherwise. Made by `Evaluation.compare`.

    Examples
    --------
    >>> from megalabel.metrics import Evaluation
    >>> first, second = Evaluation({"P@1": 0.8}, rows=10), Evaluation({"P@1": 0.75}, rows=10)
    >>> print(first.compare(second))
    in %                                  first  second  difference
    Is the first suggestion right? (P@1)  80.00   75.00       +5.00
    """

    def __init__(
        self,
        first: Evaluation,
        second: Evaluation,
        first_samples: Mapping[str, np.ndarray] | None = None,
        second_samples: Mapping[str, np.ndarray] | None = None,
        confidence: float = 0.95,
    ) -> None:
        super().__init__({name: first[name] - second[name] for name in first if name in second})
        if not self:
            raise ParameterError(f"no metric in common: {list(first)} and {list(second)}")
        self.first, self.second = first, second
        self.confidence = confidence
        self.intervals: dict[str, tuple[float, float]] = {}
        self.p_values: dict[str, float] = {}
        if first_samples is None or second_samples is None:
            return
        for name, difference in self.items():
            if name in first_samples and name in second_samples:
                sampled = first_samples[name] - second_samples[name]
                low, high = percentiles(sampled, confidence)
                self.intervals[name] = (float(low), float(high))
                self.p_values[name] = float(p_values(np.asarray(difference), sampled))

    def __repr__(self) -> str:
        return f"Comparison({', '.join(f'{name}={v:+.4f}' for name, v in self.items())})"

    def to_dict(self, percent: bool = False, *, headline: bool = False) -> dict[str, Any]:
        """Ready for JSON: values of both, difference, interval and p-value (or none) by name; of
        all metrics, or of the headline alone."""

        def shown(name: str, *values: float) -> list[float]:
            return [json_value(name, value, percent) for value in values]

        found: dict[str, Any] = {}
        for name in self._headline() if headline else self:
            difference = self[name]
            first, second, more = shown(name, self.first[name], self.second[name], difference)
            found[name] = {
                "first": first,
                "second": second,
                "difference": more,
                "interval": shown(name, *self.intervals.get(name, ())) or None,
                "p": self.p_values.get(name),
            }
        return found

    def _cells(self, names: Sequence[str]) -> list[list[str]]:
        tested = any(name in self.p_values for name in names)
        header = ["in %", "first", "second", "difference"]
        cells = [[*header, f"{self.confidence:.0%} interval", "p"] if tested else header]
        for name in names:
            row = [shown_name(name)]
            row += [f"{shown_value(name, e[name]):.2f}" for e in (self.first, self.second)]
            row.append(f"{shown_value(name, self[name]):+.2f}")
            if tested and name in self.p_values:
                low, high = (shown_value(name, end) for end in self.intervals[name])
                row += [f"{low:+.2f} to {high:+.2f}", f"{self.p_values[name]:.3f}"]
            cells.append(row + [""] * (len(cells[0]) - len(row)))
        return cells

    def _plain_cells(self, asked: Mapping[str, str]) -> list[list[str]]:
        header, *rows = self._cells(list(asked))
        return [header] + [
            [question, *row[1:]] for question, row in zip(asked.values(), rows, strict=True)
        ]
