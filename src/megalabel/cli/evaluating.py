"""evaluate: how good a model is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import (
    Cutoffs,
    Folder,
    Json,
    Model,
    Part,
    Seed,
    Threads,
    cutoffs,
    use_threads,
)
from megalabel.data import Corpus
from megalabel.data.writing import check_table, write_table
from megalabel.errors import ParameterError
from megalabel.labels import PROPENSITIES
from megalabel.metrics import Comparison, Evaluation
from megalabel.metrics.plain import questions
from megalabel.metrics.reliability import By
from megalabel.metrics.shown import group_name, shown_name, shown_value
from megalabel.tagger import Tagger
from megalabel.units import duration

_FIT_PROPENSITIES = (
    "To fit them, label some texts completely: `megalabel propensities CORPUS --model richards "
    "--complete SAMPLE --out FILE`, then `evaluate --propensities FILE` (docs/missing-labels.md)."
)


@reads_corpora
def evaluate(
    model: Model,
    folder: Folder,
    k: Cutoffs = "1,3,5",
    part: Part = "test",
    everything: Annotated[
        bool, typer.Option("--all", help="Show every metric, by the names that papers use.")
    ] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Show 95 % confidence intervals over texts.")
    ] = False,
    bins: Annotated[
        int,
        typer.Option(min=0, help="Show what labels add to P@k, frequent to rare, in so many bins."),
    ] = 0,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen", help="Show labels that training has seen, and the others, by themselves."
        ),
    ] = False,
    reliability: Annotated[
        bool,
        typer.Option(
            "--reliability",
            help="Show probabilities against hit rates, also by rank and by frequency.",
        ),
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
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Measure a model on the test part of a corpus, in percent.

    [dim]megalabel evaluate model data/ --all --intervals --compare other[/]
    """
    use_threads(threads)
    given: str | Path | None = propensities
    if propensities is not None and propensities not in PROPENSITIES:
        given = Path(propensities)
        if not given.is_file():
            known = ", ".join(PROPENSITIES)
            raise ParameterError(f"--propensities takes {known} or a file, not {propensities!r}")
    if labels is not None:
        check_table(labels)
    options: dict[str, Any] = {"k": cutoffs(k), "propensities": given, "beta": beta}
    tagger = Tagger.load(model).in_language(reading.language)
    other = None if compare is None else Tagger.load(compare)
    corpus = reading.corpus(folder, part, known=tagger.labels)
    _say_unknown_labels(tagger, corpus)
    started = time.perf_counter()
    result = tagger.evaluate(corpus, **options)
    seconds = time.perf_counter() - started
    comparison = None
    if other is not None:
        comparison = result.compare(other.evaluate(corpus, **options), seed=seed)
    if labels is not None:
        write_table(result.per_label(), labels)
    if as_json:
        if everything:
            shown = result.to_dict(percent=True, tables=True, seed=seed)
        else:
            shown = result.summary(
                intervals=intervals, bins=bins, reliability=reliability, seed=seed
            )
        if unseen or everything:
            shown["seen_and_unseen"] = result.seen_and_unseen().to_pylist()
        shown |= {"split": corpus.source["split"], "labels": len(tagger.labels)}
        shown |= {"trained_on": tagger.seen_texts(corpus), "seconds": round(seconds, 3)}
        if comparison is not None:
            shown["comparison"] = comparison.to_dict(percent=True, headline=not everything)
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
    if unseen or (everything and (tagger.label_counts_ == 0).any()):
        _show_unseen(result)
    if reliability:
        _show_reliability(result)
    if comparison is not None:
        _show_comparison(comparison, everything, model, compare)
    more = "" if everything else "; --all shows every metric"
    output.note(f"{len(corpus):,} texts in {duration(seconds)}{more}")


def _say_unknown_labels(tagger: Tagger, corpus: Corpus) -> None:
    """Say how many labels of texts the model does not know; as a warning if it is most of them."""
    numbers = corpus.aligned(tagger.labels).targets.indices
    unknown = int(np.count_nonzero(numbers >= len(tagger.labels)))
    if not unknown:
        return
    of = f"{unknown:,} of the {len(numbers):,} labels that these texts carry"
    say = output.warn if 2 * unknown > len(numbers) else output.note
    say(f"{of} are not known to the model: they count as not found")


def _show_intervals(result: Evaluation, everything: bool, seed: int) -> None:
    ends = result.intervals(seed=seed)
    names = {} if everything else questions(ends)
    names = names or {name: shown_name(name) for name in ends}
    rows = [
        [words, *(shown_value(name, value) for value in (result[name], *ends[name]))]
        for name, words in names.items()
    ]
    output.show_table("95 % intervals over texts", ["", "in %", "from", "to"], rows)


def _show_bins(result: Evaluation, bins: int) -> None:
    k = result.cutoffs[-1]
    table = result.bins(k, bins)
    shares = ("contribution", "R", "macro-F1", "coverage")
    rows = [
        [group_name(row["low"], row["high"]), *(row[c] for c in ("labels", "train", "hits"))]
        + [100 * row[share] for share in shares]
        for row in table.to_pylist()
    ]
    columns = ["training texts", "labels", "in training", "hits", f"adds to P@{k} %"]
    columns += [f"{name} %" for name in shares[1:]]
    title = "Frequent to rare labels by how many training texts each has, in bins of equal volume"
    output.show_table(title, columns, rows)


def _show_unseen(result: Evaluation) -> None:
    k = result.cutoffs[-1]
    shares = (f"R@{k}", f"macro-R@{k}", f"P@{k}")
    rows = [
        [row["group"], row["labels"], row["positives"]]
        + [None if row[share] is None else 100 * row[share] for share in shares]
        for row in result.seen_and_unseen().to_pylist()
    ]
    columns = ["labels seen in training", "labels", "in these texts"]
    columns += [f"{shares[0]} %", f"{shares[1]} %", f"adds to {shares[2]} %"]
    output.show_table("Labels that training has seen, and those that it has not", columns, rows)


def _show_reliability(result: Evaluation) -> None:
    k = result.cutoffs[-1]
    rows = [
        [f"{row['low']:.0%} to {row['high']:.0%}", row["count"]]
        + [None if row[name] is None else 100 * row[name] for name in ("confidence", "hit_rate")]
        for row in result.reliability(k).to_pylist()
    ]
    columns = ["probability", "answers", "mean %", "right %"]
    output.show_table(f"Are the probabilities of the top {k} right?", columns, rows)
    groups: dict[By, str] = {"rank": "rank", "frequency": "training texts of the label"}
    for by, name in groups.items():
        _show_groups(result.reliability(k, by=by).to_pylist(), by, name)


def _show_groups(groups: Sequence[Mapping[str, Any]], by: By, name: str) -> None:
    shares = ("confidence", "hit_rate", "hit_rate_low", "hit_rate_high", "gap")
    rows = [
        [group_name(group["low"], group["high"]), group["count"]]
        + [None if group[share] is None else 100 * group[share] for share in shares]
        for group in groups
    ]
    columns = [name, "answers", "mean %", "right %", "from", "to", "gap"]
    output.show_table(f"The same by {by}, with 95 % intervals", columns, rows)


def _show_comparison(
    comparison: Comparison, everything: bool, first: Path, second: Path | None
) -> None:
    output.console.print(f"[bold]first: {escape(str(first))}, second: {escape(str(second))}[/]")
    output.console.print(comparison.table() if everything else comparison)
