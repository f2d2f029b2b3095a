"""export: the encoder of a model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli import output
from megalabel.cli.models import Json, SkipBad, read
from megalabel.errors import MissingExtraError


def export(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="Weights in 8 bits: smaller.")] = False,
    texts: Annotated[
        Path | None, typer.Option(help="A corpus to measure the difference on.")
    ] = None,
    part: Annotated[str, typer.Option("--split", help="Which part of it.")] = "test",
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Write the encoder of a neural model as ONNX, with its tokenizer.

    [dim]megalabel export model --out encoder[/]
    """
    try:
        from megalabel.neural import export_onnx
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "neural") from error
    sample = None if texts is None else read(texts, part, skip_bad)
    about = export_onnx(model, out, int8=int8, texts=sample)
    if as_json:
        output.show_json(about)
        return
    measured = {name: f"{about[name]:.4g}" for name in ("difference", "cosine")}
    output.show_facts(str(out), about | measured)
