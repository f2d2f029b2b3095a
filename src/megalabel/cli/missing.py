"""propensities: how likely labels are to be annotated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.sparse import csr_matrix

from megalabel.cli import models, output
from megalabel.cli.models import Json, MaxBytes, SkipBad
from megalabel.data import Corpus
from megalabel.errors import DataError, ParameterError
from megalabel.labels import (
    PROPENSITIES,
    Jpv,
    PropensityModel,
    Richards,
    direct_propensities,
    label_propensities,
    write_propensities,
)
from megalabel.labels.plot import propensity_plot
from megalabel.outputs import check_file

_FITTED: dict[str, type[PropensityModel]] = {"jpv-fitted": Jpv, "richards": Richards}
_MODELS = (*PROPENSITIES, *_FITTED, "direct")


def propensities(
    folder: Annotated[Path, typer.Argument(help="A corpus: a folder or a file.")],
    model: Annotated[
        str, typer.Option(help=f"One of {', '.join(_MODELS)}; the last three need --complete.")
    ] = "jpv",
    complete: Annotated[
        Path | None,
        typer.Option(help="A file of texts with all labels that apply, to measure by."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write them there, for train --propensities.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them there, as SVG.")] = None,
    skip_bad: SkipBad = False,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Say how likely labels that apply are to be annotated, by a model or a complete sample.

    [dim]megalabel propensities data/ --model richards --complete sample.jsonl --plot p.svg[/]
    """
    if model not in _MODELS:
        raise ParameterError(f"--model must be one of {', '.join(_MODELS)}, not {model!r}")
    if (complete is None) != (model in PROPENSITIES):
        needs = "needs" if complete is None else "does not look at"
        raise ParameterError(f"--model {model} {needs} --complete")
    for path in filter(None, (out, plot)):
        check_file(path)
    corpus = models.read(folder, "train", skip_bad, max_bytes)
    if not len(corpus.labels):
        raise DataError("its texts have no labels", file=folder)
    counts, n = corpus.label_counts, len(corpus)
    curves: dict[str, PropensityModel | np.ndarray] = {}
    measured: dict[str, int] = {}
    if complete is None:
        curves[model] = PROPENSITIES[model]
    else:
        sample = models.read(complete, "train", skip_bad, max_bytes).aligned(corpus.labels)
        observed, whole, same = _sample(corpus, sample)
        measured = {"texts annotated twice" if same else "texts of the sample": whole.shape[0]}
        curves["direct"] = direct_propensities(observed, whole, same_rows=same)
        if model in _FITTED:
            bare = direct_propensities(observed, whole, same_rows=same, smoothing=0)
            weights = np.asarray((whole > 0).sum(axis=0)).ravel()
            curves[model] = _FITTED[model].fit_to(counts, n, bare, weights)
    chosen = curves[model]
    values = label_propensities(chosen, counts, n)
    if out is not None:
        write_propensities(out, values, corpus.labels)
    if plot is not None:
        propensity_plot(curves, counts, n, plot)
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


def _sample(corpus: Corpus, sample: Corpus) -> tuple[csr_matrix, csr_matrix, bool]:
    """Ordinary and complete labels; of the same texts, if some of the sample have ids of the
    corpus."""
    whole = sample.targets[:, : len(corpus.labels)]
    if corpus.ids is None or sample.ids is None:
        return corpus.targets, whole, False
    place = {identity: row for row, identity in enumerate(corpus.ids.to_pylist())}
    rows = np.array([place.get(identity, -1) for identity in sample.ids.to_pylist()])
    if not (rows >= 0).any():
        return corpus.targets, whole, False
    return corpus.targets[rows[rows >= 0]], whole[rows >= 0], True
