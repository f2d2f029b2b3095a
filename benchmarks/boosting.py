"""Re-ranks label candidates by boosted trees, beside LightGBM with the same parameters.

    python benchmarks/boosting.py --data DATA/gutenberg-lcsh [--lightgbm PYTHON] [--work FOLDER]
        [--set max_leaves=31 ...] [--results FILE]

Of the corpus's training texts some are kept to judge, 8,000 others to learn from; the members,
xr-linear and knn, are trained on the rest. Candidates of a text are the union of both members' best
40 labels. Features of a candidate: each member's logit and rank, missing where it is not in the
shortlist, and the logarithm of the label's number of texts. A tenth of the texts that are learned
from is held out to say when to stop. Test texts are not looked at.

PYTHON is an interpreter with LightGBM. With --work the candidates are kept in that folder, so that
another run need not train the members. Results are lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz

import megalabel
from megalabel import systems
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.metrics import evaluate
from megalabel.rankers import BoostedTrees

MEMBERS = ("xr-linear", "knn")
DEPTH, LEARNED, JUDGED, MOST = 40, 8_000, 5_000, 60_000
RESULTS = Path(__file__).parent / "results" / "boosting.jsonl"
PEERS = Path(__file__).parent / "boosting_peers.py"


def features(rankings: list[Ranking], counts: np.ndarray) -> tuple[np.ndarray, ...]:
    """The candidates of all texts: text numbers, labels, and their features."""
    labels = len(counts)
    keys, parts = [], []
    for ranking in rankings:
        texts = np.broadcast_to(np.arange(len(ranking))[:, None], ranking.ids.shape)
        ranks = np.broadcast_to(np.arange(1, ranking.k + 1), ranking.ids.shape)
        there = ranking.present
        p = np.clip(ranking.scores[there].astype(np.float64), 1e-7, 1 - 1e-7)
        keys.append(texts[there] * labels + ranking.ids[there])
        parts.append(np.stack([np.log(p / (1 - p)), ranks[there]], axis=1))
    candidates = np.unique(np.concatenate(keys))
    X = np.full((len(candidates), 2 * len(rankings) + 1), np.nan, np.float32)
    for m, (own, part) in enumerate(zip(keys, parts, strict=True)):
        X[np.searchsorted(candidates, own), 2 * m : 2 * m + 2] = part
    X[:, -1] = np.log1p(counts[candidates % labels])
    return candidates // labels, candidates % labels, X


def ranked(texts: np.ndarray, ids: np.ndarray, scores: np.ndarray, rows: int, k: int) -> Ranking:
    """The k best candidates of each text; `texts` rise."""
    labels = int(ids.max()) + 1
    order = np.lexsort((ids, -scores, texts))
    starts = np.searchsorted(texts, np.arange(rows))
    place = np.arange(len(texts)) - starts[texts]
    top = place < k
    found = np.full((rows, k), labels), np.full((rows, k), -np.inf, np.float32)
    for array, values in zip(found, (ids, scores), strict=True):
        array[texts[top], place[top]] = values[order][top]
    return Ranking(*found, LabelSet.numbered(labels))


def ndcg(ranking: Ranking, truth: csr_matrix) -> float:
    return 100 * float(evaluate(ranking, truth, k=(10,))["nDCG@10"])


def prepare(folder: Path, work: Path, seed: int) -> None:
    """Train the members and write the candidates of texts that they have not seen."""
    corpus = megalabel.read(folder, "train")
    order = np.random.default_rng(seed).permutation(len(corpus))
    cuts = np.cumsum([min(JUDGED, len(corpus) // 6), min(LEARNED, len(corpus) // 3), MOST])
    judged, learned, rest = (corpus[np.sort(part)] for part in np.split(order, cuts)[:3])
    taggers = [systems.create(system, seed=0).fit(rest) for system in MEMBERS]
    labels = taggers[0].labels
    counts = np.asarray(rest.aligned(labels).targets.sum(axis=0)).ravel()[: len(labels)]

    def candidates(texts: Corpus) -> tuple[Any, ...]:
        truth = csr_matrix(texts.aligned(labels).targets)
        rankings = [tagger.rank(texts, DEPTH) for tagger in taggers]
        rows, ids, X = features(rankings, counts)
        return rankings, truth, rows, ids, X

    _, truth, rows, ids, X = candidates(learned)
    np.save(work / "X.npy", X)
    np.save(work / "y.npy", np.asarray(truth[rows, ids]).ravel() > 0)
    held_out = np.random.default_rng(seed + 1).random(len(learned)) < 0.1
    np.save(work / "held_out.npy", held_out[rows])
    rankings, truth, rows, ids, X = candidates(judged)
    np.save(work / "new.npy", X)
    np.save(work / "new_rows.npy", rows)
    np.save(work / "new_ids.npy", ids)
    save_npz(work / "truth.npz", truth)
    members = {name: ndcg(r, truth) for name, r in zip(MEMBERS, rankings, strict=True)}
    members["equal mean"] = ndcg(mean_of(X, rows, ids, len(judged)), truth)
    (work / "members.json").write_text(json.dumps(members))


def mean_of(X: np.ndarray, rows: np.ndarray, ids: np.ndarray, texts: int) -> Ranking:
    """By the mean of the members' probabilities; 0 where one does not have the label."""
    p = np.nan_to_num(1 / (1 + np.exp(-X[:, :-1:2].astype(np.float64)))).mean(axis=1)
    return ranked(rows, ids, p, texts, 10)


def run(name: str, python: str, work: Path, given: dict[str, Any], threads: int) -> dict[str, Any]:
    """A booster in a process of its own, and how it ranks."""
    command = [python, str(PEERS), name, str(work), json.dumps(given), str(threads)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{answer.stderr}")
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    truth = load_npz(work / "truth.npz")
    rows, ids = np.load(work / "new_rows.npy"), np.load(work / "new_ids.npy")
    margins = np.load(work / f"margins-{name}.npy")
    return {"nDCG@10": ndcg(ranked(rows, ids, margins, truth.shape[0], 10), truth)} | found


def setting(text: str) -> tuple[str, Any]:
    """A parameter and its value, as NAME=VALUE."""
    name, _, value = text.partition("=")
    return name, json.loads(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, nargs="+", help="corpora with texts")
    parser.add_argument("--lightgbm", metavar="PYTHON", help="an interpreter that has LightGBM")
    parser.add_argument("--work", type=Path, help="where candidates are kept")
    parser.add_argument("--set", nargs="*", default=[], type=setting, metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="of the split of texts")
    parser.add_argument("--threads", type=int, default=megalabel.get_threads())
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    given = BoostedTrees(**dict(options.set)).get_params()
    print("| corpus | booster | nDCG@10 | trees | s | CPU s | memory | apply s | 100 rows |")
    print("|---|---|" + "---:|" * 7)
    with tempfile.TemporaryDirectory() as temporary:
        for folder in options.data:
            for seed in options.seeds:
                work = (options.work or Path(temporary)) / f"{folder.name}-{seed}"
                if not (work / "members.json").exists():
                    work.mkdir(parents=True, exist_ok=True)
                    prepare(folder, work, seed)
                compare(folder.name, seed, work, given, options)


def compare(
    corpus: str, seed: int, work: Path, given: dict[str, Any], options: argparse.Namespace
) -> None:
    """Print and keep a line for each booster on one corpus."""
    members = json.loads((work / "members.json").read_text())
    for name, value in members.items():
        print(f"| {corpus} | {name} | {value:.2f} |" + " |" * 6)
    peers = {"megalabel": sys.executable}
    if options.lightgbm:
        peers["lightgbm"] = options.lightgbm
    for name, python in peers.items():
        found = run(name, python, work, given, options.threads)
        print(
            f"| {corpus} | {name} | {found['nDCG@10']:.2f} | {found['trees']} "
            f"| {found['seconds']:.2f} | {found['CPU']:.2f} | {found['memory'] / 2**20:.0f} MiB "
            f"| {found['apply']:.2f} | {1e6 * found['hundred rows']:.0f} µs |",
            flush=True,
        )
        line = {
            "corpus": corpus,
            "seed": seed,
            "booster": name,
            "parameters": given,
            "rows": int(np.load(work / "y.npy", mmap_mode="r").shape[0]),
            "members": members,
            "found": found,
            "threads": options.threads,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "version": megalabel.__version__,
            "command": f"python benchmarks/boosting.py --data DATA/{corpus} --seeds {seed} "
            f"--threads {options.threads} --lightgbm PYTHON",
        }
        with options.results.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
