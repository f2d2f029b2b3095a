"""What an evaluation gives: named values with tables and intervals, that compare and serialise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from megalabel.data.tabular import to_pandas
from megalabel.errors import ParameterError, ShapeError
from megalabel.metrics.bootstrap import bounded, check_options, normal_quantile, percentiles
from megalabel.metrics.comparison import Comparison
from megalabel.metrics.generalised import seen_and_unseen
from megalabel.metrics.instance import UNBOUNDED, ratio
from megalabel.metrics.macro import coverage_spread, ends_of, equal_volumes, label_metrics
from megalabel.metrics.plain import plain_value, questions
from megalabel.metrics.reliability import DEBIASED, By, equal_mass, equal_width, grouped_table
from megalabel.metrics.shown import Values, headline, json_value, shown_name, shown_value
from megalabel.metrics.tallies import Tallies


class Evaluation(Values):
    """Metric values by name, as fractions: `evaluation["P@5"]`. Tables of them are in percent.

    An evaluation made by `evaluate` holds more than its values, all of it serialised by `to_json`:

    - printed, and in notebooks, it shows a few of the values with what they mean;
    - `table(*metrics)`: some of the values, or all, by the names that papers use;
    - `per_label(k)`: counts and metrics of every label;
    - `bins(k)`: what frequent and rare labels add to P@k, in bins of equal volume;
    - `seen_and_unseen()`: labels that training has seen and others, and their harmonic mean;
    - `reliability(k)`: probabilities against hit rates, in bins of equal width or mass, by rank
      or by training frequency;
    - `intervals()`: confidence intervals over texts;
    - `compare(other)`: differences, with a paired test where both saw the same texts;
    - `to_arrow()`, `to_pandas()`: the values as a table;
    - `warnings`: what to beware of.

    Parameters
    ----------
    values : mapping of str to float
        A name is a metric and, where there is one, its cutoff: `nDCG@5`.
    rows : int
        How many rows they were measured on.
    tallies : Tallies, optional
        What was counted; without it there are values alone.

    Examples
    --------
    >>> evaluation = Evaluation({"P@1": 0.82134, "P@5": 0.6}, rows=1000)
    >>> print(evaluation)
    measured on 1,000 texts                      in %       that is
    Is the first suggestion right? (P@1)         82.1  821 of 1,000
    Of 5 suggestions, how many are right? (P@5)  60.0      3.0 of 5
    >>> print(evaluation.table("P"))
    in %, 1,000 texts     @1     @5
    P                  82.13  60.00
    >>> evaluation.to_dict(percent=True)
    {'P@1': 82.134, 'P@5': 60.0, 'rows': 1000}
    """

    def __init__(
        self, values: Mapping[str, float], rows: int, *, tallies: Tallies | None = None
    ) -> None:
        super().__init__(values)
        self.rows = int(rows)
        self._tallies = tallies

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self[name]:.4f}" for name in questions(self) or self)
        return f"Evaluation({shown}, rows={self.rows})"

    # ------------------------------------------------------------ what it holds
    @property
    def cutoffs(self) -> tuple[int, ...]:
        """The cutoffs of the values, rising."""
        found = {name.partition("@")[2] for name in self}
        return tuple(sorted(int(cutoff) for cutoff in found if cutoff.isdecimal()))

    @property
    def warnings(self) -> list[str]:
        """What to beware of in reading the values."""
        above = {name: v for name, v in self.items() if name.startswith("PSP-raw@") and v > 1}
        if not above:
            return []
        worst = max(above, key=lambda name: above[name])
        return [
            f"{worst} is {100 * above[worst]:.1f} %: above 100 %, propensities do not fit the data"
        ]

    def per_label(self, k: int | None = None) -> pa.Table:
        """Counts and metrics of every label, in the order of the label set, at a cutoff.

        Parameters
        ----------
        k : int, optional
            One of the cutoffs; the largest by default.

        Returns
        -------
        Arrow table
            `label`, `name`, `train` (training texts, if known), `positives`, `predicted`, `tp`,
            `fp`, `fn`, `tn`, and the label's metrics: `P`, `R`, `F1`, …
        """
        tallies, place, _ = self._at(k)
        predicted, hits = tallies.predicted[place], tallies.hits[place]
        positives, n = tallies.positives, self.rows
        train = {} if tallies.train_counts is None else {"train": tallies.train_counts}
        return pa.table(
            {
                "label": tallies.labels.ids,
                "name": tallies.labels.names,
                **train,
                "positives": positives,
                "predicted": predicted,
                "tp": hits,
                "fp": predicted - hits,
                "fn": positives - hits,
                "tn": n - predicted - positives + hits,
                **label_metrics(predicted, hits, positives, n, tallies.beta),
            }
        )

    def bins(self, k: int | None = None, bins: int = 5) -> pa.Table:
        """What frequent and rare labels add to P@k, in bins of equally many training positives.

        Parameters
        ----------
        k : int, optional
            One of the cutoffs; the largest by default.
        bins : int
            How many; 3 are head, torso and tail.

        Returns
        -------
        Arrow table
            One row a bin, the most frequent labels first: `bin` from 1, the `low`est and the
            `high`est number of training texts of its labels (null in an empty bin), how many
            `labels`, their `train` positives in all, and of this test set `positives`,
            `predicted`, `hits`, the `contribution` to P@k (these add up to it), micro-averaged
            `P` and `R`, and over the labels of the bin `macro-F1` and `coverage`.
        """
        tallies, place, k = self._at(k)
        if tallies.train_counts is None:
            raise ParameterError("give train_labels to evaluate: bins are of training frequency")
        if bins < 1:
            raise ParameterError(f"bins must be an integer of at least 1, not {bins!r}")
        number = equal_volumes(tallies.train_counts, bins)
        hits, predicted = tallies.hits[place], tallies.predicted[place]
        f1 = ratio(2 * hits, predicted + tallies.positives)

        def total(values: np.ndarray) -> np.ndarray:
            return np.bincount(number, weights=values, minlength=bins)

        labels = np.bincount(number, minlength=bins)
        low, high = ends_of(tallies.train_counts, number, bins)
        counts = {
            "labels": labels,
            "train": total(tallies.train_counts),
            "positives": total(tallies.positives),
            "predicted": total(predicted),
            "hits": total(hits),
        }
        return pa.table(
            {
                "bin": np.arange(1, bins + 1),
                "low": low,
                "high": high,
                **{name: values.astype(np.int64) for name, values in counts.items()},
                "contribution": counts["hits"] / (self.rows * k),
                "P": ratio(counts["hits"], counts["predicted"]),
                "R": ratio(counts["hits"], counts["positives"]),
                "macro-F1": ratio(total(f1), labels),
                "coverage": ratio(total(hits > 0), labels),
            }
        )

    def seen_and_unseen(self, seen: Any = None) -> pa.Table:
        """How well labels are found that were seen in training, and those that were not, such as
        labels that were added to a model (generalised zero-shot evaluation).

        Parameters
        ----------
        seen : bool array (labels,), optional
            Which labels of the truth were seen. By default those that any training text carries.

        Returns
        -------
        Arrow table
            A row for the `group` "seen", "unseen", "all" and "harmonic mean" (2 S U / (S + U)):
            its `labels` that any text carries, how often they are carried (`positives`), and by
            cutoff the share of these that is found (`R`), its mean over labels (`macro-R`), and
            what hits add to P@k (`P`).
        """
        tallies = self._held()
        if seen is None:
            if tallies.train_counts is None:
                raise ParameterError(
                    "give train_labels to evaluate: they say which labels were seen in training"
                )
            seen = tallies.train_counts > 0
        seen = np.asarray(seen)
        if seen.dtype != bool or seen.shape != tallies.positives.shape:
            raise ShapeError(
                f"seen must be bool {tallies.positives.shape}, one a label of the truth, not "
                f"{seen.dtype} {seen.shape}"
            )
        return seen_and_unseen(tallies, seen)

    def reliability(
        self, k: int | None = None, *, mass: bool = False, by: By | None = None
    ) -> pa.Table:
        """Probabilities against hit rates in 15 bins, as `megalabel.metrics.reliability` has them.

        Parameters
        ----------
        k : int, optional
            One of the cutoffs; the largest by default.
        mass : bool
            Bins of equally many pairs rather than of equal width.
        by : "rank" or "frequency", optional
            By the rank of an answer, or by how many training texts carry the label, rather than by
            probability.
        """
        tallies, place, k = self._at(k)
        if tallies.cells is None:
            raise ParameterError("give probabilities=True to evaluate: scores may be anything")
        if by is not None:
            if tallies.grouped is None:
                raise ParameterError(f"this evaluation was kept without what by={by!r} needs")
            if by == "frequency" and tallies.train_counts is None:
                raise ParameterError("give train_labels to evaluate: by='frequency' needs them")
            return grouped_table(tallies.grouped, tallies.cutoffs, k, by)
        return (equal_mass if mass else equal_width)(tallies.cells[place]).table()

    def intervals(
        self, *, confidence: float = 0.95, samples: int = 1000, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Confidence intervals over texts, by name, from test sets drawn with replacement.

        What is made of sums over texts is measured anew on each test set that is drawn. Macro
        metrics, coverage and binned calibration errors would be off on it, as it lacks texts that
        are in the whole one: these are moved by what each text does to them (the jackknife), and
        their intervals err on the wide side. Intervals hold what test sets of this size give on
        average.

        The percentiles of such values have no width, or too little, near 0 and 1. Where a value
        is made of sums over texts and lies between 0 and 1, the interval is that of Wilson with
        the spread of the samples; that of coverage allows for a label more or less.

        Parameters
        ----------
        confidence : float
            How often intervals are to hold the truth.
        samples : int
            How many test sets are drawn, with replacement.
        seed : int
            The same seed draws the same texts.
        """
        check_options(samples, confidence)
        sampled = self.sampled(samples=samples, seed=seed)
        return {name: self._interval(name, values, confidence) for name, values in sampled.items()}

    def _interval(self, name: str, sampled: np.ndarray, confidence: float) -> tuple[float, float]:
        """The interval of one value from its samples."""
        metric, _, cutoff = name.partition("@")
        tallies = self._held()
        if metric == "coverage":
            hits = tallies.hits[tallies.cutoffs.tolist().index(int(cutoff))]
            half = normal_quantile(confidence) * coverage_spread(hits, float(sampled.std()))
            return max(self[name] - half, 0.0), min(self[name] + half, 1.0)
        if metric not in tallies.indirect and metric not in UNBOUNDED:
            return bounded(self[name], sampled, self.rows, confidence)
        low, high = percentiles(sampled, confidence)
        if metric in tallies.indirect and not metric.endswith(DEBIASED):
            low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)  # sums of effects know no bounds
        return float(low), float(high)

    def sampled(self, *, samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """The values of test sets drawn with replacement, by name: (samples,) each.

        See `intervals`; macro metrics, coverage and calibration errors may leave [0, 1].
        """
        tallies = self._held()
        pieces = list(tallies.sampled(samples, seed))
        found = {
            f"{name}@{cutoff}": np.concatenate([piece[name][:, i] for piece in pieces])
            for name in pieces[0]
            for i, cutoff in enumerate(tallies.cutoffs)
        }
        found = {name: found[name] for name in self if name in found}
        for name, values in found.items():
            if name.partition("@")[0] in tallies.indirect:
                values += self[name]
        return found

    def compare(
        self,
        other: Evaluation,
        *,
        confidence: float = 0.95,
        samples: int = 1000,
        seed: int = 0,
    ) -> Comparison:
        """This evaluation beside another: differences and, on the same texts, a paired test.

        Both are measured on the same test sets, drawn with replacement; see `intervals` for how,
        and for the parameters.
        """
        check_options(samples, confidence)
        first = second = None
        if self._tallies is not None and self._same_texts(other):
            first = self.sampled(samples=samples, seed=seed)
            second = other.sampled(samples=samples, seed=seed)
        return Comparison(self, other, first, second, confidence)

    # ------------------------------------------------------------ there and back
    def to_arrow(self) -> pa.Table:
        """The values as a table: `metric`, its cutoff `k` (null without one), and `value`, a
        fraction.

        Examples
        --------
        >>> Evaluation({"P@1": 0.5}, rows=2).to_arrow().to_pylist()
        [{'metric': 'P', 'k': 1, 'value': 0.5}]
        """
        parts = [name.partition("@") for name in self]
        return pa.table(
            {
                "metric": pa.array([metric for metric, _, _ in parts], pa.string()),
                "k": pa.array([int(k) if k else None for _, _, k in parts], pa.int64()),
                "value": pa.array(list(self.values()), pa.float64()),
            }
        )

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a pandas data frame."""
        return to_pandas(self.to_arrow())

    def to_dict(
        self, percent: bool = False, *, tables: bool = False, seed: int = 0
    ) -> dict[str, Any]:
        """Values and `rows`, ready for JSON; as fractions, or rounded in percent for people.

        With `tables` also `intervals` (of this seed, in percent too if asked for), `bins`,
        `reliability`, `reliability_by_rank` and `reliability_by_frequency` by cutoff (always
        fractions), as far as there are any, and `warnings`.
        """
        shown: dict[str, Any] = {
            name: json_value(name, value, percent) for name, value in self.items()
        }
        shown["rows"] = self.rows
        if not tables:
            return shown
        if self._tallies is not None:
            shown["intervals"] = {
                name: [json_value(name, end, percent) for end in ends]
                for name, ends in self.intervals(seed=seed).items()
            }
            if self._tallies.train_counts is not None:
                shown["bins"] = {str(k): self.bins(k).to_pylist() for k in self.cutoffs}
            if self._tallies.cells is not None:
                for name, by in self._reliabilities().items():
                    tables_of = {str(k): self.reliability(k, by=by) for k in self.cutoffs}
                    shown[name] = {k: table.to_pylist() for k, table in tables_of.items()}
        return shown | {"warnings": self.warnings}

    def summary(
        self, *, intervals: bool = False, bins: int = 0, reliability: bool = False, seed: int = 0
    ) -> dict[str, Any]:
        """The headline in percent and `rows`, ready for JSON, with the tables that are asked for.

        Those are the `intervals` of the headline (of this seed), so many frequency `bins`, and
        `reliability`, also by rank and by frequency, all at the largest cutoff.
        """
        everything = self.to_dict(percent=True)
        shown = {name: everything[name] for name in [*headline(self), "rows"]}
        k = self.cutoffs[-1]
        if intervals:
            ends = self.intervals(seed=seed)
            shown["intervals"] = {
                name: [json_value(name, end, percent=True) for end in ends[name]]
                for name in headline(ends)
            }
        if bins:
            shown["bins"] = {str(k): self.bins(k, bins).to_pylist()}
        if reliability:
            for name, by in self._reliabilities().items():
                shown[name] = {str(k): self.reliability(k, by=by).to_pylist()}
        return shown

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Back from `to_dict()`: the values alone."""
        numbers = {k: v for k, v in values.items() if k != "rows" and isinstance(v, int | float)}
        return cls(numbers, rows=values["rows"])

    def to_json(self) -> str:
        """Everything, also what is needed for tables, intervals and comparisons."""
        tallies = None if self._tallies is None else self._tallies.to_dict()
        return json.dumps({"values": dict(self), "rows": self.rows, "tallies": tallies})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Back from `to_json()`.

        Examples
        --------
        >>> evaluation = Evaluation({"P@1": 0.5}, rows=2)
        >>> Evaluation.from_json(evaluation.to_json()) == evaluation
        True
        """
        state = json.loads(text)
        tallies = None if state["tallies"] is None else Tallies.from_dict(state["tallies"])
        return cls(state["values"], state["rows"], tallies=tallies)

    # ------------------------------------------------------------ helpers
    def _held(self) -> Tallies:
        if self._tallies is None:
            raise ParameterError("this evaluation holds values alone: see to_json and evaluate")
        return self._tallies

    def _at(self, k: int | None) -> tuple[Tallies, int, int]:
        """The tallies and the place of a cutoff in them, and the cutoff."""
        tallies = self._held()
        cutoffs = tallies.cutoffs.tolist()
        k = cutoffs[-1] if k is None else k
        if k not in cutoffs:
            raise ParameterError(f"k must be one of the cutoffs {cutoffs}, not {k!r}")
        return tallies, cutoffs.index(k), k

    def _reliabilities(self) -> dict[str, By | None]:
        """The reliability tables that there are, by their names in JSON, and what they are by."""
        tallies = self._held()
        found: dict[str, By | None] = {"reliability": None}
        if tallies.grouped is not None:
            found["reliability_by_rank"] = "rank"
            if tallies.train_counts is not None:
                found["reliability_by_frequency"] = "frequency"
        return found

    def _same_texts(self, other: Evaluation) -> bool:
        first, second = self._tallies, other._tallies
        if first is None or second is None or self.rows != other.rows:
            return False
        return first.checksum == second.checksum

    def _cells(self, names: Sequence[str]) -> list[list[str]]:
        parts = {name: name.partition("@")[::2] for name in names}
        cutoffs = sorted({cutoff for _, cutoff in parts.values()}, key=lambda c: (len(c), c))
        rows: dict[str, dict[str, str]] = {}
        for name, (metric, cutoff) in parts.items():
            rows.setdefault(metric, {})[cutoff] = f"{shown_value(name, self[name]):.2f}"
        header = f"in %, {self.rows:,} texts"
        cells = [[header, *(f"@{cutoff}" if cutoff else "" for cutoff in cutoffs)]]
        return cells + [
            [shown_name(metric), *(at.get(c, "") for c in cutoffs)] for metric, at in rows.items()
        ]

    def _plain_cells(self, asked: Mapping[str, str]) -> list[list[str]]:
        cells = [[f"measured on {self.rows:,} texts", "in %", "that is"]]
        for name, question in asked.items():
            cells.append([question, plain_value(self[name]), self.counted(name)])
        return cells

    def counted(self, name: str) -> str:
        """A value as a number of things where it is one ("3.0 of 5"), else nothing."""
        metric, _, cutoff = name.partition("@")
        if name == "P@1":
            return f"{self[name] * self.rows:,.0f} of {self.rows:,}"
        if metric == "P":
            return f"{self[name] * int(cutoff):.1f} of {cutoff}"
        if metric == "coverage" and self._tallies is not None:
            labels = len(self._tallies.labels)
            return f"{self[name] * labels:,.0f} of {labels:,}"
        return "within chance" if self[name] < 0 else ""
