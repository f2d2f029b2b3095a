"""Times isotonic regression, and training with calibration and without it.

python benchmarks/calibration.py                     # 100 M pairs of score and hit
python benchmarks/calibration.py --corpus FOLDER     # what holding texts out costs

How well calibrators do is measured by benchmarks/probabilities.py.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel import get_threads, set_threads, systems
from megalabel.calibration import Isotonic
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.metrics import evaluate


def time_isotonic(pairs: int, repeat: int) -> None:
    """Top-100 lists of random scores: fit, and apply."""
    random = np.random.default_rng(0)
    rows = max(1, pairs // 100)
    scores = random.random((rows, 100), np.float32)
    hit = random.random((rows, 100), np.float32) < scores * scores
    pointers = np.append(0, np.cumsum(hit.sum(axis=1)))
    truth = csr_matrix(
        (np.ones(pointers[-1], np.float32), np.nonzero(hit)[1].astype(np.int32), pointers),
        shape=(rows, 100),
    )
    ids = np.broadcast_to(np.arange(100, dtype=np.int32), (rows, 100))
    ranking = Ranking(ids, scores, LabelSet.numbered(100))
    calibrator = Isotonic(k=100)
    for name, run in (
        ("fit", lambda: calibrator.fit(ranking, truth)),
        ("apply", lambda: calibrator.apply(ranking)),
    ):
        seconds = []
        for _ in range(repeat):
            started = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - started)
        print(f"isotonic {name} on {rows * 100:,} pairs: {min(seconds):.2f} s")
    print(f"{len(calibrator.values_):,} knots")


def slices(system: str, train: Corpus, test: Corpus) -> None:
    """What a second training on all texts costs and gives, and not having one."""
    for options in ({"calibration": None}, {"refit": False}, {"refit": True}):
        started, used = time.perf_counter(), time.process_time()
        tagger = systems.create(system, **options).fit(train)
        seconds, busy = time.perf_counter() - started, time.process_time() - used
        ranking, truth = tagger.rank(test, 5), test.aligned(tagger.labels).targets
        found = evaluate(ranking, truth, probabilities=True)
        shown = ", ".join(f"{n} {100 * found[n]:.2f}" for n in ("P@1", "P@3", "P@5", "ECE@5"))
        print(f"{system} {options}: {seconds:.1f} s, {busy:.1f} s of processors, {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=get_threads())
    parser.add_argument("--corpus", type=Path, help="a corpus with a train and a test part")
    parser.add_argument("--system", action="append", help="may be repeated")
    options = parser.parse_args()
    set_threads(options.threads)
    print(f"{platform.node()}, {platform.machine()}, {options.threads} threads")
    if options.corpus is None:
        time_isotonic(options.pairs, options.repeat)
        return
    train, test = (megalabel.read(options.corpus, part) for part in ("train", "test"))
    for system in options.system or ["dismec", "xr-linear", "knn"]:
        slices(system, train, test)


if __name__ == "__main__":
    main()
