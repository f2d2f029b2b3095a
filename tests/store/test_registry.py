"""The names by which folders know classes."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.components import every_component

from megalabel.errors import MissingExtraError
from megalabel.store.registry import CLASSES, class_name, find_class
from megalabel.systems.composed import Composed

NAMES = Path(__file__).with_name("class_names.txt")


def test_every_component_has_one_name():
    # what is composed in its fit is kept as a plain Tagger
    kinds = {
        kind
        for kind in every_component()
        if not (inspect.isabstract(kind) or issubclass(kind, Composed))
    }
    found = {name: find_class(name) for name in CLASSES}
    assert Counter(found.values()) == Counter(kinds)
    assert all(class_name(kind) == name for name, kind in found.items())


def test_no_name_is_given_twice():
    """Names stay in the list for good, those of classes that are no more with a note after them."""
    lines = [line.split() for line in NAMES.read_text().splitlines() if not line.startswith("#")]
    names = [line[0] for line in lines]
    assert len(set(names)) == len(names)
    assert {line[0] for line in lines if len(line) == 1} == set(CLASSES)


def test_a_class_whose_extra_is_missing(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("megalabel.neural")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"megalabel\[neural\]"):
        find_class("Trainer")
