"""Journal: what a training says as it goes, one JSON object a line, and TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


class Journal:
    """Writes records to `metrics.jsonl` of a folder, and for TensorBoard where it is installed.

    Parameters
    ----------
    folder : str, optional
        None: nothing is written.
    name : str
        What is trained; every record carries it.
    """

    def __init__(self, folder: str | None, name: str) -> None:
        self._folder, self._name = None if folder is None else Path(folder), name
        self._board: Any = None

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(self._folder)
            except ImportError:
                pass  # not installed: the lines say the same
        return self

    def write(self, record: Mapping[str, float]) -> None:
        """A record, with its step."""
        if self._folder is None:
            return
        line = {"training": self._name, "time": round(time.time(), 3), **record}
        with open(self._folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._board is not None:
            for key, value in record.items():
                if key != "step":
                    self._board.add_scalar(f"{self._name}/{key}", value, int(record["step"]))

    def __exit__(self, *_: object) -> None:
        if self._board is not None:
            self._board.close()
