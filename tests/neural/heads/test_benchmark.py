"""The benchmark of heads runs, on shapes that take no time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the neural room needs torch")

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "head.py"


def test_it_prints_a_table():
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--device", "cpu", "--no-compile"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "| megalabel, default | 1,000 |" in run.stdout
    assert "| groups of 32, whole step, float32 sums | 1,000 |" in run.stdout
    assert "| groups of 64: whole step, float32 sums | 670,080 | 0.36 GB | 0.074 ms" in run.stdout
    assert run.stdout.count("| not measured |") == 17
