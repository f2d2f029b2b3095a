"""Is an encoder of one's own texts worth its pre-training? Accuracy and time by corpus and size.

    python benchmarks/pretraining.py --data FOLDER … [--sizes 800:3000 2000:12000] [--seeds 0 1]
        [--json FILE]
    python benchmarks/pretraining.py --table FILE

Four ways to tag the same texts: a small transformer from scratch; the same one after it has learned
to guess masked words; a bag of word vectors; dismec on tf-idf. A size 800:3000 is 3,000 texts to
pre-train on, of which 800 have labels. All ways see the first words of a text (--words). The first
three have the same head of all labels. A fifth of the texts with labels is held out of training,
and the best epoch is chosen on it, by P@1. So is the learning rate of the encoder, once: on the
first corpus, in its first size and with the first seed. dismec learns from the same texts as the
others. Test texts are read for the final figures alone.

One thread. Seconds are those of features, pre-training and the training with the chosen rate.
The second table ranks the encoders in each corpus and size by P@1, on the texts held out and on the
test texts. `--json` keeps all figures with the machine, the version and the command; `--table`
prints the tables of such a file.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

import megalabel
from megalabel import Corpus, systems
from megalabel.data.examples import Examples
from megalabel.features import Tfidf
from megalabel.metrics import evaluate
from megalabel.neural import (
    AssembledEncoder,
    BagEncoder,
    FullClassifier,
    Tokenizer,
    Tokens,
    Trainer,
    pretrain,
)
from megalabel.neural.classifier import held_out_rows

Row = dict[str, Any]

SCRATCH, PRETRAINED, BAG, LINEAR = "transformer", "pre-trained", "bag", "dismec"
# rates of the encoder, of which one is chosen
RATES = {SCRATCH: [5e-4, 2e-3], PRETRAINED: [5e-4, 2e-3], BAG: [2e-3, 1e-2], LINEAR: [0.0]}
TRANSFORMER: Row = {"width": 64, "layers": 2, "heads": 2, "pretrain_epochs": 0}
TRAINING: Row = {"steps": 800, "batch": 32, "head_learning_rate": 0.05}
VALIDATION = 0.2
GUESSED = 300  # other texts, on which the guesses of masked words are judged
ACCURACY = ("P@1", "P@3", "P@5")
KEY = ("corpus", "labelled", "texts")


class Texts:
    """Some texts of a corpus, and those of them with labels, drawn by a seed."""

    def __init__(self, train: Corpus, size: tuple[int, int], seed: int) -> None:
        labelled, texts = size
        order = np.random.default_rng(seed).permutation(len(train))
        self.labelled = train[np.sort(order[:labelled])]
        self.all = train[np.sort(order[:texts])]
        self.others = train[np.sort(order[texts : texts + GUESSED])]
        self.seed = seed

    def begun(self, way: str, options: argparse.Namespace) -> tuple[Any, Any, Row]:
        """Fitted features, an encoder, and what it took to make them."""
        if way in (BAG, LINEAR):
            return Tfidf().fit(self.labelled), BagEncoder() if way == BAG else None, {}
        tokenizer = Tokenizer(vocabulary=options.vocabulary).fit(self.all)
        encoder: Any = AssembledEncoder(**TRANSFORMER)
        if way == SCRATCH:
            return tokenizer, encoder, {}
        rate = encoder.pretrain_learning_rate
        tokens, others = tokenizer.transform(self.all), tokenizer.transform(self.others)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                steps=options.steps,
                batch=TRAINING["batch"],
                learning_rate=rate,
                head_learning_rate=rate,
                device="cpu",
                log=folder,
                seed=self.seed,
            )
            encoder = pretrain(encoder, tokens, held_out=others, trainer=trainer)
            losses = {
                "masked": -max(values(folder)),
                "frequency": frequency_loss(tokens, others),
            }
        return tokenizer, encoder, {"loss": losses}

    def trained(self, encoder: Any, rows: Any, rate: float) -> tuple[Any, Row]:
        """A classifier, the P@1 of the texts held out, and the epoch that it was chosen at."""
        targets, labels = self.labelled.targets, self.labelled.labels
        if encoder is None:
            examples = Examples.of(rows, targets, labels)
            learned, _ = held_out_rows(examples, VALIDATION, self.seed)
            linear = systems.create(LINEAR, calibrate=False).classifier
            return linear.fit(rows[learned], targets[learned], labels), {}
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                **TRAINING, learning_rate=rate, device="cpu", log=folder, seed=self.seed
            )
            classifier = FullClassifier(encoder, trainer, validation=VALIDATION, seed=self.seed)
            classifier.fit(rows, targets, labels)
            judged = values(folder)
        about = {"rate": rate, "validation": 100 * max(judged), "epochs": len(judged)}
        return classifier, about | {"best epoch": 1 + int(np.argmax(judged))}


def values(folder: str) -> list[float]:
    """What a training was judged by, epoch by epoch."""
    lines = Path(folder, "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["value"] for line in lines]


def frequency_loss(tokens: Tokens, others: Tokens) -> float:
    """The loss of guessing the tokens of other texts by how often they occur."""
    counts = 1 + np.bincount(tokens.ids, minlength=tokens.vocabulary)
    counts[list(tokens.special.values())] = 0
    guessed = others.ids[counts[others.ids] > 0]
    return float(-np.log(counts[guessed] / counts.sum()).mean())


def clock() -> np.ndarray:
    """CPU and wall seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def shortened(corpus: Corpus, words: int) -> Corpus:
    """A corpus with the first words of its texts."""
    assert corpus.texts is not None
    texts = [" ".join(text.split()[:words]) for text in corpus.texts.to_pylist()]
    return Corpus(texts, targets=corpus.targets, labels=corpus.labels)


def measured(
    data: Path, rates: dict[str, list[float]], options: argparse.Namespace
) -> Iterator[Row]:
    """All ways on one corpus, size by size; of several rates the best one stays in `rates`."""
    train = shortened(megalabel.read(data, "train"), options.words)
    test = shortened(megalabel.read(data, "test").aligned(train.labels), options.words)
    for size in options.sizes:
        for seed in options.seeds:
            texts = Texts(train, size, seed)
            for way in options.ways:
                start = clock()
                features, encoder, about = texts.begun(way, options)
                rows = features.transform(texts.labelled)
                begun = clock() - start
                runs = []
                for rate in rates[way]:
                    start = clock()
                    classifier, trained = texts.trained(encoder, rows, rate)
                    runs.append(
                        (trained.get("validation", 0.0), trained, classifier, clock() - start)
                    )
                _, trained, classifier, taken = max(runs, key=lambda run: run[0])
                rates[way] = [trained.get("rate", 0.0)]
                found = evaluate(classifier.rank(features.transform(test), 5), test, k=(1, 3, 5))
                yield {
                    **dict(zip(KEY, (data.name, *size), strict=True)),
                    "seed": seed,
                    "way": way,
                    "cpu": {"before": begun[0], "training": taken[0]},
                    "wall": {"before": begun[1], "training": taken[1]},
                    **{name: 100 * found[name] for name in ACCURACY},
                    **about,
                    **trained,
                }


def mean(runs: Iterable[Row], name: str) -> float:
    """Of one figure, over runs."""
    return float(np.mean([run[name] for run in runs]))


def table(rows: list[Row]) -> str:
    """Means over seeds as a table, and a second one of mean ranks over corpora and sizes."""
    rows = [row | {"seconds": sum(row["cpu"].values())} for row in rows]
    lines = [
        "| corpus | labelled / all texts | way | P@1 / 3 / 5 | P@1 by seed | best epochs | CPU s |"
    ]
    lines.append("|---|---:|---|---:|---:|---:|---:|")
    cells: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in rows:
        cell = cells.setdefault(tuple(row[name] for name in KEY), {})
        cell.setdefault(row["way"], []).append(row)
    for (corpus, labelled, texts), cell in cells.items():
        for way, runs in cell.items():
            shown = [corpus, f"{labelled:,} / {texts:,}", way]
            shown.append(" / ".join(f"{mean(runs, name):.1f}" for name in ACCURACY))
            shown.append(", ".join(f"{run['P@1']:.1f}" for run in runs))
            epochs = (f"{run['best epoch']} of {run['epochs']}" for run in runs if "epochs" in run)
            shown.append(", ".join(epochs))
            shown.append(f"{mean(runs, 'seconds'):.0f}")
            lines.append(f"| {' | '.join(shown)} |")
    lines += ["", "| encoder | mean rank, held out | mean rank, test | CPU s |"]
    lines.append("|---|---:|---:|---:|")
    encoders = list(dict.fromkeys(row["way"] for row in rows if "validation" in row))
    held_out, tested = (
        [rankdata([-mean(cell[way], name) for way in encoders]) for cell in cells.values()]
        for name in ("validation", "P@1")
    )
    for way, *ranks in zip(encoders, np.mean(held_out, 0), np.mean(tested, 0), strict=True):
        seconds = mean((row for row in rows if row["way"] == way), "seconds")
        lines.append(f"| {way} | {ranks[0]:.2f} | {ranks[1]:.2f} | {seconds:.0f} |")
    return "\n".join(lines)


def pair(text: str) -> tuple[int, int]:
    """`800:3000`: texts with labels, and all texts."""
    labelled, _, texts = text.partition(":")
    return int(labelled), int(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, nargs="+", help="corpora with train and test")
    what.add_argument("--table", type=Path, help="a file that --json has written")
    parser.add_argument("--sizes", type=pair, nargs="+", default=[(800, 3000), (2000, 12000)])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--ways", nargs="+", choices=RATES, default=list(RATES))
    parser.add_argument("--words", type=int, default=32, help="of a text")
    parser.add_argument("--vocabulary", type=int, default=10_000, help="of the transformer")
    parser.add_argument("--steps", type=int, default=600, help="of pre-training")
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()
    if options.table is not None:
        print(table(json.loads(options.table.read_text())["rows"]))
        return
    torch.set_num_threads(1)
    megalabel.set_threads(1)
    about = {
        "machine": f"{platform.machine()}, {platform.system()}, one thread",
        "version": megalabel.__version__,
        "torch": torch.__version__,
        "command": " ".join(Path(word).name for word in ["python", *sys.argv]),
    }
    rows, rates = [], dict(RATES)
    for data in options.data:
        for row in measured(data, rates, options):
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            if options.json is not None:  # each time, so that nothing is lost
                options.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
