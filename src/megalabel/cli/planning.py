"""systems, plan: what there is, and what it costs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from megalabel import systems as recipes
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import (
    Budget,
    Folder,
    Json,
    Memory,
    Seed,
    Settings,
    System,
    Threads,
    create,
    use_threads,
)
from megalabel.units import duration, size


def systems(
    name: Annotated[str | None, typer.Argument(help="One system, in full.")] = None,
    as_json: Json = False,
) -> None:
    """List the systems, or describe one with its parameters."""
    chosen = [recipes.get(name)] if name else [recipes.get(n) for n in recipes.names()]
    if as_json:
        output.show_json([system.to_dict() for system in chosen])
        return
    rows = [[s.name, s.summary, s.cost, s.paper] for s in chosen]
    output.show_table("", ["system", "what it is", "training cost", "paper"], rows)
    if not name:
        output.console.print(
            "Every system takes --set rerank=true: its labels are ranked anew, by their frequency "
            "and names too (see mix).",
            soft_wrap=True,
        )
    if name:
        defaults = [[key, repr(value)] for key, value in chosen[0].parameters().items()]
        output.show_table("\nParameters (--set KEY=VALUE)", ["parameter", "default"], defaults)


@reads_corpora
def plan(
    folder: Folder,
    system: System = "auto",
    budget: Budget = None,
    memory: Memory = None,
    settings: Settings = None,
    threads: Threads = None,
    seed: Seed = 0,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Say the peak memory, disk and time of a training job before it starts, and the calls of a
    judge."""
    use_threads(threads)
    tagger = create(system, settings, seed, budget, memory)
    recipe = recipes.get(system)
    corpus = reading.corpus(folder, "train", labelled=not recipe.unlabelled)
    foreseen = recipe.plan(tagger, corpus)
    chosen = tagger.classifier.settings_for(len(corpus.labels))
    if as_json:
        output.show_json(foreseen.to_dict() | {"settings": chosen})
        return
    facts: dict[str, Any] = chosen | {
        "peak memory": size(foreseen.memory),
        "model on disk": "unknown" if foreseen.disk is None else size(foreseen.disk),
        "time": ("unknown" if foreseen.seconds is None else duration(foreseen.seconds)),
        "memory available": size(foreseen.available),
    }
    if foreseen.gpu_memory is not None and foreseen.gpu_available is not None:
        facts["peak memory on the GPU"] = size(foreseen.gpu_memory)
        facts["memory available on the GPU"] = size(foreseen.gpu_available)
    if foreseen.judging is not None:
        facts["a judge, at most"] = str(foreseen.judging)
    output.show_facts(f"{system} on {folder}", facts | {"fits": foreseen.fits})
    if not foreseen.fits:
        raise typer.Exit(5)
