"""Folders that were written once are read for good; and what components of all kinds learn."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
from tests.components import every_component
from tests.formats.kinds import FOLDERS, KINDS, NEEDS, answers

from megalabel import store
from megalabel.base import Component
from megalabel.decision import Online
from megalabel.files import MANIFEST
from megalabel.linear.training import LinearClassifier
from megalabel.parts import Decision
from megalabel.store import registry

KEPT = sorted(path for path in FOLDERS.parent.glob("[0-9]*/*") if path.is_dir())
# a loss as others are
IN_NO_FOLDER = {"Triplet"}


@pytest.fixture
def need(request):
    """Skips a kind that this machine cannot open."""

    def check(name: str) -> None:
        for module in NEEDS.get(name.partition("-")[0], []):
            pytest.importorskip(module, reason=f"{name} needs {module}")
            if module == "torch":
                request.getfixturevalue("one_thread")

    return check


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_kept_folder_answers_as_when_it_was_written(folder, need):
    need(folder.name)
    component = store.load(folder, verify=True)
    expected = json.loads(folder.with_suffix(".json").read_text())
    exact = isinstance(component, LinearClassifier | Decision)
    atol = 1e-4 if folder.name.startswith(tuple(NEEDS)) else 1e-7
    for found, before in zip(answers(component), expected, strict=True):
        if exact:
            np.testing.assert_array_equal(found, np.array(before, found.dtype))
        else:
            np.testing.assert_allclose(found, before, rtol=1e-5, atol=atol)


def test_every_kind_has_a_folder_and_folders_are_small():
    assert {path.name for path in FOLDERS.iterdir() if path.is_dir()} == set(KINDS)
    sizes = [sum(f.stat().st_size for f in path.iterdir()) for path in KEPT]
    assert max(sizes) < 200_000
    assert sum(sizes) < 3_000_000


def test_every_class_is_in_some_folder():
    written = "".join((path / MANIFEST).read_text() for path in KEPT)
    assert {name for name in registry.CLASSES if f'"{name}"' not in written} == IN_NO_FOLDER


def parts_of(value: object) -> list[Component]:
    """A component and those among what it has learned."""
    if isinstance(value, Component):
        return [value, *(p for inner in value.learned().values() for p in parts_of(inner))]
    return [p for inner in value for p in parts_of(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_learns_what_is_declared(name, need):
    need(name)
    # graphs are as they were exported: to export takes long
    component = store.load(FOLDERS / name) if name.startswith("onnx") else KINDS[name]()
    for part in parts_of(component):
        declared = type(part).LEARNED
        assert declared is not None
        required = {k for k, learned in declared.items() if not learned.optional}
        found = set(part.learned())
        assert required <= found <= set(declared), type(part)
        if found:  # each is checked, and what must be there is missed
            again = type(part)(**part.get_params(deep=False))
            again.restore(part.learned())
            assert list(again.learned()) == list(part.learned())
            for left_out in required:
                with pytest.raises(ValueError, match=f"{type(part).__name__} lacks {left_out}"):
                    again.restore({k: v for k, v in part.learned().items() if k != left_out})
            with pytest.raises(ValueError, match=f"{type(part).__name__} keeps no more_"):
                again.restore(part.learned() | {"more_": 1})
            for spoilt in found:
                with pytest.raises(ValueError, match=f"{spoilt}"):
                    again.restore(part.learned() | {spoilt: object()})


def test_all_that_is_kept_says_what_it_learns():
    """All but what trains: of that the parts that answer are kept."""
    pytest.importorskip("torch", reason="the neural components need torch")
    from megalabel.neural import Head, Loss, Trainer
    from megalabel.neural.classifier import NeuralClassifier

    for kind in every_component():
        if not inspect.isabstract(kind):
            trains = issubclass(kind, Head | Loss | NeuralClassifier | Trainer)
            assert (kind.LEARNED is None) == trains, kind


def test_a_stream_that_has_not_begun_is_kept(tmp_path):
    store.save(Online(), tmp_path / "m")
    assert not store.load(tmp_path / "m").fitted
