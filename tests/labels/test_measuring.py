"""Propensities of the labels of a corpus."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel.data import Corpus
from megalabel.data.synthetic import generate
from megalabel.errors import DataError, ParameterError
from megalabel.labels import Jpv, direct_propensities, jpv
from megalabel.labels.measuring import measured_propensities


@pytest.fixture(scope="module")
def shop():
    return generate(texts=600, labels=200)


def complete(shop, ids):
    corpus = shop.corpus
    return Corpus(corpus.texts, None, shop.complete, corpus.labels, ids=ids)


def test_a_published_model(shop):
    found = measured_propensities(shop.corpus)
    np.testing.assert_array_equal(found.values, jpv(shop.corpus.label_counts, len(shop.corpus)))
    assert (list(found.curves), found.sample) == (["jpv"], 0)


def test_a_sample_of_the_same_texts(shop):
    found = measured_propensities(shop.corpus, "direct", complete(shop, shop.corpus.ids)[:300])
    assert (found.sample, found.same_texts) == (300, True)
    measured = direct_propensities(shop.corpus.targets[:300], shop.complete[:300])
    np.testing.assert_array_equal(found.values, measured)


def test_a_sample_of_other_texts(shop):
    found = measured_propensities(shop.corpus, "jpv-fitted", complete(shop, None))
    assert (found.sample, found.same_texts) == (600, False)
    assert isinstance(found.curves["jpv-fitted"], Jpv)
    assert set(found.curves) == {"direct", "jpv-fitted"}


def test_what_cannot_be_measured(shop):
    with pytest.raises(ParameterError, match=r"one of jpv, .*, richards, direct, not 'bathtub'"):
        measured_propensities(shop.corpus, "bathtub")
    with pytest.raises(ParameterError, match="richards needs a complete sample"):
        measured_propensities(shop.corpus, "richards")
    with pytest.raises(ParameterError, match="jpv does not look at a complete sample"):
        measured_propensities(shop.corpus, "jpv", shop.corpus)
    with pytest.raises(DataError, match="the texts have no labels"):
        measured_propensities(Corpus(["a", "b"]))
