"""merge, prune: models made of other models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import megalabel
from megalabel import store
from megalabel.cli import output
from megalabel.cli.models import Json, folder_bytes
from megalabel.tagger import Tagger

Out = Annotated[Path, typer.Option(help="The model folder to write.")]


def merge(
    models: Annotated[list[Path], typer.Argument(help="Model folders, in the order of labels.")],
    out: Out,
    as_json: Json = False,
) -> None:
    """Make one model of several that were trained on the same texts for their own labels.

    [dim]megalabel merge part1 part2 --out model[/]
    """
    store.check_target(out)
    merged = megalabel.merge([Tagger.load(model) for model in models])
    merged.save(out)
    _show(f"Merged {out}", {"model": str(out), "models": len(models)}, merged, as_json)


def prune(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    out: Out,
    threshold: Annotated[
        float, typer.Option(min=0.0, help="Drop weights of at most this size.")
    ] = 0.0,
    max_per_label: Annotated[
        int | None, typer.Option(min=0, help="Keep only so many of the largest of each label.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a smaller model of a model's largest weights; biases stay.

    [dim]megalabel prune model --threshold 0.1 --out smaller[/]
    """
    store.check_target(out)
    pruned = Tagger.load(model).prune(threshold, max_per_label=max_per_label)
    pruned.save(out)
    _show(
        f"Pruned {out}", {"model": str(out), "bytes_before": folder_bytes(model)}, pruned, as_json
    )


def _show(title: str, facts: dict[str, object], tagger: Tagger, as_json: bool) -> None:
    size = folder_bytes(Path(str(facts["model"])))
    facts |= {"system": tagger.system, "labels": len(tagger.labels), "bytes": size}
    if as_json:
        output.show_json(facts)
        return
    for key in facts.keys() & {"bytes", "bytes_before"}:
        facts[key] = output.size(int(str(facts[key])))
    output.show_facts(title, {key.replace("_", " "): value for key, value in facts.items()})
