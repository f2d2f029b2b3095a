"""The guide's examples run and give what they show."""

from __future__ import annotations

import doctest
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "features.md"


def test_the_guide_to_features() -> None:
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False)
    assert tried > 0
    assert failed == 0
