"""Match features: how long texts take against a hundred candidates each.

    python benchmarks/match.py --data CORPUS [--candidates 100] [--queries 2000] [--threads 1 2]

Learns the names of the corpus's labels, then takes texts of the test part against candidates drawn
with a fixed seed. One text at a time, from the string: its words (`transform`), then the features;
the median and the 99th percentile of single texts. A thousand texts at once: the fastest of several
rounds.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import megalabel
from megalabel.features import NameWords

BATCH, ROUNDS = 1000, 21


def microseconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    before = time.perf_counter()
    run()
    return 1e6 * (time.perf_counter() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a corpus with train and test")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()

    train = megalabel.read(options.data, split="train")
    texts = megalabel.read(options.data, split="test").texts[: options.queries].to_pylist()
    fitting = microseconds(lambda: NameWords().fit(train)) / 1e6
    names = NameWords().fit(train)
    drawn = np.random.default_rng(0).integers(
        len(train.labels), size=(len(texts), options.candidates), dtype=np.int32
    )

    def batch() -> np.ndarray:
        return names.features(names.transform(texts[:BATCH]), drawn[:BATCH])

    per_name = len(names.name_words_) / max(1, len(train.labels))
    words = len(names.transform(texts).ids) / len(texts)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(
        f"{options.data.name} ({machine}): {len(train.labels):,} labels of {per_name:.1f} words,"
        f" {len(train):,} texts learned from in {fitting:.1f} s; asked: {words:.0f} words a text,"
        f" {options.candidates} candidates\n"
    )
    print("| threads | one text, µs (p50) | (p99) | its words alone | 1,000 texts, µs a text |")
    print("|---:|---:|---:|---:|---:|")
    for threads in options.threads:
        megalabel.set_threads(threads)
        single, words_alone = [], []
        for text, ids in zip(texts, drawn[:, None], strict=True):
            words_alone.append(microseconds(lambda text=text: names.transform([text])))
            single.append(
                microseconds(
                    lambda text=text, ids=ids: names.features(names.transform([text]), ids)
                )
            )
        batches = [microseconds(batch) for _ in range(ROUNDS)]
        p50, p99 = np.quantile(single, (0.5, 0.99))
        print(
            f"| {threads} | {p50:.1f} | {p99:.1f} | {np.median(words_alone):.1f}"
            f" | {min(batches) / len(drawn[:BATCH]):.1f} |"
        )


if __name__ == "__main__":
    main()
