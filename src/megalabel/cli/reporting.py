"""report: a page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from megalabel.cli import output
from megalabel.cli.models import Json, MaxBytes, Seed, SkipBad, Threads, cutoffs, read, use_threads
from megalabel.report import check_path, write


def report(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    folder: Annotated[Path, typer.Argument(help="A corpus: a folder or a file.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    k: Annotated[str, typer.Option("-k", help="Cut-offs, separated by commas.")] = "1,3,5",
    part: Annotated[str, typer.Option("--split", help="Which part of the corpus.")] = "test",
    seed: Seed = 0,
    threads: Threads = None,
    skip_bad: SkipBad = False,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Measure a model on the test part of a corpus, and write a page about it.

    [dim]megalabel report model data/ --out report.html[/]
    """
    use_threads(threads)
    check_path(out)
    write(model, read(folder, part, skip_bad, max_bytes), out, k=cutoffs(k), seed=seed)
    if as_json:
        output.show_json({"report": str(out), "bytes": out.stat().st_size})
        return
    output.console.print(
        f"Wrote [bold]{escape(str(out))}[/] ({output.size(out.stat().st_size)})", soft_wrap=True
    )
