"""One text at a time, from the string to its five best labels: megalabel beside its peers.

    python benchmarks/latency.py --data FOLDER [--envs FOLDER] [--queries 2000] [--trees 1 3]

Each system is a process of its own that trains on the texts (two threads), saves and loads its
model, and answers the test part's first texts one by one on one thread, its own tf-idf included:
megalabel's `xr-linear` through `Tagger.rank`, PECOS's XR-Linear with PECOS's vectorizer, napkinXC's
PLT with scikit-learn's, which it is used with. Words in two texts at least, sublinear counts, for
all. ENVS/NAME/bin/python is the interpreter with a peer (and scikit-learn for napkinXC) installed.

Milliseconds; of three rounds through the queries, the one with the median p99. The classifier's
share is what is left without the tf-idf. --trees are the numbers of trees of `xr-linear`, a row
each.
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


def ours(work: Path, trees: int) -> dict[str, Any]:
    """Train xr-linear, and ask it."""
    from latency_peers import asked

    corpus = megalabel.read(work / "corpus.jsonl")
    megalabel.set_threads(2)
    tagger = systems.create("xr-linear", trees=trees, min_df=2, calibrate=False).fit(corpus)
    tagger.save(path := work / f"{trees}-trees")
    tagger = megalabel.load(path)
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
    parser.add_argument("--trees", type=int, nargs="+", default=[1], help="rows of megalabel")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(ours(args.alone, *args.trees)))
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
        alone = [sys.executable, here / "latency.py", "--alone", work, "--trees"]
        commands = {f"megalabel, trees={count}": [*alone, count] for count in args.trees}
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
    names = ["text to labels p50 / p99 ms", "classifier alone p50 / p99 ms"]
    print(f"| system | {' | against the first row | '.join(names)} | against the first row |")
    print("|---|---:|---:|---:|---:|")
    for system, row in rows.items():
        cells = [system]
        for part in ("whole", "classifier"):
            first = next(iter(rows.values()))[part]
            cells.append(" / ".join(f"{time:.3f}" for time in row[part]))
            ratios = zip(row[part], first, strict=True)
            cells.append(" / ".join(f"{time / base:.1f}x" for time, base in ratios))
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
