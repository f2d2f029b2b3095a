"""Texts as words and as tokens."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from megalabel.features import Tfidf
from megalabel.features import tfidf as tfidf_room
from megalabel.neural import TextViews, Tokenizer
from megalabel.neural import tokens as tokens_room

TEXTS = ["red dress", "blue jeans", "a red evening gown"]


@pytest.fixture
def passes(monkeypatch):
    """How often words and tokens were read from the texts."""
    count = {"words": 0, "tokens": 0}
    words, tokens = tfidf_room.texts_in_memory, tokens_room.text_batches

    def counted_words(inputs):
        count["words"] += 1
        return words(inputs)

    def counted_tokens(inputs):
        count["tokens"] += 1
        return tokens(inputs)

    monkeypatch.setattr(tfidf_room, "texts_in_memory", counted_words)
    monkeypatch.setattr(tokens_room, "text_batches", counted_tokens)
    return count


def test_texts_are_read_once(passes, tiny_model):
    views = TextViews(Tfidf(), Tokenizer(tiny_model))
    together = views.fit_transform(TEXTS)
    assert passes == {"words": 1, "tokens": 1}
    apart = TextViews(Tfidf(), Tokenizer(tiny_model)).fit(TEXTS).transform(TEXTS)
    for made in (together, views.transform(TEXTS)):
        assert (made.words != apart.words).nnz == 0
        np.testing.assert_array_equal(made.tokens.ids, apart.tokens.ids)
        np.testing.assert_array_equal(made.tokens.indptr, apart.tokens.indptr)


def test_a_fit_that_fails_leaves_the_views_unfitted():
    views = TextViews(Tfidf(min_df=100), Tokenizer())
    with pytest.raises(ValueError, match="min_df"):
        views.fit_transform(TEXTS)
    assert not views.fitted
