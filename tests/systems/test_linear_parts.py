"""What the linear systems say of their cost before they start."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import systems
from megalabel.systems import linear_parts


@pytest.mark.parametrize("name", ["dismec", "xr-linear"])
def test_a_plan_takes_the_costs_of_labels(name, corpus, monkeypatch):
    monkeypatch.setattr(linear_parts, "_SAMPLE", 3)
    costs = np.linspace(1, 2, len(corpus.labels))
    tagger = systems.create(name, classifier__positive_costs=costs)
    assert systems.get(name).plan(tagger, corpus).fits
    assert tagger.classifier.positive_costs is costs
