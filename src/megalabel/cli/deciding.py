"""decide: label sets for a whole corpus, best for a metric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from megalabel import store
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import (
    Folder,
    Json,
    Model,
    Part,
    Seed,
    Threads,
    settings_of,
    use_threads,
)
from megalabel.data import LabelSet
from megalabel.decision import METHODS, BlockCoordinateAscent, create, pareto, tried
from megalabel.decision.metric import metric_of
from megalabel.errors import ParameterError
from megalabel.labels import read_caps, read_propensities, read_weights
from megalabel.outputs import check_file, replacing_file
from megalabel.tagger import Tagger


@reads_corpora
def decide(
    model: Model,
    folder: Folder,
    metric: Annotated[
        str, typer.Option(help="What to decide for: macro-f1, coverage … (docs/decisions.md).")
    ] = "macro-f1",
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Labels a text.")] = 5,
    method: Annotated[str, typer.Option(help=f"{', '.join(METHODS)}.")] = "ascent",
    weight: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="The metric's weight, 1 by default; P@k has the rest."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="For weighted: power-law, logarithm, inverse-propensity …, or a file."),
    ] = None,
    propensities: Annotated[
        str | None,
        typer.Option(help="For inverse-propensity: a model by name (jpv-amazon …), or a file."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="What k means: exactly, at-most or expected.")
    ] = None,
    cap: Annotated[
        str | None,
        typer.Option(help="At most so many texts a label: a number, or a file of label, tab, cap."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="For top: the least probability.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Labels of a text to consider.")] = 100,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another parameter of the method (exponent=0.3); may be repeated.",
        ),
    ] = None,
    curve: Annotated[
        bool, typer.Option("--pareto", help="Show what the metric costs in P@k.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the labels there, a line of JSON a text.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write a model that decides so from now on.")
    ] = None,
    part: Part = "test",
    seed: Seed = 0,
    threads: Threads = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Give the texts of a corpus the labels that are best for a metric, in percent.

    [dim]megalabel decide model data/ --metric macro-f1 --k 5[/]
    """
    use_threads(threads)
    if save is not None:
        store.check_target(save)
    if out is not None:
        check_file(out)
    if curve and method != "ascent":
        raise ParameterError(f"--pareto is for --method ascent, not for {method}")
    if curve and (out is not None or save is not None or weight is not None):
        raise ParameterError(
            "--pareto shows a curve over all weights: give it without --weight, --out and --save"
        )
    metric_of(metric)  # a good one, whatever the method
    tagger = Tagger.load(model).in_language(reading.language)
    usual = {"metric": metric, "k": k, "candidates": candidates, "seed": seed}
    asked = {
        "weight": weight,
        "weights": weights,
        "propensities": propensities,
        "budget": budget,
        "caps": cap,
        "threshold": threshold,
    }
    more = settings_of(settings)
    for name in sorted(more.keys() & {*usual, *asked}):
        option = "cap" if name == "caps" else name
        raise ParameterError(f"--set {name}: there is --{option} for it")
    given: dict[str, Any] = {}
    for name, value in asked.items():
        if value is not None:
            given |= _given(name, value, tagger.labels)
    if both := sorted(given.keys() & more.keys()):
        raise ParameterError(f"--set {both[0]}: the file of --weights has them already")
    rule = create(method, usual, **given, **more)
    corpus = reading.corpus(folder, part, labelled=False, known=tagger.labels)
    # what any of them is measured by
    ranking = tagger.candidates(corpus, BlockCoordinateAscent(candidates=candidates), k)
    if curve:
        options = {n: v for n, v in rule.get_params().items() if n not in ("metric", "weight")}
        truth = corpus if corpus.targets.nnz else None
        found = pareto(ranking, k, metric, truth=truth, **options)
        if as_json:
            output.show_json(found.to_dict())
        else:
            output.console.print(str(found))
        return
    counts = (tagger.label_counts_, tagger.n_texts_)
    decided, worth, top = tried(rule, ranking, k, metric, corpus, counts)
    table = {"top": top, method: worth}
    if out is not None:
        with replacing_file(out) as fresh, fresh.open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in decided.rows())
    if save is not None:
        tagger.set_decision(rule).save(save)
    if as_json:
        output.show_json({"k": k, "metric": metric, "texts": len(corpus), **table})
        return
    columns = list(table[method])
    rows = [[name, *(100 * table[name][c] for c in columns)] for name in table]
    output.show_table(f"{model} on {corpus.source['path']}", ["%", *columns], rows)


def _given(name: str, value: Any, labels: LabelSet) -> dict[str, Any]:
    """A parameter as it was typed, or what the file of that name holds."""
    if name == "caps":
        if not value.isdecimal() and not Path(value).is_file():
            raise ParameterError(f"--cap takes a number of texts or a file, not {value!r}")
        return {name: int(value) if value.isdecimal() else read_caps(value, labels)}
    if name == "propensities" and Path(value).is_file():
        return {name: read_propensities(value, labels)}
    if name == "weights" and Path(value).is_file():
        weights, offsets = read_weights(value, labels)
        return {name: weights, "offsets": offsets}
    return {name: value}
