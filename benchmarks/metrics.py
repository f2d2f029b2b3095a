"""Times `evaluate` on a million rows, and holds its values against another implementation.

    python benchmarks/metrics.py
    python benchmarks/metrics.py --peer FILE.py

The peer is a Python file with a function `evaluate(top, test, train)` that takes ranked label
numbers and two CSR label matrices and returns percentages by name.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import get_threads, set_threads
from megalabel.calibration import Isotonic
from megalabel.data import LabelSet, Ranking
from megalabel.metrics import Evaluation, Evaluator, evaluate


def corpus(rng: np.random.Generator, rows: int, labels: int, per_row: int) -> csr_matrix:
    """Label sets with Zipf frequencies."""
    shares = np.cumsum(1 / np.arange(1, labels + 1))
    columns = np.searchsorted(shares, rng.random(rows * per_row) * shares[-1]).astype(np.int32)
    pointers = np.arange(0, rows * per_row + 1, per_row)
    truth = csr_matrix((np.ones(rows * per_row, np.float32), columns, pointers), (rows, labels))
    truth.sum_duplicates()
    truth.data[:] = 1
    return truth


def ranking(rng: np.random.Generator, truth: csr_matrix, k: int) -> Ranking:
    """Rankings that find each true label with even odds, at any rank."""
    rows, labels = truth.shape
    ids = rng.integers(0, labels, (rows, k), dtype=np.int32)
    row = np.repeat(np.arange(rows), np.diff(truth.indptr))
    found = rng.random(truth.nnz) < 0.5
    ids[row[found], rng.integers(0, k, found.sum())] = truth.indices[found]
    scores = np.broadcast_to(np.linspace(1, 0, k, dtype=np.float32), ids.shape)
    return Ranking(ids, scores, LabelSet.numbered(labels))


def memory(field: str) -> float:
    """A line of the process's status in MiB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if field in x)
    return int(line.split()[1]) / 1024


def measure(name: str, run: Callable[[], Any], repeat: int) -> None:
    """Print the median time, and the memory above what was there before."""
    Path("/proc/self/clear_refs").write_text("5")
    before, seconds, used = memory("VmRSS"), [], []
    for _ in range(repeat):
        start, begun = time.perf_counter(), time.process_time()
        run()
        seconds.append(time.perf_counter() - start)
        used.append(time.process_time() - begun)
    peak = memory("VmHWM") - before
    print(
        f"{name:<40} {statistics.median(seconds):7.3f} s  {statistics.median(used):7.3f} CPU s  "
        f"{max(peak, 0):6.0f} MiB above inputs"
    )


def stream(answers: Ranking, truth: csr_matrix, options: dict[str, Any]) -> Evaluation:
    """The same from batches."""
    evaluator, size = Evaluator(**options), -(-len(answers) // 10)
    for start in range(0, len(answers), size):
        evaluator.add(answers[start : start + size], truth[start : start + size])
    return evaluator.result()


def whole(answers: Ranking, truth: csr_matrix, options: dict[str, Any]) -> None:
    """Everything that an evaluation can give."""
    measured = evaluate(answers, truth, **options)
    measured.to_dict(tables=True)
    for cutoff in measured.cutoffs:
        measured.per_label(cutoff)


def time_evaluate(options: argparse.Namespace) -> None:
    """The large case: every metric, whole and in batches."""
    rng = np.random.default_rng(0)
    truth = corpus(rng, options.rows, options.labels, per_row=5)
    answers = ranking(rng, truth, k=100)
    cutoffs = (1, 3, 5, 10, 20, 50, 100)
    print(f"{options.rows:,} rows, top 100 of {options.labels:,} labels, k = {cutoffs}")
    everything = {"train_labels": truth, "probabilities": True, "k": cutoffs}
    cases: dict[str, dict[str, Any]] = {
        "without propensities and probabilities": {"k": cutoffs},
        "without probabilities": {"train_labels": truth, "k": cutoffs},
        "all values": everything,
    }
    for name, extra in cases.items():
        measure(name, lambda e=extra: evaluate(answers, truth, **e), options.repeat)
    measure("all values, in ten batches", lambda: stream(answers, truth, everything), 1)
    measured = evaluate(answers, truth, **everything)
    measure("all values, intervals and tables", lambda: whole(answers, truth, everything), 1)
    measure("a paired test", lambda: measured.compare(measured), options.repeat)
    measure("isotonic fit on the top 5", lambda: Isotonic(k=5).fit(answers, truth), options.repeat)
    calibrator = Isotonic(k=5).fit(answers, truth)
    measure("isotonic apply to the top 100", lambda: calibrator.apply(answers), options.repeat)


def compare_with_peer(path: Path, repeat: int) -> None:
    """The same values as the peer's on a corpus of EURLex-4K's size, and both times."""
    specification = importlib.util.spec_from_file_location("peer", path)
    if specification is None or specification.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    peer = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(peer)
    rng = np.random.default_rng(0)
    train, test = corpus(rng, 15_539, 3_993, per_row=5), corpus(rng, 3_809, 3_993, per_row=5)
    noisy = rng.random(test.shape) + test.toarray() * rng.random(test.shape)  # finds about half
    ids = np.argsort(-noisy, axis=1, kind="stable")[:, :10].astype(np.int32)
    answers = Ranking(ids, np.take_along_axis(noisy, ids, 1), LabelSet.numbered(3_993))
    print(f"{len(answers):,} rows, top 10 of 3,993 labels")
    measure("evaluate", lambda: evaluate(answers, test, train_labels=train), repeat)
    measure(path.name, lambda: peer.evaluate(ids, test, train), repeat)
    ours = evaluate(answers, test, train_labels=train).to_dict(percent=True)
    theirs = peer.evaluate(ids, test, train)
    shared = sorted(ours.keys() & theirs.keys())
    for name in shared:
        print(f"  {name:<8} {ours[name]:8.3f} {theirs[name]:8.3f}")
    if not shared or any(abs(ours[name] - theirs[name]) > 1e-3 for name in shared):
        raise SystemExit("the values differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--labels", type=int, default=500_000)
    parser.add_argument("--threads", type=int, default=get_threads())
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peer", type=Path, help="a Python file to agree with")
    options = parser.parse_args()
    set_threads(options.threads)
    print(f"{platform.node()}, {platform.machine()}, {options.threads} threads")
    time_evaluate(options)
    if options.peer:
        compare_with_peer(options.peer, options.repeat)


if __name__ == "__main__":
    main()
