"""explain: which words spoke for a label, and which against it."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Annotated

import typer

from megalabel.cli import output
from megalabel.cli.shared import Json, Model
from megalabel.tagger import Tagger


def explain(
    model: Model,
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
    trees = Counter(reason.tree for reason in reasons)
    for tree, path in groupby(reasons, lambda reason: reason.tree):
        of_tree = f", tree {tree + 1} of {len(trees)}" if len(trees) > 1 else ""
        for number, reason in enumerate(path, 1):
            of_step = f", step {number} of {trees[tree]} down the tree" if trees[tree] > 1 else ""
            rows = [(word, f"{share:+.3f}") for word, share in reason.words]
            rows += [("(bias)", f"{reason.bias:+.3f}"), ("margin", f"{reason.margin:+.3f}")]
            output.show_table(f"{label}{of_tree}{of_step}", ["word", "adds"], rows)
