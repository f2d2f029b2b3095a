"""Journal: lines of JSON, and the same for TensorBoard."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest

from megalabel.neural.logs import Journal

RECORDS = [{"step": 3, "loss": 0.5}, {"step": 6, "loss": 0.25, "value": 0.2}]


class SummaryWriter:
    """What TensorBoard's writer is asked for."""

    made: list[SummaryWriter]

    def __init__(self, folder: Any) -> None:
        self.folder, self.scalars, self.closed = folder, [], False
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def boards(monkeypatch):
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(SummaryWriter, "made", [], raising=False)
    return SummaryWriter.made


def write(folder):
    with Journal(folder, "level-1") as journal:
        for record in RECORDS:
            journal.write(record)


def test_every_record_is_a_line_and_a_point_on_a_board(boards, tmp_path):
    write(str(tmp_path / "new"))
    lines = (tmp_path / "new" / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [{k: line[k] for k in record} for line, record in zip(found, RECORDS, strict=True)] == (
        RECORDS
    )
    assert {line["training"] for line in found} == {"level-1"}
    [board] = boards
    assert board.folder == tmp_path / "new"
    assert board.scalars == [
        ("level-1/loss", 0.5, 3),
        ("level-1/loss", 0.25, 6),
        ("level-1/value", 0.2, 6),
    ]
    assert board.closed


def test_without_tensorboard_there_are_the_lines(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # cannot be imported
    write(str(tmp_path))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_without_a_folder_nothing_is_written(boards, tmp_path):
    write(None)
    assert boards == []
