"""Linear classifiers, one-versus-all and along label trees: megalabel beside its peers.

    python benchmarks/linear.py --data FOLDER ... [--peers FOLDER] [--envs FOLDER]
        [--ours dismec xr-linear ...] [--which pecos:xrl omikuji:collapse ...] [--runs 1]
        [--labels 0.05] [--texts 100000] [--results FILE]

Each system is a process of its own, one after another, on the same features of a corpus: the
tf-idf of its texts with min_df=2, or the features it comes with, in rows of unit length. Rows
without a feature are left out of both parts, as some peers refuse them. With several runs the
systems take turns and medians are shown. With several corpora the last table has the sum of CPU
seconds and the mean accuracy over those that all systems could do. --labels takes a share of the
labels, at random, and all rows: enough to compare one-versus-all, whose labels are each on their
own, where all labels would take hours. --texts takes at most so many training rows, at random.
With --results every run is kept as a line of JSON, and one that is there is not run again; the
first line says on what machine, with what version and by what command, paths by their last part.

PEERS is a folder of scripts `run_NAME.py --variant V` which train a peer on files in XC's text
format and print what they measured as a line of JSON; ENVS/NAME/bin/python is the interpreter with
that peer installed. A peer that is not there, or fails, is a row that says why.

Training is timed with the saving of the model, for all of them; CPU seconds are those of all
threads. Prediction is of the five best labels on one thread (of two ways that a peer offers, the
faster). One query at a time is asked of megalabel alone, its tf-idf included where there are texts.
Memory is the most that training took above what the process held with the corpus loaded. Where
a system copies the corpus for training, the copy counts: omikuji reads its own from the file, and
the scripts may make rows of unit length. Model and memory are in MiB, accuracy in %, measured for
all by megalabel.

The last column holds the CPU seconds of training against those of the fastest peer, and of the
fastest among the peers that are at most 0.2 behind in each of P@1, P@3, P@5 and PSP@5.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel import store, systems
from megalabel.data import Corpus, LabelSet, Ranking, write
from megalabel.features import Precomputed, Tfidf

OURS: dict[str, tuple[str, dict[str, Any]]] = {  # the classifiers of named systems
    "dismec": ("dismec", {}),
    "dismec, cost 1": ("dismec", {"cost": 1.0}),
    "ova-logistic": ("ova-logistic", {}),
    "xr-linear": ("xr-linear", {}),
    "xr-linear, 1 tree": ("xr-linear", {"trees": 1}),
    "xr-linear, 2 trees": ("xr-linear", {"trees": 2}),
    "xr-linear, 3 trees": ("xr-linear", {"trees": 3}),
    "xr-linear, 4 trees": ("xr-linear", {"trees": 4}),
    "xr-linear, matcher": ("xr-linear", {"trees": 1, "negatives": "teacher+matcher"}),
    "parabel": ("parabel", {}),
    "bonsai": ("bonsai", {}),
    "bonsai, leaves of 800": ("bonsai", {"trees": 3, "max_leaf": 800}),
    "bonsai, 1 tree": ("bonsai", {"trees": 1}),
    "bonsai, 1 tree, float16": ("bonsai", {"trees": 1, "classifier__precision": "float16"}),
    "bonsai, 1 tree, int8": ("bonsai", {"trees": 1, "classifier__precision": "int8"}),
    "plt": ("plt", {}),
}
PEERS = ["pecos:xrl", "omikuji:parabel", "omikuji:bonsai", "omikuji:collapse", "napkinxc:plt"]

K = 5
SINGLE_QUERIES = 500
ACCURACY = ("P@1", "P@3", "P@5", "PSP@5")
REACHED = 0.2  # per cent

# Runs a script in any interpreter. When the script forgets its peak of memory, which it does once
# the corpus is loaded, what it holds is printed; memory that loading left free, and that training
# would otherwise take unseen, is given back first.
WATCHED = """
import ctypes, gc, json, re, runpy, sys

def watch(event, arguments, seen=[]):
    if event == "open" and arguments[0] == "/proc/self/clear_refs" and not seen:
        seen.append(event)
        gc.collect()
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        with open("/proc/self/status") as status:
            held = int(re.search(r"VmRSS:\\s*(\\d+)", status.read())[1]) / 1024
        print(json.dumps({"held": held}), flush=True)

sys.addaudithook(watch)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

Result = dict[str, Any]  # of one run: figures by name, or the reason why there are none


@dataclass
class Data:
    """Features and labels of both parts, and the test part's rows as queries come."""

    X: csr_matrix
    Y: csr_matrix
    X_test: csr_matrix
    Y_test: csr_matrix
    queries: list[Any]
    vector_of: Callable[[Any], csr_matrix]


def load(folder: Path, share: float, most: int | None) -> Data:
    """The corpus as every system gets it, with a share of its labels and at most so many texts."""
    train, test = megalabel.read(folder, "train"), megalabel.read(folder, "test")
    if most is not None and most < len(train):
        train = train[np.sort(np.random.default_rng(0).permutation(len(train))[:most])]
    texts = test.texts if train.features is None else None
    features = Precomputed() if texts is None else Tfidf(min_df=2)
    X, X_test = csr_matrix(features.fit_transform(train)), csr_matrix(features.transform(test))
    if texts is None:
        queries = [X_test[i] for i in range(min(SINGLE_QUERIES, X_test.shape[0]))]
    else:
        queries = texts[:SINGLE_QUERIES].to_pylist()
    Y, Y_test = ones(train.targets), ones(test.aligned(train.labels).targets)
    learned, judged = (np.flatnonzero(np.diff(part.indptr)) for part in (X, X_test))
    X, Y, X_test, Y_test = X[learned], Y[learned], X_test[judged], Y_test[judged]
    if share < 1:
        order = np.random.default_rng(0).permutation(Y.shape[1])
        kept = np.sort(order[: round(share * len(order))])
        Y, Y_test = csr_matrix(Y[:, kept]), csr_matrix(Y_test[:, kept])
    return Data(
        X,
        Y,
        X_test,
        Y_test,
        queries,
        (lambda row: row) if texts is None else (lambda text: features.transform([text])),
    )


def ones(targets: csr_matrix) -> csr_matrix:
    """Labels without their relevances, which the peers do not know."""
    kept = csr_matrix(targets > 0, dtype=np.float32)
    kept.sort_indices()
    return kept


def run_ours(args: argparse.Namespace) -> Result:
    """Train, save, load and ask one of our classifiers, in this process."""
    data, work = load(args.data[0], args.labels, args.texts), args.work
    megalabel.set_threads(args.threads)
    system, parameters = OURS[args.alone]
    classifier = systems.create(system, **parameters).classifier
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    begin = time.perf_counter(), time.process_time()
    classifier.fit(data.X, data.Y)
    store.save(classifier, work / "model")
    result: Result = {
        "train": time.perf_counter() - begin[0],
        "train CPU": time.process_time() - begin[1],
        "peak": peak_memory(),
        "model": sum(f.stat().st_size for f in (work / "model").rglob("*")) / 2**20,
    }
    classifier = store.load(work / "model")
    classifier.rank(data.X_test, K)  # so that the model has been read from the disk
    megalabel.set_threads(1)
    before = time.perf_counter()
    ranking = classifier.rank(data.X_test, K)
    result["predict"] = (time.perf_counter() - before) / len(ranking) * 1000
    seconds = []
    for query in data.queries:
        before = time.perf_counter()
        classifier.rank(data.vector_of(query), K)
        seconds.append(time.perf_counter() - before)
    result["p50"], result["p99"] = (1000 * np.quantile(seconds, (0.5, 0.99))).tolist()
    np.save(work / "top.npy", np.where(ranking.present, ranking.ids, -1))
    return result


def run_peer(system: str, corpus: Path, work: Path, args: argparse.Namespace) -> Result:
    """Train and ask a peer by its script, in its environment."""
    peer, variant = system.split(":")
    # not resolved: an environment's interpreter is a link that must stay one
    python = (args.envs / peer / "bin" / "python").absolute()
    script = args.peers.resolve() / f"run_{peer}.py"
    if not python.exists():
        return {"reason": f"not installed: there is no {peer}/bin/python"}
    if not script.exists():
        return {"reason": f"there is no {script.name}"}
    command = [python, script.name, "--variant", variant, "--threads", args.threads]
    command += ["--train", corpus / "train.txt", "--test", corpus / "test.txt"]
    command += ["--model-dir", work / "model", "--save-top", work / "top.npy"]
    said = launch(command, args, cwd=script.parent)
    if "reason" in said:
        return said
    ways = [said.get(f"predict{raw}_1t_s_per_1000") for raw in ("", "_raw")]
    return {
        "train": said["train_s"],
        "train CPU": said["train_cpu_s"],
        "memory": said["rss_train_mb"] - said["held"],
        "model": said["model_mb"],
        "predict": min(way for way in ways if way is not None),
    }


def launch(command: list[Any], args: argparse.Namespace, cwd: Path | None = None) -> Result:
    """Runs `python script arguments`: all that it prints as JSON, or the reason why it failed."""
    python, *rest = map(str, command)
    environment = {
        "OMP_NUM_THREADS": str(args.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        # what reading has used is given back before training, not during it
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    try:
        done = subprocess.run(
            [python, "-c", WATCHED, *rest],
            cwd=cwd,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=args.limit,
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"stopped after {args.limit} s"}
    if done.returncode < 0:
        return {"reason": f"ended by signal {-done.returncode}"}
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not said:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        return {"reason": f"refused: {last[:120]}"}
    return {name: value for line in said for name, value in line.items()}


def peak_memory() -> float:
    """MiB that this process has held at most since it forgot its peak."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def accuracy(file: Path, truth: csr_matrix, counts: np.ndarray, n: int) -> Result:
    """How good the saved labels are, -1 standing for none; the same measure for everyone."""
    top = np.load(file)
    width = truth.shape[1]
    ids = np.where(top < 0, width, top)
    scores = np.where(top < 0, -np.inf, -np.arange(top.shape[1]))
    ranking = Ranking(ids, scores, LabelSet.numbered(width))
    values = megalabel.evaluate(ranking, truth, train_labels=(counts, n), k=(1, 3, 5))
    return {name: 100 * values[name] for name in ACCURACY}


def together(runs: list[Result]) -> Result:
    """The medians of several runs; the reason of the first that failed, if one did."""
    failed = [run for run in runs if "reason" in run]
    return failed[0] if failed else {k: statistics.median(r[k] for r in runs) for k in runs[0]}


def times_faster(ours: Result, peers: list[Result]) -> str:
    """CPU seconds of the fastest peer, and of the fastest that is as good, against ours."""
    good = [peer for peer in peers if all(peer[k] >= ours[k] - REACHED for k in ACCURACY)]
    fastest = [min((peer["train CPU"] for peer in some), default=None) for some in (peers, good)]
    return " / ".join("–" if s is None else f"{s / ours['train CPU']:.1f}" for s in fastest)


def print_table(ours: dict[str, Result], peers: dict[str, Result]) -> None:
    columns = ["system", "train s (CPU s)", "predict s per 1,000", "one query p50 / p99 ms"]
    columns += ["memory MiB", "model MiB", "P@1 / 3 / 5", "PSP@5"]
    columns += ["times faster than the fastest peer / the fastest as good"]
    print("| " + " | ".join(columns) + " |\n|---|" + "---:|" * (len(columns) - 1))
    measured = [row for row in peers.values() if "reason" not in row]
    for system, row in (ours | peers).items():
        if "reason" in row:
            cells = [row["reason"].replace("|", "\\|")] + [""] * (len(columns) - 2)
        else:
            cells = [
                f"{row['train']:.2f} ({row['train CPU']:.2f})",
                f"{row['predict']:.4f}",
                f"{row['p50']:.3f} / {row['p99']:.3f}" if "p50" in row else "",
                f"{row['memory']:.0f}",
                f"{row['model']:.1f}",
                " / ".join(f"{row[k]:.2f}" for k in ACCURACY[:3]),
                f"{row['PSP@5']:.2f}",
                times_faster(row, measured) if system in ours and measured else "",
            ]
        print(f"| {system} | " + " | ".join(cells) + " |")


def print_sum(ours: list[str], rows: dict[str, dict[str, Result]]) -> None:
    """All corpora that every system could do: sums, means, and how far ours are below a peer."""
    done = {name: by for name, by in rows.items() if not any("reason" in r for r in by.values())}
    print(f"\nall of {', '.join(done)}\n")
    columns = ["system", "CPU s, sum", "model MiB, sum", "P@1 / 3 / 5, mean", "PSP@5, mean"]
    columns += ["least of its P@1 / 3 / 5 less a peer's"]
    print("| " + " | ".join(columns) + " |\n|---|" + "---:|" * (len(columns) - 1))
    for system in next(iter(done.values()), {}):
        every = [by[system] for by in done.values()]
        seconds, size = (sum(row[name] for row in every) for name in ("train CPU", "model"))
        *precisions, scored = (statistics.mean(row[name] for row in every) for name in ACCURACY)
        shown = " / ".join(f"{value:.2f}" for value in precisions)
        below = [
            (by[system][measure] - row[measure], f"{measure}, {name}, {peer}")
            for name, by in done.items()
            for peer, row in by.items()
            for measure in ACCURACY[:3]
            if system in ours and peer not in ours
        ]
        lowest = "{:+.2f} ({})".format(*min(below)) if below else ""
        print(f"| {system} | {seconds:.1f} | {size:.1f} | {shown} | {scored:.2f} | {lowest} |")


def machine() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return (
        f"{found[1] if found else platform.machine()}, {len(os.sched_getaffinity(0))} cores, load "
        f"{os.getloadavg()[0]:.1f} at the start; Python {platform.python_version()}, megalabel "
        f"{megalabel.__version__}; {datetime.date.today()}"
    )


def compare(
    args: argparse.Namespace, folder: Path, which: list[str], kept: dict[str, Result]
) -> dict[str, Result]:
    """Measure ours and some peers on one corpus, unless it is kept, and print the table."""
    about = machine()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        data = load(folder, args.labels, args.texts)
        if which:
            write(Corpus(features=data.X, targets=data.Y), work / "train.txt")
            write(Corpus(features=data.X_test, targets=data.Y_test), work / "test.txt")
        truth, n = data.Y_test, data.Y.shape[0]
        counts = np.bincount(data.Y.indices, minlength=truth.shape[1])
        about = (
            f"{folder.resolve().name}: {n:,} + {truth.shape[0]:,} rows, {data.X.shape[1]:,} "
            f"features, {truth.shape[1]:,} labels; {args.threads} threads; {about}"
        )
        del data

        def measure(system: str, place: Path) -> Result:
            if system in OURS:
                command = [sys.executable, Path(__file__).resolve(), "--data", folder]
                command += ["--alone", system, "--work", place, "--threads", args.threads]
                command += ["--labels", args.labels]
                command += ["--texts", args.texts] if args.texts is not None else []
                result = launch(command, args)
                if "held" in result:
                    result["memory"] = result.pop("peak") - result.pop("held")
            else:
                result = run_peer(system, work, place, args)
            if "reason" in result:
                return result
            return result | accuracy(place / "top.npy", truth, counts, n)

        def run(system: str, number: int) -> Result:
            parts = (folder.resolve().name, args.texts, args.labels, args.threads, system, number)
            key = json.dumps(parts)
            if key not in kept:
                print(f"{system} ...", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory(dir=work) as own:
                    try:
                        kept[key] = measure(system, Path(own))
                    except (KeyError, OSError, ValueError) as error:  # one peer must not end all
                        kept[key] = {"reason": f"its answer cannot be used: {error!r}"}
                if args.results is not None:
                    with args.results.open("a") as out:
                        out.write(json.dumps({"run": parts, "result": kept[key]}) + "\n")
            return kept[key]

        runs: dict[str, list[Result]] = {system: [] for system in (*args.ours, *which)}
        for number in range(args.runs):
            for system, results in runs.items():
                results.append(run(system, number))
    rows = {system: together(results) for system, results in runs.items()}
    print(about + "\n")
    print_table({s: rows[s] for s in args.ours}, {s: rows[s] for s in which})
    print(flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="corpora with train and test"
    )
    parser.add_argument("--peers", type=Path, help="folder of run_NAME.py; without it, ours alone")
    parser.add_argument("--envs", type=Path, default=Path(".peers"), help="NAME/bin/python in it")
    parser.add_argument("--ours", nargs="*", choices=[*OURS], default=[*OURS])
    parser.add_argument("--which", nargs="*", metavar="NAME:VARIANT", default=PEERS)
    parser.add_argument("--labels", type=float, default=1.0, help="a share of them")
    parser.add_argument("--texts", type=int, help="at most so many for training")
    parser.add_argument("--results", type=Path, help="a file to keep runs in")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=3600, help="seconds for a process")
    parser.add_argument("--alone", choices=[*OURS], help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(run_ours(args)))
        return
    which = args.which if args.peers else []
    if odd := [peer for peer in which if not re.fullmatch(r"[\w-]+:[\w-]+", peer)]:
        parser.error(f"--which takes NAME:VARIANT, not {odd[0]!r}")
    kept: dict[str, Result] = {}
    if args.results is not None and args.results.exists():
        _, *lines = map(json.loads, args.results.read_text().splitlines())
        kept = {json.dumps(line["run"]): line["result"] for line in lines}
    elif args.results is not None:
        words = [Path(word).name if Path(word).exists() else word for word in sys.argv]
        about = {"machine": machine(), "version": megalabel.__version__, "command": words}
        args.results.write_text(json.dumps(about) + "\n")
    rows = {folder.resolve().name: compare(args, folder, which, kept) for folder in args.data}
    if len(rows) > 1:
        print_sum(args.ours, rows)


if __name__ == "__main__":
    main()
