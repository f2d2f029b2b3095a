"""One booster's side of benchmarks/boosting.py, run by an interpreter that has it installed.

    PYTHON benchmarks/boosting_peers.py megalabel|lightgbm FOLDER PARAMETERS THREADS

FOLDER holds X.npy, y.npy and held_out.npy to learn from and new.npy to apply the trees to; the
margins go to margins-NAME.npy there, times and memory to standard output. PARAMETERS are those of
BoostedTrees that are not the defaults, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Margins = Callable[[np.ndarray], np.ndarray]
# what LightGBM calls them
NAMES = {
    "max_leaves": "num_leaves",
    "max_depth": "max_depth",
    "learning_rate": "learning_rate",
    "min_rows": "min_data_in_leaf",
    "min_hessian": "min_sum_hessian_in_leaf",
    "l2": "lambda_l2",
    "min_gain": "min_gain_to_split",
    "bins": "max_bin",
    "feature_share": "feature_fraction",
    "row_share": "bagging_fraction",
    "seed": "seed",
}


def megalabel(
    X: np.ndarray, y: np.ndarray, held_out: np.ndarray, given: dict[str, Any], threads: int
) -> tuple[Margins, int]:
    from megalabel import set_threads
    from megalabel.rankers import BoostedTrees

    set_threads(threads)
    trees = BoostedTrees(**given).fit(X, y, validation=held_out)
    return trees.margins, len(trees.starts_) - 1


def lightgbm(
    X: np.ndarray, y: np.ndarray, held_out: np.ndarray, given: dict[str, Any], threads: int
) -> tuple[Margins, int]:
    import lightgbm as peer

    settings = {NAMES[k]: v for k, v in given.items() if k in NAMES and v is not None}
    settings |= {"objective": "binary", "num_threads": threads, "verbose": -1, "bagging_freq": 1}
    train = peer.Dataset(X[~held_out], y[~held_out])
    validation = peer.Dataset(X[held_out], y[held_out], reference=train)
    stop = peer.early_stopping(given["patience"], verbose=False)
    booster = peer.train(settings, train, given["trees"], [validation], callbacks=[stop])
    best = booster.best_iteration

    def margins(rows: np.ndarray) -> np.ndarray:
        found = booster.predict(rows, raw_score=True, num_iteration=best, num_threads=threads)
        return np.asarray(found)

    return margins, best


def memory(which: str) -> int:
    """What this process has of memory (VmRSS), or had at most (VmHWM), in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{which}:")[2].split()[0])


def main() -> None:
    name, folder, given, threads = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    X, y, held_out, new = (
        np.load(folder / f"{part}.npy") for part in ("X", "y", "held_out", "new")
    )
    fit = {"megalabel": megalabel, "lightgbm": lightgbm}[name]
    few = json.loads(given) | {"trees": 1}
    fit(X[:500], y[:500], np.arange(500) % 5 == 0, few, threads)  # what is imported
    Path("/proc/self/clear_refs").write_text("5")  # from here on the most memory counts
    before, wall, busy = memory("VmRSS"), time.perf_counter(), time.process_time()
    margins, trees = fit(X, y, held_out, json.loads(given), threads)
    found = {
        "trees": trees,
        "seconds": time.perf_counter() - wall,
        "CPU": time.process_time() - busy,
        "memory": memory("VmHWM") - before,
    }
    wall = time.perf_counter()
    np.save(folder / f"margins-{name}.npy", margins(new).astype(np.float32))
    found["apply"] = time.perf_counter() - wall
    single = []
    for start in range(0, min(len(new), 100_000) - 100, 100):
        wall = time.perf_counter()
        margins(new[start : start + 100])
        single.append(time.perf_counter() - wall)
    found["hundred rows"] = float(np.median(single))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
