"""What sparse output layers are worth: accuracy and bytes by corpus, beside dense ones.

    python benchmarks/sparse.py --data FOLDER … [--model FOLDER] [--cache FOLDER] [--json FILE]
    python benchmarks/sparse.py --synthetic LABELS [--json FILE]
    python benchmarks/sparse.py --table FILE

Each way is one system with one head, on the same texts of a corpus, drawn by a seed, and the
labels that these carry; others of the test texts count as not found. "bag" ways learn vectors of
words with the labels; "frozen" ways learn a map over the vectors of a transformer (--model, a
folder), which are made once and kept in --cache. A way's name says what differs from the system's
defaults: "static" is without rewiring, "alone" without the auxiliary loss, "random" grows at
random. dismec is trained on tf-idf, then pruned by thresholds: the other way to few weights.

Bytes are those that answer: weights, biases and indices of the output layer, not the encoder.
Seconds are of CPU. The rate of labels is the same for all; it was chosen on training texts.
`--json` keeps a line for each way, with the machine, the version and the command.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel import Corpus, systems
from megalabel.metrics import evaluate
from megalabel.systems.planning import learned_bytes

Row = dict[str, Any]

STATIC: Row = {"rewire": 0}
LOW, HIGH = {"fan_in": 50}, {"fan_in": 12}  # of the 300 features of "bag": 83 % and 96 % sparse
ALONE: Row = {"auxiliary": 0}
# way: system and its options
WAYS: dict[str, tuple[str, Row]] = {
    "dismec": ("dismec", {}),
    "bag, dense": ("renee", {"dropout": 0.2}),
    "bag, haste, 83 %": ("haste", LOW),
    "bag, haste, 90 %": ("haste", {}),
    "bag, haste, 83 %, static": ("haste", LOW | STATIC),
    "bag, spartex, 83 %": ("spartex", LOW),
    "bag, spartex, 83 %, random": ("spartex", LOW | {"growth": "random"}),
    "bag, spartex, 83 %, static": ("spartex", LOW | STATIC),
    "bag, spartex, 90 %": ("spartex", {}),
    "bag, spartex, 96 %": ("spartex", HIGH),
    "bag, spartex, 96 %, alone": ("spartex", HIGH | ALONE),
    "bag, spartex, 96 %, alone, static": ("spartex", HIGH | ALONE | STATIC),
    "frozen, dense": ("renee", {"dropout": 0.1}),
    "frozen, dst, 83 %": ("dst", {"fan_in": 64}),
    "frozen, dst, 90 %": ("dst", {}),
    "frozen, dst, 83 %, static": ("dst", {"fan_in": 64} | STATIC),
}
THRESHOLDS = (0.1, 0.2, 0.3, 0.5)
ACCURACY = ("P@1", "P@3", "P@5", "PSP@5")


def sample(corpus: Corpus, texts: int, skipped: int = 0) -> Corpus:
    """Some texts, drawn by a seed that is always the same."""
    order = np.random.default_rng(0).permutation(len(corpus))
    return corpus[np.sort(order[skipped : skipped + texts])]


def corpora(data: str, options: argparse.Namespace) -> tuple[Corpus, Corpus]:
    """Texts to train on with the labels that they carry, and texts to test."""
    if data.startswith("synthetic-"):
        from megalabel.data import split, synthetic

        made = synthetic.generate(texts=options.texts, labels=int(data.rpartition("-")[2]))
        train, test = split(made.corpus)
        return train, sample(test, options.tests)
    train = sample(megalabel.read(data, "train"), options.texts)
    if options.validate:
        test = sample(megalabel.read(data, "train"), options.tests, options.texts)
    else:
        test = sample(megalabel.read(data, "test"), options.tests)
    train = train.with_labels(np.flatnonzero(train.label_counts))
    return train, test.aligned(train.labels)


def created(way: str, options: argparse.Namespace) -> megalabel.Tagger:
    """A tagger of one of the ways."""
    system, own = WAYS[way]
    if system == "dismec":
        return systems.create(system, calibrate=False)
    encoder: Any = "bag"
    if way.startswith("frozen"):
        from megalabel.neural import FrozenEncoder

        encoder = FrozenEncoder(options.model, cache=options.cache)
    return systems.create(
        system,
        encoder=encoder,
        max_length=options.tokens,
        epochs=options.epochs,
        batch=options.batch,
        head_learning_rate=options.rate,
        device="cpu",
        calibrate=False,
        **own,
    )


def figures(tagger: megalabel.Tagger, test: Corpus, train: Corpus) -> Row:
    """How well a tagger finds labels, and the bytes of its output layer."""
    found = evaluate(tagger.rank(test, 5), test, k=(1, 3, 5), train_labels=train.targets)
    layer = learned_bytes(tagger.classifier_) - learned_bytes(tagger.labels)
    return {"bytes": layer, **{name: 100 * found[name] for name in ACCURACY}}


def measured(data: str, way: str, options: argparse.Namespace) -> list[Row]:
    """One way on one corpus; of dismec a row for each threshold too."""
    if way != "dismec":
        import torch

        torch.set_num_threads(options.threads)
    megalabel.set_threads(options.threads)
    train, test = corpora(data, options)
    about = {
        "corpus": Path(data).name,
        "texts": len(train),
        "labels": len(train.labels),
        "tests": len(test),
        "epochs": options.epochs,
    }
    cpu = time.process_time()
    tagger = created(way, options).fit(train)
    about["cpu"] = time.process_time() - cpu
    rows = [about | {"way": way} | figures(tagger, test, train)]
    if way == "dismec":
        for threshold in THRESHOLDS:
            pruned = figures(tagger.prune(threshold), test, train)
            rows.append(about | {"way": f"dismec, weights above {threshold}"} | pruned)
    return rows


def table(rows: list[Row]) -> str:
    """All rows as a table."""
    lines = ["| corpus | way | P@1 / 3 / 5 | PSP@5 | MB | CPU s |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        shown = [row["corpus"], row["way"], " / ".join(f"{row[n]:.1f}" for n in ACCURACY[:3])]
        shown += [f"{row['PSP@5']:.1f}", f"{row['bytes'] / 1e6:.2f}", f"{row['cpu']:.0f}"]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=[], help="corpora with train and test")
    parser.add_argument("--synthetic", type=int, help="so many labels, a corpus that is made up")
    parser.add_argument("--table", type=Path, help="a file that --json has written")
    parser.add_argument("--model", help="a folder of a transformer, for frozen ways")
    parser.add_argument("--cache", help="a folder that keeps its vectors")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--tests", type=int, default=2_000)
    parser.add_argument("--tokens", type=int, default=64, help="of a text")
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.1, help="of labels")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--validate", action="store_true", help="test on other training texts")
    parser.add_argument("--json", type=Path, help="where all figures go, a line each")
    parser.add_argument("--alone", action="store_true", help="one way, in this process")
    options = parser.parse_args()
    if options.table is not None:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    if options.alone:
        print(json.dumps(measured(options.data[0], options.ways[0], options)))
        return
    about = {
        "machine": f"{platform.machine()}, {platform.system()}, {options.threads} threads",
        "version": megalabel.__version__,
        "command": " ".join(Path(word).name for word in ["python", *sys.argv]),
    }
    same = ("texts", "tests", "tokens", "epochs", "batch", "rate", "threads", "model", "cache")
    given = [f"--{n}={getattr(options, n)}" for n in same if getattr(options, n) is not None]
    given += ["--validate"] * options.validate
    data = [*options.data, *([f"synthetic-{options.synthetic}"] if options.synthetic else [])]
    rows: list[Row] = []
    for corpus in data:
        for way in options.ways:
            if way.startswith("frozen") and options.model is None:
                continue
            one = [sys.executable, __file__, "--alone", "--data", corpus, "--ways", way, *given]
            run = subprocess.run(one, capture_output=True, text=True, check=False)
            if run.returncode:
                raise SystemExit(run.stderr)
            made = [about | row for row in json.loads(run.stdout.splitlines()[-1])]
            print(table(made).partition("\n")[2].partition("\n")[2], flush=True)
            rows += made
            if options.json is not None:
                with options.json.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in made)


if __name__ == "__main__":
    main()
