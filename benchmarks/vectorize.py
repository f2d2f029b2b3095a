"""Texts to tf-idf matrices: megalabel, scikit-learn and PECOS side by side.

    python benchmarks/vectorize.py --data ../shared/data/yso-finna-en [--runs 5] [--pecos PYTHON]

Each run is a process of its own that reads the texts and makes one small matrix (not timed: imports
on first use), then learns the terms and makes the matrix (timed, as one fit+transform). The systems
take turns, so that a machine's moods touch all of them. PECOS is run by the Python interpreter
given, one that has libpecos installed. scikit-learn's matrix is compared with ours; PECOS splits
words at blanks alone, so its terms are others and only their number is shown.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
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

SAME = {"min_df": 2, "sublinear_tf": True}


def read(folder: Path) -> list[str]:
    """The training texts: title and content, with a space between."""
    with gzip.open(folder / "trn.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        return [f"{row.get('title') or ''} {row.get('content') or ''}" for row in rows]


def megalabel(threads: int, **settings: Any) -> Callable[[list[str]], csr_matrix]:
    import megalabel
    from megalabel.features import Tfidf

    megalabel.set_threads(threads)
    return Tfidf(**SAME, **settings).fit_transform


def scikit_learn() -> Callable[[list[str]], csr_matrix]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(**SAME).fit_transform


def pecos(threads: int) -> Callable[[list[str]], csr_matrix]:
    from pecos.utils.featurization.text.vectorizers import Tfidf

    config = {
        "ngram_range": (1, 1),
        "min_df_cnt": 2,
        "sublinear_tf": True,
        "add_one_idf": True,
        "norm": "l2",
        "analyzer": "word",
        "threads": threads,
    }
    return lambda texts: Tfidf.train(texts, config).predict(texts, threads=threads)


LIKE_SKLEARN = {"case": "lower", "normalise": None}
SYSTEMS: dict[str, Callable[[], Callable[[list[str]], csr_matrix]]] = {
    "megalabel, 2 threads": lambda: megalabel(2, **LIKE_SKLEARN),
    "megalabel, 1 thread": lambda: megalabel(1, **LIKE_SKLEARN),
    "megalabel, 2 threads, NFKC and folding": lambda: megalabel(2),
    "scikit-learn": scikit_learn,
    "PECOS, 2 threads": lambda: pecos(2),
}


def run_one(name: str, folder: Path, matrix: Path) -> None:
    """In a process of its own: time one system and print the figures as JSON."""
    make = SYSTEMS[name]()
    texts = read(folder)
    make(texts[:100])
    before = peak()
    start = time.perf_counter()
    rows = make(texts)
    seconds = time.perf_counter() - start
    figures = {"seconds": seconds, "memory": peak() - before, "shape": rows.shape, "n": rows.nnz}
    save_npz(matrix, csr_matrix(rows), compressed=False)
    print(json.dumps(figures))


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(name: str, interpreter: str, folder: Path, matrix: Path) -> dict[str, Any]:
    command = [interpreter, __file__, "--data", str(folder), "--one", name, "--matrix", str(matrix)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def difference(a: Path, b: Path) -> float:
    first, second = load_npz(a), load_npz(b)
    if first.shape != second.shape:
        return float("inf")
    return float(abs(first.astype(np.float64) - second).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with trn.jsonl.gz")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pecos", help="Python interpreter that has libpecos")
    parser.add_argument("--one", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--matrix", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.data, options.matrix)
        return

    names = [name for name in SYSTEMS if options.pecos or not name.startswith("PECOS")]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        matrices = {name: Path(folder) / f"{i}.npz" for i, name in enumerate(names)}
        for _ in range(options.runs):
            for name in names:
                interpreter = options.pecos if name.startswith("PECOS") else sys.executable
                results[name].append(measure(name, interpreter, options.data, matrices[name]))
        alike = ["megalabel, 2 threads", "megalabel, 1 thread"]
        apart = {name: difference(matrices[name], matrices["scikit-learn"]) for name in alike}

    fastest = statistics.median(r["seconds"] for r in results["megalabel, 2 threads"])
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{options.data.name}, fit+transform, median of {options.runs} runs ({machine})\n")
    print("| | seconds | times ours | peak memory over the texts | terms | largest difference |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, runs in results.items():
        seconds = statistics.median(r["seconds"] for r in runs)
        memory = statistics.median(r["memory"] for r in runs) / 2**20
        shown = f"{apart[name]:.1e}" if name in apart else ""
        print(
            f"| {name} | {seconds:.3f} | {seconds / fastest:.1f} | {memory:.0f} MiB"
            f" | {runs[0]['shape'][1]:,} | {shown} |"
        )
    if max(apart.values()) > 1e-6:
        raise SystemExit("the matrices do not agree with scikit-learn's to 1e-6")


if __name__ == "__main__":
    main()
