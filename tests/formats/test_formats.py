"""Folders that were written once are read for good; and what components of all kinds learn."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from tests.components import every_component
from tests.formats.kinds import FOLDERS, KINDS, answers

from megalabel import store
from megalabel.base import Component
from megalabel.decision import Online
from megalabel.linear.training import LinearClassifier
from megalabel.parts import Decision

KEPT = sorted(path for path in FOLDERS.parent.glob("[0-9]*/*") if path.is_dir())
# Those that need an exported graph, whose folders come with the neural ones.
WITH_GRAPHS = {"OnnxEmbedding", "OnnxTokens", "AttentionTree"}


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_kept_folder_answers_as_when_it_was_written(folder):
    component = store.load(folder, verify=True)
    expected = json.loads(folder.with_suffix(".json").read_text())
    exact = isinstance(component, LinearClassifier | Decision)
    for found, before in zip(answers(component), expected, strict=True):
        if exact:
            np.testing.assert_array_equal(found, np.array(before, found.dtype))
        else:
            np.testing.assert_allclose(found, before, rtol=1e-5, atol=1e-7)


def test_every_kind_has_a_folder_and_folders_are_small():
    assert {path.name for path in FOLDERS.iterdir() if path.is_dir()} == set(KINDS)
    sizes = [sum(f.stat().st_size for f in path.iterdir()) for path in KEPT]
    assert max(sizes) < 200_000
    assert sum(sizes) < 3_000_000


def test_every_class_is_in_some_folder():
    written = "".join((path / store.folder.MANIFEST).read_text() for path in KEPT)
    kinds = {
        kind.__name__
        for kind in every_component()
        if not inspect.isabstract(kind) and ".neural." not in kind.__module__
    }
    assert {name for name in kinds if f'"{name}"' not in written} == WITH_GRAPHS


def parts_of(value: object) -> list[Component]:
    """A component and those among what it has learned."""
    if isinstance(value, Component):
        return [value, *(p for inner in value.learned().values() for p in parts_of(inner))]
    return [p for inner in value for p in parts_of(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_learns_what_is_declared(name, tmp_path: Path):
    for part in parts_of(KINDS[name]()):
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
            with pytest.raises(ValueError, match=f"{type(part).__name__} does not learn more_"):
                again.restore(part.learned() | {"more_": 1})
            for spoilt in found:
                with pytest.raises(ValueError, match=f"{spoilt}"):
                    again.restore(part.learned() | {spoilt: object()})


def test_all_but_neural_components_say_what_they_learn():
    for kind in every_component():
        if not inspect.isabstract(kind) and ".neural." not in kind.__module__:
            assert kind.LEARNED is not None, kind


def test_a_stream_that_has_not_begun_is_kept(tmp_path):
    store.save(Online(), tmp_path / "m")
    assert not store.load(tmp_path / "m").fitted
