"""Statistics of a corpus, against a corpus counted by hand."""

import json

import numpy as np

from megalabel.data import Corpus, LabelSet, statistics


def test_by_hand():
    names = [["a", "b", "c"], ["a"], ["a"], ["a", "b"], [], ["a"], ["a"], ["a"]]
    texts = ["one two  three", "é", "é", "", " \n", "x", "y", "z"]
    corpus = Corpus(texts, targets=names, labels=LabelSet(["a", "b", "c", "d"]))
    figures = statistics(corpus)
    assert figures.to_dict() == {
        "texts": 8,
        "labels": 4,
        "labels_used": 3,
        "labels_without_texts": 1,
        "features": 0,
        "labels_per_text_mean": 10 / 8,
        "labels_per_text_median": 1.0,
        "labels_per_text_max": 3,
        "texts_per_label_mean": 10 / 3,
        "texts_per_label_median": 2.0,
        "tail_share": 2 / 3,
        "texts_without_labels": 1,
        "empty_texts": 2,
        "duplicate_texts": 1,
        "words_per_text": 8 / 8,
        "text_bytes": 14 + 2 + 2 + 0 + 2 + 3,
        "histogram": {"1": 1, "2-3": 1, "4-7": 1},
    }
    json.dumps(figures.to_dict())


def test_histogram_has_every_label_once():
    counts = [1, 2, 3, 4, 7, 8, 15, 16, 100]
    targets = np.zeros((100, len(counts)))
    for label, count in enumerate(counts):
        targets[:count, label] = 1
    bins = statistics(Corpus(["x"] * 100, targets=targets)).histogram
    for low, high, labels in bins:
        assert labels == sum(low <= count <= high for count in counts)
    assert sum(b.labels for b in bins) == len(counts)


def test_features_alone_and_nothing_at_all():
    figures = statistics(Corpus(features=np.eye(3)))
    assert (figures.texts, figures.features, figures.words_per_text) == (3, 3, 0)
    assert figures.histogram == ()
    empty = statistics(Corpus([]))
    assert (empty.texts, empty.labels_per_text_max, empty.tail_share) == (0, 0, 0)
