"""auto within a budget, beside single systems and beside peers, on the same texts.

    python benchmarks/auto.py --data FOLDER --corpora NAME ... [--budget 600]
        [--ours auto knn dismec ...] [--peers FOLDER] [--envs FOLDER]
        [--which pecos:xrl32-ens3 omikuji:bonsai] [--results FILE]

DATA is a folder of corpora, each with a training and a test part; those without texts are left out.
Each system is a process of its own, one after another. Ours are given texts and time is that of
everything: features, training, calibration, saving. Peers are given the tf-idf of the same texts,
as `benchmarks/linear.py` describes, and their time is that of training and saving; rows without a
feature are left out for all. "annif" among --which is Annif's ensemble of three, from the texts
(annif_peer.py); its memory is the peak of its processes. Accuracy is in %, measured for all by
megalabel; peers that give fewer than ten labels a text have no nDCG@10. Memory is the most that
training took above what the process held with the corpus read, in MiB. "of budget" is the time of
auto against what it was given.

With --results every run is kept as a line of JSON, with the machine, the version and the command,
and one that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from linear import Result, launch, machine, ones, peak_memory, run_peer
from megalabel import store, systems
from megalabel.data import Corpus, LabelSet, Ranking, splits_of, write
from megalabel.features import Tfidf

OURS = ["auto", "knn", "dismec", "xr-linear", "bonsai"]
PEERS = ["pecos:xrl32-ens3", "omikuji:bonsai"]
K = 10
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "nDCG@10", "PSP@5")


def load(folder: Path) -> tuple[Corpus, Corpus, csr_matrix, csr_matrix] | None:
    """Both parts, without rows that have no feature, and their features; None: no texts."""
    train, test = megalabel.read(folder, "train"), megalabel.read(folder, "test")
    if train.texts is None:
        return None
    features = Tfidf(min_df=2)
    X, X_test = csr_matrix(features.fit_transform(train)), csr_matrix(features.transform(test))
    learned, judged = (np.flatnonzero(np.diff(part.indptr)) for part in (X, X_test))
    test = test.aligned(train.labels)
    return train[learned], test[judged], X[learned], X_test[judged]


def run_ours(args: argparse.Namespace) -> Result:
    """Train, save and ask one of our systems, in this process."""
    loaded = load(args.data)
    assert loaded is not None
    train, test, *_ = loaded
    del loaded, _
    megalabel.set_threads(args.threads)
    limits = {"budget": args.budget} if args.alone == "auto" else {}
    tagger = systems.create(args.alone, **limits)
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    begin = time.perf_counter(), time.process_time()
    tagger.fit(train)
    tagger.save(args.work / "model")
    result: Result = {
        "seconds": time.perf_counter() - begin[0],
        "CPU": time.process_time() - begin[1],
        "peak": peak_memory(),
        "model": store.folder_bytes(args.work / "model") / 2**20,
        "race": tagger.provenance_.get("race"),
        "mix": tagger.provenance_.get("mix"),
    }
    ranking = megalabel.load(args.work / "model").rank(test, K)
    np.save(args.work / "top.npy", np.where(ranking.present, ranking.ids, -1))
    return result


def accuracy(file: Path, truth: csr_matrix, counts: np.ndarray, n: int) -> Result:
    """How good the saved labels are, -1 standing for none; the same measure for everyone."""
    top = np.load(file)
    width = truth.shape[1]
    ids = np.where(top < 0, width, top)
    scores = np.where(top < 0, -np.inf, -np.arange(top.shape[1]))
    ranking = Ranking(ids, scores, LabelSet.numbered(width))
    values = megalabel.evaluate(ranking, truth, train_labels=(counts, n), k=(1, 3, 5, 10))
    shown = [name for name in SHOWN if not name.endswith("@10") or top.shape[1] >= 10]
    return {name: 100 * values[name] for name in shown}


def measure(system: str, folder: Path, files: Path, args: argparse.Namespace) -> Result:
    """One run of a system or a peer in its own process, without its accuracy."""
    if ":" in system:
        found = run_peer(system, files, args.work, args)
        names = {"train": "seconds", "train CPU": "CPU", "memory": "memory", "model": "model"}
        return found if "reason" in found else {new: found[old] for old, new in names.items()}
    script = Path(__file__).resolve()
    if system == "annif":
        annif = script.with_name("annif_peer.py")
        python = (args.envs / "annif" / "bin" / "python").absolute()
        return launch([python, annif, files, args.work], args, cwd=script.parent)
    command = [sys.executable, script, "--data", folder.resolve(), "--alone", system]
    command += ["--work", args.work, "--threads", args.threads, "--budget", args.budget]
    found = launch(command, args, cwd=script.parent)
    if "held" in found:
        found["memory"] = found.pop("peak") - found.pop("held")
    return found


def write_for_annif(train: Corpus, test: Corpus, files: Path) -> None:
    """A vocabulary and both parts as Annif reads them; labels are numbers, as for other peers."""

    def plain(text: str) -> str:
        return " ".join(text.split()).replace('"', "'")

    def uri(label: int) -> str:
        return f"<http://labels.example/{label}>"

    names = train.labels.names.to_pylist()
    vocabulary = (f"{uri(i)}\t{plain(n) or i}\n" for i, n in enumerate(names))
    (files / "vocabulary.tsv").write_text("".join(vocabulary))
    for part, name in ((train, "train"), (test, "test")):
        assert part.texts is not None
        labels = np.split(part.targets.indices, part.targets.indptr[1:-1])
        lines = (
            f"{plain(text)}\t{' '.join(map(uri, own))}\n"
            for text, own in zip(part.texts.to_pylist(), labels, strict=True)
        )
        (files / f"{name}.tsv").write_text("".join(lines))


def compare(args: argparse.Namespace, folder: Path, kept: dict[str, Result]) -> None:
    """Measure all systems on a corpus, unless that is kept, and print the table."""
    loaded = load(folder)
    if loaded is None:
        print(f"{folder.name}: no texts\n", flush=True)
        return
    train, test, X, X_test = loaded
    learned, truth = ones(train.targets), ones(test.targets)
    counts, n = np.bincount(learned.indices, minlength=truth.shape[1]), len(train)
    rows: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as name:
        files = Path(name)
        which = args.which if args.peers else []
        if which:
            write(Corpus(features=X, targets=learned), files / "train.txt")
            write(Corpus(features=X_test, targets=truth), files / "test.txt")
        if "annif" in which:
            write_for_annif(train, test, files)
        for system in (*args.ours, *which):
            given = args.budget if system == "auto" else None
            key = json.dumps((folder.name, system, given, args.threads))
            if key not in kept:
                print(f"{system} ...", file=sys.stderr, flush=True)
                about = {"machine": machine(), "version": megalabel.__version__}
                with tempfile.TemporaryDirectory(dir=files) as own:
                    args.work = Path(own)
                    result = measure(system, folder, files, args)
                    if "reason" not in result:
                        result |= accuracy(args.work / "top.npy", truth, counts, n)
                kept[key] = result
                if args.results is not None:
                    line = {
                        "run": json.loads(key),
                        **about,
                        "command": [Path(word).name for word in sys.argv],
                    }
                    with args.results.open("a") as out:
                        out.write(json.dumps(line | {"result": result}) + "\n")
            rows[system] = kept[key]
    print(f"{folder.name}: {n:,} + {len(test):,} texts, {len(train.labels):,} labels; {machine()}")
    print_table(rows, args.budget)


def print_table(rows: dict[str, Result], budget: float) -> None:
    columns = ["system", *SHOWN, "seconds (CPU)", "of budget", "memory MiB", "model MiB", "what"]
    print("\n| " + " | ".join(columns) + " |\n|---|" + "---:|" * (len(columns) - 1))
    for system, row in rows.items():
        cells: list[Any] = [row.get("reason", "").replace("|", "\\|")]
        if "reason" not in row:
            cells = [f"{row[name]:.2f}" if name in row else "" for name in SHOWN]
            cells += [f"{row['seconds']:.1f} ({row['CPU']:.1f})"]
            cells += [f"{row['seconds'] / budget:.2f}" if system == "auto" else ""]
            cells += [f"{row['memory']:.0f}", f"{row['model']:.1f}"]
            cells += [(row.get("race") or {}).get("winner", "").replace("|", "\\|")]
        print(f"| {system} | " + " | ".join(cells) + " |")
    print(flush=True)


def print_summary(kept: dict[str, Result], budget: float) -> None:
    """One line a corpus of all runs kept."""
    runs: dict[str, dict[str, Result]] = {}
    for key, result in kept.items():
        corpus, system, given, _ = json.loads(key)
        if given in (None, budget) and "reason" not in result:
            runs.setdefault(corpus, {})[system] = result
    peers = [name for name in (*PEERS, "annif") if any(name in row for row in runs.values())]
    columns = [f"auto, {budget:.0f} s", "best system of ours", *peers, "seconds of auto"]
    print(f"| corpus | {' | '.join(columns)} |\n|---|" + "---:|" * len(columns))
    for corpus, row in sorted(runs.items()):
        singles = {name: row[name] for name in OURS if name in row and name != "auto"}
        best = max(singles, key=lambda name: singles[name]["P@5"], default="")
        cells = [_figures(row.get("auto")), f"{_figures(singles.get(best))} ({best})"]
        cells += [_figures(row.get(name)) for name in peers]
        cells += [f"{row['auto']['seconds']:.0f}" if "auto" in row else ""]
        print(f"| {corpus} | {' | '.join(cells)} |")


def _figures(result: Result | None) -> str:
    names = ("P@1", "P@3", "P@5", "nDCG@10", "PSP@5")
    return (
        " / ".join(f"{result[name]:.2f}" if name in result else "-" for name in names)
        if result
        else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="a folder of corpora")
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="all of them by default")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds, for auto")
    parser.add_argument("--ours", nargs="*", default=OURS)
    parser.add_argument("--peers", type=Path, help="folder of run_NAME.py; without it, ours alone")
    parser.add_argument("--envs", type=Path, default=Path(".peers"), help="NAME/bin/python in it")
    parser.add_argument("--which", nargs="*", metavar="NAME:VARIANT", default=PEERS)
    parser.add_argument("--results", type=Path, help="a file to keep runs in")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=7200, help="seconds for a process")
    parser.add_argument("--summary", action="store_true", help="only show what is kept")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(run_ours(args)))
        return
    kept: dict[str, Result] = {}
    if args.results is not None and args.results.exists():
        for line in map(json.loads, args.results.read_text().splitlines()):
            kept[json.dumps(line["run"])] = line["result"]
    if args.summary:
        print_summary(kept, args.budget)
        return
    folders = [folder for folder in args.data.iterdir() if folder.is_dir()]
    found = sorted(one.name for one in folders if {"train", "test"} <= set(splits_of(one)))
    for name in args.corpora or found:
        compare(args, args.data / name, kept)


if __name__ == "__main__":
    main()
