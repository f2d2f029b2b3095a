"""Reading sparse text: megalabel beside scikit-learn, on the same plain file in one process.

    python benchmarks/parse.py --data FOLDER

FOLDER holds train.txt or train.txt.gz in the Extreme Classification Repository's format, such as
EURLex-4K. Prints a Markdown table: medians of several runs, taken in turn, and the ratio.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

import megalabel
from megalabel.data.formats.sparse_text import read_xc
from megalabel.data.problems import Problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of a corpus")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    megalabel.set_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = prepare(arguments.data, Path(folder))
        readers: dict[str, Callable[[], Any]] = {
            "megalabel": lambda: read_xc(plain, Problems()),
            "megalabel, gz": lambda: read_xc(packed, Problems()),
            "scikit-learn": lambda: read_with_sklearn(plain),
        }
        check(readers["megalabel"](), readers["scikit-learn"]())
        times: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(arguments.runs):
            for name, reader in readers.items():
                start = time.perf_counter()
                reader()
                times[name].append(time.perf_counter() - start)
        megabytes = plain.stat().st_size / 1e6
    median = {name: statistics.median(values) for name, values in times.items()}
    print(
        "| corpus | MB | threads | scikit-learn, s | megalabel, s | megalabel from gz, s | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {arguments.data.name} train | {megabytes:.1f} | {arguments.threads} "
        f"| {median['scikit-learn']:.3f} | {median['megalabel']:.4f} "
        f"| {median['megalabel, gz']:.3f} | {median['scikit-learn'] / median['megalabel']:.1f}x |"
    )


def prepare(source: Path, folder: Path) -> tuple[Path, Path]:
    """The training file, plain and compressed."""
    plain, packed = folder / "train.txt", folder / "train.txt.gz"
    if (source / packed.name).is_file():
        shutil.copy(source / packed.name, packed)
        with gzip.open(packed) as file, plain.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    else:
        shutil.copy(source / plain.name, plain)
        with plain.open("rb") as file, gzip.open(packed, "wb") as copy:
            shutil.copyfileobj(file, copy)
    return plain, packed


def read_with_sklearn(path: Path) -> tuple[Any, Any]:
    with path.open("rb") as file:
        file.readline()  # the header
        return load_svmlight_file(file, multilabel=True, dtype=np.float32, zero_based=True)


def check(ours: megalabel.Corpus, theirs: tuple[Any, Any]) -> None:
    """Both must have read the same, or their times mean nothing."""
    features, labels = theirs
    features.resize(ours.features.shape)
    if (ours.features != features).nnz:
        raise SystemExit("the feature matrices differ")
    if [row.indices.tolist() for row in ours.targets] != [sorted(map(int, row)) for row in labels]:
        raise SystemExit("the labels differ")


if __name__ == "__main__":
    main()
