"""Neural systems beside linear ones on a corpus: accuracy and time, all in one table.

python benchmarks/neural.py --data CORPUS --encoder MODEL [--only renee xr-transformer …]

A row's time is that of training, features and encoding included, with everything else idle unless
several are run at once. `words`, `vectors` and `both` are the same ranker on parts of what the
system's own ranker sees.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel import systems
from megalabel.base import clone
from megalabel.data import Corpus
from megalabel.features.rows import normalised_rows
from megalabel.metrics import evaluate

Row = tuple[str, float, Any]  # name, seconds, ranking


class Bench:
    """A corpus and the settings that all systems share."""

    def __init__(self, train: Corpus, test: Corpus, options: argparse.Namespace) -> None:
        self.train, self.test = train, test.aligned(train.labels)
        self.options = options

    def neural(self, name: str, **parameters: Any) -> Any:
        shared = {
            "encoder": self.options.encoder,
            "max_length": self.options.max_length,
            "device": self.options.device,
            "calibrate": False,
            "seed": self.options.seed,
        }
        if self.options.epochs is not None:
            shared["epochs"] = self.options.epochs
        return systems.create(name, **(shared | parameters | self.options.settings.get(name, {})))

    def fitted(self, tagger: Any) -> tuple[Any, float]:
        started = time.perf_counter()
        tagger.fit(self.train)
        return tagger, time.perf_counter() - started

    # ------------------------------------------------------------------ what is measured
    def linear(self, name: str) -> Iterator[Row]:
        tagger, seconds = self.fitted(systems.create(name, calibrate=False))
        yield name, seconds, tagger.rank(self.test, 5)

    def frozen(self) -> Iterator[Row]:
        made = self.neural("renee")
        made.classifier.frozen = True
        tagger, seconds = self.fitted(made)
        yield "the encoder frozen, a linear head", seconds, tagger.rank(self.test, 5)

    def renee(self) -> Iterator[Row]:
        tagger, seconds = self.fitted(self.neural("renee"))
        yield "renee", seconds, tagger.rank(self.test, 5)

    def with_ranker(self, name: str) -> Iterator[Row]:
        """A system whose last stage is a linear ranker on words and vectors, and its parts."""
        tagger, seconds = self.fitted(self.neural(name))
        yield name, seconds, tagger.rank(self.test, 5)
        classifier = tagger.classifier_
        views = [tagger.features_.transform(part) for part in (self.train, self.test)]
        both = [classifier.features(view) for view in views]
        words = int(views[0].words.shape[1])
        alone = {"words": slice(0, words), "vectors": slice(words, None)}
        for what, columns in alone.items():
            started = time.perf_counter()
            ranker = clone(classifier.ranker_)
            ranker.fit(normalised_rows(both[0][:, columns]), self.train.targets, self.train.labels)
            seconds = time.perf_counter() - started
            ranking = ranker.rank(normalised_rows(both[1][:, columns]), 5)
            yield f"{name}: its ranker on the {what} alone", seconds, ranking
        own = getattr(classifier, "rank_by_network", None)
        if own is not None:
            yield f"{name}: its network alone", float("nan"), own(views[1], 5)

    def direct(self) -> Iterator[Row]:
        """All labels at once, without coarse levels: the ranker is xr-transformer's own."""
        made = self.neural("xr-transformer")
        made.classifier.set_params(arity=1 << 30, max_leaf=1 << 30)
        tagger, seconds = self.fitted(made)
        yield "xr-transformer without coarse levels", seconds, tagger.rank(self.test, 5)

    def rows(self, which: str) -> Iterator[Row]:
        makers: dict[str, Callable[[], Iterator[Row]]] = {
            "frozen": self.frozen,
            "renee": self.renee,
            "direct": self.direct,
        }
        if which in makers:
            yield from makers[which]()
        elif which in ("xr-transformer", "cascadexml"):
            yield from self.with_ranker(which)
        elif which in ("dismec", "xr-linear", "bonsai", "parabel"):
            yield from self.linear(which)
        else:
            tagger, seconds = self.fitted(self.neural(which))
            yield which, seconds, tagger.rank(self.test, 5)


def machine(device: str) -> str:
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", help="a Hugging Face model, by name or folder")
    parser.add_argument(
        "--only",
        nargs="+",
        default=["xr-linear", "dismec", "frozen", "renee", "xr-transformer", "cascadexml"],
    )
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=int, help="at most so many training texts")
    parser.add_argument(
        "--settings", type=json.loads, default={}, help='{"renee": {"dropout": 0.3}, …}'
    )
    options = parser.parse_args()
    train = megalabel.read(options.data, "train")
    test = megalabel.read(options.data, "test")
    if options.texts is not None:
        order = np.random.default_rng(0).permutation(len(train))
        train = train[np.sort(order[: options.texts])]
    bench = Bench(train, test, options)
    print(
        f"{options.data.name}: {len(train):,} + {len(test):,} texts, {len(train.labels):,} labels; "
        f"{machine(options.device)}; megalabel {megalabel.__version__}\n"
    )
    print("| system | train s | P@1 / 3 / 5 | PSP@5 |\n|---|---:|---:|---:|", flush=True)
    counts = (train.label_counts, len(train))
    for which in options.only:
        for name, seconds, ranking in bench.rows(which):
            found = evaluate(ranking, bench.test, train_labels=counts, k=(1, 3, 5))
            precision = " / ".join(f"{100 * found[f'P@{k}']:.2f}" for k in (1, 3, 5))
            took = "" if np.isnan(seconds) else f"{seconds:.1f}"
            print(f"| {name} | {took} | {precision} | {100 * found['PSP@5']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
