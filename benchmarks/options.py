"""What the options of the linear systems do to accuracy, size and time.

    python benchmarks/options.py --data ../shared/data/eurlex-titles [--only vectors costs …]

Each line is one fit, or one model made of others: P@k and PSP@k on the test part in percent, the
model's size on disk, and CPU seconds of all threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import megalabel
from megalabel import Corpus, Tagger, systems

Made = Iterator[tuple[str, Callable[[], Tagger]]]


def fit(train: Corpus, system: str, **options: Any) -> Callable[[], Tagger]:
    if system == "xr-linear":
        options["trees"] = 1
    return lambda: systems.create(system, calibrate=False, **options).fit(train)


def vectors(train: Corpus) -> Made:
    """What labels are clustered by."""
    for method, mix in (("pifa", None), ("text", None), ("pifa+text", None), ("pifa+text", 0.5)):
        options = {"label_vectors": method, "classifier__label_mix": mix}
        yield f"xr-linear, {method}, mix {mix}", fit(train, "xr-linear", **options)


def costs(train: Corpus) -> Made:
    """Named weightings of labels."""
    for system in ("xr-linear", "dismec"):
        for name in (None, "balanced", "propensity", "propensity-negatives", "propensity-balanced"):
            yield f"{system}, {name}", fit(train, system, classifier__weighting=name)


def relevance(train: Corpus) -> Made:
    """Positives of nodes weighed by how many labels they have below."""
    yield "xr-linear", fit(train, "xr-linear")
    for norm in (None, "l1", "l2", "max"):
        options = {"classifier__relevance": "nodes", "classifier__relevance_norm": norm}
        yield f"xr-linear, nodes, {norm}", fit(train, "xr-linear", **options)


def in_parts(train: Corpus, n: int) -> Tagger:
    parts = [fit(train.label_shard(i + 1, n), "xr-linear") for i in range(n)]
    return megalabel.merge([part() for part in parts])


def shards(train: Corpus) -> Made:
    """A tree of all labels, and trees of parts of them merged."""
    for n in (1, 2, 4, 8):
        yield f"xr-linear, {n} parts", partial(in_parts, train, n)


def pruning(train: Corpus) -> Made:
    """One model, made smaller after training."""
    model = systems.create("dismec", prune=0.01, calibrate=False).fit(train)
    yield "dismec, prune=0.01", lambda: model
    for threshold in (0.05, 0.1, 0.2, 0.3):
        yield f"threshold={threshold}", partial(model.prune, threshold)
    for most in (500, 200, 100, 50):
        yield f"max_per_label={most}", partial(model.prune, max_per_label=most)


TABLES = {table.__name__: table for table in (vectors, costs, relevance, shards, pruning)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with texts")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    asked = parser.parse_args()
    train, test = (megalabel.read(asked.data, part) for part in ("train", "test"))
    for name in asked.only:
        print(f"\n{asked.data.name}, {name}: {TABLES[name].__doc__}\n")
        print("| | P@1 | P@3 | P@5 | PSP@1 | PSP@3 | PSP@5 | MiB | CPU s |")
        print("|---|" + "---:|" * 8)
        for title, make in TABLES[name](train):
            started = time.process_time()
            tagger = make()
            seconds = time.process_time() - started
            values = tagger.evaluate(test)
            with tempfile.TemporaryDirectory() as folder:
                tagger.save(Path(folder) / "model")
                size = sum(f.stat().st_size for f in Path(folder, "model").iterdir()) / 2**20
            shown = [f"{100 * values[f'{m}@{k}']:.1f}" for m in ("P", "PSP") for k in (1, 3, 5)]
            print(f"| {title} | {' | '.join(shown)} | {size:.1f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
