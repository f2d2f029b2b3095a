"""Batches of texts and of the labels that they are compared with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random

from megalabel.neural.batches import TextSource
from megalabel.neural.dual.batches import DualSource
from megalabel.neural.dual.mining import clusters_of, hard_negatives

CPU = torch.device("cpu")
TEXTS, LABELS, WORDS = 40, 15, 20


def matrices(seed, density=0.2):
    def drawn(rows, columns, share, number):
        made = random(rows, columns, share, "csr", random_state=seed + number)
        return csr_matrix((made > 0).astype(np.float32))

    Y = drawn(TEXTS, LABELS, density, 0)
    hidden = drawn(TEXTS, LABELS, 0.05, 1)
    hidden = csr_matrix(hidden > hidden.multiply(Y > 0), dtype=np.float32)
    return drawn(TEXTS, WORDS, 0.3, 2), drawn(LABELS, WORDS, 0.3, 3), Y, hidden


class Space:
    """A model whose vectors are given."""

    def __init__(self, texts, labels):
        self.texts, self.labels = texts, labels

    def seen_texts(self, X):
        return self.texts

    def seen_labels(self, Z):
        return self.labels


def drawn_space(seed, width=4):
    generator = np.random.default_rng(seed)
    return Space(*(generator.normal(size=(n, width)).astype(np.float32) for n in (TEXTS, LABELS)))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    positives=st.integers(1, 4),
    negatives=st.integers(0, 4),
    extra=st.booleans(),
    all_labels=st.booleans(),
    density=st.sampled_from([0.0, 0.2, 0.6]),
)
def test_a_label_that_a_text_has_is_never_its_negative(
    seed, positives, negatives, extra, all_labels, density
):
    X, Z, Y, hidden = matrices(seed, density)
    options = {"positives": positives, "negatives": negatives, "extra": extra}
    source = DualSource(X, Z, Y, hidden, all_labels=all_labels, **options)
    source.between_epochs(0, drawn_space(seed))
    torch.manual_seed(seed)
    rows = source.order(0, 16, seed)[0]
    batch = source.batch(rows, CPU)
    pool = batch.labels.numpy()
    assert (np.diff(pool) > 0).all()  # each label once
    truth = Y.toarray()[np.ix_(rows, pool)] > 0
    kept_out = hidden.toarray()[np.ix_(rows, pool)] > 0
    targets = batch.targets.dense(0, len(pool)).numpy() > 0
    left_out = batch.hidden.dense(0, len(pool)).numpy() > 0
    negative = ~targets & ~left_out
    assert not (negative & truth).any()
    assert left_out[kept_out].all()
    if extra:  # by brute force, against all that is known of the texts
        np.testing.assert_array_equal(targets, truth)
        np.testing.assert_array_equal(left_out, kept_out)
    else:  # what was drawn for a text, and nothing else
        assert (targets.sum(1) <= positives).all()
        np.testing.assert_array_equal(targets | (left_out & ~kept_out), truth)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), count=st.integers(1, LABELS), density=st.floats(0, 1))
def test_mined_labels_are_the_nearest_that_a_text_does_not_have(seed, count, density):
    known = matrices(seed, density)[2]
    space = drawn_space(seed)
    found = hard_negatives(space.texts, space.labels, known, count)
    scores = space.texts.astype(np.float64) @ space.labels.T
    for row, mined in enumerate(found):
        others = np.flatnonzero(known.toarray()[row] == 0)
        others = others[np.argsort(-scores[row, others], kind="stable")]
        np.testing.assert_array_equal(mined[mined >= 0], others[:count])
        assert (mined[len(others) :] == -1).all()


def test_a_label_mined_for_one_text_that_another_has_is_a_positive_of_the_other():
    Y = csr_matrix(np.eye(2, 2, dtype=np.float32))
    X = Z = csr_matrix(np.eye(2, dtype=np.float32))
    source = DualSource(X, Z, Y, csr_matrix((2, 2)), negatives=1, refresh=1)
    source.between_epochs(0, Space(np.ones((2, 2), np.float32), np.eye(2, dtype=np.float32)))
    assert source.hard.tolist() == [[1], [0]]
    batch = source.batch(np.arange(2), CPU)
    assert batch.targets.dense(0, 2).tolist() == [[1, 0], [0, 1]]


def test_two_texts_that_share_a_label_are_no_lesson_for_each_other():
    from megalabel.neural import Triplet
    from megalabel.neural.dual.network import Objective

    Y = csr_matrix(np.array([[1, 1, 0], [1, 1, 0]], np.float32))
    X, Z = csr_matrix((2, 3), dtype=np.float32), csr_matrix((3, 3), dtype=np.float32)
    source = DualSource(X, Z, Y, csr_matrix((2, 3)), extra=False)
    for seed in range(8):  # whichever of the two labels is drawn for each
        torch.manual_seed(seed)
        batch = source.batch(np.arange(2), CPU)
        labels = torch.randn(len(batch.labels), 4, requires_grad=True)
        loss = Objective(Triplet())(torch.randn(2, 4), labels, batch)
        loss.backward()
        assert loss.item() == 0
        assert not labels.grad.any()


def test_clusters_of_one_are_random_batches():
    X, Z, Y, hidden = matrices(0)
    source = DualSource(X, Z, Y, hidden, cluster=lambda epoch: 1)
    source.between_epochs(0, drawn_space(0))
    assert not len(source.clusters)
    orders = [source.order(epoch, 8, 5) for epoch in (0, 1)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(np.concatenate(order)), np.arange(TEXTS))
        assert [len(rows) for rows in order] == [8] * 5
    assert not np.array_equal(*map(np.concatenate, orders))
    shares = [len(set(a) & set(b)) for a in orders[0] for b in orders[1]]
    assert max(shares) < 8  # texts come with others in another epoch
    assert len(TextSource(X, Y).order(0, 8, 5)) == len(orders[0])


def test_batches_of_clusters_hold_harder_labels_the_larger_clusters_are():
    generator = np.random.default_rng(0)
    things = generator.normal(size=(8, 16))
    kind = np.repeat(np.arange(8), 32)
    texts = things[kind] + 0.5 * generator.normal(size=(256, 16))
    Y = csr_matrix(np.eye(256, dtype=np.float32))  # each text has a label of its own near it
    labels = (texts + 0.1 * generator.normal(size=texts.shape)).astype(np.float32)
    space = Space(texts.astype(np.float32), labels)
    X = csr_matrix((256, 3), dtype=np.float32)
    hard = []
    for size in (1, 4, 32):
        source = DualSource(X, X, Y, csr_matrix((256, 256)), cluster=lambda epoch, s=size: s)
        source.between_epochs(0, space)
        scores = []
        for rows in source.order(0, 32, 0):
            pool = source.batch(rows, CPU).labels.numpy()
            others = texts[rows] @ labels[pool].T
            others[rows[:, None] == pool] = -np.inf
            scores.append(np.sort(others, axis=1)[:, -10:].mean())
        hard.append(np.mean(scores))
    assert hard[0] < hard[1] < hard[2]


@settings(max_examples=20)
@given(n=st.integers(1, 70), size=st.integers(2, 20), seed=st.integers(0, 99))
def test_clusters_are_about_as_large_as_each_other(n, size, seed):
    vectors = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    counts = np.bincount(clusters_of(vectors, size, seed))
    assert counts.sum() == n
    assert counts.max() <= size
    assert counts.max() - counts.min() <= 1


def test_what_was_mined_is_kept_and_drawn_again():
    X, Z, Y, hidden = matrices(0)
    options = {"negatives": 2, "cluster": lambda epoch: 8}
    first, second = (DualSource(X, Z, Y, hidden, **options) for _ in range(2))
    first.between_epochs(0, drawn_space(1))
    second.load({name: value.clone() for name, value in first.state().items()})
    for source in (first, second):
        torch.manual_seed(3)
        source.drawn = source.batch(source.order(2, 8, 0)[1], CPU)
    np.testing.assert_array_equal(first.drawn.rows, second.drawn.rows)
    assert torch.equal(first.drawn.labels, second.drawn.labels)


def test_texts_are_read_in_chunks_and_in_order():
    X, Z, Y, hidden = matrices(0)
    source = DualSource(X, Z, Y, hidden, chunk=3, all_labels=True)
    batch = source.batch(np.arange(7), CPU)
    assert [len(chunk.offsets) for chunk in batch.texts] == [3, 3, 1]
    assert [len(chunk.offsets) for chunk in batch.names] == [3] * 5
    assert source.batch(np.arange(2), CPU).names is batch.names  # made once
    assert len(source.batch(np.arange(1), CPU, labelled=0).targets.indices) == 0


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("mined_by", ["labels", "cosines", "products"])
def test_labels_are_mined_by_both_halves_once_there_is_a_second(mined_by, epoch):
    X, Z, Y, hidden = matrices(0)
    spaces = {"labels": drawn_space(1), "cosines": drawn_space(2), "products": drawn_space(3)}
    model = spaces["labels"]

    def seen_by_both(X, Z, cosines):
        both = spaces["cosines" if cosines else "products"]
        return both.texts, both.labels

    model.seen_by_both = seen_by_both
    source = DualSource(X, Z, Y, hidden, negatives=2, mined_by=mined_by, refresh=2)
    source.between_epochs(epoch, model)
    by = spaces[mined_by if epoch else "labels"]
    wanted = hard_negatives(by.texts, by.labels, csr_matrix(Y + hidden), 4)
    np.testing.assert_array_equal(source.hard, wanted)


@pytest.mark.parametrize("epoch", [1, 4])
def test_nothing_is_mined_before_it_is_due(epoch):
    source = DualSource(*matrices(0), negatives=2, cluster=lambda epoch: 8, refresh=5)
    source.between_epochs(epoch, None)  # no model is asked
