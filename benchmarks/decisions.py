"""Decisions for macro-F1: megalabel's beside xCOLUMNs', on the same probabilities.

    python benchmarks/decisions.py --xcolumns ENV/bin/python --data FOLDER
    python benchmarks/decisions.py --xcolumns ENV/bin/python --synthetic 1000000 500000

With --data, an xr-linear is trained on the training part and gives the 100 most probable labels of
each test text; --synthetic makes shortlists of so many texts and labels. Each side is a process of
its own, on one thread, given the same arrays in its own form. xCOLUMNs (--xcolumns: an interpreter
that has it) compiles its functions on a few rows before it is measured, and megalabel decides on
the same rows first; --peer-passes stops xCOLUMNs after so many passes or steps, where it would take
hours. CPU seconds are those of the decision alone; peak memory is that of the process while it
decides, and what of it came on top of the inputs, after memory that was free by then has been
handed back. megalabel's ascent puts its answer in the place of the shortlists, as a tagger does;
"ascent-beside" leaves them as they are, as xCOLUMNs does. The objective is measured here, alike for
both: the macro-F1 of the expected confusion entries, for Frank-Wolfe of the mixture that was found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel import LabelSet, Ranking, systems
from megalabel.decision import BlockCoordinateAscent, FrankWolfe
from megalabel.decision.metric import entries, metric_of
from megalabel.decision.shortlists import label_sums
from megalabel.decision.weighted import rule_sums

METHODS = ("ascent", "ascent-beside", "frank-wolfe")

MEMORY = """
def resident(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) / 1024


def reset_peak():
    import ctypes
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
"""

# Run by xCOLUMNs' interpreter: folder, method, k, labels, passes.
XCOLUMNS = (
    MEMORY
    + """
import json, sys, time
import numpy as np
from scipy.sparse import csr_matrix
from xcolumns import block_coordinate as bc, frank_wolfe as fw, metrics

folder, method, (k, labels, passes) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
data, indices, indptr = (np.load(f"{folder}/{a}.npy") for a in ("data", "indices", "indptr"))
P = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, labels))


def decide(P, iterations):
    if method == "ascent":
        return bc.predict_optimizing_macro_f1_score_using_bc(
            P, k, init_y_pred="top", max_iter=iterations, seed=0, return_meta=True)
    # its own wrapper for the metric hands on a function of other arguments, and fails
    return fw.find_classifier_using_fw(
        P, P, metrics.macro_f1_score_on_conf_matrix, k, init_classifier="top",
        max_iters=iterations, skip_tn=True, seed=0, return_meta=True)


decide(P[:50], 1)  # compiles
reset_peak()
before = resident("VmRSS")
started = time.process_time()
found, meta = decide(P, passes)
said = {"seconds": time.process_time() - started, "peak": resident("VmHWM"), "before": before}
said["passes"] = meta.get("iters", 0)
if method == "ascent":
    np.save(f"{folder}/given.npy", found.tocsr().indices.reshape(P.shape[0], -1))
else:
    used = found.p > 0
    np.savez(f"{folder}/mixture.npz", a=found.a[used], b=found.b[used], p=found.p[used])
print(json.dumps(said))
"""
)


def synthetic(n: int, m: int, width: int, folder: Path) -> None:
    """Shortlists that go from frequent to rare labels, with a few probable ones a row."""
    random = np.random.default_rng(0)
    ids = np.lib.format.open_memmap(folder / "ids.npy", "w+", np.int32, (n, width))
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float32, (n, width))
    for start in range(0, n, 10_000):
        rows = min(10_000, n - start)
        place = (np.arange(width) + random.random((rows, width))) / width
        labels = (m * place**3).astype(np.int64)  # the lower the number, the more frequent
        least = np.maximum.accumulate(labels - np.arange(width), axis=1) + np.arange(width)
        labels = np.minimum(least, m - width + np.arange(width))
        probable = (random.random((rows, width)) ** 6).astype(np.float32)
        order = np.argsort(-probable, axis=1, kind="stable")
        ids[start : start + rows] = np.take_along_axis(labels, order, 1)
        scores[start : start + rows] = np.take_along_axis(probable, order, 1)


def real(data: Path, width: int, folder: Path) -> int:
    """Shortlists of the test part; the number of labels."""
    train, test = megalabel.read(data, "train"), megalabel.read(data, "test")
    ranking = systems.create("xr-linear", trees=1).fit(train).rank(test, width)
    np.save(folder / "ids.npy", ranking.ids)
    np.save(folder / "scores.npy", ranking.scores)
    return len(train.labels)


def as_csr(folder: Path, m: int) -> None:
    """The shortlists in xCOLUMNs' form, columns rising along each row."""
    ids, scores = (np.load(folder / f"{a}.npy", mmap_mode="r") for a in ("ids", "scores"))
    n = len(ids)
    data, indices, counts = [], [], []
    for start in range(0, n, 10_000):
        block = ids[start : start + 10_000]
        order = np.argsort(block, axis=1)
        sorted_ids = np.take_along_axis(block, order, 1)
        present = sorted_ids < m
        indices.append(sorted_ids[present])
        data.append(np.take_along_axis(scores[start : start + 10_000], order, 1)[present])
        counts.append(present.sum(axis=1))
    np.save(folder / "data.npy", np.concatenate(data))
    np.save(folder / "indices.npy", np.concatenate(indices))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    np.save(folder / "indptr.npy", starts.astype(np.int32))


def load(folder: Path, m: int) -> Ranking:
    return Ranking(
        np.load(folder / "ids.npy"), np.load(folder / "scores.npy"), LabelSet.numbered(m)
    )


def run_ours(folder: Path, method: str, k: int, m: int) -> dict[str, float]:
    """Decide in this process, and leave what was found in the folder."""
    memory: dict[str, Any] = {}
    exec(MEMORY, memory)
    resident, reset_peak = memory["resident"], memory["reset_peak"]
    ranking = load(folder, m)
    decide = {"ascent": ascent, "ascent-beside": ascent_beside, "frank-wolfe": frank_wolfe}
    decide[method](ranking[np.arange(min(50, len(ranking)))], k, folder)
    reset_peak()
    before = resident("VmRSS")
    started = time.process_time()
    said = decide[method](ranking, k, folder)
    seconds = time.process_time() - started
    return {**said, "seconds": seconds, "peak": resident("VmHWM"), "before": before}


def ascent(ranking: Ranking, k: int, folder: Path, *, overwrite: bool = True) -> dict[str, float]:
    """Decide, with the answer in the place of the shortlists."""
    found = BlockCoordinateAscent("macro-f1").run(ranking, k, overwrite=overwrite)
    np.save(folder / "given.npy", found.ranking.ids)
    return {"passes": len(found.values) - 1}


def ascent_beside(ranking: Ranking, k: int, folder: Path) -> dict[str, float]:
    """Decide, with the answer beside the shortlists."""
    return ascent(ranking, k, folder, overwrite=False)


def frank_wolfe(ranking: Ranking, k: int, folder: Path) -> dict[str, float]:
    """Learn a mixture of rules."""
    rule = FrankWolfe("macro-f1", k).fit(ranking)
    mixture = {"a": rule.weights_.T, "b": rule.offsets_.T, "p": rule.shares_}
    np.savez(folder / "mixture.npz", **mixture)
    return {"passes": len(rule.values_) - 1}


def objective(folder: Path, ranking: Ranking, method: str, k: int) -> float:
    """The macro-F1 of the expected confusion entries of what was found."""
    m = len(ranking.labels)
    outcome = np.zeros((2, m))
    if method != "frank-wolfe":
        given = np.load(folder / "given.npy")
        step = 10_000
        for start in range(0, len(ranking), step):
            part = ranking[start : start + step]
            chosen = (part.ids[:, :, None] == given[start : start + step, None, :]).any(axis=2)
            chosen &= part.present
            ids, scores = part.ids[chosen], part.scores[chosen]
            outcome += np.bincount(ids, scores, m), np.bincount(ids, minlength=m)
    else:
        mixture = np.load(folder / "mixture.npz")
        shares = mixture["p"].astype(np.float64) / mixture["p"].sum(dtype=np.float64)
        for a, b, share in zip(mixture["a"], mixture["b"], shares, strict=True):
            rule = np.array([a, b], np.float32)
            outcome += share * rule_sums(ranking, ranking.scores, rule, k, -np.inf)
    positives = label_sums(ranking)[0]
    return float(metric_of("macro-f1")(*entries(outcome, positives, len(ranking))).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="a corpus with train and test")
    source.add_argument("--synthetic", type=int, nargs=2, metavar=("TEXTS", "LABELS"))
    parser.add_argument("--xcolumns", type=Path, help="an interpreter that has xCOLUMNs")
    parser.add_argument("--peer-passes", type=int, default=100, help="at most, of xCOLUMNs")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        method, m = args.alone
        print(json.dumps(run_ours(args.data, method, args.k, int(m))))
        return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.data:
            title, m = args.data.name, real(args.data, args.candidates, folder)
        else:
            n, m = args.synthetic
            title = "synthetic"
            synthetic(n, m, args.candidates, folder)
        ranking = load(folder, m)
        print(
            f"{title}: {len(ranking):,} texts, {m:,} labels, {ranking.k} candidates, k={args.k}\n"
        )
        print("| method | system | macro-F1 | passes | CPU s | peak MiB | above inputs MiB |")
        print("|---|---|---:|---:|---:|---:|---:|")
        systems_run = {"megalabel": [sys.executable, __file__, "--data", name]}
        if args.xcolumns:
            as_csr(folder, m)
            systems_run["xCOLUMNs"] = [str(args.xcolumns), "-c", XCOLUMNS, name]
        threads = {"MEGALABEL_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        for method in args.only:
            for system, command in systems_run.items():
                if method == "ascent-beside" and system == "xCOLUMNs":
                    continue  # its answer always is
                ours = ["--k", str(args.k), "--alone", method, str(m)]
                theirs = [method, str(args.k), str(m), str(args.peer_passes)]
                command = command + (ours if system == "megalabel" else theirs)
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, env=os.environ | threads
                )
                if done.returncode:
                    print(f"| {method} | {system} | failed: {done.stderr.splitlines()[-1:]} |")
                    continue
                row = json.loads(done.stdout.splitlines()[-1])
                value = objective(folder, ranking, method, args.k)
                print(
                    f"| {method} | {system} | {100 * value:.4f} | {row['passes'] or ''} "
                    f"| {row['seconds']:.2f} | {row['peak']:.0f} "
                    f"| {row['peak'] - row['before']:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
