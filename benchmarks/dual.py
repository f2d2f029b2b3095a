"""Dual encoders beside classifiers of the same encoder: accuracy, time and memory, in one table.

    python benchmarks/dual.py --data DATA [--corpora NAME ...] [--texts 0] [--only NAME ...]
    python benchmarks/dual.py --data DATA --ablation [--corpora NAME ...] [--texts 0]

All learn from the same texts of the train part, drawn by a seed, with one encoder: --encoder is the
name or folder of a Hugging Face model ("frozen:" before it: not trained itself; --vectors keeps
what it makes of texts), or "bag", word vectors that are added up. --words also
trains a linear ranker on words and vectors for each, and measures linear systems. Where --texts
bounds the training texts, labels that none of these carries are left out of both parts; --tests
bounds the test texts. A text that is itself a label, by its id or by its text, is not asked about
that label; nor is a dual encoder taught anything of it. --ablation leaves parts out of unidec, one
at a time.

Each row is a process of its own, so its peak of memory is its own: it includes that of reading the
corpus. Results are lines of JSON, which are not made again: a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel import Corpus, Tagger, systems

RESULTS = Path(__file__).parent / "results" / "dual.jsonl"
CORPORA = ("debian-depends", "wordnet-hypernyms")
MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
Row = tuple[str, dict[str, Any]]  # of a system and its settings, by what a row is called
ROWS: dict[str, Row] = {
    "unidec": ("unidec", {}),
    "depsl": ("depsl", {}),
    "siamesexml": ("siamesexml", {}),
    "ngame": ("ngame", {}),
    "ngame, encoder alone": ("ngame", {"beta": 0.0}),
    "dexml": ("dexml", {}),
    "astec": ("astec", {}),
    "renee": ("renee", {}),
}
BY_TEXTS = ("unidec", "depsl", "siamesexml", "ngame", "dexml")  # those that a ranker can follow
MIXED: Row = ("mix", {"members": [("unidec", {}), ("xr-linear", {})]})
LINEAR: dict[str, Row] = {
    name: (name, {}) for name in ("xr-linear", "bonsai", "parabel", "plt", "dismec")
}
MOST_CELLS = 6e8  # texts times labels; of more, one-versus-all takes over ten minutes
AS_PUBLISHED = {"scores": "cosines", "mined_by": "labels", "width": 384, "classifier_width": 384}
ABLATION: dict[str, Row] = {
    "unidec": ("unidec", {}),
    "as published": ("unidec", AS_PUBLISHED),
    "cosines": ("unidec", {"scores": "cosines"}),
    "mined by the dual encoder": ("unidec", {"mined_by": "labels"}),
    "no mined labels": ("unidec", {"negatives": 0}),
    "projection for labels' own vectors": ("unidec", {"classifier_width": 384}),
    "both projections": ("unidec", {"width": 384, "classifier_width": 384}),
    "no auxiliary loss": ("unidec", {"auxiliary": False}),
    "auxiliary loss alone": ("unidec", {"auxiliary": False, "classifier_loss": "bce"}),
    "dual encoder answers": ("unidec", {"answer": "labels"}),
    "classifier answers": ("unidec", {"answer": "classifier"}),
    "loss of the classifier alone": ("unidec", {"share": 0.0, "answer": "classifier"}),
    "random batches": ("unidec", {"classifier__clusters": None}),
    "no extra positives": ("unidec", {"classifier__extra": False}),
    "one positive a text": ("unidec", {"positives": 1}),
    "symmetric losses": ("unidec", {"symmetric": True}),
    "contrastive, dual encoder": ("unidec", {"loss": "contrastive"}),
    "contrastive, both": (
        "unidec",
        {"loss": "contrastive", "classifier_loss": "contrastive"},
    ),
}


def with_own_labels(corpus: Corpus) -> Corpus:
    """The corpus, where the own label of a text that is one is excluded, unless it carries it."""
    labels = corpus.labels
    places: dict[str, int] = {}
    for column in (labels.ids, labels.names if labels.texts is None else labels.texts):
        for place, value in enumerate(column.to_pylist()):
            places.setdefault(value, place)
    columns = [c.to_pylist() for c in (corpus.ids, corpus.texts) if c is not None]
    cells = {
        (row, places[value])
        for column in columns
        for row, value in enumerate(column)
        if value in places
    }
    rows, own = np.array(sorted(cells), np.int64).reshape(-1, 2).T
    excluded = csr_matrix((np.ones(len(rows), np.float32), (rows, own)), corpus.targets.shape)
    excluded = csr_matrix(excluded > excluded.multiply(corpus.targets > 0), dtype=np.float32)
    more = {"ids": corpus.ids, "excluded": excluded}
    return Corpus(corpus.texts, None, corpus.targets, labels, **more)


def encoder_of(given: argparse.Namespace) -> Any:
    """The encoder: a frozen one keeps its vectors of texts in a folder for all rows."""
    source = given.encoder.removeprefix("frozen:")
    if source == given.encoder or given.vectors is None:
        return given.encoder
    from megalabel.neural import FrozenEncoder

    return FrozenEncoder(source, cache=str(given.vectors))


def created(given: argparse.Namespace, row: Row) -> Tagger:
    """A system by its row."""
    name, settings = row
    if name == "mix":
        members = [created(given, member) for member in settings["members"]]
        return systems.create("mix", members=members, calibration=None, seed=given.seed)
    shared: dict[str, Any] = {"calibrate": False, "seed": given.seed}
    if systems.get(name).neural:
        shared["device"] = given.device
        shared |= {} if given.epochs is None else {"epochs": given.epochs}
        shared |= {} if name == "astec" else {"encoder": encoder_of(given)}
    return systems.create(name, **shared | settings)


def measured(given: argparse.Namespace, row: Row) -> dict[str, Any]:
    """Train a system and ask it about the test part."""
    import torch

    from megalabel import neural

    torch.set_num_threads(given.threads)
    megalabel.set_threads(given.threads)
    train = megalabel.read(given.data / given.corpora[0], "train")
    if given.texts and len(train) > given.texts:
        order = np.random.default_rng(given.seed).permutation(len(train))
        train = train[np.sort(order[: given.texts])]
    known = np.flatnonzero(train.label_counts)
    train = with_own_labels(train.with_labels(known))
    test = megalabel.read(given.data / given.corpora[0], "test").with_labels(known)
    asked = np.flatnonzero(np.diff(test.targets.indptr))
    if given.tests and len(asked) > given.tests:
        order = np.random.default_rng(given.seed).permutation(len(asked))
        asked = np.sort(asked[order[: given.tests]])
    test = with_own_labels(test[asked])
    tagger = created(given, row)
    clock, cpu = time.perf_counter(), time.process_time()
    with neural.Stopwatch() as watch:
        tagger.fit(train)
    seconds = {"s": time.perf_counter() - clock, "CPU s": time.process_time() - cpu}
    if watch.trainings and row[0] != "mix":
        classifier: Any = tagger.classifier
        steps = math.ceil(len(train) / classifier.training.batch_of(len(train)))
        seconds["s an epoch"] = max(steps * t.seconds / t.steps for t in watch.trainings)
    found = tagger.evaluate(test, k=(1, 3, 5))
    scores = {measure: 100 * float(found[measure]) for measure in MEASURES}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return scores | seconds | {"GiB": peak, "texts": len(train), "labels": len(train.labels)}


def rows_of(given: argparse.Namespace, cells: float) -> dict[str, Row]:
    """What is to be run."""
    if given.ablation:
        rows = ABLATION
    else:
        rows = dict(ROWS)
        if given.words:
            for name in BY_TEXTS:
                rows[f"{name}, with words"] = (name, {"ranker": "auto"})
            rows["unidec and xr-linear, mixed"] = MIXED
            rows |= {k: r for k, r in LINEAR.items() if k != "dismec" or cells <= MOST_CELLS}
    return {name: row for name, row in rows.items() if not given.only or name in given.only}


def shown(lines: list[dict[str, Any]]) -> None:
    """A table in Markdown."""
    print("\n| corpus | texts | what | P@1/3/5 | PSP@1/3/5 | s an epoch | s | CPU s | GiB |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for line in lines:
        cells = [f"{line[m]:.2f}" for m in MEASURES]
        cost = f"{line['s']:.0f} | {line['CPU s']:.0f} | {line['GiB']:.1f}"
        epoch = f"{line['s an epoch']:.1f}" if "s an epoch" in line else ""
        print(
            f"| {line['corpus']} | {line['texts']:,} | {line['what']} | {' / '.join(cells[:3])} | "
            f"{' / '.join(cells[3:])} | {epoch} | {cost} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of corpora")
    parser.add_argument("--corpora", nargs="*", default=CORPORA)
    parser.add_argument("--texts", type=int, default=0, help="training texts at most; 0: all")
    parser.add_argument("--tests", type=int, default=0, help="test texts at most; 0: all")
    parser.add_argument("--encoder", default="bag")
    parser.add_argument("--vectors", type=Path, help="a folder that keeps a frozen model's vectors")
    parser.add_argument("--epochs", type=float, help="of every training; by default each its own")
    parser.add_argument("--only", nargs="*", default=(), help="some rows, by name")
    parser.add_argument("--words", action="store_true", help="also with words, and linear systems")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--row", help=argparse.SUPPRESS)  # of the process that runs one
    given = parser.parse_args()
    if given.row is not None:
        print(json.dumps(measured(given, tuple(json.loads(given.row)))))
        return
    lines = [json.loads(line) for line in given.results.open()] if given.results.exists() else []
    about = {"machine": platform.processor() or platform.machine(), "cores": given.threads}
    about |= {"megalabel": megalabel.__version__, "encoder": given.encoder}
    about |= {"epochs": given.epochs, "seed": given.seed, "command": " ".join(sys.argv[1:])}
    results = []
    for corpus in given.corpora:
        train = megalabel.read(given.data / corpus, "train")
        texts = min(len(train), given.texts or len(train))
        for what, row in rows_of(given, texts * len(train.labels)).items():
            key = {"corpus": corpus, "texts": texts, "what": what, "settings": list(row)}
            key |= {name: about[name] for name in ("encoder", "epochs", "seed")}
            key["tests"] = given.tests
            line = next((x for x in lines if key.items() <= ({"tests": 0} | x).items()), None)
            if line is None:
                command = [sys.executable, __file__, *sys.argv[1:], "--row", json.dumps(row)]
                done = subprocess.run(
                    [*command, "--corpora", corpus], stdout=subprocess.PIPE, text=True, check=True
                )
                line = about | key | json.loads(done.stdout.splitlines()[-1])
                given.results.parent.mkdir(exist_ok=True)
                with given.results.open("a") as out:
                    out.write(json.dumps(line) + "\n")
            results.append(line)
            print(what, {measure: round(line[measure], 2) for measure in MEASURES}, flush=True)
    shown(results)


if __name__ == "__main__":
    main()
