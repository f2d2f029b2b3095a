"""Answers among some labels alone: how many there are, how good they are and what they cost.

    python benchmarks/filters.py --data DATA/eurlex-titles --data DATA/yso-finna-en

Each system is trained on the first texts of the training part, and answers texts of the test part
with ten labels each, on one thread: among all labels, whose answers are then filtered, and among a
random share of the labels (`allowed`). Recall is of the allowed labels that a text carries. CPU
seconds of a whole answer, features and calibration included, in parts of the unfiltered one's, are
the best of three rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel import Ranking, systems

RESULTS = Path(__file__).parent / "results" / "filters.jsonl"
K, SHARES, ROUNDS = 10, (0.9, 0.5, 0.1, 0.01), 3


def timed(answer: Callable[[], Ranking]) -> tuple[float, Ranking]:
    """CPU seconds of the best of a few rounds, and the answer."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        ranking = answer()
        seconds.append(time.process_time() - started)
    return min(seconds), ranking


def recall(ranking: Ranking, truth: csr_matrix) -> float:
    """The share of the labels of all texts that are found."""
    return float(ranking.to_csr().multiply(truth > 0).nnz / max(1, truth.nnz))


def measured(data: Path, name: str, texts: int, queries: int) -> dict[str, Any]:
    """What a system answers among shares of the labels of a corpus."""
    train, test = megalabel.read(data, "train")[:texts], megalabel.read(data, "test")[:queries]
    megalabel.set_threads(1)
    tagger = systems.create(name).fit(train)
    labels = len(tagger.labels)
    truth = test.aligned(tagger.labels).targets[:, :labels]
    texts_asked = test.texts.to_pylist()
    base, whole = timed(lambda: tagger.rank(texts_asked, K))
    rows = []
    for share in SHARES:
        mask = np.random.default_rng(0).random(labels) < share
        seconds, among = timed(lambda mask=mask: tagger.rank(texts_asked, K, allowed=mask))
        wanted = csr_matrix(truth.multiply(mask))
        wanted.eliminate_zeros()
        after = whole.only(mask)
        rows.append(
            {
                "share": share,
                "labels": [float(one.present.sum(1).mean()) for one in (after, among)],
                "recall": [recall(one, wanted) for one in (after, among)],
                "cost": seconds / base,
            }
        )
    return {
        "corpus": data.name,
        "system": name,
        "texts": len(train),
        "labels": labels,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--texts", type=int, default=20_000, help="at most so many to train on")
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--systems", nargs="+", default=["dismec", "bonsai", "knn"])
    args = parser.parse_args()
    print(
        "| corpus | system | allowed | labels of 10, filtered after | searched | R@10, after "
        "| searched | CPU |\n|---|---|---|---|---|---|---|---|"
    )
    for data in args.data:
        for name in args.systems:
            found = measured(data, name, args.texts, args.queries)
            for row in found["rows"]:
                counts, recalls = row["labels"], row["recall"]
                print(
                    f"| {found['corpus']} | {name} | {row['share']:.0%} | {counts[0]:.2f} | "
                    f"{counts[1]:.2f} | {100 * recalls[0]:.1f} | {100 * recalls[1]:.1f} | "
                    f"{row['cost']:.1f}x |",
                    flush=True,
                )
            about = {"machine": platform.machine(), "megalabel": megalabel.__version__}
            command = f"python benchmarks/filters.py --texts {args.texts} --queries {args.queries}"
            with RESULTS.open("a") as file:
                file.write(json.dumps(found | about | {"command": command}) + "\n")


if __name__ == "__main__":
    main()
