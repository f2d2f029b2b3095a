"""export: a model without torch, or its encoder for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from megalabel import store
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import Json, Model
from megalabel.exporting import without_torch
from megalabel.outputs import check_folder
from megalabel.systems.neural_parts import neural


@reads_corpora
def export(
    model: Model,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    whole: Annotated[
        bool, typer.Option("--whole", help="All of the model, to tag with where torch is not.")
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in 8 bits: smaller.")] = False,
    texts: Annotated[
        Path | None, typer.Option(help="A corpus to measure the difference on.")
    ] = None,
    part: Annotated[str, typer.Option("--split", help="Which part of it.")] = "test",
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Write the encoder of a neural model as ONNX, with its tokenizer; or all of it as a model.

    [dim]megalabel export model --out encoder[/]
    [dim]megalabel export model --out served --whole[/]
    """
    room = neural()
    if whole:
        store.check_target(out)
    else:
        check_folder(out)
    sample = None if texts is None else reading.corpus(texts, part, labelled=False)
    if whole:
        tagger = without_torch(model, int8=int8, texts=sample)
        tagger.save(out)
        about = tagger.provenance_["without_torch"]
    else:
        about = room.export_onnx(model, out, int8=int8, texts=sample)
    if as_json:
        output.show_json(about)
        return
    shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in about.items()}
    output.show_facts(str(out), shown)
