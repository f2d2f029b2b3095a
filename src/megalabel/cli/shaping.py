"""merge, mix, prune, calibrate: models made of other models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import megalabel
from megalabel import calibration, store
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import Json, Model, Part, Threads, use_threads
from megalabel.mixing import FORMS
from megalabel.tagger import Tagger
from megalabel.units import size

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


@reads_corpora
def mix(
    models: Annotated[list[Path], typer.Argument(help="Model folders; one alone is ranked anew.")],
    on: Annotated[
        Path, typer.Option(help="A corpus that none of them was trained on, to learn from.")
    ],
    out: Out,
    form: Annotated[
        str,
        typer.Option(help=f"How they are mixed: auto (what is best), {', '.join(FORMS)}."),
    ] = "auto",
    names: Annotated[
        bool, typer.Option(help="Whether labels' names are looked for in texts.")
    ] = True,
    part: Part = "test",
    threads: Threads = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Make one model of several unlike ones, which answers better than each of them.

    [dim]megalabel mix model1 model2 --on data/ --out model[/]
    """
    use_threads(threads)
    store.check_target(out)
    taggers = [Tagger.load(model) for model in models]
    mixed = megalabel.mix(taggers, reading.corpus(on, part), form=form, names=names)
    mixed.save(out)
    described = mixed.provenance_["mix"]
    facts: dict[str, object] = {"model": str(out), "form": described["form"]}
    if as_json:
        output.show_json(facts | {"labels": len(mixed.labels), "held_out": described["held_out"]})
        return
    _show(f"Mixed {out}", facts, mixed, as_json)
    output.show_mix(described, [str(model) for model in models])


def prune(
    model: Model,
    out: Out,
    threshold: Annotated[
        float, typer.Option(min=0.0, help="Drop weights of at most this size.")
    ] = 0.0,
    max_per_label: Annotated[
        int | None, typer.Option(min=0, help="Keep only so many of the largest of each label.")
    ] = None,
    fan_in: Annotated[
        int | None,
        typer.Option(min=1, help="A sparse output layer: so many features of each label."),
    ] = None,
    group: Annotated[
        int, typer.Option(min=1, help="With --fan-in: labels that share their features.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Make a smaller model of a model's largest weights; biases stay.

    [dim]megalabel prune model --threshold 0.1 --out smaller[/]
    """
    store.check_target(out)
    pruned = Tagger.load(model).prune(
        threshold, max_per_label=max_per_label, fan_in=fan_in, group=group
    )
    pruned.save(out)
    before = store.folder_bytes(model)
    _show(f"Pruned {out}", {"model": str(out), "bytes_before": before}, pruned, as_json)


@reads_corpora
def calibrate(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="A corpus that was not trained on.")],
    method: Annotated[
        str, typer.Option(help=f"The shape of the map: {', '.join(calibration.METHODS)}.")
    ] = "joint",
    by: Annotated[
        str | None,
        typer.Option(help="frequency or rank: a map for each group of labels, not for joint."),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            min=1,
            help="How many labels of each text are learned from; 100 for joint, 5 for others.",
            show_default=False,
        ),
    ] = None,
    part: Part = "test",
    out: Annotated[
        Path | None, typer.Option(help="The model folder to write; by default MODEL itself.")
    ] = None,
    threads: Threads = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Make a model's probabilities right on texts that it was not trained on.

    [dim]megalabel calibrate model data/[/]
    """
    use_threads(threads)
    calibrator = calibration.create(method, by=by, k=k)
    target = model if out is None else out
    store.check_target(target)
    tagger = Tagger.load(model)
    tagger.calibrate(reading.corpus(folder, part), method=calibrator).save(target)
    facts = {"model": str(target), "method": repr(calibrator), "k": calibrator.k}
    if as_json:
        output.show_json(facts | {"reliability": tagger.reliability_})
        return
    output.show_facts(f"Calibrated {target}", facts)
    output.show_reliability(tagger.reliability_)


def _show(title: str, facts: dict[str, object], tagger: Tagger, as_json: bool) -> None:
    facts |= {"system": tagger.system, "labels": len(tagger.labels)}
    facts["bytes"] = store.folder_bytes(str(facts["model"]))
    if as_json:
        output.show_json(facts)
        return
    for key in facts.keys() & {"bytes", "bytes_before"}:
        facts[key] = size(int(str(facts[key])))
    output.show_facts(title, {key.replace("_", " "): value for key, value in facts.items()})
