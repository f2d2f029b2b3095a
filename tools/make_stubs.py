"""Writes src/megalabel/_native.pyi, the types of the native core, from the module as it is built.

Run by `make stubs`; needs nanobind and ruff.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

from megalabel import _native

ROOT = Path(__file__).parents[1]
STUBS = ROOT / "src" / "megalabel" / "_native.pyi"
HEADER = "# Written by tools/make_stubs.py (`make stubs`) from the built module: do not edit.\n"


def stubs() -> str:
    """The stubs, linted and formatted as all code is."""
    generator = StubGen(_native)
    generator.put(_native)
    text = HEADER + generator.get()
    for command in (["check", "--fix-only", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={STUBS}", "-"]
        text = subprocess.run(
            ruff, input=text, text=True, check=True, capture_output=True, cwd=ROOT
        ).stdout
    return text


if __name__ == "__main__":
    STUBS.write_text(stubs())
