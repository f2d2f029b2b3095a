"""tag: labels for texts from the command line, a file or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_texts
from megalabel.cli.shared import Json, Model, Threads, use_threads
from megalabel.data import Corpus, Ranking
from megalabel.data.answers import check_answers, write_answers
from megalabel.data.selecting import among
from megalabel.errors import ParameterError
from megalabel.tagger import Tagger


@reads_texts
def tag(
    model: Model,
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts; without any, or -, one a line from stdin.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Tag a file: a corpus in any format, or plain text, one text a line."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="How to read the file: plain, csv …; else by looking."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the answers there: .csv, .jsonl or .parquet.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet, where OUT's name does not tell.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="At most so many labels a text.")] = 5,
    threshold: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Leave out labels of a lower probability."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=VALUE",
            help="Answer with these labels alone: subtree=, type=, collection= or label=; "
            "may be repeated.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=VALUE", help="Leave these out; may be repeated."),
    ] = None,
    threads: Threads = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Tag texts with label names and probabilities; JSON lines when piped.

    [dim]megalabel tag model "a text" -k 5[/]
    [dim]megalabel tag model --file texts.csv --out answers.csv[/]
    [dim]megalabel tag model "a text" --language fi --only subtree=animal[/]
    [dim]cat titles.txt | megalabel tag model -[/]
    """
    use_threads(threads)
    if text and file is not None:
        raise ParameterError("give either texts or --file, not both")
    if form is not None and file is None:
        raise ParameterError("--format is for --file")
    if to is not None and out is None:
        raise ParameterError("--to is for --out")
    if out is not None:
        check_answers(out, to)
    if text == ["-"]:
        text = None
    tagger = Tagger.load(model).in_language(reading.language)
    allowed = among(tagger.labels, only or [], without or []) if only or without else None
    as_json = as_json or not sys.stdout.isatty()

    def answer(batch: Corpus) -> Ranking:
        return tagger.decide(batch, k, threshold=threshold, allowed=allowed)

    batches: Iterable[Corpus] = [Corpus(text)] if text else []
    if not text:
        if file is None and sys.stdin.isatty():
            output.note("one text a line; end with Ctrl-D")
        source = sys.stdin.buffer if file is None else file
        batches = reading.texts(source, form)
    if out is not None:
        texts = write_answers(((batch, answer(batch)) for batch in batches), out, to)
        output.note(f"wrote the labels of {texts:,} texts to {out}")
        return
    number = 0
    for batch in batches:
        for place, row in enumerate(answer(batch).rows(batch)):
            number += 1
            # only asked where there is no label: it may be the threshold that left none
            if not row["labels"] and not tagger.known(batch[place : place + 1])[0]:
                row["known"] = False
            if as_json:
                output.show_json(row)
                continue
            words = f"row {number}" if row["text"] is None else row["text"]
            title = f"[bold]{escape(words)}[/]"
            shown = f"[cyan]{escape(row['uid'])}[/] {title}" if "uid" in row else title
            output.console.print(shown, soft_wrap=True)
            for found in row["labels"]:
                shown = escape(found["label"])
                if known_by := " ".join(found[key] for key in ("notation", "id") if key in found):
                    shown += f"  [dim]{escape(known_by)}[/]"
                output.console.print(f"  {found['probability']:6.1%}  {shown}", soft_wrap=True)
            if not row["labels"]:
                why = "nothing known" if "known" in row else "no label is probable enough"
                output.console.print(f"  [dim]{why}[/]")
        sys.stdout.flush()
