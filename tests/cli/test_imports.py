"""A command imports what is shared, never another command."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from megalabel import cli

FOLDER = Path(cli.__file__).parent
SHARED = {"output", "reading", "shared"}
COMMANDS = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in {*SHARED, "__init__", "app"})


@pytest.mark.parametrize("name", [*COMMANDS, *sorted(SHARED)])
def test_no_command_imports_another(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("megalabel.cli"):
            inner = node.module.removeprefix("megalabel.cli").strip(".")
            found |= {inner} if inner else {alias.name for alias in node.names}
    assert found <= SHARED
