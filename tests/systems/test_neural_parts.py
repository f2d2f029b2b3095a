from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from megalabel import Tagger, systems


@pytest.mark.parametrize("name", ["xr-transformer", "cascadexml", "lightxml"])
def test_several_models(name, tiny_model, corpus, tmp_path):
    several = systems.create(
        name,
        encoder=tiny_model,
        max_length=16,
        device="cpu",
        models=2,
        calibrate=False,
        classifier__model__trainer__steps=2,
    )
    texts = corpus[:60]
    several.fit(texts)
    assert len(several.classifier_.members_) == 2
    several.save(tmp_path / "model")
    first, second = several.rank(corpus, 5), Tagger.load(tmp_path / "model").rank(corpus, 5)
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)
    plan = systems.get(name).plan(several, texts)
    assert plan.fits
    assert plan.disk > 0


def test_groups_of_labels_in_lightxml(create, corpus):
    made = create("lightxml", grouped_above=5, group_size=2, groups=2, bottleneck=8)
    fitted = made.fit(corpus).classifier_
    assert fitted.tree_.level_sizes == [4, 10]
    assert fitted.heads_["1.projection.weight"].shape == (8, 3 * 32)
    assert fitted.heads_["1.weights"].shape == (10, 8)
    assert fitted.heads_["0.weights"].shape == (4, 3 * 32)
