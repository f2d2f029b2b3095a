"""info, convert, split: what is done with a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from megalabel import data, store
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, joined_by, reads_corpora
from megalabel.cli.shared import Folder, Json, OnePart, Seed
from megalabel.data.vocabularies.folder import is_folder as is_vocabulary
from megalabel.data.writing import write_split
from megalabel.errors import ParameterError
from megalabel.metrics import Evaluation
from megalabel.outputs import check_folder
from megalabel.units import size


@reads_corpora
def info(
    path: Annotated[Path, typer.Argument(help="A corpus or a model folder.")],
    verify: Annotated[bool, typer.Option(help="Check every byte of a model folder.")] = False,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Describe a corpus or a model: size, labels, tail."""
    if store.is_model(path):
        _model_info(path, verify, as_json)
        return
    if is_vocabulary(path):
        raise ParameterError(f"{path} is a vocabulary: see `megalabel vocabulary show {path}`")
    parts: list[str | None] = [*data.splits_of(path)] if path.is_dir() else []
    described = {}
    for part in parts or [None]:
        corpus = reading.corpus(path, part)
        statistics = data.statistics(corpus)
        described[part or path.name] = statistics.to_dict()
        if said := joined_by(corpus.source):
            described[part or path.name]["vocabulary"] = corpus.source["vocabulary"]
        if as_json:
            continue
        facts = statistics.in_words() | ({"vocabulary": said} if said else {})
        output.show_facts(f"{path.name} {part or ''}".strip(), facts)
        histogram = {str(bin): bin.labels for bin in statistics.histogram}
        output.show_bars("labels by number of texts", histogram)
        output.console.print()
    if as_json:
        output.show_json(described)


def _model_info(path: Path, verify: bool, as_json: bool) -> None:
    shown = store.described(path, verified=verify)
    if as_json:
        if shown["metrics"]:
            shown["metrics"] = Evaluation.from_dict(shown["metrics"]).to_dict(percent=True)
        output.show_json(shown)
        return
    del shown["parameters"]
    provenance = shown.pop("provenance") or {}
    metrics, reliability = shown.pop("metrics") or {}, shown.pop("reliability") or {}
    shown["bytes"] = size(shown["bytes"])
    output.show_facts(f"Model {path}", shown)
    corpus, settings = provenance.pop("corpus", {}), provenance.pop("settings", {})
    if said := joined_by(corpus):
        corpus["vocabulary"] = said
    race, mixed = provenance.pop("race", None), provenance.pop("mix", None)
    facts = provenance | settings | {f"corpus {k}": v for k, v in corpus.items()}
    if mixed:
        trained = dict.fromkeys(f"{texts:,}" for texts in mixed.get("trained_on", ()))
        facts |= {"texts that members were trained on": ", ".join(trained)} if trained else {}
        facts["texts that the mix was learned on"] = mixed["texts"]
    output.show_facts("Trained", facts)
    output.show_race(race)
    output.show_mix(mixed)
    output.show_held_out(metrics, mixed)
    output.show_reliability(reliability)


@reads_corpora
def convert(
    source: Folder,
    out: Annotated[Path, typer.Argument(help="The file or folder to write.")],
    to: Annotated[
        str | None, typer.Option(help="jsonl, csv, xc, npz, parquet or arrow; else by OUT's name.")
    ] = None,
    part: OnePart = None,
    overwrite: Annotated[bool, typer.Option(help="Replace OUT if it is there.")] = False,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Write a corpus in another format."""
    if out.is_file() and not overwrite:
        raise ParameterError(f"{out} is there already; --overwrite replaces it")
    check_folder(out, replaced=True)
    corpus = reading.corpus(source, part, labelled=False)
    data.write(corpus, out, format=to)
    if as_json:
        output.show_json({"texts": len(corpus), "labels": len(corpus.labels), "file": str(out)})
    else:
        counts = f"{len(corpus):,} texts with {len(corpus.labels):,} labels"
        output.console.print(f"Wrote {counts} to {escape(str(out))}", soft_wrap=True)


@reads_corpora
def split(
    source: Folder,
    out: Annotated[Path, typer.Argument(help="A folder for train and test.")],
    test: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The share of texts in test.")
    ] = 0.2,
    how: Annotated[
        str, typer.Option(help="hash (by text, duplicates stay together), labels or random.")
    ] = "hash",
    seed: Seed = 0,
    part: OnePart = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Split a corpus into a training and a test part."""
    check_folder(out)
    corpus = reading.corpus(source, part)
    train, tested = data.split(corpus, test=test, how=how, seed=seed)
    write_split(out, train, tested)
    if as_json:
        output.show_json({"train": len(train), "test": len(tested), "folder": str(out)})
    else:
        counts = f"{len(train):,} texts to train on and {len(tested):,} to test on"
        output.console.print(f"Wrote {counts} to {escape(str(out))}", soft_wrap=True)
