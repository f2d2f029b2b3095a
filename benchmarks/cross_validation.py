"""Settings of a linear system compared on training rows alone, by three-fold cross-validation.

    python benchmarks/cross_validation.py --data FOLDER --system xr-linear
        --settings '[{"arity": 16}, {"arity": 32}]'

Prints P@1/3/5 and PSP@5, the mean of three folds, CPU seconds of a training, and the size of the
classifier. Test rows are never read.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import megalabel
from megalabel import systems
from megalabel.features import Precomputed, Tfidf
from megalabel.metrics import evaluate
from megalabel.systems.planning import learned_bytes

FOLDS = 3
SHOWN = ("P@1", "P@3", "P@5", "PSP@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a corpus with a train part")
    parser.add_argument("--system", required=True)
    parser.add_argument("--settings", type=json.loads, default=[{}], help="a list of parameters")
    given = parser.parse_args()
    train = megalabel.read(given.data, "train")
    features = Precomputed() if train.texts is None else Tfidf(min_df=2)
    X, Y = features.fit_transform(train), train.targets
    fold = np.random.default_rng(0).integers(FOLDS, size=len(train))
    print(
        f"{given.data.name}: {len(train):,} texts, {len(train.labels):,} labels, {given.system}\n"
    )
    print("| settings | P@1 / 3 / 5 | PSP@5 | CPU s | MB |\n|---|---:|---:|---:|---:|")
    for settings in given.settings:
        found, taken, size = [], 0.0, 0
        for number in range(FOLDS):
            learned, judged = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            made = systems.create(given.system, calibrate=False, **settings).classifier
            started = time.process_time()
            made.fit(X[learned], Y[learned])
            taken += time.process_time() - started
            size += learned_bytes(made)
            result = evaluate(made.rank(X[judged], 5), Y[judged], train_labels=Y[learned])
            found.append([100 * result[name] for name in SHOWN])
        *precisions, scored = np.mean(found, axis=0)
        shown = " / ".join(f"{value:.2f}" for value in precisions)
        means = f"{scored:.2f} | {taken / FOLDS:.1f} | {size / FOLDS / 1e6:.2f}"
        print(f"| {json.dumps(settings)} | {shown} | {means} |", flush=True)


if __name__ == "__main__":
    main()
