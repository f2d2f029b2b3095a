"""The benchmark of sparse layers measures nothing twice, and shows means over seeds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "sparse.py"
FIGURES = {"P@3": 2.0, "P@5": 1.0, "PSP@5": 0.5, "bytes": 1_000_000, "cpu": 3.0}


@pytest.fixture(scope="module")
def benchmark():
    return runpy.run_path(str(SCRIPT))


def test_a_table_has_the_means_of_seeds(benchmark):
    rows = [
        FIGURES | {"corpus": "a", "way": way, "P@1": p}
        for way, p in (("dense", 8.0), ("sparse", 1.0), ("dense", 10.0))
    ]
    assert benchmark["table"](rows).splitlines()[2:] == [
        "| a | dense | 9.0 / 2.0 / 1.0 | 0.5 | 1.00 | 3 |",
        "| a | sparse | 1.0 / 2.0 / 1.0 | 0.5 | 1.00 | 3 |",
    ]


def test_what_was_asked_for_before_is_not_measured(benchmark):
    same = {"corpus": "a", "seed": 0, "epochs": 15.0}
    ways = ("dense", "dense, static", "dismec", "dismec, weights above 0.1")
    known = [{"way": way, "corpus": "a", "seed": 0, "epochs": 15} for way in ways]
    found = benchmark["measured_before"]
    assert found(known, "dense", same) == known[:1]
    assert found(known, "dismec", same) == known[2:]
    for other in ({"corpus": "b"}, {"seed": 1}, {"epochs": 3}, {"validate": True}):
        assert not found(known, "dense", same | other)
