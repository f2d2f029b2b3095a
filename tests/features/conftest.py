"""Corpora and strategies that the tests of this room share."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("MEGALABEL_DATA", Path(__file__).parents[2] / "../shared/data"))


@pytest.fixture(scope="session")
def real_texts() -> list[str]:
    """Some thousand titles and abstracts."""
    path = DATA / "yso-finna-en" / "trn.jsonl.gz"
    if not path.exists():
        pytest.skip(f"needs {path.name} of yso-finna-en; set MEGALABEL_DATA to the data folder")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(5000), strict=False)]
    return [f"{row.get('title', '')} {row.get('content', '')}" for row in rows]
