"""Texts of labels among what neural classifiers are trained on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

pytest.importorskip("torch")

from megalabel import Corpus, LabelSet, systems
from megalabel.data.examples import Examples
from megalabel.errors import ParameterError
from megalabel.labels import LabelPoints
from megalabel.neural import TextViews, Tokenizer, batches
from megalabel.neural.classifier import held_out_rows

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["red dress", "blue jeans", "a red evening gown"]
SMALL = {
    "astec": {"width": 16},
    "attentionxml": {"max_length": 16, "size": 8, "hidden": [8]},
    "renee": {"encoder": "bag"},
}


def test_tokens_and_views_are_put_below_each_other():
    views = TextViews(systems.create("dismec").features, Tokenizer()).fit(TEXTS)
    whole, first, last = (views.transform(some) for some in (TEXTS, TEXTS[:1], TEXTS[1:]))
    both = first.stacked(last)
    assert (both.words != whole.words).nnz == 0
    np.testing.assert_array_equal(both.tokens.ids, whole.tokens.ids)
    np.testing.assert_array_equal(both.tokens.indptr, whole.tokens.indptr)
    cut = whole.tokens[1:].stacked(first.tokens)
    np.testing.assert_array_equal(cut.lengths, np.roll(whole.tokens.lengths, -1))


def test_label_points_are_never_held_out_to_choose_an_epoch():
    some = Examples.of(np.zeros((40, 2)), csr_matrix((40, 3)))
    some = some.with_label_points(np.zeros((3, 2)), csr_matrix(np.eye(3)))
    rows, judged = held_out_rows(some, 0.5, seed=0)
    assert judged.max() < 40
    assert set(range(40, 43)) <= set(rows.tolist())


@pytest.mark.parametrize("name", sorted(SMALL))
def test_soft_targets_are_what_is_trained_on(name, corpus, monkeypatch):
    seen = []

    class Recorded(batches.TextSource):
        def __init__(self, X, Y):
            seen.append(Y)
            super().__init__(X, Y)

    for room in ("full", "staged", "attention"):
        monkeypatch.setattr(f"megalabel.neural.{room}.TextSource", Recorded)
    points = LabelPoints("cooccurrence", threshold=0.2)
    few = {"device": "cpu", "classifier__trainer__steps": 2, "calibrate": False}
    systems.create(name, label_points=points, **few, **SMALL[name]).fit(corpus)
    targets = seen[-1][len(corpus) :]
    expected = points.targets_of(corpus.targets)
    known = [i for i in range(len(corpus.labels)) if (targets[:, i] == 1).nnz]
    assert len(known) >= 9  # all but that of no known word
    assert (targets != expected[known]).nnz == 0
    assert ((targets.data > 0) & (targets.data < 1)).any()


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_label_of_no_text_has_weights_of_its_own(name, corpus):
    names = corpus.labels.names.to_pylist()
    labels = LabelSet(names, [*names[:-1], "boil water spout"])
    described = Corpus(corpus.texts, targets=corpus.targets, labels=labels)
    few = {"device": "cpu", "classifier__trainer__steps": 2, "calibrate": False}
    seen = []
    for points in (None, "self"):
        ranker = systems.create(name, label_points=points, **few, **SMALL[name]).fit(described)
        learned = ranker.classifier_.learned()
        seen.append(learned["label_counts_"][-1] if "label_counts_" in learned else ranker)
    if name == "renee":  # without a text or a label point its weights are zeros
        seen = [abs(tagger.classifier_.weights_[-1][-1]).sum() for tagger in seen]
    assert seen[0] == 0
    assert seen[1] > 0


def test_a_weight_is_refused_where_rows_are_not_weighed(corpus):
    tagger = systems.create("astec", width=16, label_points=LabelPoints(weight=0.5))
    with pytest.raises(ParameterError, match="astec counts every row the same"):
        tagger.fit(corpus)
