"""The peers' side of benchmarks/latency.py, run by an interpreter that has the peer installed.

    PYTHON benchmarks/latency_peers.py pecos|napkinxc FOLDER

FOLDER holds texts.json, Y.npz and queries.json; the times go to standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, load_npz

ROUNDS = 3


def asked(answer: Callable[[Any], Any], queries: Iterable[Any]) -> list[float]:
    """Milliseconds of one query, p50 and p99: of several rounds, the one with the median p99."""
    rounds = []
    for query in list(queries)[:100]:
        answer(query)
    for _ in range(ROUNDS):
        seconds = []
        for query in queries:
            before = time.perf_counter()
            answer(query)
            seconds.append(time.perf_counter() - before)
        rounds.append((1000 * np.quantile(seconds, (0.5, 0.99))).tolist())
    return sorted(rounds, key=lambda pair: pair[1])[ROUNDS // 2]


def pecos(work: Path, texts: list[str], Y: csr_matrix) -> tuple[Callable, Callable]:
    from pecos.utils.featurization.text.vectorizers import Tfidf
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    config = {"sublinear_tf": True, "min_df_cnt": 2, "threads": 2}
    vectorizer = Tfidf.train(texts, config=config)
    X = csr_matrix(vectorizer.predict(texts, threads=2), dtype=np.float32)
    vectors = LabelEmbeddingFactory.create(Y, X, method="pifa")
    chain = Indexer.gen(vectors, indexer_type="hierarchicalkmeans", seed=0, threads=2)
    XLinearModel.train(X, Y, C=chain, threads=2, threshold=0.1).save(str(work / "pecos"))
    model = XLinearModel.load(str(work / "pecos"), is_predict_only=True)
    return (
        lambda text: vectorizer.predict([text], threads=1),
        lambda row: model.predict(row, beam_size=10, only_topk=5, threads=1),
    )


def napkinxc(work: Path, texts: list[str], Y: csr_matrix) -> tuple[Callable, Callable]:
    from napkinxc.models import PLT
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    X = vectorizer.fit_transform(texts)
    PLT(str(work / "napkinxc"), threads=2, seed=1, verbose=False).fit(X, Y)
    model = PLT(str(work / "napkinxc"), threads=1, verbose=False)
    model.load()
    return (
        lambda text: vectorizer.transform([text]),
        lambda row: model.predict_proba(row, top_k=5),
    )


def main() -> None:
    peer, work = {"pecos": pecos, "napkinxc": napkinxc}[sys.argv[1]], Path(sys.argv[2])
    texts = json.loads((work / "texts.json").read_text())
    queries = json.loads((work / "queries.json").read_text())
    vector, answer = peer(work, texts, load_npz(work / "Y.npz"))
    vectors = [vector(text) for text in queries]
    print(
        json.dumps(
            {
                "whole": asked(lambda text: answer(vector(text)), queries),
                "classifier": asked(answer, vectors),
            }
        )
    )


if __name__ == "__main__":
    main()
