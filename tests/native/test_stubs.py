"""What mypy knows of the native core is what it is."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_stubs_are_those_of_the_built_module():
    pytest.importorskip("nanobind", reason="nanobind, which writes the stubs, is not installed")
    tool = runpy.run_path(str(ROOT / "tools" / "make_stubs.py"))
    committed = (ROOT / "src" / "megalabel" / "_native.pyi").read_text()
    assert tool["stubs"]() == committed, "run `make stubs` after a change to the native core"
