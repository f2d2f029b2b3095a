"""How a corpus is read: the options of every command that reads one, in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from megalabel import data
from megalabel.cli import output
from megalabel.data.texts import stream_texts


@dataclass(frozen=True)
class Reading:
    """What the options say; those of `megalabel.read`."""

    text_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A column of text, or NAME:3 to count its words so often; may be repeated.",
        ),
    ] = None
    label_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A column of labels; may be repeated. '*': all columns of 0 and 1."
        ),
    ] = None
    label_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Between labels in a cell, in place of ; and |."),
    ] = None
    id_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of identifiers.")
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="Of text files: cp1252, utf-16 …; UTF-8 by default.")
    ] = None
    skip_bad: Annotated[bool, typer.Option(help="Leave bad lines out, and say which.")] = False
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="Memory that a small corpus file may ask for.")
    ] = None

    def corpus(self, path: Path, part: str | None, *, labelled: bool = True) -> data.Corpus:
        """One part of a folder, or a file; says what was skipped. Without labels, it is an error
        if it is to be `labelled`."""
        problems = data.Problems(skip=self.skip_bad)
        # --split has a default: a file is what it is, whatever its name says
        split = part if path.is_dir() else None
        options = asdict(self) | {"problems": problems, "labelled": labelled}
        del options["skip_bad"]  # as problems has it
        corpus = data.read(path, split, **options)
        output.tell_problems(problems)
        return corpus

    def texts(self, source: Any, format: str | None) -> Iterator[data.Corpus]:
        """The texts of a file or of standard input, some at a time."""
        options = asdict(self)
        del options["label_column"], options["label_separator"]  # labels are not looked at
        return stream_texts(source, format=format, **options)


AS_USUAL = Reading()


def reads_corpora(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, which takes a Reading as `reading`, the options of one in its place."""
    fields = get_type_hints(Reading, include_extras=True)
    hints = get_type_hints(command, include_extras=True)
    options = [
        option.replace(annotation=fields[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, option in inspect.signature(Reading).parameters.items()
    ]
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name == "reading":
            parameters += options
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hints[name], kind=kind))

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        reading = Reading(**{option.name: given.pop(option.name) for option in options})
        command(reading=reading, **given)

    signature = inspect.Signature(parameters)
    with_options.__signature__ = signature  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options
