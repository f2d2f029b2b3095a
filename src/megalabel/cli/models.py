"""train: a model of a corpus; and what the commands share."""

from __future__ import annotations

import ast
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import megalabel
from megalabel import checkpoints, data, store, systems
from megalabel.cli import output
from megalabel.data.problems import Problems
from megalabel.errors import DataError, ParameterError
from megalabel.labels import LabelTree, read_costs, read_propensities
from megalabel.linear import TreeClassifier
from megalabel.metrics import Evaluation
from megalabel.outputs import check_folder
from megalabel.systems.outlook import outlook
from megalabel.tagger import Tagger

Threads = Annotated[int | None, typer.Option(min=1, help="Cores to use; all by default.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
SkipBad = Annotated[bool, typer.Option(help="Leave bad lines out, and say which.")]
MaxBytes = Annotated[
    int | None, typer.Option(min=1, help="Memory that a small corpus file may ask for.")
]
System = Annotated[str, typer.Option(help="The recipe; see `megalabel systems`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A parameter of the system, or of a part (features.min_df=2); may be repeated.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Fixes everything random.")]


def train(
    folder: Annotated[Path, typer.Argument(help="A corpus: a folder or a file.")],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    system: System = "knn",
    settings: Settings = None,
    threads: Threads = None,
    seed: Seed = 0,
    label_shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Learn part I of N of the labels; see merge."),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="What errors on each label cost: .npy, or lines of text.")
    ] = None,
    propensities: Annotated[
        Path | None,
        typer.Option(help="How likely each label is to be annotated: .npy, or lines of text."),
    ] = None,
    tree: Annotated[
        Path | None, typer.Option(help="Take the label trees of this model; do not make new ones.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep finished steps there; start again to go on.")
    ] = None,
    skip_bad: SkipBad = False,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Train a model on the training part of a corpus.

    [dim]megalabel train data/ --system knn --out model[/]
    """
    use_threads(threads)
    tagger = create(system, settings, seed)
    check_model(out)
    if checkpoint is not None:
        check_folder(checkpoint)
    shard = None if label_shard is None else shard_of(label_shard)
    whole = corpus = read(folder, "train", skip_bad, max_bytes)
    if shard is not None:
        corpus = whole.label_shard(*shard)
        if tagger.calibration is not None:
            output.note("a model of a part of the labels is not calibrated: merge, then calibrate")
    output.note(f"read {corpus}")
    kept = slice(None) if shard is None else whole.labels.indices(corpus.labels.ids)
    if propensities is not None:
        given = read_propensities(propensities, whole.labels)[kept]
        tagger.set_params(classifier__propensities=given)
    if costs is not None:
        positive, negative = (column[kept] for column in read_costs(costs, whole.labels))
        tagger.set_params(classifier__positive_costs=positive, classifier__negative_costs=negative)
    if tree is not None:
        tagger.set_params(classifier__tree=trees_of(tree, corpus.labels))
    say_what_it_takes(tagger, corpus)
    started = time.perf_counter()
    with checkpoints.kept_in(checkpoint):
        tagger.fit(corpus)
    seconds = time.perf_counter() - started
    tagger.save(out)
    facts = {
        "system": system,
        "texts": len(corpus),
        "labels": len(corpus.labels),
        "features": tagger.features_.n_features,
        "seconds": round(seconds, 2),
        "bytes": folder_bytes(out),
        "skipped": corpus.source.get("skipped", 0),
    }
    if as_json:
        held_out = tagger.metrics_ and Evaluation.from_dict(tagger.metrics_).to_dict(percent=True)
        output.show_json({"model": str(out), **facts, "held_out": held_out})
        return
    facts |= {"seconds": output.duration(seconds), "bytes": output.size(folder_bytes(out))}
    output.show_facts(f"Trained {out}", facts)
    output.show_held_out(tagger.metrics_)


# ---------------------------------------------------------------- shared by the commands
def use_threads(threads: int | None) -> None:
    """Set the number of cores."""
    if threads is not None:
        megalabel.set_threads(threads)


def read(path: Path, part: str | None, skip_bad: bool, max_bytes: int | None = None) -> data.Corpus:
    """One part of a folder, or a file; says what was skipped."""
    if store.is_model(path):
        raise DataError("this is a model folder, not a corpus", file=path)
    if part is None and path.is_dir() and len(parts := data.splits_of(path)) > 1:
        raise ParameterError(f"{path} has several parts: say which by --split {' or '.join(parts)}")
    problems = Problems(skip=skip_bad)
    # a file is what it is, whatever its name says
    corpus = data.read(
        path, part if path.is_dir() else None, problems=problems, max_bytes=max_bytes
    )
    output.tell_skipped(problems)
    if not len(corpus):
        raise DataError("there are no texts in it", file=path)
    return corpus


def check_model(out: Path) -> None:
    """End before a job starts whose model could not be written to this folder."""
    check_folder(out, replaced=True)
    store.check_target(out)


def create(system: str, settings: list[str] | None, seed: int) -> Tagger:
    """The tagger that the options ask for."""
    tagger = systems.create(system, **{"seed": seed} | settings_of(settings))
    tagger.check_parts()
    return tagger


def settings_of(settings: list[str] | None) -> dict[str, Any]:
    """Parameters by name, from `key=value`."""
    parameters: dict[str, Any] = {}
    for setting in settings or []:
        key, found, value = setting.partition("=")
        if not found:
            raise ParameterError(f"--set takes key=value, not {setting!r}")
        parameters[key.replace(".", "__")] = _value_of(value)
    return parameters


def shard_of(text: str) -> tuple[int, int]:
    """`2/8` as numbers."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal()):
        raise ParameterError(f"--label-shard takes a part and their number, like 2/8, not {text!r}")
    return int(number), int(of)


def trees_of(model: Path, labels: data.LabelSet) -> list[LabelTree]:
    """The label trees of a model, for these labels; or a tree that was saved by itself."""
    if store.about(model)["class"] == "labels.LabelTree":
        return [store.load(model)]
    classifier = store.load(model, part="classifier")
    if not isinstance(classifier, TreeClassifier):
        raise ParameterError(f"{model} has no label trees: it is a {type(classifier).__name__}")
    return classifier.trees_for(labels)


def _value_of(text: str) -> Any:
    """A setting's value: a number, list, true, none … in JSON's or Python's spelling; else text."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError):
            continue
    return text


def cutoffs(text: str) -> list[int]:
    """`1,3,5` as numbers."""
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        values = [0]
    if values[0] < 1:
        raise ParameterError(f"-k takes positive whole numbers separated by commas, not {text!r}")
    return values


def say_what_it_takes(tagger: Tagger, corpus: data.Corpus) -> None:
    """Say how long a job takes before it starts; end where it cannot fit into memory."""
    seen = outlook(tagger, corpus)
    memory = ""
    if seen.plan is not None:
        needed, there = output.size(seen.plan.memory), output.size(seen.plan.available)
        memory = f", {needed} of memory"
        if not seen.plan.fits:
            raise SystemExit(
                output.complain(f"this job needs about {needed} of memory and there is {there}", 5)
            )
    if seen.seconds is None:
        return
    say = output.warn if seen.long else output.note
    advice = "" if seen.advice is None else f": {seen.advice}"
    say(f"expected: about {output.duration(seen.seconds)}{memory}{advice}")


def folder_bytes(folder: Path) -> int:
    """The size of a model folder."""
    return sum(file.stat().st_size for file in folder.iterdir())
