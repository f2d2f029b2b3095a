"""Do probabilities hold at every rank and for labels of every frequency?

    python benchmarks/probabilities.py --data DATA [--corpora eurlex-titles ...]
        [--systems knn dismec bonsai plt] [--split] [--most 20000] [--results FILE]

DATA is a folder of corpora. Each system is trained once a corpus; of its ranking of held-out texts
each calibrator learns, and is measured on new texts. These are the test part, or with --split a
fifth of the training part drawn at random: some test parts are of other years than the training
part, or have no text without a known label.

Cells are ranks 1 to 5 by the label's number of training texts (1-5, 6-19, 20-99, 100 or more), of
at least 200 answers. Shown are, in percent: the mean and the largest of the cells' gaps between
mean probability and hit rate, without what chance adds to a gap; ECE@1, ECE@5; the bias (mean
probability less hit rate of the first five), and how many standard errors that is, of held-out and
of new texts together; and for ranks 6-10, 11-20 and 21-100 the probability promised over the hit
rate. "before" is isotonic regression of the first five labels, learned from held-out texts seen
through features of all texts.

Results are lines of JSON; a run that is in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel import systems
from megalabel.calibration import ByFrequency, ByRank, Isotonic, Joint
from megalabel.data import Corpus, Ranking
from megalabel.data.truth import hits
from megalabel.features import Tfidf
from megalabel.metrics import evaluate
from megalabel.parts import Calibrator, Featurizer
from megalabel.tagger import Tagger

SYSTEMS = ["knn", "dismec", "bonsai", "plt"]
DEPTH, LEAST = 100, 200
RESULTS = Path(__file__).parent / "results" / "probabilities.jsonl"
FREQUENCIES = ((1, 5), (6, 19), (20, 99), (100, 1 << 60))
DEEP = ((5, 10), (10, 20), (20, 100))
METHODS: dict[str, Calibrator] = {
    "before": Isotonic(k=5),
    "isotonic": Isotonic(k=5),
    "isotonic by rank": ByRank(Isotonic(k=5)),
    "isotonic by frequency": ByFrequency(Isotonic(k=5)),
    "joint": Joint(k=DEPTH),
    "joint, ranked anew": Joint(k=DEPTH, rerank=True),
}

Result = dict[str, Any]


class Recorder(Joint):
    """Keeps what a tagger's calibration learns from."""

    def fit(self, ranking: Ranking, Y: csr_matrix, **more: Any) -> Recorder:
        self.seen = (ranking, Y, more)
        super().fit(ranking, Y, **more)
        return self


def trained(system: str, train: Corpus, **options: Any) -> Tagger:
    return systems.create(system, calibration=Recorder(k=DEPTH), seed=0, **options).fit(train)


def measure(ranking: Ranking, truth: csr_matrix, counts: np.ndarray, held_out: int) -> Result:
    """All figures of a calibrated ranking."""
    hit = hits(ranking, truth)
    probability = np.where(ranking.present, ranking.scores, 0).astype(np.float64)
    count = np.append(counts, 0)[ranking.ids]
    gaps = []
    for rank in range(5):
        for low, high in FREQUENCIES:
            cell = ranking.present[:, rank] & (low <= count[:, rank]) & (count[:, rank] <= high)
            if (n := int(cell.sum())) < LEAST:
                continue
            apart = probability[cell, rank] - hit[cell, rank]
            chance = apart.var() / n
            gaps.append(float(np.sqrt(max(0.0, apart.mean() ** 2 - chance))))
    error = (probability - hit)[:, :5].sum(axis=1) / 5
    scale = error.std() * np.sqrt(1 / len(error) + 1 / held_out)
    values = evaluate(ranking, truth, k=(1, 3, 5), probabilities=True)
    deep = [
        float(probability[:, low:high].sum() / max(1, hit[:, low:high].sum())) for low, high in DEEP
    ]
    return {
        "cells": 100 * float(np.mean(gaps)),
        "worst": 100 * max(gaps),
        "ECE@1": 100 * values["ECE@1"],
        "ECE@5": 100 * values["ECE@5"],
        "bias": 100 * float(error.mean()),
        "errors": float(error.mean() / scale),
        "deep": deep,
        "P@1": 100 * values["P@1"],
        "P@5": 100 * values["P@5"],
    }


def run(folder: Path, system: str, split: bool, most: int) -> dict[str, Result]:
    """What each calibrator does for a system on a corpus."""
    train = megalabel.read(folder, "train")
    random = np.random.default_rng(0)
    if split:
        order = random.permutation(len(train))
        new, train = train[np.sort(order[::5])], train[np.sort(np.delete(order, slice(0, None, 5)))]
    else:
        new = megalabel.read(folder, "test")
    if len(train) > most:
        train = train[np.sort(random.permutation(len(train))[:most])]
    if len(new) > 20_000:
        new = new[np.sort(random.permutation(len(new))[:20_000])]
    found: dict[str, Result] = {}
    truth = csr_matrix(new.aligned(train.labels).targets[:, : len(train.labels)])
    tagger = trained(system, train)
    seen, counts = tagger.calibration_.seen, tagger.label_counts_
    with patch.object(Tfidf, "held_out", Featurizer.held_out):
        through_all = trained(system, train, refit=False).calibration_.seen
    tagger.calibration_ = None
    raw = tagger.rank(new, DEPTH)
    for name, calibrator in METHODS.items():
        ranking, targets, more = through_all if name == "before" else seen
        fitted = calibrator.fit(ranking, targets, **more).for_counts(counts)
        found[name] = measure(fitted.apply(raw), truth, counts, len(ranking))
    return found


def line(name: str, row: Result) -> str:
    deep = " / ".join(f"{value:.2f}" for value in row["deep"])
    shown = [f"{row[key]:.2f}" for key in ("cells", "worst", "ECE@1", "ECE@5", "bias")]
    shown += [f"{row['errors']:+.1f}", deep, f"{row['P@1']:.1f} / {row['P@5']:.1f}"]
    return f"| {name} | " + " | ".join(shown) + " |"


def summary(rows: list[Result]) -> Result:
    """Means over runs, but the largest of the worst cells."""
    means = {k: float(np.mean([row[k] for row in rows])) for k in rows[0] if k != "deep"}
    means["worst"] = max(row["worst"] for row in rows)
    means["errors"] = float(np.mean([abs(row["errors"]) for row in rows]))
    means["bias"] = float(np.mean([abs(row["bias"]) for row in rows]))
    means["deep"] = np.exp(np.mean([np.log(row["deep"]) for row in rows], axis=0)).tolist()
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of corpora with texts")
    parser.add_argument("--corpora", nargs="*", help="their names; all that have texts")
    parser.add_argument("--systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--split", action="store_true", help="new texts from the training part")
    parser.add_argument("--most", type=int, default=20_000, help="training texts of a corpus")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    names = given.corpora or sorted(
        f.name for f in given.data.iterdir() if (f / "trn.jsonl.gz").exists()
    )
    kept = given.results.read_text().splitlines() if given.results.exists() else []
    done = {tuple(row["run"]): row for row in map(json.loads, kept)}
    table: dict[str, list[Result]] = {}
    head = "cells | worst | ECE@1 | ECE@5 | bias | errors | 6-10 / 11-20 / 21-100 | P@1 / P@5"
    print(f"| | {head} |\n|---|" + "---:|" * 8)
    for name in names:
        for system in given.systems:
            key = (name, system, given.split, given.most)
            if key not in done:
                started = time.perf_counter()
                found = run(given.data / name, system, given.split, given.most)
                done[key] = {
                    "run": key,
                    "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                    "version": megalabel.__version__,
                    "seconds": time.perf_counter() - started,
                    "found": found,
                }
                with given.results.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
            for method, row in done[key]["found"].items():
                table.setdefault(method, []).append(row)
                if method in ("before", "joint"):
                    print(line(f"{name}, {system}, {method}", row), flush=True)
    for method, rows in table.items():
        print(line(f"**{method}, all runs**", summary(rows)))


if __name__ == "__main__":
    main()
