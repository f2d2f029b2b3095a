"""Annif's side of benchmarks/lexical.py, run by an interpreter that has it installed.

    PYTHON benchmarks/lexical_peer.py FOLDER WORK

FOLDER holds vocabulary.tsv, train.tsv and test.tsv. Its lexical backend, mllm, is trained on them
with its own settings, in one process. Ten labels of each test text go to WORK/top.npy, -1 where
there are fewer with a score above 0; CPU times go to standard output. Imports, the vocabulary and
what starts the application are timed apart.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from annif_peer import best, prepare, suggested


def main() -> None:
    folder, work = Path(sys.argv[1]), Path(sys.argv[2])
    prepare(work)
    from annif import create_flask_app
    from annif.corpus import DocumentFileTSV
    from annif.registry import get_project, get_vocab
    from annif.vocab import VocabFileTSV

    with create_flask_app().app_context():
        vocabulary = VocabFileTSV(str(folder / "vocabulary.tsv"), "en")
        get_vocab("labels").load_vocabulary(vocabulary)
        project = get_project("mllm")
        subjects = project.subjects
        number = [int(subjects[row].uri.rsplit("/", 1)[1]) for row in range(len(subjects))]
        lines = (folder / "test.tsv").read_text().splitlines()
        texts = [line.split("\t")[0] for line in lines]
        started = time.process_time()
        corpus = DocumentFileTSV(str(folder / "train.tsv"), subjects)
        project.train(corpus, jobs=1)
        trained = time.process_time()
        suggested(project, texts[:1])  # opens the model
        opened = time.process_time()
        scores = suggested(project, texts)
        ended = time.process_time()
    scores.data[scores.data <= 0] = 0
    scores.eliminate_zeros()
    np.save(work / "top.npy", np.append(number, -1)[best(scores)])
    files = [file for file in (work / "data" / "projects").rglob("*") if file.is_file()]
    told = {
        "start CPU s": started,
        "train CPU s": trained - started,
        "tag CPU s": ended - opened,
        "model MiB": sum(file.stat().st_size for file in files) / 2**20,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
