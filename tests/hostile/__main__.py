"""Reads many hostile files: `python -m tests.hostile --corpora 20000 --folders 20000 --seed 1`.

A trial that fails is named by the options that run it again.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.hostile import corpora, folders, vocabularies
from tests.hostile.runner import Failure, run

from megalabel.errors import DataError, StoreError
from megalabel.files import VOCABULARY


def main() -> int:
    """Run the trials and say which fail; 1 if any does."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--corpora", type=int, default=0, help="how many corpora are read")
    parser.add_argument("--folders", type=int, default=0, help="how many model folders are used")
    parser.add_argument("--vocabularies", type=int, default=0, help="how many are used")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # that lines were skipped
    warnings.simplefilter("ignore")
    failed = False
    for what, read, count in (
        ("corpora", read_corpora, options.corpora),
        ("model folders", use_folders, options.folders),
        ("vocabularies", use_vocabularies, options.vocabularies),
    ):
        if not count:
            continue
        started = time.perf_counter()
        failures = read(options.seed, count, options.first)
        for failure in failures:
            print(f"{failure.name}\n    {failure.reason.strip()}\n")
        seconds = time.perf_counter() - started
        print(f"{count} {what} in {seconds:.0f} s: {len(failures)} failed", flush=True)
        failed |= bool(failures)
    return int(failed)


def read_corpora(seed: int, count: int, first: int) -> list[Failure]:
    """Read damaged corpora of all formats."""
    corpora.read_valid()
    trials = corpora.trials(seed, count, first)
    return run(trials, corpora.read_all, (DataError,), size=corpora.unpacked_size)


def use_folders(seed: int, count: int, first: int) -> list[Failure]:
    """Use damaged model folders of all kinds."""
    with tempfile.TemporaryDirectory() as place:
        # by a process of its own: the threads that train do not outlive a fork
        command = [sys.executable, "-m", "tests.hostile.folders", place]
        subprocess.run([*command, *folders.LINEAR, *folders.NEURAL], check=True)
        models = Path(place)
        folders.prepare(models)
        trials = folders.trials(models, seed, count, first)
        return run(trials, folders.guarded_use, (StoreError,))


def use_vocabularies(seed: int, count: int, first: int) -> list[Failure]:
    """Use damaged folders of vocabularies."""
    with tempfile.TemporaryDirectory() as place:
        vocabularies.write(Path(place))
        trials = folders.trials(Path(place), seed, count, first, VOCABULARY)
        return run(trials, vocabularies.use, (StoreError,))


if __name__ == "__main__":
    sys.exit(main())
