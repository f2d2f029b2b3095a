"""decide: label sets for a whole corpus, best for a metric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from megalabel.base import clone
from megalabel.cli import output
from megalabel.cli.models import (
    Json,
    MaxBytes,
    Seed,
    SkipBad,
    Threads,
    check_model,
    read,
    settings_of,
    use_threads,
)
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.data.truth import hits
from megalabel.decision import (
    BlockCoordinateAscent,
    FrankWolfe,
    Online,
    TopK,
    Weighted,
    measure,
    pareto,
)
from megalabel.decision.metric import metric_of
from megalabel.decision.shortlists import expected_value, label_sums
from megalabel.errors import ParameterError
from megalabel.labels import read_caps, read_propensities, read_weights
from megalabel.outputs import check_file, replacing_file
from megalabel.parts import Decision
from megalabel.tagger import Tagger

_METHODS: dict[str, type[Decision]] = {
    "ascent": BlockCoordinateAscent,
    "frank-wolfe": FrankWolfe,
    "online": Online,
    "weighted": Weighted,
    "top": TopK,
}


def decide(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    folder: Annotated[Path, typer.Argument(help="A corpus: a folder or a file.")],
    metric: Annotated[
        str, typer.Option(help="What to decide for: macro-f1, coverage … (docs/decisions.md).")
    ] = "macro-f1",
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Labels a text.")] = 5,
    method: Annotated[str, typer.Option(help=f"{', '.join(_METHODS)}.")] = "ascent",
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
    part: Annotated[str, typer.Option("--split", help="Which part of the corpus.")] = "test",
    seed: Seed = 0,
    threads: Threads = None,
    skip_bad: SkipBad = False,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Give the texts of a corpus the labels that are best for a metric, in percent.

    [dim]megalabel decide model data/ --metric macro-f1 --k 5[/]
    """
    use_threads(threads)
    if save is not None:
        check_model(save)
    if out is not None:
        check_file(out)
    if method not in _METHODS:
        raise ParameterError(f"--method must be one of {', '.join(_METHODS)}, not {method!r}")
    if curve and method != "ascent":
        raise ParameterError(f"--pareto is for --method ascent, not for {method}")
    if curve and (out is not None or save is not None or weight is not None):
        raise ParameterError(
            "--pareto shows a curve over all weights: give it without --weight, --out and --save"
        )
    metric_of(metric)  # a good one, whatever the method
    tagger = Tagger.load(model)
    always = {"metric": metric, "k": k, "candidates": candidates, "seed": seed}
    asked = {
        "weight": weight,
        "weights": weights,
        "propensities": propensities,
        "budget": budget,
        "cap": cap,
        "threshold": threshold,
    }
    rule = _rule(method, always, asked, settings_of(settings), tagger.labels)
    corpus = read(folder, part, skip_bad, max_bytes)
    known = corpus.aligned(tagger.labels) if corpus.targets.nnz else None
    targets = None
    if rule.get_params().get("truth") == "labels":  # which it is not measured on then
        if known is None:
            raise ParameterError("--set truth=labels: the texts have no labels")
        targets, known = known.targets, None
    # what any of them is measured by
    ranking = tagger.candidates(corpus, BlockCoordinateAscent(candidates=candidates), k)
    if curve:
        options = {n: v for n, v in rule.get_params().items() if n not in ("metric", "weight")}
        found = pareto(ranking, k, metric, truth=known, **options)
        if as_json:
            output.show_json(found.to_dict())
        else:
            output.console.print(str(found))
        return
    if rule.learns:
        rule.fit(ranking, targets, (tagger.label_counts_, tagger.n_texts_))
    # the answer takes the place of the shortlists, so all else that they tell comes first
    positives = label_sums(ranking)[0]
    table = {"top": _values(TopK().apply(ranking, k), positives, known, metric, k)}
    decided = rule.apply(ranking, k, overwrite=True)
    table[method] = _values(decided, positives, known, metric, k)
    if out is not None:
        with replacing_file(out) as fresh, fresh.open("w", encoding="utf-8") as lines:
            for tags in decided.tags():
                shown = [{"label": t.label, "probability": t.probability} for t in tags]
                lines.write(json.dumps({"labels": shown}, ensure_ascii=False) + "\n")
    if save is not None:
        tagger.decision, tagger.decision_ = clone(rule), rule
        tagger.save(save)
    if as_json:
        output.show_json({"k": k, "metric": metric, "texts": len(corpus), **table})
        return
    columns = list(table[method])
    rows = [[name, *(100 * table[name][c] for c in columns)] for name in table]
    output.show_table(f"{model} on {corpus.source['path']}", ["%", *columns], rows)


def _rule(
    method: str,
    always: dict[str, Any],
    asked: dict[str, Any],
    settings: dict[str, Any],
    labels: LabelSet,
) -> Decision:
    """The rule of a method: with what it takes of options that `always` have a value, all options
    that were `asked` for, if not None, and other settings."""
    for name in settings:
        option = "cap" if name == "caps" else name
        if option in always or option in asked:
            raise ParameterError(f"--set {name}: there is --{option} for it")
    rule = _METHODS[method]()
    parameters = {name: always[name] for name in rule.parameter_names() if name in always}
    for option, value in asked.items():
        if value is None:
            continue
        name = "caps" if option == "cap" else option
        if name not in rule.parameter_names():
            others = [m for m, kind in _METHODS.items() if name in kind.parameter_names()]
            raise ParameterError(
                f"--{option} is for --method {' or '.join(others)}, not for {method}"
            )
        parameters |= _value_of(name, value, labels)
    if both := sorted(parameters.keys() & settings.keys()):
        raise ParameterError(f"--set {both[0]}: the file of --weights has them already")
    rule.set_params(**parameters, **settings).check_parameters()
    return rule


def _value_of(name: str, value: Any, labels: LabelSet) -> dict[str, Any]:
    """A parameter as it was given, or what the file of that name holds."""
    if name == "caps":
        if not value.isdecimal() and not Path(value).is_file():
            raise ParameterError(f"--cap takes a number of texts or a file, not {value!r}")
        return {name: int(value) if value.isdecimal() else read_caps(value, labels)}
    if name == "propensities" and Path(value).is_file():
        return {name: read_propensities(value, labels)}
    if name == "weights" and Path(value).is_file():
        given, offsets = read_weights(value, labels)
        return {name: given, "offsets": offsets}
    return {name: value}


def _values(
    decided: Ranking, positives: np.ndarray, truth: Corpus | None, metric: str, k: int
) -> dict[str, float]:
    """What is expected of decided labels, and what they are where the truth is known."""
    cells = max(1, k * len(decided))
    values = {
        f"expected P@{k}": float(decided.scores[decided.present].sum(dtype="float64")) / cells,
        f"expected {metric}": expected_value(decided, positives, metric_of(metric)),
    }
    if truth is not None:
        values |= {
            f"P@{k}": float(hits(decided, truth).sum()) / cells,
            metric: measure(decided, truth, metric),
            "coverage": measure(decided, truth, "coverage"),
        }
    return values
