"""train: a model of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from megalabel import checkpoints, store
from megalabel import systems as recipes
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL, Reading, joined_by, reads_corpora
from megalabel.cli.shared import (
    Budget,
    Folder,
    Json,
    Memory,
    Seed,
    Settings,
    System,
    Threads,
    create,
    use_threads,
)
from megalabel.errors import ParameterError
from megalabel.metrics import Evaluation
from megalabel.outputs import check_folder
from megalabel.preparing import blank_texts
from megalabel.systems.label_files import use_label_files
from megalabel.systems.outlook import outlook
from megalabel.units import duration, size


@reads_corpora
def train(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    system: System = "auto",
    budget: Budget = None,
    memory: Memory = None,
    settings: Settings = None,
    threads: Threads = None,
    seed: Seed = 0,
    label_shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Learn part I of N of the labels; see merge."),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="What errors on each label cost: .npy, or lines of text.")
    ] = None,
    propensities: Annotated[
        Path | None,
        typer.Option(help="How likely each label is to be annotated: .npy, or lines of text."),
    ] = None,
    tree: Annotated[
        Path | None, typer.Option(help="Take the label trees of this model; do not make new ones.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep finished steps there; start again to go on.")
    ] = None,
    reading: Reading = AS_USUAL,
    as_json: Json = False,
) -> None:
    """Train a model on the training part of a corpus.

    [dim]megalabel train data/ --out model --budget 10m[/]
    """
    use_threads(threads)
    tagger = create(system, settings, seed, budget, memory)
    store.check_target(out)
    if checkpoint is not None:
        check_folder(checkpoint)
    shard = None if label_shard is None else _shard_of(label_shard)
    labelled = not recipes.get(system).unlabelled
    whole = corpus = reading.corpus(folder, "train", labelled=labelled)
    if shard is not None:
        corpus = whole.label_shard(*shard)
        if tagger.calibration is not None:
            output.note("a model of a part of the labels is not calibrated: merge, then calibrate")
    output.note(f"read {corpus}")
    if blank := blank_texts(corpus):
        told = "text is" if blank == 1 else "texts are"
        output.warn(
            f"{blank:,} {told} empty, of {len(corpus):,}: nothing is learned of their words"
        )
    learned = None if shard is None else corpus.labels
    files = {"costs": costs, "propensities": propensities, "trees": tree}
    use_label_files(tagger, whole.labels, learned, **files)
    expected = outlook(tagger, corpus)
    expected.check()
    if said := str(expected):
        (output.warn if expected.long else output.note)(said)
    try:
        with checkpoints.kept_in(checkpoint), output.telling("megalabel.systems"):
            tagger.fit(corpus, prepared=expected.prepared)
    except KeyboardInterrupt:
        if checkpoint is None:
            output.warn("nothing is kept; with --checkpoint FOLDER finished steps would be")
        else:
            output.warn(f"{checkpoint} keeps finished steps; the same command goes on from there")
        raise
    seconds = tagger.provenance_["seconds"]
    tagger.save(out)
    facts = {
        "system": tagger.system,
        "texts": len(corpus),
        "labels": len(corpus.labels),
        "features": tagger.features_.n_features,
        "seconds": round(seconds, 2),
        "bytes": store.folder_bytes(out),
        "skipped": corpus.source.get("skipped", 0),
    }
    joined = {name: corpus.source[name] for name in ("vocabulary",) if name in corpus.source}
    if as_json:
        held_out = tagger.metrics_ and Evaluation.from_dict(tagger.metrics_).to_dict(percent=True)
        race = tagger.provenance_.get("race")
        output.show_json({"model": str(out), **facts, **joined, "held_out": held_out, "race": race})
        return
    output.show_race(tagger.provenance_.get("race"))
    facts |= {"seconds": duration(seconds), "bytes": size(store.folder_bytes(out))}
    if said := joined_by(corpus.source):
        facts["vocabulary"] = said
    output.show_facts(f"Trained {out}", facts)
    output.show_held_out(tagger.metrics_)


def _shard_of(text: str) -> tuple[int, int]:
    """`2/8` as numbers."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal()):
        raise ParameterError(f"--label-shard takes a part and their number, like 2/8, not {text!r}")
    return int(number), int(of)
