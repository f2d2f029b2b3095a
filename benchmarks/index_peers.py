"""One index's side of benchmarks/index.py, run by an interpreter that has it installed.

    PYTHON benchmarks/index_peers.py megalabel|faiss FOLDER PRECISION THREADS LISTS RECALL

FOLDER holds vectors.npy, queries.npy, more.npy (to be added) and truth.npy, the 100 best vectors of
each query. THREADS are numbers with commas between them. LISTS and RECALL are what FAISS is to
have: its number of lists, and the recall on the queries that its probes are to reach. Times in
seconds go to standard output: those of searches for each number of threads, others for the last.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

K, ROUNDS, SINGLE = 100, 5, 400
Search = Callable[[np.ndarray], np.ndarray]


def seconds(run: Callable[[], Any]) -> float:
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def cpu_seconds(run: Callable[[], Any]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


def both(name: str, run: Callable[[], Any]) -> dict[str, Any]:
    """How long something takes that is done once: by the clock, and in CPU seconds."""
    times: dict[str, Any] = {}
    times[f"{name} CPU"] = cpu_seconds(lambda: times.update({name: seconds(run)}))
    return times


def recall(found: np.ndarray, truth: np.ndarray) -> float:
    """The share of the true neighbours that were found."""
    same = [len(np.intersect1d(a, b)) for a, b in zip(found, truth, strict=True)]
    return float(np.sum(same) / truth.size)


def timed(search: Search, queries: np.ndarray) -> dict[str, float]:
    """A batch, and queries one at a time: the fastest of several rounds; of single queries the
    median and the 99th percentile of that round."""
    search(queries)
    batch = min(seconds(lambda: search(queries)) for _ in range(ROUNDS))
    rounds = []
    for _ in range(3):
        single = [seconds(lambda i=i: search(queries[i : i + 1])) for i in range(SINGLE)]
        rounds.append((float(np.median(single)), float(np.quantile(single, 0.99))))
    cpu = min(cpu_seconds(lambda: search(queries)) for _ in range(ROUNDS))
    ones = [queries[i : i + 1] for i in range(SINGLE)]
    cpu_single = min(cpu_seconds(lambda: [search(one) for one in ones]) for _ in range(3))
    return {
        "batch": batch / len(queries),
        "batch CPU": cpu / len(queries),
        "single": min(rounds)[0],
        "slow single": min(rounds)[1],
        "single CPU": cpu_single / SINGLE,
    }


def megalabel(folder: Path, precision: str, threads: list[int], lists: int, wished: float) -> Any:
    from megalabel import set_threads, store
    from megalabel.retrieval import VectorIndex

    set_threads(threads[-1])
    vectors, queries, more, truth = loaded(folder)
    index = VectorIndex(precision=precision)
    answer = both("build", lambda: index.fit(vectors))
    lists, probes = max(1, len(index.centres_)), index.probes_
    answer |= {"lists": lists, "probes": probes, "measured": index.recall_}
    for count in threads:
        set_threads(count)
        answer[f"threads {count}"] = timed(lambda asked: index.search(asked, K)[0], queries)
    answer["recall"] = recall(index.search(queries, K)[0], truth)
    keys = np.arange(len(more)) + len(vectors)
    answer |= both("add", lambda: index.add(keys, more))
    gone = np.arange(0, len(vectors), 100)
    answer |= both("remove", lambda: index.remove(gone))
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        store.save(index, Path(saved) / "index")
        answer["open"] = seconds(lambda: store.load(Path(saved) / "index"))
        opened = store.load(Path(saved) / "index")
        answer["first"] = seconds(lambda: opened.search(queries[:1], K))
    return answer


def reaches(index: Any, probes: int, queries: np.ndarray, truth: np.ndarray, wished: float) -> bool:
    """Whether FAISS has the recall with so many probes."""
    index.nprobe = probes
    return recall(index.search(queries, K)[1], truth) >= wished


def fewest(enough: Callable[[int], bool], most: int) -> int:
    """The lowest number that is enough, by doubling and then halving."""
    high = 1
    while high < most and not enough(high):
        high *= 2
    low = high // 2  # not enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def faiss(folder: Path, precision: str, threads: list[int], lists: int, wished: float) -> Any:
    import faiss as peer

    peer.omp_set_num_threads(threads[-1])
    vectors, queries, more, truth = loaded(folder)
    width, metric = vectors.shape[1], peer.METRIC_INNER_PRODUCT
    flat = peer.IndexFlatIP(width)
    if lists == 1:
        index: Any = flat
    elif precision == "float16":
        half = peer.ScalarQuantizer.QT_fp16
        index = peer.IndexIVFScalarQuantizer(flat, width, lists, half, metric, False)
    else:
        index = peer.IndexIVFFlat(flat, width, lists, metric)

    def build() -> None:
        index.train(vectors)
        index.add(vectors)

    answer = both("build", build) | {"lists": lists, "probes": 1}
    if lists > 1:
        answer["probes"] = index.nprobe = fewest(
            lambda probes: reaches(index, probes, queries, truth, wished), lists
        )
    for count in threads:
        peer.omp_set_num_threads(count)
        answer[f"threads {count}"] = timed(lambda asked: index.search(asked, K)[1], queries)
    answer["recall"] = recall(index.search(queries, K)[1], truth)
    answer |= both("add", lambda: index.add(more))
    answer["version"] = peer.__version__
    return answer


def loaded(folder: Path) -> list[np.ndarray]:
    return [np.load(folder / f"{name}.npy") for name in ("vectors", "queries", "more", "truth")]


if __name__ == "__main__":
    name, folder, precision, threads, lists, wished = sys.argv[1:]
    run = {"megalabel": megalabel, "faiss": faiss}[name]
    counts = [int(count) for count in threads.split(",")]
    print(json.dumps(run(Path(folder), precision, counts, int(lists), float(wished))))
