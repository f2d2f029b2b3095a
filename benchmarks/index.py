"""VectorIndex beside FAISS IVF-Flat: batches, single queries, building, adding, opening.

    python benchmarks/index.py [--vectors 100000 1000000] [--threads 1 2] [--faiss-python PYTHON]
        [--precision float32] [--results FILE]

Vectors of 384 numbers and length one, made with a fixed seed: centres, three times the square root
of their number (Gaussian, 48 numbers), around each a Gaussian of 0.7 times the size, taken to 384
numbers by one random matrix, and noise of 0.3 in every number. 1,000 queries are drawn alike. FAISS
(with PYTHON, an interpreter that has faiss-cpu) gets as many lists, and the fewest probes that
reach the recall on the queries that megalabel has. Each runs in a process of its own; the fastest
of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel.retrieval import VectorIndex

WIDTH, LATENT, QUERIES, MORE, K = 384, 48, 1000, 100_000, 100
SPREAD, NOISE = 0.7, 0.3
BLOCK = 1 << 16
RESULTS = Path(__file__).parent / "results" / "index.jsonl"
PEERS = Path(__file__).parent / "index_peers.py"


def clustered(count: int, topics: int, seed: int) -> np.ndarray:
    """Vectors around the same centres for any seed."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((topics, LATENT), dtype=np.float32)
    matrix = rng.standard_normal((LATENT, WIDTH), dtype=np.float32) / np.sqrt(LATENT)
    rng = np.random.default_rng(seed)
    rows = np.empty((count, WIDTH), np.float32)
    for i in range(0, count, BLOCK):
        size = min(BLOCK, count - i)
        around = SPREAD * rng.standard_normal((size, LATENT), dtype=np.float32)
        made = (centres[rng.integers(topics, size=size)] + around) @ matrix
        made += NOISE * rng.standard_normal((size, WIDTH), dtype=np.float32)
        rows[i : i + size] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return rows


def write(folder: Path, count: int) -> None:
    """What both sides are given."""
    topics = round(3 * count**0.5)
    vectors, queries = clustered(count, topics, 1), clustered(QUERIES, topics, 2)
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "more.npy", clustered(MORE, topics, 3))
    np.save(folder / "truth.npy", VectorIndex(lists=1).fit(vectors).search(queries, K)[0])


def run(
    name: str, python: str, folder: Path, precision: str, threads: list[int], *wished: float
) -> dict[str, Any]:
    """One side in a process of its own."""
    given = [name, str(folder), precision, ",".join(map(str, threads)), *map(str, wished)]
    command = [python, str(PEERS), *given]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{answer.stderr}")
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", choices=["float32", "float16"], default="float32")
    parser.add_argument("--faiss-python", metavar="PYTHON", help="an interpreter with faiss-cpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    print(
        "| vectors | index | lists / probes | recall@100 | threads | batch, µs a query (CPU) "
        "| one query, µs (CPU) | build s (CPU) | add s (CPU) | open s |"
    )
    print("|---:|---|" + "---:|" * 8)
    for count in options.vectors:
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            write(folder, count)
            given = options.precision, options.threads
            ours = run("megalabel", sys.executable, folder, *given, 0, 0)
            keep(count, "megalabel", ours, options)
            if options.faiss_python:
                wished = ours["lists"], ours["recall"]
                keep(
                    count,
                    "faiss",
                    run("faiss", options.faiss_python, folder, *given, *wished),
                    options,
                )


def keep(count: int, name: str, found: dict[str, Any], options: argparse.Namespace) -> None:
    """Print rows of the table and add a line to the results."""
    opened = f"{found['open']:.3f}" if "open" in found else ""
    for threads in options.threads:
        times = {k: f"{1e6 * v:.0f}" for k, v in found[f"threads {threads}"].items()}
        print(
            f"| {count:,} | {name} | {found['lists']:,} / {found['probes']} "
            f"| {found['recall']:.4f} | {threads} | {times['batch']} ({times['batch CPU']}) "
            f"| {times['single']} ({times['single CPU']}) "
            f"| {found['build']:.1f} ({found['build CPU']:.1f}) "
            f"| {found['add']:.2f} ({found['add CPU']:.2f}) | {opened} |",
            flush=True,
        )
    line = {
        "vectors": count,
        "width": WIDTH,
        "precision": options.precision,
        "index": name,
        "found": found,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "version": megalabel.__version__,
        "command": f"python benchmarks/index.py --vectors {count} "
        f"--threads {' '.join(map(str, options.threads))} "
        f"--precision {options.precision} --faiss-python PYTHON",
    }
    with options.results.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
