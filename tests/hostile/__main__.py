"""Reads many hostile files: `python -m tests.hostile --corpora 20000 --seed 1`.

A trial that fails is named by the options that run it again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings

from tests.hostile import corpora
from tests.hostile.runner import run

from megalabel.errors import DataError


def main() -> int:
    """Run the trials and say which fail; 1 if any does."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--corpora", type=int, default=20_000, help="how many corpora are read")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # that lines were skipped
    warnings.simplefilter("ignore")
    corpora.read_valid()
    started = time.perf_counter()
    trials = corpora.trials(options.seed, options.corpora, options.first)
    failures = run(trials, corpora.read_all, (DataError,), size=corpora.unpacked_size)
    for failure in failures:
        print(f"{failure.name}\n    {failure.reason.strip()}\n")
    seconds = time.perf_counter() - started
    print(f"{options.corpora} corpora in {seconds:.0f} s: {len(failures)} failed")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
