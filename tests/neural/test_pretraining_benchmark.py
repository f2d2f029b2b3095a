"""The benchmark of pre-training runs, and the docs show what it has kept."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from megalabel import data

pytest.importorskip("torch", reason="the neural room needs torch")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(one_thread, threads, monkeypatch, capsys):
    """What the benchmark prints, by its arguments."""

    def printed(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["benchmarks/pretraining.py", *arguments])
        runpy.run_path(str(ROOT / "benchmarks" / "pretraining.py"), run_name="__main__")
        return capsys.readouterr().out

    return printed


def test_the_docs_show_the_figures_that_are_kept(run):
    tables = run("--table", str(ROOT / "benchmarks" / "results" / "pretraining.json"))
    docs = (ROOT / "docs" / "encoders.md").read_text(encoding="utf-8")
    for table in tables.strip().split("\n\n"):
        assert table in docs


def test_it_keeps_every_run(run, corpus, tmp_path):
    folder = tmp_path / "things"
    folder.mkdir()
    for name in ("train", "test"):
        data.write(corpus[:200], folder / f"{name}.jsonl")
    kept = tmp_path / "kept.json"
    sizes = ("--sizes", "40:80", "--seeds", "0", "--steps", "2")
    printed = run("--data", str(folder), "--json", str(kept), *sizes)
    said = json.loads(kept.read_text())
    assert [row["way"] for row in said["rows"]] == ["transformer", "pre-trained", "bag", "dismec"]
    assert said["command"].startswith("python pretraining.py --data things")
    assert "| things | 40 / 80 | bag |" in printed
