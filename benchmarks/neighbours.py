"""Exact nearest neighbours: early termination beside adding up everything, SciPy and scikit-learn.

    python benchmarks/neighbours.py --data FOLDER [--k 30] [--threads 2] [--repeats 3]

FOLDER holds trn.jsonl.gz and tst.jsonl.gz, a JSON object with "title" (and "content") a line. The
training texts are the documents, the test texts the queries, both as tf-idf. Our search answers all
queries; the slower ways a sample of them, and all are compared by queries a second. Every way must
find the same similarities.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestNeighbors

import megalabel
from megalabel.retrieval import InvertedIndex


def texts(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            yield f"{item.get('title', '')} {item.get('content') or ''}"


def timed(run: Callable[[], np.ndarray], repeats: int) -> tuple[float, np.ndarray]:
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        answer = run()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), answer


def scipy_search(documents: csr_matrix, queries: csr_matrix, k: int) -> np.ndarray:
    """The product with all documents, then a partial sort, in blocks that fit in memory."""
    transposed = documents.T.tocsr()
    answers = []
    for begin in range(0, queries.shape[0], 100):
        products = (queries[begin : begin + 100] @ transposed).toarray()
        best = np.partition(products, products.shape[1] - k, axis=1)[:, -k:]
        answers.append(np.sort(best, axis=1)[:, ::-1])
    return np.concatenate(answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--k", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sample", type=int, default=1000, help="queries for the slower ways")
    args = parser.parse_args()

    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    documents = vectorizer.fit_transform(texts(args.data / "trn.jsonl.gz"))
    queries = vectorizer.transform(texts(args.data / "tst.jsonl.gz"))
    chosen = np.random.default_rng(0).permutation(queries.shape[0])[: args.sample]
    sample = queries[np.sort(chosen)]

    megalabel.set_threads(args.threads)
    index = InvertedIndex()
    build, _ = timed(lambda: index.fit(documents), args.repeats)  # type: ignore[arg-type,return-value]
    brute = NearestNeighbors(
        n_neighbors=args.k, metric="cosine", algorithm="brute", n_jobs=args.threads
    ).fit(documents)

    def ours(rows: csr_matrix, threads: int, early: bool) -> Callable[[], np.ndarray]:
        def run() -> np.ndarray:
            megalabel.set_threads(threads)
            return index.search(rows, args.k, early_termination=early)[1]

        return run

    ways: list[tuple[str, int, csr_matrix, Callable[[], np.ndarray]]] = [
        ("megalabel", args.threads, queries, ours(queries, args.threads, True)),
        ("megalabel", 1, sample, ours(sample, 1, True)),
        ("megalabel, all postings", args.threads, sample, ours(sample, args.threads, False)),
        ("megalabel, all postings", 1, sample, ours(sample, 1, False)),
        ("SciPy product", 1, sample, lambda: scipy_search(documents, sample, args.k)),
        (
            "scikit-learn brute",
            args.threads,
            sample,
            lambda: 1 - brute.kneighbors(sample)[0],
        ),
    ]
    expected = ours(sample, args.threads, False)()
    found = expected > 0
    rows = []
    for name, threads, asked, run in ways:
        seconds, answer = timed(run, args.repeats)
        if asked is queries:
            answer = answer[np.sort(chosen)]
        np.testing.assert_allclose(answer[found], expected[found], atol=2e-5)
        rows.append((name, threads, asked.shape[0], seconds, asked.shape[0] / seconds))

    print(
        f"{args.data.name}: {documents.shape[0]:,} documents, {documents.shape[1]:,} terms, "
        f"k = {args.k}; {platform.processor() or platform.machine()}; index in {build:.2f} s, "
        f"{InvertedIndex.index_bytes(*documents.shape, documents.nnz) / 2**20:.0f} MiB\n"
    )
    print("| search | threads | queries | seconds | queries/s | megalabel is |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, threads, count, seconds, rate in rows:
        print(
            f"| {name} | {threads} | {count:,} | {seconds:.2f} | {rate:,.0f} "
            f"| {rows[0][-1] / rate:.1f}x |"
        )


if __name__ == "__main__":
    main()
