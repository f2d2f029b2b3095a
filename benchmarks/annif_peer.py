"""Annif's side of benchmarks/auto.py, run by an interpreter that has it installed.

    PYTHON benchmarks/annif_peer.py FOLDER WORK

FOLDER holds vocabulary.tsv, train.tsv and test.tsv. An ensemble of Annif's backends omikuji (with
the settings of Bonsai), mllm and tfidf is trained on them: a thousand training texts are held out,
mllm learns from 5,000 of the others, as its manual advises, and the ensemble's weights are those
with the best nDCG@10 on the texts held out. Ten labels of each test text go to WORK/top.npy, -1
where there are fewer; times and memory go to standard output.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

K, HELD_OUT, LEXICAL = 10, 1_000, 5_000
BATCH = 64
SNOWBALL = "analyzer=snowball(english)"
MEMBERS = {
    "omikuji": f"{SNOWBALL}\nlimit=100\ncluster_balanced=False\ncluster_k=100\nmax_depth=3",
    "mllm": f"{SNOWBALL}\nlimit=100",
    "tfidf": f"{SNOWBALL}\nlimit=100",
}
TOKENIZER = ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab")


def prepare(work: Path) -> None:
    """Projects, an empty sentence splitter, and where Annif is to find both."""
    splitter = work / "nltk" / "tokenizers" / "punkt_tab" / "english"
    splitter.mkdir(parents=True)
    for name in TOKENIZER:
        (splitter / name).touch()
    projects = "".join(
        f"[{name}]\nname={name}\nlanguage=en\nbackend={name}\nvocab=labels\n{settings}\n\n"
        for name, settings in MEMBERS.items()
    )
    (work / "projects.cfg").write_text(projects)
    os.environ |= {
        "NLTK_DATA": str(work / "nltk"),
        "ANNIF_PROJECTS": str(work / "projects.cfg"),
        "ANNIF_DATADIR": str(work / "data"),
        "ANNIF_CONFIG": "annif.default_config.ProductionConfig",
    }


def suggested(project: Any, texts: Sequence[str]) -> csr_matrix:
    """The scores of a project, a row a text."""
    from annif.corpus import Document

    parts = [
        csr_matrix(project.suggest([Document(text=t) for t in texts[start : start + BATCH]]).array)
        for start in range(0, len(texts), BATCH)
    ]
    return vstack(parts, format="csr")


def best(scores: csr_matrix) -> np.ndarray:
    """The best labels of each row, -1 where there are fewer."""
    top = np.full((scores.shape[0], K), -1, np.int64)
    for row in range(scores.shape[0]):
        ids = scores.indices[scores.indptr[row] : scores.indptr[row + 1]]
        values = scores.data[scores.indptr[row] : scores.indptr[row + 1]]
        found = ids[np.argsort(-values, kind="stable")][:K]
        top[row, : len(found)] = found
    return top


def gain(top: np.ndarray, right: Sequence[set[int]]) -> float:
    """nDCG@10."""
    discounts = 1 / np.log2(np.arange(2, K + 2))
    gains = [
        sum(d for d, label in zip(discounts, row, strict=True) if label in labels)
        / max(1e-12, discounts[: min(K, len(labels))].sum())
        for row, labels in zip(top, right, strict=True)
    ]
    return float(np.mean(gains))


def weighted(scores: Sequence[csr_matrix], weights: Sequence[float]) -> csr_matrix:
    mixed = scores[0] * weights[0]
    for one, weight in zip(scores[1:], weights[1:], strict=True):
        mixed = mixed + one * weight
    return csr_matrix(mixed)


def main() -> None:
    folder, work = Path(sys.argv[1]), Path(sys.argv[2])
    prepare(work)
    from annif import create_flask_app
    from annif.registry import get_project

    lines = (folder / "train.tsv").read_text().splitlines(keepends=True)
    order = np.random.default_rng(0).permutation(len(lines))
    held_out, rest = order[:HELD_OUT], order[HELD_OUT:]
    (work / "rest.tsv").write_text("".join(lines[row] for row in np.sort(rest)))
    (work / "lexical.tsv").write_text("".join(lines[row] for row in rest[:LEXICAL]))
    begin = time.perf_counter(), sum(os.times()[:4])
    annif = Path(sys.executable).with_name("annif")
    commands = [["load-vocab", "--language", "en", "labels", folder / "vocabulary.tsv"]]
    for name in MEMBERS:
        commands.append(["train", name, work / ("lexical.tsv" if name == "mllm" else "rest.tsv")])
    for command in commands:
        status = os.spawnv(os.P_WAIT, annif, [str(annif), *map(str, command)])
        if status:
            sys.exit(f"annif {command[0]} failed")
    with create_flask_app().app_context():
        projects = [get_project(name) for name in MEMBERS]
        subjects = projects[0].subjects
        number = [int(subjects[row].uri.rsplit("/", 1)[1]) for row in range(len(subjects))]
        rows = [lines[row].rstrip("\n").split("\t") for row in held_out]
        right = [{int(uri.strip("<>").rsplit("/", 1)[1]) for uri in r[1].split()} for r in rows]
        scores = [suggested(project, [row[0] for row in rows]) for project in projects]
        measured = {
            weights: gain(np.append(number, -1)[best(weighted(scores, weights))], right)
            for weights in itertools.product((1, 2, 4, 8), (0, 0.5, 1, 2), (0, 0.5, 1, 2))
        }
        weights = max(measured, key=lambda one: measured[one])
        seconds, cpu = time.perf_counter() - begin[0], sum(os.times()[:4]) - begin[1]
        asked = (folder / "test.tsv").read_text().splitlines()
        texts = [line.split("\t")[0] for line in asked]
        mixed = weighted([suggested(project, texts) for project in projects], weights)
    np.save(work / "top.npy", np.append(number, -1)[best(mixed)])
    peak = max(resource.getrusage(who).ru_maxrss for who in (-1, 0)) / 1024
    files = [file for file in (work / "data").rglob("*") if file.is_file()]
    told = {"seconds": seconds, "CPU": cpu, "memory": peak, "weights": weights}
    print(json.dumps(told | {"model": sum(file.stat().st_size for file in files) / 2**20}))


if __name__ == "__main__":
    main()
