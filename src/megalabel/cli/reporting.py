"""report: a page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import (
    Cutoffs,
    Folder,
    Json,
    Model,
    Part,
    Seed,
    Threads,
    cutoffs,
    use_threads,
)
from megalabel.report import check_path, write
from megalabel.tagger import Tagger
from megalabel.units import size


@reads_corpora
def report(
    model: Model,
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    k: Cutoffs = "1,3,5",
    part: Part = "test",
    seed: Seed = 0,
    threads: Threads = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Measure a model on the test part of a corpus, and write a page about it.

    [dim]megalabel report model data/ --out report.html[/]
    """
    use_threads(threads)
    check_path(out)
    known = Tagger.load(model).labels if reading.language else None
    corpus = reading.corpus(folder, part, known=known)
    write(model, corpus, out, k=cutoffs(k), seed=seed, language=reading.language)
    if as_json:
        output.show_json({"report": str(out), "bytes": out.stat().st_size})
        return
    output.console.print(
        f"Wrote [bold]{escape(str(out))}[/] ({size(out.stat().st_size)})", soft_wrap=True
    )
