"""explain: which words spoke for a label, and which against it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli import output
from megalabel.cli.models import Json
from megalabel.tagger import Tagger


def explain(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[str, typer.Argument(help="A text.")],
    label: Annotated[str, typer.Argument(help="A label, by its id or name.")],
    words: Annotated[int, typer.Option(min=1, help="Show so many words a classifier.")] = 10,
    as_json: Json = False,
) -> None:
    """Show the words that spoke for a label of a text, and those against it.

    [dim]megalabel explain model "a text" "a label"[/]
    """
    reasons = Tagger.load(model).explain(text, label, words)
    if as_json:
        output.show_json([reason._asdict() for reason in reasons])
        return
    for number, reason in enumerate(reasons, 1):
        where = f"Step {number} of {len(reasons)} down the tree" if len(reasons) > 1 else label
        rows = [(word, f"{share:+.3f}") for word, share in reason.words]
        rows += [("(bias)", f"{reason.bias:+.3f}"), ("margin", f"{reason.margin:+.3f}")]
        output.show_table(where, ["word", "adds"], rows)
