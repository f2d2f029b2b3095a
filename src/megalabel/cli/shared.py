"""What the commands share: options, and how what is typed becomes values."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Annotated, Any

import typer

import megalabel
from megalabel import systems
from megalabel.errors import ParameterError
from megalabel.tagger import Tagger

Model = Annotated[Path, typer.Argument(help="A model folder.")]
Folder = Annotated[Path, typer.Argument(help="A corpus: a folder or a file.")]
Cutoffs = Annotated[str, typer.Option("-k", help="Cut-offs, separated by commas.")]
Part = Annotated[str, typer.Option("--split", help="Which part of the corpus.")]
OnePart = Annotated[str | None, typer.Option("--split", help="Which part of a folder.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Cores to use; all by default.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
System = Annotated[str, typer.Option(help="The recipe; see `megalabel systems`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A parameter of the system, or of a part (features.min_df=2); may be repeated.",
    ),
]
Budget = Annotated[
    str | None, typer.Option(help="Of auto: how long it may take, such as 90s, 10m or 2h.")
]
Memory = Annotated[str | None, typer.Option(help="Of auto: the most memory, such as 4G.")]
Seed = Annotated[int, typer.Option(min=0, help="Fixes everything random.")]


def use_threads(threads: int | None) -> None:
    """Set the number of cores."""
    if threads is not None:
        megalabel.set_threads(threads)


def create(
    system: str,
    settings: list[str] | None,
    seed: int,
    budget: str | None = None,
    memory: str | None = None,
) -> Tagger:
    """The tagger that the options ask for."""
    limits = {"budget": budget, "memory": memory}
    given = {name: value for name, value in limits.items() if value is not None}
    tagger = systems.create(system, **{"seed": seed} | given | settings_of(settings))
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
