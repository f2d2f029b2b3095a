"""How a corpus is read: the options of every command that reads one, in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from megalabel import data
from megalabel.cli import output
from megalabel.data.joining import Joining
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
    vocabulary: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="What labels are concepts of: SKOS, TSV, CSV …; may be repeated for more files.",
        ),
    ] = None
    language: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="The language of the names of labels: en, fi …"),
    ] = None
    all_concepts: Annotated[
        bool, typer.Option(help="Let all concepts of the vocabulary be labels.")
    ] = False
    keep_deprecated: Annotated[
        bool, typer.Option(help="Keep deprecated concepts that others replace.")
    ] = False
    skip_bad: Annotated[bool, typer.Option(help="Leave bad lines out, and say which.")] = False
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="Memory that a small corpus file may ask for.")
    ] = None

    def corpus(
        self,
        path: Path,
        part: str | None,
        *,
        labelled: bool = True,
        known: data.LabelSet | None = None,
    ) -> data.Corpus:
        """One part of a folder, or a file; says what was skipped. Without labels, it is an error
        if it is to be `labelled`. Where labels are `known` with their vocabulary, those of the
        corpus are of the same one if they are to be in a language."""
        problems = data.Problems(skip=self.skip_bad)
        # --split has a default: a file is what it is, whatever its name says
        split = part if path.is_dir() else None
        options = asdict(self) | {"problems": problems, "labelled": labelled}
        del options["skip_bad"]  # as problems has it
        if self.vocabulary:
            options["vocabulary"] = opened(tuple(self.vocabulary))
        elif self.language and known is not None:
            options["vocabulary"] = known.vocabulary
        corpus = data.read(path, split, **options)
        output.tell_problems(problems)
        if said := joined_by(corpus.source):
            output.note(said)
        return corpus

    def texts(self, source: Any, format: str | None) -> Iterator[data.Corpus]:
        """The texts of a file or of standard input, some at a time."""
        options = asdict(self)
        for name in ("label_column", "label_separator", "language", *OF_VOCABULARIES):
            del options[name]  # labels are not looked at
        return stream_texts(source, format=format, **options)


AS_USUAL = Reading()
OF_VOCABULARIES = ("vocabulary", "all_concepts", "keep_deprecated")


@functools.cache
def opened(paths: tuple[Path, ...]) -> data.Vocabulary:
    """The vocabulary of some files; read once, as a command may read several corpora."""
    return data.read_vocabulary(list(paths))


def joined_by(source: Mapping[str, Any]) -> str:
    """How the labels of a corpus were joined to a vocabulary, in words; nothing if they were
    not."""
    counts = source.get("vocabulary")
    return str(Joining(**counts)) if isinstance(counts, dict) else ""


def reads_corpora(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, which takes a Reading as `reading`, the options of one in its place."""
    return _with_options(command, ())


def reads_texts(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that does not look at labels."""
    return _with_options(command, OF_VOCABULARIES)


def _with_options(command: Callable[..., None], left_out: Collection[str]) -> Callable[..., None]:
    fields = get_type_hints(Reading, include_extras=True)
    hints = get_type_hints(command, include_extras=True)
    options = [
        option.replace(annotation=fields[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, option in inspect.signature(Reading).parameters.items()
        if name not in left_out
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
