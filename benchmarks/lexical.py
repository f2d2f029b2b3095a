"""lexical beside Annif's mllm, and in a mix with a tree system, on the same texts.

    python benchmarks/lexical.py --data DATA --annif PYTHON [--corpora NAME ...] [--few 500]
        [--queries 2000] [--texts 60000] [--results FILE]

DATA is a folder of corpora, each with a training and a test part; PYTHON is an interpreter that has
Annif 1.4.3 installed; without it, ours is measured alone.

few: both learn from the same texts of the training part, drawn by a seed, with all of its labels as
vocabulary, and tag the same texts of the test part: one process each, one thread, one after
another. Answers of labels that are not found in a text are left out for both: Annif's with a score
of 0, ours by `others=False`. nDCG@10 and F1@5 are means over texts, in %; F1@5 is of the best five
labels of mllm, of ours of those above its own threshold, which it has learned from the few texts.
CPU seconds are without imports, reading, and what starts Annif's application; ours of training are
with calibration and the threshold.

mix: xr-linear and a mix of xr-linear and lexical, on at most so many training texts, measured on as
many test texts as above times three. Results are lines of JSON, one a measurement; one that is in
the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from auto import write_for_annif
from megalabel import Corpus, LabelSet, Ranking, systems

RESULTS = Path(__file__).parent / "results" / "lexical.jsonl"
CORPORA = ["eurlex-titles", "yso-finna-en"]
TREE = "xr-linear"
MEASURES = ("P@1", "P@5", "nDCG@10", "PSP@5")


def some(corpus: Corpus, count: int) -> Corpus:
    """So many texts, drawn by a seed, in their order."""
    order = np.random.default_rng(0).permutation(len(corpus))
    return corpus[np.sort(order[:count])]


def parts(folder: Path, texts: int, queries: int) -> tuple[Corpus, Corpus]:
    """Some of the training texts, and of the test texts, by the same labels."""
    train = megalabel.read(folder, "train")
    return some(train, texts), some(megalabel.read(folder, "test").aligned(train.labels), queries)


def f1(top: np.ndarray, truth: csr_matrix) -> float:
    """The mean F1 of the labels given, -1 standing for none."""
    values = []
    for row, given in enumerate(top):
        wanted = set(truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist())
        labels = {label for label in given.tolist() if label >= 0}
        values.append(2 * len(labels & wanted) / max(1, len(labels) + len(wanted)))
    return 100 * float(np.mean(values))


def accuracy(top: np.ndarray, decided: np.ndarray, truth: csr_matrix) -> dict[str, float]:
    """What labels in their order, and those decided on, are worth; the same for everyone."""
    width = truth.shape[1]
    ids, scores = np.where(top < 0, width, top), np.where(top < 0, -np.inf, -np.arange(10.0))
    ranking = Ranking(ids, scores, LabelSet.numbered(width))
    values = megalabel.evaluate(ranking, truth, k=(1, 5, 10))
    shown = {name: 100 * float(values[name]) for name in ("P@1", "P@5", "nDCG@10")}
    return shown | {"F1@5": f1(decided, truth), "labels given": float((decided >= 0).mean() * 5)}


def ours(folder: Path, texts: int, queries: int, work: Path) -> dict[str, float]:
    """Train and tag, in this process."""
    megalabel.set_threads(1)
    train, test = parts(folder, texts, queries)
    # imports, and tables that are made once in a process
    systems.create("lexical").fit(train[:25]).rank(test.texts[:1], 10)
    started = time.process_time()
    tagger = systems.create("lexical", others=False).fit(train)
    trained = time.process_time()
    ranking = tagger.rank(test.texts, 10)
    ended = time.process_time()
    decided = tagger.decide(test.texts, 5)
    for name, found in (("top", ranking), ("decided", decided)):
        np.save(work / f"{name}.npy", np.where(found.present, found.ids, -1))
    tagger.save(work / "model")
    size = sum(file.stat().st_size for file in (work / "model").iterdir()) / 2**20
    return {"train CPU s": trained - started, "tag CPU s": ended - trained, "model MiB": size}


def run(command: list[Any]) -> dict[str, float]:
    """The last line that a process of its own prints."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def few(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Both sides on few texts."""
    folder, script = (options.data / name).resolve(), Path(__file__).resolve()
    train, test = parts(folder, options.few, options.queries)
    found: dict[str, Any] = {"labels": len(train.labels), "words": words_of(test)}
    with tempfile.TemporaryDirectory() as temporary:
        files, work = Path(temporary), Path(temporary) / "annif"
        work.mkdir()
        write_for_annif(train, test, files)
        asked = ["--few", options.few, "--queries", options.queries]
        told = run([sys.executable, script, "--alone", folder, "--work", files, *asked])
        top, decided = np.load(files / "top.npy"), np.load(files / "decided.npy")
        found["lexical"] = accuracy(top, decided, test.targets) | told
        if options.annif is not None:
            told = run([options.annif.absolute(), script.with_name("lexical_peer.py"), files, work])
            top = np.load(work / "top.npy")
            found["mllm"] = accuracy(top, top[:, :5], test.targets) | told
    return found


def words_of(corpus: Corpus) -> float:
    """Words of a text on average."""
    assert corpus.texts is not None
    return float(np.mean([len(text.split()) for text in corpus.texts.to_pylist()]))


def mixed(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """The tree system, lexical, and a mix of both."""
    train, test = parts(options.data / name, options.texts, 3 * options.queries)
    found: dict[str, Any] = {"texts": len(train)}
    members = {TREE: {}, "lexical": {}, "mix": {"members": [TREE, "lexical"]}}
    for system, settings in members.items():
        started = time.process_time()
        tagger = systems.create(system, **settings).fit(train)
        trained = time.process_time()
        values = tagger.evaluate(test, k=(1, 5, 10))
        found[system] = {measure: 100 * float(values[measure]) for measure in MEASURES}
        found[system]["train CPU s"] = trained - started
        print(f"  {system}: nDCG@10 {found[system]['nDCG@10']:.2f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--annif", type=Path, help="an interpreter that has Annif")
    parser.add_argument("--corpora", nargs="+", default=CORPORA)
    parser.add_argument("--few", type=int, default=500)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--texts", type=int, default=60_000, help="of a mix, at most")
    parser.add_argument("--only", choices=("few", "mix"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone is not None:
        print(json.dumps(ours(options.alone, options.few, options.queries, options.work)))
        return
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = {(one.get("corpus"), one.get("part")) for one in map(json.loads, lines)}
    about = {
        "machine": platform.machine(),
        "processor": platform.processor(),
        "python": platform.python_version(),
        "megalabel": megalabel.__version__,
        "command": f"--few {options.few} --queries {options.queries} --texts {options.texts}",
    }
    for part, measure in (("few", few), ("mix", mixed)):
        for name in options.corpora:
            if (name, part) in done or options.only not in (None, part):
                continue
            print(f"{name}, {part}", flush=True)
            found = {"corpus": name, "part": part, **measure(options, name), **about}
            print(json.dumps(found), flush=True)
            options.results.parent.mkdir(exist_ok=True)
            with options.results.open("a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
