"""The rooms stand in an order, and a module imports only from what stands before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import megalabel

SOURCE = Path(megalabel.__file__).parent

# from the floor up; modules of one line may import each other in the order they stand in
ORDER = """
    errors _native clock machine progress units html base files outputs kept sealed
    data
    parts
    store
    checkpoints work
    features
    labels
    linear
    retrieval
    rankers
    judges
    neural
    calibration
    decision
    metrics
    calibrating filtering explaining new_labels preparing
    answering relabelling tagger
    merging mixing exporting
    systems
    report
    serve
    scale
    cli
""".split()  # noqa: SIM905
PLACES = {name: place for place, name in enumerate(ORDER)}
# the package's own names and where they come from; `megalabel.x` for these is no import of a room
TOP = "__init__"
WITHOUT_TORCH = {"linear", "rankers", "retrieval", "features", "labels", "serve", "data", "store"}


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of every module that is imported, lazily or not, but not for typing alone."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole module"
            if node.module == "megalabel":
                yield from ((node.lineno, f"megalabel.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, str(node.module)
        pending += ast.iter_child_nodes(node)


def room(module: str) -> str:
    """The first name after `megalabel`; "" for others' modules and the package's own names."""
    first, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    return name if first == "megalabel" and name in PLACES else ""


def against_the_order(files: dict[str, str]) -> list[str]:
    """Every import that looks up, as `file:line imports module`."""
    wrong = []
    for file, text in files.items():
        here = file.partition("/")[0].removesuffix(".py")
        for line, module in imports(ast.parse(text)):
            there = room(module)
            if there and PLACES[there] > PLACES[here]:
                wrong.append(f"{file}:{line} imports {module}")
    return wrong


def sources() -> dict[str, str]:
    files = sorted(SOURCE.rglob("*.py"))
    names = {str(file.relative_to(SOURCE)): file for file in files}
    return {name: file.read_text() for name, file in names.items() if not name.startswith("__")}


def test_every_module_has_a_place() -> None:
    rooms = {name.partition("/")[0].removesuffix(".py") for name in sources()}
    assert rooms <= set(ORDER), "say in ORDER where a new room stands"


def test_modules_import_only_from_what_stands_before_them() -> None:
    assert against_the_order(sources()) == []


@pytest.mark.parametrize(
    "text",
    [
        "from megalabel.store import fingerprint",
        "import megalabel.store",
        "def lazily():\n    from megalabel import store",
        "if True:\n    from megalabel import store as kept",
    ],
)
def test_an_import_against_the_order_is_found(text: str) -> None:
    assert len(against_the_order({"data/corpus.py": text})) == 1
    typing_only = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import megalabel.store"
    assert against_the_order({"data/corpus.py": typing_only, "store/folder.py": text}) == []


def test_rooms_that_answer_everywhere_do_not_import_torch() -> None:
    wrong = [
        f"{file}:{line}"
        for file, text in sources().items()
        if file.partition("/")[0] in WITHOUT_TORCH
        for line, module in imports(ast.parse(text))
        if module.partition(".")[0] == "torch"
    ]
    assert wrong == []
