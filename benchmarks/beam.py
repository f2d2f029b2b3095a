"""Batch and single-query inference of a tree: megalabel, and PECOS on the same weights.

    python benchmarks/beam.py [--data FOLDER --pecos PYTHON] [--beam 10] [--k 5] [--repeats 5]

Without --pecos a synthetic model is asked, of the size that eurlex-4k gives (5,000 features, 3,993
labels in a 16-ary tree, 1.5 million weights, queries with 236 features); --labels 1000000 makes it
a larger one. With --pecos, FOLDER holds a corpus with feature vectors and the splits "train" and
"test"; PECOS, in the interpreter given, trains XR-Linear on it (once: its model is kept in
FOLDER.name under --work), both answer the test queries with its weights, and must find the same
labels.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz

import megalabel
from megalabel.data.matrix import normalised_rows
from megalabel.linear.chunks import PRECISIONS, ChunkedWeights, beam_search

Levels = list[tuple[csr_matrix, np.ndarray]]


def zipfian(rows: int, columns: int, nonzeros: int, rng: np.random.Generator) -> csr_matrix:
    """Rows of length one with `nonzeros` features each at most, low numbers more often."""
    share = 1 / (np.arange(columns) + columns / 50)
    drawn = rng.choice(columns, (rows, nonzeros), p=share / share.sum()).astype(np.int32)
    values = rng.normal(size=drawn.size).astype(np.float32)
    starts = np.arange(0, drawn.size + 1, nonzeros)
    made = csr_matrix((values, drawn.ravel(), starts), shape=(rows, columns))
    made.sum_duplicates()
    return normalised_rows(made)


def synthetic(
    labels: int, features: int, weights: int, arity: int, rng: np.random.Generator
) -> tuple[Levels, np.ndarray]:
    """A balanced tree with random weights; siblings share about half of their features."""
    sizes = [labels]
    while sizes[0] > arity:
        sizes.insert(0, -(-sizes[0] // arity))
    levels, parents = [], 1
    for nodes in sizes:
        starts = np.linspace(0, nodes, parents + 1).astype(np.int64)
        parent = np.repeat(np.arange(parents), np.diff(starts))
        # The higher a node, the more features it has a weight for.
        each = min(features // 2, 3 * weights // (4 * labels) * (1 + 9 * (nodes < labels)))
        own = zipfian(nodes, features + 1, -(-each // 2), rng)
        shared = zipfian(parents, features + 1, -(-each // 2), rng)[parent]
        both = csr_matrix(own + shared.multiply(rng.uniform(0.5, 1.5, (nodes, 1))))
        levels.append((csr_matrix(both * 8, dtype=np.float32), starts))
        parents = nodes
    return levels, np.arange(labels, dtype=np.int32)


def from_pecos(folder: Path) -> tuple[Levels, np.ndarray]:
    """The weights of an XR-Linear model, its nodes renumbered so that siblings are neighbours."""
    levels: Levels = []
    above = np.zeros(1, np.int64)  # PECOS's number of each of our nodes
    for level in range(len(list(folder.glob("ranker/*.model")))):
        part = folder / "ranker" / f"{level}.model"
        weights = csr_matrix(load_npz(part / "W.npz").T)
        parent_of = csr_matrix(load_npz(part / "C.npz")).indices
        place = np.empty(len(above), np.int64)
        place[above] = np.arange(len(above))
        order = np.argsort(place[parent_of], kind="stable")
        counts = np.bincount(place[parent_of], minlength=len(above))
        levels.append((weights[order], np.concatenate([[0], np.cumsum(counts)])))
        above = order
    return levels, above.astype(np.int32)


def measure(
    levels: Levels, labels: np.ndarray, X: csr_matrix, args: argparse.Namespace
) -> tuple[list[tuple[str, float, float, float, float, str]], np.ndarray]:
    """Rows of the table, and the labels found with all of the weights."""
    table, expected = [], None
    trees = [
        (name, [ChunkedWeights.build(*level, name) for level in levels], labels, {})
        for name in PRECISIONS
    ]
    flat = ChunkedWeights.build(levels[-1][0], [0, len(labels)])
    trees.append(("float32, exact best-first", trees[0][1], labels, {"exact": True}))
    trees.append(("float32, one-versus-all", [flat], labels, {"post": "noop"}))
    singles = [X[i] for i in range(min(500, X.shape[0]))]
    for name, tree, leaves, options in trees:

        def ask(rows: csr_matrix, tree=tree, leaves=leaves, options=options) -> np.ndarray:
            return beam_search(tree, leaves, rows, args.k, beam=args.beam, **options)[0]

        batch = {}
        for threads in (1, args.threads):
            megalabel.set_threads(threads)
            seconds = []
            for _ in range(args.repeats):
                begin = time.perf_counter()
                found = ask(X)
                seconds.append(time.perf_counter() - begin)
            batch[threads] = statistics.median(seconds) / X.shape[0] * 1000
        expected = found if expected is None else expected
        latency = []
        for row in singles:
            begin = time.perf_counter()
            ask(row)
            latency.append(time.perf_counter() - begin)
        kept = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, expected, strict=True)])
        table.append(
            (
                f"megalabel {name}",
                batch[1],
                batch[args.threads],
                statistics.median(latency) * 1000,
                float(np.quantile(latency, 0.99)) * 1000,
                "" if tree == [flat] else f"{100 * kept / args.k:.1f}",
            )
        )
    assert expected is not None
    return table, expected


def pecos(args: argparse.Namespace, work: Path) -> dict[str, float]:
    """Trains and asks PECOS in a process of its own."""
    for split in ("train", "test"):
        if not (work / f"{split}_X.npz").exists():
            corpus = megalabel.read(args.data, split)
            save_npz(work / f"{split}_X.npz", normalised_rows(corpus.features))
            save_npz(work / f"{split}_Y.npz", corpus.targets)
    script = Path(__file__).with_name("beam_pecos.py")
    command = [args.pecos, script, work, args.beam, args.k, args.repeats]
    answer = subprocess.run(map(str, command), check=True, stdout=subprocess.PIPE, text=True)
    times: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pecos", help="a Python interpreter with libpecos")
    parser.add_argument("--work", type=Path, default=Path("build/beam"))
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--labels", type=int, default=3993)
    parser.add_argument("--features", type=int, default=5000)
    parser.add_argument("--weights", type=int, default=1_500_000)
    parser.add_argument("--nonzeros", type=int, default=300, help="drawn for a query, some twice")
    parser.add_argument("--queries", type=int, default=4000)
    args = parser.parse_args()

    if args.pecos:
        if args.data is None:
            parser.error("--pecos needs --data")
        work = args.work / args.data.name
        work.mkdir(parents=True, exist_ok=True)
        times = pecos(args, work)
        levels, labels = from_pecos(work / "model")
        X = csr_matrix(load_npz(work / "test_X.npz"))
        name = args.data.name
    else:
        rng = np.random.default_rng(0)
        levels, labels = synthetic(args.labels, args.features, args.weights, 16, rng)
        X = zipfian(args.queries, args.features, args.nonzeros, rng)
        name = "synthetic"
    table, found = measure(levels, labels, X, args)
    if args.pecos:
        theirs = csr_matrix(load_npz(work / "pecos.npz"))
        agree = [
            set(theirs.indices[theirs.indptr[i] : theirs.indptr[i + 1]]) == set(row)
            for i, row in enumerate(found)
        ]
        per_thousand = 1000 / X.shape[0]
        table.append(
            (
                "PECOS XR-Linear",
                times["batch"] * per_thousand,
                float("nan"),
                times["single"] * 1000,
                times["single_p99"] * 1000,
                f"{100 * np.mean(agree):.1f}",
            )
        )
    sizes = " > ".join(f"{len(starts) - 1:,}" for _, starts in levels)
    print(
        f"{name}: {levels[0][0].shape[1] - 1:,} features, nodes {sizes} > {len(labels):,}, "
        f"{sum(weights.nnz for weights, _ in levels):,} weights, {X.shape[0]:,} queries of "
        f"{X.nnz / X.shape[0]:.0f} features, beam {args.beam}, top {args.k}; "
        f"{platform.processor() or platform.machine()}\n"
    )
    print(
        f"| search | s per 1,000, 1 thread | {args.threads} threads | one query, ms | p99, ms "
        "| labels as float32, % |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for way, alone, together, latency, tail, kept in table:
        print(f"| {way} | {alone:.4f} | {together:.4f} | {latency:.3f} | {tail:.3f} | {kept} |")


if __name__ == "__main__":
    main()
