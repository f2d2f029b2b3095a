"""Splits: equal texts together, labels in their shares, the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, split
from megalabel.errors import ParameterError


def zipf(n=4000, width=600, seed=0) -> Corpus:
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, width + 1)
    cells = random.choice(width, size=(n, 3), p=weights / weights.sum())
    targets = csr_matrix((np.ones(3 * n), cells.ravel(), np.arange(0, 3 * n + 1, 3)), (n, width))
    targets.sum_duplicates()
    targets.data[:] = 1
    return Corpus([f"text {i}" for i in range(n)], targets=targets)


@pytest.mark.parametrize("how", ["hash", "labels", "random"])
def test_shares_all_rows_by_the_seed(how):
    corpus = zipf()
    train, test = split(corpus, 0.25, how, seed=3)
    texts = corpus.texts.to_pylist()
    assert sorted(train.texts.to_pylist() + test.texts.to_pylist()) == sorted(texts)
    for part in (train, test):
        where = [texts.index(t) for t in part.texts.to_pylist()]
        assert where == sorted(where)
        assert (part.targets != corpus.targets[where]).nnz == 0
    assert len(test) == pytest.approx(1000, abs=100)
    assert split(corpus, 0.25, how, seed=3)[1].texts.equals(test.texts)
    assert not split(corpus, 0.25, how, seed=4)[1].texts.equals(test.texts)


def test_hash_is_the_same_everywhere():
    corpus = Corpus([f"text {i}" for i in range(20)])
    assert split(corpus)[1].texts.to_pylist() == [f"text {i}" for i in (1, 6, 11, 12, 14, 19)]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a b", " A  b", "Straße", "STRASSE", "c", "d\te", "D e\n", ""]), min_size=1
    )
)
def test_hash_keeps_equal_texts_together_in_any_order(texts):
    parts = [set(part.texts.to_pylist()) for part in split(Corpus(texts), 0.5)]
    folded = [{" ".join(t.casefold().split()) for t in part} for part in parts]
    assert not folded[0] & folded[1]
    assert [set(part.texts.to_pylist()) for part in split(Corpus(texts[::-1]), 0.5)] == parts


def test_hash_of_features():
    features = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    corpus = Corpus(features=np.vstack([features, features]))
    train, test = split(corpus, 0.5)
    assert not {r.tobytes() for r in train.features} & {r.tobytes() for r in test.features}
    sparse = split(Corpus(features=csr_matrix(np.vstack([features, features]))), 0.5)
    assert (sparse[1].features.toarray() == test.features).all()


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_labels_have_their_shares(share):
    corpus = zipf()
    train, test = split(corpus, share, "labels")
    counts, kept = corpus.label_counts, test.label_counts
    frequent = counts >= 20
    off = np.abs(kept[frequent] / counts[frequent] - share)
    assert off.max() < 0.15
    assert off.mean() < 0.02
    rare = (counts > 1) & (counts < 20)
    assert kept[rare].sum() / counts[rare].sum() == pytest.approx(share, abs=0.05)
    assert (train.label_counts[counts >= 2] >= 1).all()
    random = split(corpus, share, "random")[1].label_counts
    off = [np.abs(c[counts > 0] / counts[counts > 0] - share).mean() for c in (kept, random)]
    assert off[0] < 0.8 * off[1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=20),
    st.sampled_from([0.05, 0.5, 0.95]),
    st.integers(0, 5),
)
def test_labels_keep_a_text_to_learn_from(rows, share, seed):
    corpus = Corpus(["x"] * len(rows), targets=[[str(label) for label in row] for row in rows])
    train, _ = split(corpus, share, "labels", seed)
    assert (train.label_counts[corpus.label_counts >= 2] >= 1).all()


@pytest.mark.parametrize("given", [{"test": 0}, {"test": 1.5}, {"how": "year"}])
def test_parameters(given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        split(Corpus(["a"]), **given)
