"""What sparse output layers are worth: accuracy and bytes by corpus, beside dense ones.

    python benchmarks/sparse.py --data FOLDER … [--model FOLDER] [--cache FOLDER] --json FILE
    python benchmarks/sparse.py --data synthetic-131072 planted-2000 --json FILE

Each way is one system with one head, on the same texts of a corpus, drawn by a seed, and the
labels that these carry; others of the test texts count as not found. "bag" ways learn vectors of
words with the labels; "frozen" ways learn a map over the vectors of a transformer (--model, a
folder), which are made once and kept in --cache. A way's name says how many of the weights are left
out and what differs from the system's defaults: "static" is without rewiring, "alone" without the
auxiliary loss, "random" grows at random, "wide" has a rectified layer of 1,024 before the labels,
whose vectors are longer and want a lower rate.
dismec is trained on tf-idf, then pruned by thresholds: the other way to few weights.

Two corpora are made up: "synthetic-LABELS" has texts, and "planted-LABELS" random vectors of 128
numbers, each with the three labels whose own two numbers have the largest sums. For these are the
ways "vectors".

Bytes are those that answer: weights, biases and indices of the output layer, not the encoder.
Seconds are of CPU. Rates of labels are the same for all ways of an encoder; they and the dropout
were chosen on training texts.

`--json` keeps a line for each way, with the machine, the version and the command. What is there
already is not measured again, so a run that was stopped goes on. At the end comes the table of all
that is asked for; `--seeds 2` measures the ways twice that are compared with each other, and
the table has their mean.
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
from scipy.sparse import csr_matrix

import megalabel
from megalabel import Corpus, systems
from megalabel.metrics import evaluate
from megalabel.systems.planning import learned_bytes

Row = dict[str, Any]

STATIC: Row = {"rewire": 0}
ALONE: Row = {"auxiliary": 0}
RANDOM: Row = {"growth": "random"}
BAG = {83: {"fan_in": 50}, 90: {"fan_in": 30}, 96: {"fan_in": 12}, 99: {"fan_in": 4}}  # of 300
FROZEN = {83: {"fan_in": 64}, 96: {"fan_in": 16}}  # of 384
WIDE: Row = {"intermediate": 1024, "head_learning_rate": 0.003}
PLANTED = {"fan_in": 6}  # of 128
# way: system and its options
WAYS: dict[str, tuple[str, Row]] = {
    "dismec": ("dismec", {}),
    "bag, dense": ("renee", {"dropout": 0.2}),
    "bag, haste, 83 %": ("haste", BAG[83]),
    "bag, haste, 83 %, static": ("haste", BAG[83] | STATIC),
    "bag, haste, 90 %": ("haste", BAG[90]),
    "bag, dst, 90 %": ("dst", BAG[90]),
    "bag, dst, 90 %, static": ("dst", BAG[90] | STATIC),
    "bag, spartex, 83 %": ("spartex", BAG[83]),
    "bag, spartex, 83 %, static": ("spartex", BAG[83] | STATIC),
    "bag, spartex, 90 %": ("spartex", BAG[90]),
    "bag, spartex, 96 %": ("spartex", BAG[96]),
    "bag, spartex, 96 %, static": ("spartex", BAG[96] | STATIC),
    "bag, spartex, 96 %, random": ("spartex", BAG[96] | RANDOM),
    "bag, spartex, 96 %, alone": ("spartex", BAG[96] | ALONE),
    "bag, spartex, 96 %, alone, static": ("spartex", BAG[96] | ALONE | STATIC),
    "bag, spartex, 99 %": ("spartex", BAG[99]),
    "bag, spartex, 99 %, alone": ("spartex", BAG[99] | ALONE),
    "bag, spartex, 99 %, alone, static": ("spartex", BAG[99] | ALONE | STATIC),
    "frozen, dense": ("renee", {"dropout": 0.1}),
    "frozen, dst, 83 %": ("dst", FROZEN[83]),
    "frozen, dst, 83 %, static": ("dst", FROZEN[83] | STATIC),
    "frozen, dst, 96 %": ("dst", FROZEN[96]),
    "frozen, dst, 96 %, static": ("dst", FROZEN[96] | STATIC),
    "frozen, dst, 96 %, wide": ("dst", FROZEN[96] | WIDE),
    "vectors, dense": ("renee", {"dropout": 0}),
    "vectors, dst, 95 %": ("dst", PLANTED),
    "vectors, dst, 95 %, random": ("dst", PLANTED | RANDOM),
    "vectors, dst, 95 %, static": ("dst", PLANTED | STATIC),
}
ONCE = ("dismec", "90 %", "random", "wide")
TWICE = {way for way in WAYS if not any(word in way for word in ONCE)}
"""Ways that several seeds are for."""
RATES = {"bag": 0.1, "frozen": 0.01, "vectors": 0.01}  # of labels
THRESHOLDS = (0.1, 0.2, 0.3, 0.5)
ACCURACY = ("P@1", "P@3", "P@5", "PSP@5")
ASKED = ("texts", "tests", "epochs", "batch", "tokens")
"""Options that a figure depends on, and its line says."""


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
    if data.startswith("planted-"):
        made = planted(options.texts + options.tests, int(data.rpartition("-")[2]))
        return made[: options.texts], made[options.texts :]
    train = sample(megalabel.read(data, "train"), options.texts)
    if options.validate:
        test = sample(megalabel.read(data, "train"), options.tests, options.texts)
    else:
        test = sample(megalabel.read(data, "test"), options.tests)
    train = train.with_labels(np.flatnonzero(train.label_counts))
    return train, test.aligned(train.labels)


def planted(rows: int, labels: int) -> Corpus:
    """Random vectors, and labels that each depend on two of their numbers."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((rows, 128)).astype(np.float32)
    own = np.array([random.choice(128, 2, replace=False) for _ in range(labels)])
    sums = vectors[:, own[:, 0]] + vectors[:, own[:, 1]]
    best = np.argsort(-sums, axis=1, kind="stable")[:, :3]
    targets = csr_matrix((np.ones(best.size), best.ravel(), np.arange(rows + 1) * 3), sums.shape)
    return Corpus(features=vectors, targets=targets)


def created(way: str, seed: int, options: argparse.Namespace) -> megalabel.Tagger:
    """A tagger of one of the ways."""
    system, own = WAYS[way]
    if system == "dismec":
        return systems.create(system, calibrate=False)
    from megalabel.neural import BagEncoder, FrozenEncoder

    kind = way.partition(",")[0]
    encoder: Any = BagEncoder(dropout=0.2)
    if kind != "bag":
        source = options.model if kind == "frozen" else None
        encoder = FrozenEncoder(source, cache=options.cache)
    common: Row = {
        "encoder": encoder,
        "max_length": options.tokens,
        "epochs": options.epochs,
        "batch": options.batch,
        "head_learning_rate": RATES[kind],
        "device": "cpu",
        "calibrate": False,
        "seed": seed,
    }
    return systems.create(system, **common | own)


def figures(tagger: megalabel.Tagger, test: Corpus, train: Corpus) -> Row:
    """How well a tagger finds labels, and the bytes of its output layer."""
    found = evaluate(tagger.rank(test, 5), test, k=(1, 3, 5), train_labels=train.targets)
    layer = learned_bytes(tagger.classifier_) - learned_bytes(tagger.labels)
    return {"bytes": layer, **{name: 100 * found[name] for name in ACCURACY}}


def measured(data: str, way: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """One way on one corpus; of dismec a row for each threshold too."""
    if way != "dismec":
        import torch

        torch.set_num_threads(options.threads)
    megalabel.set_threads(options.threads)
    train, test = corpora(data, options)
    about = {"labels": len(train.labels), "seed": seed}
    cpu = time.process_time()
    tagger = created(way, seed, options).fit(train)
    about["cpu"] = time.process_time() - cpu
    rows = [{"way": way} | about | figures(tagger, test, train)]
    if way == "dismec":
        for threshold in THRESHOLDS:
            pruned = figures(tagger.prune(threshold), test, train)
            rows.append({"way": f"dismec, weights above {threshold}"} | about | pruned)
    return rows


def measured_before(known: list[Row], way: str, same: Row) -> list[Row]:
    """The lines of a way, among those that are known, that were asked for in the same words."""
    return [
        row
        for row in known
        if (row["way"] == way or (way == "dismec" and row["way"].startswith(way)))
        and all(row.get(name) == value for name, value in same.items())
    ]


def table(rows: list[Row]) -> str:
    """All rows as a table; those of several seeds by their mean."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["corpus"], row["way"]), []).append(row)
    lines = ["| corpus | way | P@1 / 3 / 5 | PSP@5 | MB | CPU s |", "|---|---|---:|---:|---:|---:|"]
    for (corpus, way), some in groups.items():
        mean = {key: np.mean([row[key] for row in some]) for key in (*ACCURACY, "bytes", "cpu")}
        shown = [corpus, way, " / ".join(f"{mean[n]:.1f}" for n in ACCURACY[:3])]
        shown += [f"{mean['PSP@5']:.1f}", f"{mean['bytes'] / 1e6:.2f}", f"{mean['cpu']:.0f}"]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="+", required=True, help="corpora with train and test")
    parser.add_argument("--model", help="a folder of a transformer, for frozen ways")
    parser.add_argument("--cache", help="a folder that keeps its vectors")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--texts", type=int, default=4_000)
    parser.add_argument("--tests", type=int, default=2_000)
    parser.add_argument("--tokens", type=int, default=64, help="of a text")
    parser.add_argument("--epochs", type=float, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--validate", action="store_true", help="test on other training texts")
    parser.add_argument("--json", type=Path, help="where figures go and are looked for")
    parser.add_argument("--alone", type=int, help="one way, in this process, by this seed")
    options = parser.parse_args()
    if options.alone is not None:
        print(json.dumps(measured(options.data[0], options.ways[0], options.alone, options)))
        return
    about = {
        "machine": f"{platform.machine()}, {platform.system()}, {options.threads} threads",
        "version": megalabel.__version__,
        "command": " ".join(Path(word).name for word in ["python", *sys.argv]),
    }
    asked: Row = {name: getattr(options, name) for name in ASKED} | {"validate": options.validate}
    passed = [f"--{name}={getattr(options, name)}" for name in (*ASKED, "threads")]
    passed += [
        f"--{name}={value}" for name in ("model", "cache") if (value := getattr(options, name))
    ]
    passed += ["--validate"] * options.validate
    known: list[Row] = []
    if options.json is not None and options.json.exists():
        known = [json.loads(line) for line in options.json.read_text().splitlines()]
    shown: list[Row] = []
    jobs = [
        (corpus, way, seed)
        for corpus in options.data
        for way in options.ways
        for seed in range(options.seeds if way in TWICE else 1)
        if way.startswith("vectors") == corpus.startswith("planted")
        and (options.model is not None or not way.startswith("frozen"))
    ]
    for corpus, way, seed in jobs:
        same = asked | {"corpus": Path(corpus).name, "seed": seed}
        rows = measured_before(known, way, same)
        if not rows:
            one = [sys.executable, __file__, f"--alone={seed}", "--data", corpus, "--ways", way]
            run = subprocess.run([*one, *passed], capture_output=True, text=True, check=False)
            if run.returncode:
                raise SystemExit(run.stderr)
            rows = [about | same | row for row in json.loads(run.stdout.splitlines()[-1])]
            print(table(rows).splitlines()[-1], file=sys.stderr, flush=True)
            if options.json is not None:
                with options.json.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
        shown += rows
    print(table(shown))


if __name__ == "__main__":
    main()
