"""Which labels come together, of millions of texts and labels: seconds, and the peak of memory.

    python benchmarks/cooccurrence.py [--labels 1300000] [--texts 2200000] [--each 22]
        [--threshold 0.1] [--threads 2] [--results FILE]

Texts carry labels that are drawn with the frequencies of Zipf's law. Memory is the peak of the
process; what it was before, the label matrix included, is beside it.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel.labels import cooccurrence

RESULTS = Path(__file__).parent / "results" / "cooccurrence.jsonl"


def draw(texts: int, labels: int, each: int, power: float = 0.8) -> csr_matrix:
    """So many labels a text, by Zipf's law; one that is drawn twice counts once."""
    random = np.random.default_rng(0)
    shares = np.cumsum(1 / np.arange(1, labels + 1) ** power)
    shares /= shares[-1]
    indices = np.empty(texts * each, np.int32)
    for start in range(0, len(indices), 1 << 20):  # some at a time, to save memory
        part = random.random(min(1 << 20, len(indices) - start))
        indices[start : start + len(part)] = np.searchsorted(shares, part)
    starts = np.arange(texts + 1, dtype=np.int64) * each
    Y = csr_matrix((np.ones(len(indices), np.float32), indices, starts), (texts, labels))
    Y.sum_duplicates()
    return Y


def peak() -> float:
    """Gigabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=1_300_000)
    parser.add_argument("--texts", type=int, default=2_200_000)
    parser.add_argument("--each", type=int, default=22)
    parser.add_argument("--threshold", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    megalabel.set_threads(options.threads)
    Y = draw(options.texts, options.labels, options.each)
    before, started, cpu = peak(), time.perf_counter(), time.process_time()
    shares = cooccurrence(Y, options.threshold)
    row = {
        "labels": options.labels,
        "texts": options.texts,
        "labels of a text": round(Y.nnz / options.texts, 2),
        "labels with a text": int(np.count_nonzero(np.bincount(Y.indices))),
        "threshold": options.threshold,
        "threads": options.threads,
        "s": round(time.perf_counter() - started, 1),
        "CPU s": round(time.process_time() - cpu, 1),
        "GB": round(peak(), 2),
        "GB before": round(before, 2),
        "targets": int(shares.nnz),
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{platform.machine()}, {platform.system()}",
        "megalabel": megalabel.__version__,
    }
    print(row)
    options.results.parent.mkdir(exist_ok=True)
    with options.results.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
