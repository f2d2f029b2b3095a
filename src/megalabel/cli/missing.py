"""propensities: how likely labels are to be annotated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, reads_corpora
from megalabel.cli.shared import Folder, Json
from megalabel.labels import PropensityModel, write_propensities
from megalabel.labels.measuring import MODELS, check_model, measured_propensities
from megalabel.labels.plot import propensity_plot
from megalabel.outputs import check_file


@reads_corpora
def propensities(
    folder: Folder,
    model: Annotated[
        str, typer.Option(help=f"One of {', '.join(MODELS)}; the last three need --complete.")
    ] = "jpv",
    complete: Annotated[
        Path | None,
        typer.Option(help="A file of texts with all labels that apply, to measure by."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write them there, for train --propensities.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them there, as SVG.")] = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Say how likely labels that apply are to be annotated, by a model or a complete sample.

    [dim]megalabel propensities data/ --model richards --complete sample.jsonl --plot p.svg[/]
    """
    check_model(model, complete is not None)
    for path in filter(None, (out, plot)):
        check_file(path)
    corpus = reading.corpus(folder, "train")
    sample = None if complete is None else reading.corpus(complete, "train")
    found = measured_propensities(corpus, model, sample)
    chosen, values = found.curves[model], found.values
    if out is not None:
        write_propensities(out, values, corpus.labels)
    if plot is not None:
        propensity_plot(found.curves, corpus.label_counts, len(corpus), plot)
    measured = {}
    if sample is not None:
        what = "texts annotated twice" if found.same_texts else "texts of the sample"
        measured = {what: found.sample}
    constants = chosen.get_params() if isinstance(chosen, PropensityModel) else {}
    quartiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).round(4).tolist()
    if as_json:
        facts = {"model": model, **constants, **measured, "quartiles": quartiles}
        output.show_json(facts)
        return
    names = ("lowest", "lower quartile", "median", "upper quartile", "highest")
    shown = {name: f"{value:,}" for name, value in measured.items()}
    shown |= {name: f"{value:.4g}" for name, value in constants.items()}
    shown |= {name: f"{value:.3f}" for name, value in zip(names, quartiles, strict=True)}
    output.show_facts(f"Propensities of {len(values):,} labels by {model}", shown)
