"""What files know of labels: for all labels, and for a part of them."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import store, systems
from megalabel.errors import ParameterError
from megalabel.systems.label_files import use_label_files


def test_the_part_of_a_shard(corpus, tmp_path):
    n = len(corpus.labels)
    np.save(tmp_path / "p.npy", np.linspace(0.1, 1, n))
    (tmp_path / "costs.tsv").write_text(f"{corpus.labels.name(n - 1)}\t2\t0.5\n")
    files = {"propensities": tmp_path / "p.npy", "costs": tmp_path / "costs.tsv"}
    whole, part = systems.create("dismec"), systems.create("dismec")
    use_label_files(whole, corpus.labels, **files)
    use_label_files(part, corpus.labels, corpus.label_shard(2, 2).labels, **files)
    half = n // 2
    for name in ("propensities", "positive_costs", "negative_costs"):
        values = getattr(whole.classifier, name)
        np.testing.assert_array_equal(getattr(part.classifier, name), values[half:])
    assert whole.classifier.positive_costs[-1] == 2


def test_trees(corpus, tmp_path):
    fitted = systems.create("parabel", max_leaf=2, calibrate=False).fit(corpus)
    fitted.save(tmp_path / "model")
    store.save(fitted.classifier_.trees_[0], tmp_path / "tree")
    tagger = systems.create("parabel")
    use_label_files(tagger, corpus.labels, trees=tmp_path / "model")
    assert len(tagger.classifier.tree) == len(fitted.classifier_.trees_)
    use_label_files(tagger, corpus.labels, trees=tmp_path / "tree")
    assert len(tagger.classifier.tree) == 1
    systems.create("knn").fit(corpus).save(tmp_path / "knn")
    with pytest.raises(ParameterError, match="has no label trees"):
        use_label_files(tagger, corpus.labels, trees=tmp_path / "knn")
