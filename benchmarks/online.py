"""Online label trees: megalabel's beside napkinXC's, on a stream of texts.

    python benchmarks/online.py --data FOLDER [--napkinxc ENV/bin/python] [--only WORD]

Each system is a process of its own, one after another, on the same features: the tf-idf of the
texts with min_df=2, or the features that the corpus comes with, in rows of unit length. "stream"
learns the first texts, and then the others in parts of equal size by partial_fit, each text once;
"fit" has them all. napkinXC (--napkinxc: an interpreter that has it) takes all texts at once and
goes through them one by one, its tree growing by `onlineBestScore` or `onlineRandom`.

Training is timed with the saving of the model; CPU seconds are those of all threads. Prediction is
of the five best labels on one thread. The model of an online tree holds what it takes to go on
learning; "to search" is the part that is read for answers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz

import megalabel
from megalabel import store
from megalabel.data import LabelSet
from megalabel.features import Precomputed, Tfidf
from megalabel.linear import OnlineTree, TreeClassifier

K = 5
PLT: dict[str, Any] = {"loss": "logistic", "post": "sigmoid", "exact": True, "cost": 10.0}
OURS = {
    "online-plt, stream": OnlineTree(passes=1),
    "online-plt, fit, 1 pass": OnlineTree(passes=1),
    "online-plt, fit, 3 passes": OnlineTree(passes=3),
    "plt, fit in one go": TreeClassifier(**PLT),
}
THEIRS = {f"napkinXC, {tree}, 1 pass": (tree, 1) for tree in ("onlineBestScore", "onlineRandom")}

# Run by napkinXC's interpreter: folder, tree type, passes, threads.
NAPKINXC = """
import json, os, sys, time
import numpy as np
from napkinxc.models import Model
from scipy.sparse import load_npz

folder, tree, passes, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
X, Y, Z = (load_npz(f"{folder}/{name}.npz") for name in ("X", "Y", "Z"))
Y = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr, Y.indptr[1:])]
kept = {"model": "oplt", "tree_type": tree, "loss": "log", "optimizer": "adagrad", "seed": 1}
kept |= {"output": f"{folder}/model", "epochs": passes}
model = Model(threads=threads, **kept)
begin = time.perf_counter(), time.process_time()
model.fit(X, Y)
said = {"train": time.perf_counter() - begin[0], "train CPU": time.process_time() - begin[1]}
del model
model = Model(threads=1, **kept)
model.load()
model.predict_proba(Z[:10], top_k=5)
begin = time.perf_counter()
found = model.predict_proba(Z, top_k=5)
said["predict"] = (time.perf_counter() - begin) / Z.shape[0] * 1000
files = [os.path.join(p, f) for p, _, names in os.walk(f"{folder}/model") for f in names]
said["model"] = sum(map(os.path.getsize, files)) / 2**20
top = np.full((Z.shape[0], 5), -1)
for i, row in enumerate(found):
    top[i, : len(row)] = [label for label, _ in row]
np.save(f"{folder}/top.npy", top)
print(json.dumps(said))
"""


def prepare(corpus: Path, folder: Path) -> csr_matrix:
    """Features and labels as files for every system; the labels of the test part."""
    train, test = megalabel.read(corpus, "train"), megalabel.read(corpus, "test")
    features = Precomputed() if train.features is not None else Tfidf(min_df=2)
    save_npz(folder / "X.npz", csr_matrix(features.fit_transform(train)), compressed=False)
    save_npz(folder / "Z.npz", csr_matrix(features.transform(test)), compressed=False)
    save_npz(folder / "Y.npz", train.targets, compressed=False)
    return test.aligned(train.labels).targets


def run_ours(name: str, folder: Path, parts: int, first: int, threads: int) -> dict[str, float]:
    """Train, save, load and ask one of ours, in this process."""
    X, Y, Z = (load_npz(folder / f"{part}.npz") for part in ("X", "Y", "Z"))
    megalabel.set_threads(threads)
    classifier = OURS[name]
    begin = time.perf_counter(), time.process_time()
    if name.endswith("stream"):
        cuts = [0, *np.linspace(min(first, X.shape[0]), X.shape[0], parts).astype(int)]
        for start, end in pairwise(cuts):
            classifier.partial_fit(X[start:end], Y[start:end], LabelSet.numbered(Y.shape[1]))
    else:
        classifier.fit(X, Y)
    store.save(classifier, folder / "model")
    said = {"train": time.perf_counter() - begin[0], "train CPU": time.process_time() - begin[1]}
    said["model"] = sum(f.stat().st_size for f in (folder / "model").rglob("*")) / 2**20
    levels = classifier.levels_ if isinstance(classifier, OnlineTree) else classifier.levels_[0]
    arrays = [a for level in levels for a in level.learned().values() if isinstance(a, np.ndarray)]
    said["to search"] = sum(a.nbytes for a in arrays) / 2**20
    classifier = store.load(folder / "model")
    megalabel.set_threads(1)
    classifier.rank(Z, K)  # so that the model has been read from the disk
    before = time.perf_counter()
    ranking = classifier.rank(Z, K)
    said["predict"] = (time.perf_counter() - before) / len(ranking) * 1000
    np.save(folder / "top.npy", np.where(ranking.present, ranking.ids, -1))
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a corpus with train and test")
    parser.add_argument("--napkinxc", type=Path, help="an interpreter that has napkinXC")
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--first", type=int, default=1000, help="texts of the first part")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="systems with this word in their names")
    parser.add_argument("--alone", choices=[*OURS], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        said = run_ours(args.alone, args.data, args.parts, args.first, args.threads)
        print(json.dumps(said))
        return
    print(
        "| system | train s (CPU s) | predict s per 1,000 | model MiB (to search) | P@1 / 3 / 5 |"
    )
    print("|---|" + "---:|" * 4)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = prepare(args.data, folder)
        for system in (*OURS, *(THEIRS if args.napkinxc else ())):
            if args.only not in system:
                continue
            if system in OURS:
                command = [sys.executable, __file__, "--data", folder, "--alone", system]
                command += ["--parts", args.parts, "--first", args.first]
                command += ["--threads", args.threads]
            else:
                command = [args.napkinxc, "-c", NAPKINXC, folder, *THEIRS[system], args.threads]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode:
                reason = (done.stderr.strip() or "it said nothing").splitlines()[-1]
                print(f"| {system} | {reason[:100]} | | | |")
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            top = np.load(folder / "top.npy")
            hits = np.array([np.isin(found, truth[i].indices) for i, found in enumerate(top)])
            accuracy = " / ".join(f"{100 * hits[:, :k].mean():.2f}" for k in (1, 3, 5))
            searched = f" ({row['to search']:.0f})" if "to search" in row else ""
            print(
                f"| {system} | {row['train']:.1f} ({row['train CPU']:.1f}) | {row['predict']:.3f} "
                f"| {row['model']:.0f}{searched} | {accuracy} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
