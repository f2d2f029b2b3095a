"""Times isotonic regression, and compares calibrators on a corpus by what they leave of the error.

python benchmarks/calibration.py                     # 100 M pairs of score and hit
python benchmarks/calibration.py --corpus FOLDER     # every calibrator, on held-out texts
python benchmarks/calibration.py --corpus FOLDER --slices   # what holding texts out costs
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
from megalabel.calibration import METHODS, ByFrequency, ByRank, Isotonic
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.metrics import evaluate
from megalabel.parts import Calibrator


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


def candidates(k: int) -> dict[str, Calibrator]:
    """Every way to calibrate."""
    made: dict[str, Calibrator] = {name: kind(k=k) for name, kind in METHODS.items()}
    for name, kind in METHODS.items():
        made[f"{name} by frequency"] = ByFrequency(kind(k=k))
        made[f"{name} by rank"] = ByRank(kind(k=k))
    made["isotonic by frequency, ranked anew"] = ByFrequency(Isotonic(k=k), rerank=True)
    made["isotonic by rank, ranked anew"] = ByRank(Isotonic(k=k), rerank=True)
    return made


def frequency_error(
    ranking: Ranking, truth: csr_matrix, counts: np.ndarray, bins: int = 5
) -> float:
    """The mean gap of confidence and hit rate over groups of labels of like frequency."""
    order = np.argsort(counts[ranking.ids.ravel()], kind="stable")
    hit = np.asarray(truth[np.repeat(np.arange(len(ranking)), ranking.k), ranking.ids.ravel()])[0]
    gaps = [
        abs(ranking.scores.ravel()[part].mean(dtype=float) - (hit[part] > 0).mean())
        for part in np.array_split(order, 5)
    ]
    return float(np.mean(gaps))


def compare(system: str, train: Corpus, test: Corpus, k: int) -> None:
    """Each calibrator learned from a tenth of the training texts, measured on the test part."""
    test = test.aligned(train.labels)
    known = csr_matrix(test.targets[:, : len(train.labels)])
    order = np.random.default_rng(0).permutation(len(train))
    held = np.sort(order[: len(train) // 10])
    rest = np.sort(order[len(train) // 10 :])
    tagger = systems.create(system, calibration=None).fit(train[rest])
    counts = tagger.label_counts_
    slices = tagger.rank(train[held], k), train[held].aligned(tagger.labels).targets
    raw = tagger.rank(test, k)
    print(f"{system}: {len(held):,} texts to calibrate on, {len(test):,} to test")
    heads = ("P@1", "P@5", "ECE@1", "ECE@3", "ECE@5")
    print(f"{'':36}" + "".join(f"{head:>9}" for head in heads) + "  by frequency")
    made = {"as scored": raw}
    for name, calibrator in candidates(k).items():
        made[name] = calibrator.fit(*slices, label_counts=counts).apply(raw)
    for name, ranking in made.items():
        found = evaluate(ranking, known, k=(1, 3, 5), probabilities=True)
        shown = "".join(f"{100 * found[head]:9.2f}" for head in heads)
        print(f"{name:36}{shown}{100 * frequency_error(ranking, known, counts):9.2f}")


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
    parser.add_argument("--slices", action="store_true", help="time training with and without")
    options = parser.parse_args()
    set_threads(options.threads)
    print(f"{platform.node()}, {platform.machine()}, {options.threads} threads")
    if options.corpus is None:
        time_isotonic(options.pairs, options.repeat)
        return
    train, test = (megalabel.read(options.corpus, part) for part in ("train", "test"))
    for system in options.system or ["dismec", "xr-linear", "knn"]:
        if options.slices:
            slices(system, train, test)
        else:
            compare(system, train, test, 5)


if __name__ == "__main__":
    main()
