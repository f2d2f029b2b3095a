"""Taggers to report on."""

from __future__ import annotations

import pytest

from megalabel import systems
from megalabel.data import Corpus
from megalabel.tagger import Tagger


@pytest.fixture(scope="session")
def tree_tagger(corpus: Corpus) -> Tagger:
    """A calibrated tagger with a small tree."""
    return systems.create("xr-linear", calibrate=True, arity=2, max_leaf=2).fit(corpus)
