"""Label vectors and label trees: megalabel beside PECOS.

    python benchmarks/label_trees.py --data ../shared/data/eurlex-4k [--pecos PYTHON] [--runs 3]
    python benchmarks/label_trees.py --synthetic 1000000

A corpus of texts is made tf-idf with min_df=2 first; features are taken as they are, with rows of
unit length. Each run is a process of its own; the systems take turns, so that a machine's moods
touch all of them, and the medians are shown. CPU seconds are those of all threads. Memory
is what the tree takes above its vectors. Cohesion is the
mean cosine between a label's vector and the centre of its cluster on the last level but one: higher
is better, for clusters of the same size. PECOS is run by the Python interpreter given, one that has
libpecos installed. A synthetic corpus is only label vectors: 50 entries each, half of them from one
of many topics.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz

TREES: dict[str, dict[str, Any]] = {
    "balanced, arity 16": {"build": "balanced", "arity": 16},
    "balanced, arity 2": {"build": "balanced", "arity": 2},
    "k-means, arity 100": {"build": "kmeans"},
    "balanced k-means, arity 100": {"build": "kmeans", "balanced": True},
}


def corpus(folder: Path) -> tuple[csr_matrix, csr_matrix]:
    import megalabel
    from megalabel.data.matrix import normalised_rows
    from megalabel.features import Tfidf

    train = megalabel.read(folder, "train")
    if train.features is not None:
        return normalised_rows(train.features), train.targets
    return Tfidf(min_df=2).fit_transform(train), train.targets


def synthetic(labels: int) -> csr_matrix:
    from megalabel.data.matrix import normalised_rows

    rng = np.random.default_rng(0)
    width, entries = max(1000, labels // 2), 50
    columns = (rng.random((labels, entries)) ** 4 * width).astype(np.int32)
    topics = rng.integers(0, labels // 50 + 1, labels)
    half = rng.integers(0, 40, (labels, entries // 2))
    columns[:, : entries // 2] = (topics[:, None] * 977 + half) % width
    values = rng.random(labels * entries, dtype=np.float32) + 0.1
    starts = np.arange(labels + 1) * entries
    vectors = csr_matrix((values, columns.ravel(), starts), shape=(labels, width))
    vectors.sum_duplicates()
    return normalised_rows(vectors)


class Clock:
    """Seconds, by the wall and of all threads."""

    def __enter__(self) -> Clock:
        self.begin = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self.begin[0]
        self.cpu = time.process_time() - self.begin[1]


def megalabel(tree: str, threads: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    import megalabel
    from megalabel.labels import LabelTree, label_vectors

    megalabel.set_threads(threads)
    options = dict(TREES[tree])
    build = getattr(LabelTree, options.pop("build"))
    return label_vectors, lambda Z: build(Z, **options).chain()


def pecos(tree: str, threads: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    from pecos.xmc import Indexer, LabelEmbeddingFactory

    splits = TREES[tree]["arity"]
    return (
        lambda X, Y: LabelEmbeddingFactory.create(Y, X, method="pifa"),
        lambda Z: list(Indexer.gen(Z, nr_splits=splits, max_leaf_size=100, threads=threads)),
    )


def run(folder: Path, system: str, tree: str, threads: int) -> dict[str, Any]:
    vectors_of, tree_of = {"megalabel": megalabel, "PECOS": pecos}[system](tree, threads)
    result: dict[str, Any] = {}
    if (folder / "Z.npz").exists():
        Z = load_npz(folder / "Z.npz")
    else:
        X, Y = load_npz(folder / "X.npz"), load_npz(folder / "Y.npz")
        with Clock() as clock:
            Z = vectors_of(X, Y)
        result |= {"vectors": clock.wall, "vectors CPU": clock.cpu}
        del X, Y
    before = peak_memory(reset=True)
    with Clock() as clock:
        chain = tree_of(Z)
    result |= {"tree": clock.wall, "tree CPU": clock.cpu}
    result["memory"] = peak_memory() - before
    result["levels"] = [int(C.shape[0]) for C in chain]
    result["cohesion"] = cohesion(csr_matrix(Z), csr_matrix(chain[-1], dtype=np.float32))
    return result


def peak_memory(reset: bool = False) -> float:
    """The most memory this process has taken, in MiB; after a reset, since then (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def cohesion(Z: csr_matrix, clusters: csr_matrix) -> float:
    sums = csr_matrix(clusters.T @ Z)
    lengths = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).ravel())
    return float(lengths.sum() / Z.shape[0])  # the sum of z.c/|c| over a cluster is |c|


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path)
    source.add_argument("--synthetic", type=int, metavar="LABELS")
    source.add_argument("--matrices", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--system", default="megalabel", help=argparse.SUPPRESS)
    parser.add_argument("--trees", nargs="+", choices=[*TREES], default=[*TREES])
    parser.add_argument("--pecos", metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    if args.matrices:
        print(json.dumps(run(args.matrices, args.system, args.trees[0], args.threads)))
        return

    systems = {"megalabel": sys.executable} | ({"PECOS": args.pecos} if args.pecos else {})
    ways = [
        (system, tree)
        for tree in args.trees
        for system in systems
        if system == "megalabel" or (TREES[tree]["build"] == "balanced")
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.data:
            X, Y = corpus(args.data)
            title = f"{args.data.name}: {X.shape[0]:,} texts, {X.shape[1]:,} features, "
            title += f"{Y.shape[1]:,} labels"
            save_npz(folder / "X.npz", X, compressed=False)
            save_npz(folder / "Y.npz", Y, compressed=False)
            del X, Y
        else:
            Z = synthetic(args.synthetic)
            title = f"synthetic: {Z.shape[0]:,} labels, {Z.shape[1]:,} features, {Z.nnz:,} entries"
            save_npz(folder / "Z.npz", Z, compressed=False)
            del Z
        results: dict[tuple[str, str], list[dict[str, Any]]] = {way: [] for way in ways}
        for _ in range(args.runs):
            for system, tree in ways:
                command = [systems[system], __file__, "--matrices", name, "--system", system]
                command += ["--trees", tree, "--threads", str(args.threads)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                results[system, tree].append(json.loads(done.stdout.splitlines()[-1]))

    print(f"{title}; {args.threads} threads; {platform.processor() or platform.machine()}\n")
    print("| tree | system | vectors s (CPU) | tree s (CPU) | memory MiB | cohesion | levels |")
    print("|---|---|---:|---:|---:|---:|---|")
    for (system, tree), runs in results.items():

        def median(key: str, runs: list[dict[str, Any]] = runs) -> float:
            return statistics.median(r.get(key, float("nan")) for r in runs)

        seconds = [f"{median(k):.2f} ({median(f'{k} CPU'):.2f})" for k in ("vectors", "tree")]
        print(
            f"| {tree} | {system} | {seconds[0]} | {seconds[1]} | {median('memory'):.0f} "
            f"| {median('cohesion'):.4f} | {', '.join(map(str, runs[0]['levels']))} |"
        )


if __name__ == "__main__":
    main()
