"""explain: what spoke for a label, and what against it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from megalabel.cli import output
from megalabel.cli.shared import Json, Model
from megalabel.tagger import Tagger


def explain(
    model: Model,
    text: Annotated[str, typer.Argument(help="A text.")],
    label: Annotated[
        str | None, typer.Option(help="A label, by its id or name; else the best one of the text.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="TAG", help="The language of the label's name: en, fi …")
    ] = None,
    words: Annotated[int, typer.Option(min=1, help="Name so many words or neighbours.")] = 10,
    as_json: Json = False,
) -> None:
    """Show what spoke for a label of a text, and what against it: words or training texts.

    [dim]megalabel explain model "a text"[/]
    [dim]megalabel explain model "a text" --label "a label"[/]
    """
    explanation = Tagger.load(model).in_language(language).explain(text, label, words)
    if as_json:
        output.show_json(explanation.to_dict())
        return
    output.console.print(f"[bold]{escape(explanation.heading)}[/]", soft_wrap=True)
    for reason in explanation.reasons:
        output.show_table(reason.title, *reason.table())
