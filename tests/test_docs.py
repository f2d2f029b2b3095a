"""Every snippet in the README and the docs is run.

Python blocks of a page run in order in one namespace and an empty folder, those with prompts as
doctests; a `text` block right after one must be what it prints. Of a `console` block, lines
starting with `$ ` are run. What needs torch is skipped where there is none.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
KERNELS = [
    "--ignore=src/megalabel/neural/kernels",
    "--ignore=src/megalabel/neural/heads/steps/fused.py",
    "--ignore=src/megalabel/neural/heads/steps/fused_groups.py",
]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in FENCE.finditer(page.read_text(encoding="utf-8"))]


def run_commands(block: str) -> None:
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        command = line[2:].replace("megalabel ", f"{shlex.quote(sys.executable)} -m megalabel ", 1)
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = None
    for language, block in blocks(page):
        if language == "python" and re.search(r"\b(torch|megalabel\.neural)\b", block):
            pytest.importorskip("torch", reason=f"snippets of {page.name} need torch")
        if language == "python" and re.search(r"\b(without_torch|export_onnx)\b", block):
            pytest.importorskip("onnxscript", reason=f"snippets of {page.name} need the extra onnx")
        if language == "python" and block.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(block, namespace, page.name, None, 0)
            results = doctest.DocTestRunner().run(example, clear_globs=False)
            namespace |= example.globs
            assert results.failed == 0
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(block, str(page), "exec"), namespace)
            printed = output.getvalue()
            continue
        elif language == "console":
            run_commands(block)
        elif language == "text" and printed is not None:
            assert printed.rstrip() == block.rstrip()
        printed = None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_docstring_examples_run():
    absent = importlib.util.find_spec("torch") is None
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--doctest-modules",
            "-p",
            "no:cacheprovider",
            "src/megalabel",
            *(["--ignore=src/megalabel/neural"] if absent else []),
            *([] if importlib.util.find_spec("triton") else KERNELS),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stdout


def test_import_is_quick_and_light():
    code = (
        "import sys, time; t = time.perf_counter(); import megalabel; "
        "print(time.perf_counter() - t, 'torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    seconds = min(float(run.stdout.split()[0]) for run in runs)
    assert seconds < 0.3
    assert runs[0].stdout.split()[1:] == ["False", "False"]
    everything = "import megalabel, sys; megalabel.Tagger, megalabel.read, megalabel.evaluate; "
    everything += "print('torch' in sys.modules, 'sklearn' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", everything], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
