"""What there is of memory, on Linux and elsewhere."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pyarrow as pa
import pytest

from megalabel import machine, systems


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (str(6 << 20), 3 << 20),  # 4 MiB are used, and 1 MiB of that is files
        (str(1 << 20), 0),
        ("max", None),
        (str(1 << 60), None),
        (None, None),
    ],
)
def test_a_containers_limit_counts(tmp_path, monkeypatch, limit, left):
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(f"{4 << 20}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {1 << 20}\n")
    monkeypatch.setattr(machine, "_CONTAINER", tmp_path)
    monkeypatch.setattr(machine, "memory_in_use", lambda: 1000)
    available = machine.memory_available() - 1000
    assert available == left if left is not None else available > 64 << 20


def test_what_was_freed_is_given_back():
    pieces = [pa.allocate_buffer(1 << 16) for _ in range(1_000)]
    for piece in pieces:
        np.frombuffer(piece, np.uint8)[:] = 1
    held = machine.memory_in_use()
    del pieces, piece
    machine.give_back_memory()
    assert held - machine.memory_in_use() > 1 << 25


def test_memory_is_counted_in_bytes():
    before = machine.memory_in_use()
    held = bytearray(1 << 26)
    assert machine.memory_in_use() - before > 1 << 25
    assert machine.peak_memory() >= machine.memory_in_use() - (1 << 24)
    assert 1 << 24 < before < machine.memory_available()
    del held


@pytest.fixture
def without_proc(tmp_path, monkeypatch):
    """A machine that has no /proc, such as a Mac."""
    monkeypatch.setattr(machine, "_PROCESSES", tmp_path / "proc")
    monkeypatch.setattr(machine, "_CONTAINER", tmp_path / "cgroup")


@pytest.mark.usefixtures("without_proc")
@pytest.mark.parametrize(("platform", "unit"), [("darwin", 1), ("freebsd14", 1024)])
def test_memory_where_there_is_no_proc(monkeypatch, platform, unit):
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr(sys, "platform", platform)
    machine.forget_peak()
    assert most * unit <= machine.memory_in_use() <= machine.peak_memory() < 2 * most * unit
    assert machine.memory_available() > 64 << 20


@pytest.mark.usefixtures("without_proc")
def test_a_plan_where_there_is_no_proc(corpus):
    plan = systems.get("knn").plan(systems.create("knn"), corpus)
    assert plan.fits
    assert plan.memory > 0
