"""evaluate: how good a model is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.markup import escape

from megalabel.cli import output
from megalabel.cli.models import Json, MaxBytes, Seed, SkipBad, Threads, cutoffs, read, use_threads
from megalabel.errors import ParameterError
from megalabel.labels import PROPENSITIES, read_propensities
from megalabel.metrics import HEADLINE, Comparison, Evaluation
from megalabel.metrics.shown import json_value, shown_value
from megalabel.outputs import check_file, replacing_file
from megalabel.tagger import Tagger

_FIT_PROPENSITIES = (
    "To fit them, label some texts completely: `megalabel propensities CORPUS --model richards "
    "--complete SAMPLE --out FILE`, then `evaluate --propensities FILE` (docs/missing-labels.md)."
)


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    folder: Annotated[Path, typer.Argument(help="A corpus: a folder or a file.")],
    k: Annotated[str, typer.Option("-k", help="Cut-offs, separated by commas.")] = "1,3,5",
    part: Annotated[str, typer.Option("--split", help="Which part of the corpus.")] = "test",
    everything: Annotated[
        bool, typer.Option("--all", help="Show every metric, not just the headline.")
    ] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Show 95 % confidence intervals over texts.")
    ] = False,
    bins: Annotated[
        int,
        typer.Option(min=0, help="Show what labels add to P@k, frequent to rare, in so many bins."),
    ] = 0,
    reliability: Annotated[
        bool, typer.Option("--reliability", help="Show probabilities against hit rates.")
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(help="Write a table of all labels: .csv, .parquet or .jsonl."),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Another model, to test for a difference.")
    ] = None,
    propensities: Annotated[
        str | None,
        typer.Option(help="For PSP and its like: a model by name (jpv-wikipedia …), or a file."),
    ] = None,
    beta: Annotated[float, typer.Option(min=0.0, help="Of the macro F-beta.")] = 2.0,
    seed: Seed = 0,
    threads: Threads = None,
    skip_bad: SkipBad = False,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Measure a model on the test part of a corpus, in percent.

    [dim]megalabel evaluate model data/ --all --intervals --compare other[/]
    """
    use_threads(threads)
    from_file = propensities is not None and propensities not in PROPENSITIES
    if from_file and not Path(str(propensities)).is_file():
        known = ", ".join(PROPENSITIES)
        raise ParameterError(f"--propensities takes {known} or a file, not {propensities!r}")
    write = None if labels is None else _writer(labels)
    tagger = Tagger.load(model)
    other = None if compare is None else Tagger.load(compare)
    corpus = read(folder, part, skip_bad, max_bytes)
    started = time.perf_counter()

    def measured(by: Tagger) -> Evaluation:
        given: Any = propensities
        if from_file:
            given = read_propensities(str(propensities), corpus.aligned(by.labels).labels)
        return by.evaluate(corpus, k=cutoffs(k), propensities=given, beta=beta)

    result = measured(tagger)
    seconds = time.perf_counter() - started
    comparison = None
    if other is not None:
        comparison = result.compare(measured(other), seed=seed)
    if labels is not None and write is not None:
        with replacing_file(labels) as fresh:
            write(result.per_label(), fresh)
    if as_json:
        shown = result.to_dict(percent=True, tables=everything, seed=seed)
        if not everything:
            wanted = {"rows", *_headline(result)}
            shown = {name: value for name, value in shown.items() if name in wanted}
            shown |= _tables(result, intervals, bins, reliability, seed)
        shown |= {"split": corpus.source["split"], "labels": len(tagger.labels)}
        shown["seconds"] = round(seconds, 3)
        if comparison is not None:
            compared = comparison.to_dict(percent=True)
            names = compared if everything else _headline(comparison)
            shown["comparison"] = {name: compared[name] for name in names}
        output.show_json(shown)
        return
    output.console.print(f"[bold]{escape(str(model))} on {escape(corpus.source['path'])}[/]")
    output.console.print(result.table() if everything else result)
    if everything and result.warnings:
        output.console.print(_FIT_PROPENSITIES, soft_wrap=True)
    if intervals:
        _show_intervals(result, everything, seed)
    if bins:
        _show_bins(result, bins)
    if reliability:
        _show_reliability(result)
    if comparison is not None:
        _show_comparison(comparison, everything, model, compare)
    output.note(f"{len(corpus):,} texts in {output.duration(seconds)}")


def _headline(values: Iterable[str]) -> list[str]:
    return [name for name in values if name.partition("@")[0] in HEADLINE]


def _tables(
    result: Evaluation, intervals: bool, bins: int, reliability: bool, seed: int
) -> dict[str, Any]:
    """The tables that were asked for, as JSON: those that people are shown."""
    k, shown = result.cutoffs[-1], {}
    if intervals:
        ends = result.intervals(seed=seed)
        shown["intervals"] = {
            name: [json_value(name, end, percent=True) for end in ends[name]]
            for name in _headline(ends)
        }
    if bins:
        shown["bins"] = {str(k): result.bins(k, bins).to_pylist()}
    if reliability:
        shown["reliability"] = {str(k): result.reliability(k).to_pylist()}
    return shown


def _show_intervals(result: Evaluation, everything: bool, seed: int) -> None:
    ends = result.intervals(seed=seed)
    rows = [
        [name, *(shown_value(name, value) for value in (result[name], *ends[name]))]
        for name in (ends if everything else _headline(ends))
    ]
    output.show_table("95 % intervals over texts", ["", "%", "from", "to"], rows)


def _show_bins(result: Evaluation, bins: int) -> None:
    k = result.cutoffs[-1]
    table = result.bins(k, bins)
    shares = ("contribution", "R", "macro-F1", "coverage")
    rows = [
        [row["bin"], row["labels"], row["train"], row["hits"], *(100 * row[s] for s in shares)]
        for row in table.to_pylist()
    ]
    columns = ["bin", "labels", "in training", "hits", f"adds to P@{k} %"]
    columns += [f"{name} %" for name in shares[1:]]
    output.show_table("Frequent to rare labels, in bins of equal volume", columns, rows)


def _show_reliability(result: Evaluation) -> None:
    k = result.cutoffs[-1]
    rows = [
        [f"{row['low']:.0%} to {row['high']:.0%}", row["count"]]
        + [None if row[name] is None else 100 * row[name] for name in ("confidence", "hit_rate")]
        for row in result.reliability(k).to_pylist()
    ]
    columns = ["probability", "answers", "mean %", "right %"]
    output.show_table(f"Are the probabilities of the top {k} right?", columns, rows)


def _show_comparison(
    comparison: Comparison, everything: bool, first: Path, second: Path | None
) -> None:
    output.console.print(f"[bold]first: {escape(str(first))}, second: {escape(str(second))}[/]")
    output.console.print(comparison.table() if everything else comparison)


def _writer(path: Path) -> Callable[[pa.Table, Path], None]:
    """How a table is written to a file of this name."""
    writers: dict[str, Callable[[pa.Table, Path], None]] = {
        ".csv": _write_csv,
        ".parquet": _write_parquet,
        ".jsonl": _write_json_lines,
    }
    if path.suffix not in writers:
        raise ParameterError(f"--labels takes a name that ends in {', '.join(writers)}, not {path}")
    if not path.absolute().parent.is_dir():
        raise ParameterError(f"--labels: there is no folder {path.absolute().parent}")
    check_file(path)
    return writers[path.suffix]


def _write_csv(table: pa.Table, path: Path) -> None:
    from pyarrow import csv

    csv.write_csv(table, path)


def _write_parquet(table: pa.Table, path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(table, path)


def _write_json_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for batch in table.to_batches(max_chunksize=10_000):
            row: dict[str, Any]
            for row in batch.to_pylist():
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
