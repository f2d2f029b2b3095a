"""evaluate: how good a model is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.markup import escape

from megalabel.cli import output
from megalabel.cli.models import Json, MaxBytes, Seed, SkipBad, Threads, cutoffs, read, use_threads
from megalabel.errors import ParameterError
from megalabel.labels import read_propensities
from megalabel.metrics import HEADLINE, Comparison, Evaluation
from megalabel.metrics.shown import shown_value
from megalabel.tagger import Tagger


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
        int, typer.Option(min=0, help="Show what so many bins, frequent to rare labels, add.")
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
    write = None if labels is None else _writer(labels)
    tagger = Tagger.load(model)
    other = None if compare is None else Tagger.load(compare)
    corpus = read(folder, part, skip_bad, max_bytes)
    started = time.perf_counter()

    def measured(by: Tagger) -> Evaluation:
        given: Any = propensities
        if propensities is not None and Path(propensities).is_file():
            given = read_propensities(propensities, corpus.aligned(by.labels).labels)
        return by.evaluate(corpus, k=cutoffs(k), propensities=given, beta=beta)

    result = measured(tagger)
    seconds = time.perf_counter() - started
    comparison = None
    if other is not None:
        comparison = result.compare(measured(other), seed=seed)
    if labels is not None and write is not None:
        write(result.per_label(), labels)
    if as_json:
        shown = result.to_dict(percent=True, tables=True, seed=seed)
        shown |= {"split": corpus.source["split"], "labels": len(tagger.labels)}
        shown["seconds"] = round(seconds, 3)
        if comparison is not None:
            shown["comparison"] = comparison.to_dict(percent=True)
        output.show_json(shown)
        return
    output.console.print(f"[bold]{escape(str(model))} on {escape(corpus.source['path'])}[/]")
    output.console.print(result.table() if everything else result)
    if intervals:
        _show_intervals(result, everything, seed)
    if bins:
        _show_bins(result, bins)
    if reliability:
        _show_reliability(result)
    if comparison is not None:
        _show_comparison(comparison, everything, model, compare)
    output.note(f"{len(corpus):,} texts in {output.duration(seconds)}")


def _show_intervals(result: Evaluation, everything: bool, seed: int) -> None:
    rows = [
        [name, *(shown_value(name, value) for value in (result[name], low, high))]
        for name, (low, high) in result.intervals(seed=seed).items()
        if everything or name.partition("@")[0] in HEADLINE
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
