"""train, tag: what is done with a model."""

from __future__ import annotations

import ast
import gzip
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import megalabel
from megalabel import checkpoints, data, store, systems
from megalabel.cli import output
from megalabel.data.problems import Problems
from megalabel.errors import DataError, ParameterError
from megalabel.labels import LabelTree, read_costs, read_propensities
from megalabel.linear import TreeClassifier
from megalabel.metrics import Evaluation
from megalabel.systems.outlook import outlook
from megalabel.tagger import Tagger

Threads = Annotated[int | None, typer.Option(min=1, help="Cores to use; all by default.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
SkipBad = Annotated[bool, typer.Option(help="Leave bad lines out, and say which.")]
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
    as_json: Json = False,
) -> None:
    """Train a model on the training part of a corpus.

    [dim]megalabel train data/ --system knn --out model[/]
    """
    use_threads(threads)
    tagger = create(system, settings, seed)
    store.check_target(out)
    shard = None if label_shard is None else shard_of(label_shard)
    whole = corpus = read(folder, "train", skip_bad)
    if shard is not None:
        corpus = whole.label_shard(*shard)
        if tagger.calibration is not None:
            output.note("a part of the labels is not calibrated: `megalabel calibrate` when merged")
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


def tag(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts; without any, one a line from stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Tag a file: one text a line, or JSON lines.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="At most so many labels a text.")] = 5,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Tag texts with label names and probabilities; JSON lines when piped.

    [dim]megalabel tag model "a text" -k 5[/]
    """
    use_threads(threads)
    tagger = Tagger.load(model)
    lines = _texts(text, file)
    as_json = as_json or not sys.stdout.isatty()
    # a first small batch, so that an answer comes at once
    batch, size = list(islice(lines, 16)), 1024
    while batch:
        for shown, tags in zip(batch, tagger.tag(batch, k=k), strict=True):
            labels = [{"label": t.label, "probability": t.probability} for t in tags]
            if as_json:
                output.show_json({"text": shown, "labels": labels})
            else:
                output.console.print(f"[bold]{escape(shown)}[/]", soft_wrap=True)
                for label in labels:
                    output.console.print(
                        f"  {label['probability']:6.1%}  {escape(str(label['label']))}"
                    )
        sys.stdout.flush()
        batch = list(islice(lines, size))


def _texts(given: list[str] | None, file: Path | None) -> Iterator[str]:
    if given and file:
        raise ParameterError("give either texts or --file, not both")
    if given:
        yield from given
        return
    if file is not None and not file.is_file():
        raise DataError("is a folder" if file.is_dir() else "no such file", file=file)
    if file is None and sys.stdin.isatty():
        output.note("one text a line; end with Ctrl-D")
    name = "stdin" if file is None else file
    opened = gzip.open if file is not None and file.suffix == ".gz" else open
    with sys.stdin.buffer if file is None else opened(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").decode()
            except UnicodeDecodeError as error:
                at = error.start + 1
                message = f"expected UTF-8, found the byte {line[error.start]:#04x}"
                raise DataError(message, file=name, line=number, column=at) from None
            yield _text_of(text.rstrip("\r\n"), name, number)


def _text_of(line: str, file: str | Path, number: int) -> str:
    """The text of one line: as it is, or the fields of a JSON object."""
    if not line.startswith("{"):
        return line
    try:
        fields = json.loads(line)
    except json.JSONDecodeError:
        return line  # a text may well begin with a brace
    parts = [fields[key] for key in ("title", "content", "text") if fields.get(key)]
    if not parts or not all(isinstance(p, str) for p in parts):
        raise DataError("expected title, content or text with a string", file=file, line=number)
    return " ".join(parts)


# ---------------------------------------------------------------- shared by the commands
def use_threads(threads: int | None) -> None:
    """Set the number of cores."""
    if threads is not None:
        megalabel.set_threads(threads)


def read(path: Path, part: str | None, skip_bad: bool) -> data.Corpus:
    """One part of a folder, or a file; says what was skipped."""
    if store.is_model(path):
        raise DataError("this is a model folder, not a corpus", file=path)
    problems = Problems(skip=skip_bad)
    # a file is what it is, whatever its name says
    corpus = data.read(path, part if path.is_dir() else None, problems=problems)
    output.tell_skipped(problems)
    if not len(corpus):
        raise DataError("there are no texts in it", file=path)
    return corpus


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
