"""decide: label sets for a whole corpus, best for a metric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from megalabel import store
from megalabel.base import Decision, clone
from megalabel.cli import output
from megalabel.cli.models import Json, Seed, SkipBad, Threads, read, use_threads
from megalabel.data import Corpus, Ranking
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
from megalabel.errors import ParameterError
from megalabel.tagger import Tagger

_METHODS = ("ascent", "frank-wolfe", "online", "weighted", "top")


def decide(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    folder: Annotated[Path, typer.Argument(help="A corpus: a folder or a file.")],
    metric: Annotated[
        str, typer.Option(help="What to decide for: macro-f1, coverage … (docs/decisions.md).")
    ] = "macro-f1",
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Labels a text.")] = 5,
    method: Annotated[str, typer.Option(help=f"{', '.join(_METHODS)}.")] = "ascent",
    weight: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Of the metric; the rest is P@k's.")
    ] = 1.0,
    weights: Annotated[
        str, typer.Option(help="For weighted: power-law, logarithm, inverse-propensity …")
    ] = "power-law",
    budget: Annotated[
        str, typer.Option(help="What k means: exactly, at-most or expected.")
    ] = "exactly",
    cap: Annotated[int | None, typer.Option(min=0, help="At most so many texts a label.")] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="For top: the least probability.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Labels of a text to consider.")] = 100,
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
    as_json: Json = False,
) -> None:
    """Give the texts of a corpus the labels that are best for a metric, in percent.

    [dim]megalabel decide model data/ --metric macro-f1 --k 5[/]
    """
    use_threads(threads)
    if save is not None:
        store.check_target(save)
    rules: dict[str, Decision] = {
        "ascent": BlockCoordinateAscent(
            metric, candidates=candidates, weight=weight, budget=budget, caps=cap, seed=seed
        ),
        "frank-wolfe": FrankWolfe(
            metric, k, candidates=candidates, weight=weight, budget=budget, caps=cap, seed=seed
        ),
        "online": Online(metric, candidates=candidates, weight=weight, budget=budget, caps=cap),
        "weighted": Weighted(weights, candidates=candidates, budget=budget, caps=cap),
        "top": TopK(threshold, caps=cap, candidates=candidates),
    }
    if method not in rules:
        raise ParameterError(f"--method must be one of {', '.join(rules)}, not {method!r}")
    by_metric = {"ascent", "frank-wolfe", "online"}
    fits = {
        "--weight": (weight != 1, by_metric),
        "--weights": (weights != "power-law", {"weighted"}),
        "--budget": (budget != "exactly", by_metric | {"weighted"}),
        "--threshold": (threshold is not None, {"top"}),
        "--pareto": (curve, {"ascent"}),
    }
    for option, (given, methods) in fits.items():
        if given and method not in methods:
            raise ParameterError(
                f"{option} is for --method {' or '.join(sorted(methods))}, not for {method}"
            )
    if curve and (out is not None or save is not None or weight != 1):
        raise ParameterError("--pareto shows a curve over weights, without --weight, --out, --save")
    rule = rules[method]
    rules["ascent"].check_parameters()  # the metric, whatever the method
    rule.check_parameters()
    tagger = Tagger.load(model)
    corpus = read(folder, part, skip_bad)
    ranking = tagger.candidates(corpus, rules["ascent"], k)  # what any of them is measured by
    known = corpus.aligned(tagger.labels) if corpus.targets.nnz else None
    if curve:
        found = pareto(
            ranking,
            k,
            metric,
            truth=known,
            candidates=candidates,
            budget=budget,
            caps=cap,
            seed=seed,
        )
        if as_json:
            output.show_json(found.to_dict())
        else:
            output.console.print(str(found))
        return
    if rule.learns:
        rule.fit(ranking, None, (tagger.label_counts_, tagger.n_texts_))
    decided = rule.apply(ranking, k)
    if out is not None:
        with out.open("w", encoding="utf-8") as lines:
            for tags in decided.tags():
                shown = [{"label": t.label, "probability": t.probability} for t in tags]
                lines.write(json.dumps({"labels": shown}, ensure_ascii=False) + "\n")
    if save is not None:
        tagger.decision, tagger.decision_ = clone(rule), rule
        tagger.save(save)
    table = {
        name: _values(given, ranking, known, metric, k)
        for name, given in (("top", TopK().apply(ranking, k)), (method, decided))
    }
    if as_json:
        output.show_json({"k": k, "metric": metric, "texts": len(corpus), **table})
        return
    columns = list(table[method])
    rows = [[name, *(100 * table[name][c] for c in columns)] for name in table]
    output.show_table(f"{model} on {corpus.source['path']}", ["%", *columns], rows)


def _values(
    decided: Ranking, ranking: Ranking, truth: Corpus | None, metric: str, k: int
) -> dict[str, float]:
    """What is expected of decided labels, and what they are where the truth is known."""
    cells = max(1, k * len(ranking))
    values = {
        f"expected P@{k}": float(decided.scores[decided.present].sum(dtype="float64")) / cells,
        f"expected {metric}": measure(decided, ranking, metric),
    }
    if truth is not None:
        values |= {
            f"P@{k}": float(hits(decided, truth).sum()) / cells,
            metric: measure(decided, truth, metric),
            "coverage": measure(decided, truth, "coverage"),
        }
    return values
