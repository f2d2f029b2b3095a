"""labels: labels that join a model, leave it, or get other names."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from megalabel import store
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import Json, Model, Part, Threads, use_threads
from megalabel.data.labelfiles import read_label_file
from megalabel.errors import ParameterError
from megalabel.new_labels import HOW
from megalabel.progress import progress
from megalabel.tagger import Tagger
from megalabel.units import duration

app = typer.Typer(
    help="Add labels to a model without training it, remove some, or rename them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Given = Annotated[list[str] | None, typer.Argument(help="Labels, by identifier or name.")]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="A file of them: a name a line, or identifier, tab, name; a comment begins with #.",
    ),
]
Target = Annotated[
    Path | None, typer.Option(help="The model folder to write; by default MODEL itself.")
]


@app.command()
@reads_corpora
def add(
    model: Model,
    labels: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of new labels; with a vocabulary, identifiers, notations or names of its "
            "concepts."
        ),
    ] = None,
    file: File = None,
    how: Annotated[
        str, typer.Option(help=f"What linear classifiers are made of: {', '.join(HOW)}.")
    ] = "all",
    positives: Annotated[
        Path | None, typer.Option(help="A corpus of texts that carry some of the new labels.")
    ] = None,
    on: Annotated[
        Path | None,
        typer.Option(
            help="A corpus that was not trained on: how loud new labels may be is learned from it."
        ),
    ] = None,
    part: Part = "test",
    out: Target = None,
    threads: Threads = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Add labels that have no training texts: they are known by their names.

    [dim]megalabel labels add model "electric bicycles" "cargo bicycles"[/]
    """
    use_threads(threads)
    tagger, target = _opened(model, out)
    new = _pairs(labels, file)
    texts = None if positives is None else reading.corpus(positives, "train")
    others = None if on is None else reading.corpus(on, part)
    started = time.perf_counter()
    with progress("adding labels"):
        made = tagger.add_labels(new, how=how, positives=texts, on=others)
    _keep(made, target, "Added", len(new), started, as_json)


@app.command()
def remove(
    model: Model,
    labels: Given = None,
    file: File = None,
    out: Target = None,
    as_json: Json = False,
) -> None:
    """Remove labels; the others keep their scores.

    [dim]megalabel labels remove model "video cassettes" --out smaller[/]
    """
    tagger, target = _opened(model, out)
    gone = [pair if isinstance(pair, str) else pair[0] for pair in _pairs(labels, file)]
    started = time.perf_counter()
    with progress("removing labels"):
        made = tagger.remove_labels(gone)
    _keep(made, target, "Removed", len(tagger.labels) - len(made.labels), started, as_json)


@app.command()
def rename(
    model: Model,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="LABEL=NAME", help="A label and its new name.")
    ] = None,
    file: File = None,
    out: Target = None,
    as_json: Json = False,
) -> None:
    """Give labels other names; identifiers and all that was learned stay.

    [dim]megalabel labels rename model "Zaire=Congo (Kinshasa)"[/]
    """
    tagger, target = _opened(model, out)
    new: dict[str, str] = {}
    for pair in _pairs(names, file):
        parts = pair.rpartition("=")[::2] if isinstance(pair, str) else pair
        if not all(parts):
            raise ParameterError(f"give a label and its new name as LABEL=NAME, not {pair!r}")
        new[parts[0]] = parts[1]
    started = time.perf_counter()
    made = tagger.rename_labels(new)
    _keep(made, target, "Renamed", len(new), started, as_json)


def _opened(model: Path, out: Path | None) -> tuple[Tagger, Path]:
    """The model, and where what becomes of it is written."""
    target = model if out is None else out
    store.check_target(target)
    return Tagger.load(model), target


def _pairs(given: Sequence[str] | None, file: Path | None) -> list[str | tuple[str, str]]:
    """Labels of the command line and of a file."""
    labels: list[str | tuple[str, str]] = list(given or ())
    if file is not None:
        labels += read_label_file(file)
    if not labels:
        raise ParameterError("which labels? Give them one by one, or a file of them (--file)")
    return labels


def _keep(made: Tagger, target: Path, what: str, count: int, started: float, as_json: bool) -> None:
    """Write a model, and show what was done."""
    made.save(target)
    seconds = time.perf_counter() - started
    facts = {"model": str(target), what.lower(): count, "labels": len(made.labels)}
    if as_json:
        output.show_json(facts | {"seconds": round(seconds, 3)})
        return
    labels = f"{count:,} label{'' if count == 1 else 's'}"
    output.show_facts(f"{what} {labels}, in {duration(seconds)}", facts)
