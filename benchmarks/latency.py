"""One text at a time, from the string to its five best labels: megalabel beside its peers.

    python benchmarks/latency.py --data FOLDER [--envs FOLDER] [--queries 2000]

Each system is a process of its own that trains on the texts (two threads), saves and loads its
model, and answers the test part's first texts one by one on one thread, its own tf-idf included:
megalabel's `xr-linear` through `Tagger.rank`, PECOS's XR-Linear with PECOS's vectorizer, napkinXC's
PLT with scikit-learn's, which it is used with. Words in two texts at least, sublinear counts, for
all. ENVS/NAME/bin/python is the interpreter with a peer (and scikit-learn for napkinXC) installed.

Milliseconds; of three rounds through the queries, the one with the median p99. The classifier's
share is what is left without the tf-idf.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, save_npz

import megalabel
from megalabel import systems

K = 5


def ours(work: Path) -> dict[str, Any]:
    """Train one tree of xr-linear, and ask it."""
    from latency_peers import asked

    corpus = megalabel.read(work / "corpus.jsonl")
    megalabel.set_threads(2)
    tagger = systems.create("xr-linear", trees=1, min_df=2, calibrate=False).fit(corpus)
    tagger.save(work / "model")
    tagger = megalabel.load(work / "model")
    megalabel.set_threads(1)
    queries = json.loads((work / "queries.json").read_text())
    features, classifier = tagger.features_, tagger.classifier_
    vectors = [csr_matrix(features.transform([text])) for text in queries]
    return {
        "whole": asked(lambda text: tagger.rank([text], k=K), queries),
        "classifier": asked(lambda row: classifier.rank(row, K), vectors),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a corpus of texts with train and test")
    parser.add_argument("--envs", type=Path, default=Path(".peers"), help="NAME/bin/python in it")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(ours(args.alone)))
        return
    train, test = megalabel.read(args.data, "train"), megalabel.read(args.data, "test")
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        megalabel.data.write(train, work / "corpus.jsonl")
        (work / "texts.json").write_text(json.dumps(train.texts.to_pylist()))
        (work / "queries.json").write_text(json.dumps(test.texts[: args.queries].to_pylist()))
        save_npz(work / "Y.npz", csr_matrix(train.targets > 0, dtype=np.float32))
        here = Path(__file__).resolve().parent
        commands = {"megalabel": [sys.executable, here / "latency.py", "--alone", work]}
        for peer in ("pecos", "napkinxc"):
            python = (args.envs / peer / "bin" / "python").absolute()
            if python.exists():
                commands[peer] = [python, here / "latency_peers.py", peer, work]
            else:
                print(f"{peer} is not installed", file=sys.stderr)
        for system, command in commands.items():
            print(f"{system} ...", file=sys.stderr, flush=True)
            done = subprocess.run(
                [*map(str, command)],
                capture_output=True,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "2"},
            )
            if done.returncode:
                print(f"{system} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
                continue
            rows[system] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{args.data.resolve().name}: {len(train):,} texts, load {os.getloadavg()[0]:.1f}\n")
    print("| system | p50 ms | p99 ms | classifier alone p50 / p99 ms | p99 against ours |")
    print("|---|---:|---:|---:|---:|")
    for system, row in rows.items():
        (p50, p99), alone = row["whole"], row["classifier"]
        ratio = p99 / rows["megalabel"]["whole"][1] if "megalabel" in rows else float("nan")
        cells = [f"{p50:.3f}", f"{p99:.3f}", f"{alone[0]:.3f} / {alone[1]:.3f}", f"{ratio:.1f}x"]
        print(f"| {system} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
