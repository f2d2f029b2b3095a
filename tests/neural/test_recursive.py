from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from megalabel import checkpoints
from megalabel.errors import DataError
from megalabel.labels import LabelTree
from megalabel.linear import OneVsAll
from megalabel.neural import PretrainedEncoder, RecursiveClassifier, Trainer
from megalabel.neural.heads import ShortlistModule
from megalabel.neural.heads import shortlist as shortlist_module
from megalabel.neural.losses import SquaredHinge
from megalabel.neural.recursive import _TunedLevel, _TunedModel
from megalabel.neural.shortlists import Candidates, best, children
from megalabel.neural.targets import Targets
from megalabel.neural.views import Views, joined


@pytest.fixture
def encoder(tiny_model):
    return PretrainedEncoder(tiny_model)


def made(encoder, ranker=None, **options):
    own = {"epochs": 1, "batch": 32, "device": "cpu", "checkpoint_seconds": 0}
    trainer = Trainer(**own | options.pop("training", {}))
    shape = {"arity": 2, "max_leaf": 2, "beam": 2, "min_clusters": 2}
    return RecursiveClassifier(encoder, trainer, ranker, **shape | options)


def same(first, second):
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)


def level(random, rows=60, labels=40, beam=2):
    """The last level of a random tree, with parents that something found likely."""
    vectors = random.random((labels, 6), np.float32)
    tree = LabelTree.balanced(vectors, arity=4, max_leaf=5)
    Y = csr_matrix((random.random((rows, labels)) < 0.1).astype(np.float32))
    depth = tree.depth - 1
    parents = tree.level_sizes[depth - 1]
    matched = best(
        random.random((rows, parents), np.float32),
        np.broadcast_to(np.arange(parents), (rows, parents)),
        beam,
        parents,
    )
    return _TunedLevel(tree, depth, Y, matched), tree, Y


@pytest.mark.parametrize("most", [1, 4, 9, 1000])
def test_what_is_true_is_always_active_and_others_up_to_the_limit(random, most):
    found, tree, _ = level(random, beam=3)
    numbers = children(found.parents, found.starts)
    candidates = Candidates(found.parents, found.starts, torch.device("cpu"))
    rows = np.arange(len(numbers))
    active = candidates.some_of(rows, Targets.from_csr(found.targets), most).numpy()
    for row in range(len(numbers)):
        chosen = active[row][active[row] >= 0]
        true = found.targets[row].indices
        assert set(true) <= set(chosen.tolist()) <= set(numbers[row].tolist())
        assert len(set(chosen)) == len(chosen) <= max(most, np.diff(found.targets.indptr).max())
        parents = set(tree.parents(tree.depth)[chosen].tolist())
        assert parents <= set(found.parents[row].indices.tolist())


def test_nodes_are_true_exactly_where_they_hold_labels(random):
    _, tree, Y = level(random)
    chain = tree.chain()
    below = chain[-1]
    for depth in range(tree.depth - 2, -1, -1):
        counts = (Y @ below).toarray()
        np.testing.assert_allclose(tree.targets(Y, depth).toarray(), counts)
        below = below @ chain[depth]


def test_a_solved_head_starts_below_a_random_one(random):
    found, _, _ = level(random)
    vectors = random.normal(size=(60, 16)).astype(np.float32)
    vectors[:, 0] = found.targets[:, 0].toarray().ravel() * 3
    loss = SquaredHinge(relevance=True, reduction="mean")
    shortlist = torch.from_numpy(children(found.parents, found.starts))
    targets = Targets.from_csr(found.targets)

    def value(head):
        with torch.no_grad():
            return float(head(torch.from_numpy(vectors), targets, shortlist))

    head = ShortlistModule(16, found.size, loss)
    before = value(head)
    found.solve(head, csr_matrix(vectors))
    assert value(head) < 0.8 * before


def test_which_levels_are_tuned(encoder):
    tree = LabelTree.balanced(np.random.default_rng(0).random((300, 4)), arity=4, max_leaf=8)
    assert tree.level_sizes == [4, 16, 64, 300]
    assert made(encoder, min_clusters=10)._tuned(tree) == [1, 2, 3]
    assert made(encoder, min_clusters=10, max_clusters=100)._tuned(tree) == [1, 2]
    assert made(encoder, min_clusters=5, max_clusters=6)._tuned(tree) == [0]  # one at least


def test_words_and_vectors_have_the_same_weight(random):
    words = csr_matrix(random.random((5, 7), np.float32))
    words.data[words.indptr[2] : words.indptr[3]] = 0
    both = joined(words, random.normal(size=(5, 3)))
    lengths = np.linalg.norm(both.toarray(), axis=1)
    np.testing.assert_allclose(lengths, np.sqrt([2, 2, 1, 2, 2]), rtol=1e-5)


@pytest.mark.parametrize("bootstrap", ["linear", "random"])
def test_it_learns(encoder, views, corpus, bootstrap):
    training = {"epochs": 4, "learning_rate": 1e-3, "head_learning_rate": 1e-2}
    model = made(encoder, bootstrap=bootstrap, training=training, validation=0.1)
    model.fit(views, corpus.targets, corpus.labels)
    truth = corpus.targets.toarray()
    assert np.take_along_axis(truth, model.rank(views, 1).ids, 1).mean() > 0.9
    vectors = model.features(views)[:, views.words.shape[1] :]
    alone = OneVsAll().fit(vectors, corpus.targets).rank(vectors, 1)
    assert np.take_along_axis(truth, alone.ids, 1).mean() > 0.8


def test_a_label_never_seen_comes_last(encoder, views, corpus):
    ids = made(encoder).fit(views, corpus.targets, corpus.labels).rank(views, 100).ids
    assert ids.shape == (300, 10)
    assert (ids[:, -1] == 9).all()


class Interrupted(Exception):
    pass


@pytest.mark.parametrize(("when", "sparse"), [(4, False), (14, True)])
def test_an_interrupted_training_goes_on_to_the_same_end(
    encoder, views, corpus, tmp_path, monkeypatch, when, sparse
):
    monkeypatch.setattr(shortlist_module, "SPARSE", 1 if sparse else 1000)

    def fit():
        model = made(encoder, arity=4, max_leaf=2)
        return model.fit(views, corpus.targets).rank(views, 5)

    forward, calls = _TunedModel.forward, []

    def counted(self, batch):
        calls.append(1)
        if len(calls) == when:
            raise Interrupted
        return forward(self, batch)

    whole = fit()
    monkeypatch.setattr(_TunedModel, "forward", counted)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            fit()
        same(whole, fit())
        done = len(calls)
        same(whole, fit())  # nor is a training that has ended done again
    assert len(calls) == done


def test_one_label_and_one_text(encoder, views):
    for rows, Y in ([0, 1, 2], [[1], [1], [0]]), ([0], [[1, 1]]):
        model = made(encoder).fit(views[rows], csr_matrix(np.array(Y, np.float32)))
        assert model.rank(views[:4], 5).ids.shape == (4, len(Y[0]))


def test_mistakes_are_told(encoder, views, tokens, corpus):
    with pytest.raises(DataError, match="TextViews"):
        made(encoder).fit(tokens, corpus.targets)
    model = made(encoder, max_clusters=1).fit(views, corpus.targets)
    assert isinstance(views[:2], Views)
    with pytest.raises(DataError, match="TextViews"):
        model.rank(tokens, 3)
