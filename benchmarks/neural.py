"""Neural systems beside linear ones on a corpus: accuracy and time, all in one table.

python benchmarks/neural.py --data CORPUS --encoder MODEL [--only renee xr-transformer …]
python benchmarks/neural.py --data CORPUS --encoder MODEL --race 0.5 1 2 --random 3 6 --solved 3 6

A row's time is that of training, features and encoding included, with everything else idle unless
several are run at once. `words`, `vectors` and `both` are the same ranker on parts of what the
system's own ranker sees. attentionxml, astec and inceptionxml learn their words from the corpus
and take no encoder.

With --race: xr-transformer with its coarse levels, for so many epochs of each level, and without
them, the same encoder on all labels from the start: for so many epochs from random weights
(--random), and from weights solved on the vectors (--solved). Each is trained alone, with a single
tree for a ranker, so that fine-tuning is most of the time. How long did each take to come to the
same P@1 on the test texts: of the system, and of its ranker on the vectors alone, which shows what
the encoder has learned.
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
from megalabel.data.matrix import normalised_rows
from megalabel.linear import TreeClassifier
from megalabel.metrics import evaluate

Row = tuple[str, float, Any]  # name, seconds, ranking

OWN_WORDS = ("attentionxml", "astec", "inceptionxml")
# where --epochs does not say: enough to come to rest, within minutes on a GPU
EPOCHS = {"lightxml": 20, "attentionxml": 20, "astec": 25, "inceptionxml": 45}
WITHOUT_LEVELS = {"arity": 1 << 30, "max_leaf": 1 << 30, "max_active": 1 << 30}
# by the option that has their epochs
RACE: dict[str, tuple[str, dict[str, Any]]] = {
    "race": ("coarse levels", {}),
    "random": ("all labels at once, from random weights", WITHOUT_LEVELS | {"bootstrap": "random"}),
    "solved": ("all labels at once, from weights solved on the vectors", WITHOUT_LEVELS),
}


class Bench:
    """A corpus and the settings that all systems share."""

    def __init__(self, train: Corpus, test: Corpus, options: argparse.Namespace) -> None:
        self.train, self.test = train, test.aligned(train.labels)
        self.options = options

    def neural(self, name: str, **parameters: Any) -> Any:
        shared = {"device": self.options.device, "calibrate": False, "seed": self.options.seed}
        if name not in OWN_WORDS:
            shared["encoder"] = self.options.encoder
        if name not in ("astec", "inceptionxml"):
            shared["max_length"] = self.options.max_length
        epochs = self.options.epochs or EPOCHS.get(name)
        if epochs is not None:
            shared["epochs"] = epochs
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
        tagger = self.neural(name)
        started = time.perf_counter()
        train = tagger.features.fit_transform(self.train)
        classifier = tagger.classifier.fit(train, self.train.targets, self.train.labels)
        seconds = time.perf_counter() - started
        test = tagger.features.transform(self.test)
        yield name, seconds, classifier.rank(test, 5)
        for what in ("words", "vectors"):
            seconds, ranking = self.ranked_by(what, classifier, [train, test])
            yield f"{name}: its ranker on the {what} alone", seconds, ranking
        if hasattr(classifier, "rank_by_network"):
            alone = classifier.rank_by_network(test, 5)
            yield f"{name}: its network alone", float("nan"), alone

    def ranked_by(self, what: str, classifier: Any, views: list[Any]) -> tuple[float, Any]:
        """The ranker of a trained classifier on the words or the vectors alone."""
        words = int(views[0].words.shape[1])
        columns = slice(0, words) if what == "words" else slice(words, None)
        train, test = (normalised_rows(classifier.features(view)[:, columns]) for view in views)
        started = time.perf_counter()
        ranker = clone(classifier.ranker_)
        ranker.fit(train, self.train.targets, self.train.labels)
        return time.perf_counter() - started, ranker.rank(test, 5)

    def direct(self) -> Iterator[Row]:
        """All labels at once, without coarse levels: the ranker is xr-transformer's own."""
        made = self.neural("xr-transformer")
        made.classifier.set_params(**WITHOUT_LEVELS)
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

    # ------------------------------------------------------------------ time to the same P@1
    def race(self) -> None:
        """Print what each way has come to after how long, and when both have come equally far."""
        print("| how | epochs | train s | P@1 | P@1 of the vectors |\n|---|---:|---:|---:|---:|")
        reached: dict[str, list[tuple[float, float, float]]] = {}

        def trained(count: float, **parameters: Any) -> tuple[Any, float]:
            made = self.neural("xr-transformer", epochs=count)
            made.classifier.set_params(ranker=TreeClassifier(), **parameters)
            return self.fitted(made)

        trained(0.02)  # not counted: what is done once
        for option, (how, parameters) in RACE.items():
            for count in getattr(self.options, option):
                tagger, seconds = trained(count, **parameters)
                rankings = (tagger.rank(self.test, 5), self.ranked_by("vectors", tagger)[1])
                both = [100 * evaluate(r, self.test, k=(1,))["P@1"] for r in rankings]
                reached.setdefault(how, []).append((seconds, *both))
                line = f"| {how} | {count:g} | {seconds:.1f} | {both[0]:.2f} | {both[1]:.2f} |"
                print(line, flush=True)
        for place, what in ((1, "P@1"), (2, "P@1 of the vectors")):
            common = min(max(run[place] for run in runs) for runs in reached.values())
            took = {how: time_to(runs, place, common) for how, runs in reached.items()}
            print(f"\nseconds to a {what} of {common:.2f}: ", end="")
            print("; ".join(f"{how} {seconds:.1f}" for how, seconds in took.items()), flush=True)


def time_to(runs: list[tuple[float, float, float]], place: int, value: float) -> float:
    """Seconds after which a value is reached, on the line through the runs before and after."""
    seconds, best = 0.0, None
    for run in sorted(runs):
        if run[place] >= value:
            if best is None:
                return run[0]
            return seconds + (run[0] - seconds) * (value - best) / (run[place] - best)
        if best is None or run[place] > best:
            seconds, best = run[0], run[place]
    return float("nan")


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
    parser.add_argument(
        "--race", type=float, nargs="+", metavar="EPOCHS", help="time to the same P@1, as above"
    )
    for start in ("--random", "--solved"):
        parser.add_argument(start, type=float, nargs="*", metavar="EPOCHS", default=[])
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
    if options.race is not None:
        bench.race()
        return
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
