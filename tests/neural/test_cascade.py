from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from megalabel import checkpoints
from megalabel.errors import DataError, ParameterError
from megalabel.labels import LabelTree
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.neural import CascadeClassifier, PretrainedEncoder, Trainer
from megalabel.neural.batches import TextSource
from megalabel.neural.cascade_network import Cascade, Shape
from megalabel.neural.heads import shortlist as shortlist_module
from megalabel.neural.targets import Targets

CPU = torch.device("cpu")


def trainer(**options):
    return Trainer(**{"epochs": 1, "batch": 32, "device": "cpu"} | options)


@pytest.fixture
def encoder(tiny_model):
    return PretrainedEncoder(tiny_model)


def cascade(encoder, *, labels=45, beams=(2, 3), dropout=0.0, prediction="weighted", seed=0):
    """A network over labels in 4, then 16 clusters of unequal size, with random weights."""
    random = np.random.default_rng(seed)
    cuts = np.sort(random.choice(np.arange(1, labels), 15, replace=False))
    levels = [np.array([0, 4]), np.array([0, 3, 8, 12, 16]), np.array([0, *cuts, labels])]
    tree = LabelTree()
    tree.restore({"levels_": levels, "label_of_leaf_": random.permutation(labels).astype(np.int32)})
    shape = Shape(
        layers=[[1, 2], [2], [3]],
        widths=[8, None, None],
        dropouts=[dropout] * 3,
        beams=beams,
        pooling="mean",
        prediction=prediction,
    )
    torch.manual_seed(seed)
    network = Cascade(encoder, tree, shape, 32)
    with torch.no_grad():
        for head in network.heads:
            head.bias.normal_()
            head.weights.mul_(5)
    return network, tree


@pytest.fixture
def module(encoder, tokens):
    return encoder.begin(tokens, 0).eval()


def random_targets(rows, labels, seed=0):
    random = np.random.default_rng(seed)
    Y = (random.random((rows, labels)) < 0.08).astype(np.float32)
    Y[0] = 0
    return csr_matrix(Y)


@pytest.mark.parametrize("dense", [0, 64])
def test_with_every_cluster_in_the_beam_scores_are_a_whole_product(
    module, tokens, monkeypatch, dense
):
    monkeypatch.setattr(shortlist_module, "_DENSE", dense)
    network, tree = cascade(module, beams=(4, 16))
    vectors = network.vectors(tokens.batch(np.arange(9), CPU))
    parts = vectors.split([8, 32, 32], 1)
    for level, part, size in zip(network.walk(vectors), parts, tree.level_sizes, strict=True):
        head = network.heads[tree.level_sizes.index(size)]
        whole = part @ head.weights.T + head.bias
        found = torch.full_like(whole, np.nan)
        if level.shortlist is None:
            found = level.scores
        else:
            for row, numbers in enumerate(level.shortlist):
                there = numbers >= 0
                assert len(set(numbers[there].tolist())) == int(there.sum()) == size
                found[row, numbers[there]] = level.scores[row, there]
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dense", [0, 64])
def test_only_candidates_have_a_gradient(module, tokens, monkeypatch, dense):
    monkeypatch.setattr(shortlist_module, "_DENSE", dense)
    network, _ = cascade(module, beams=(1, 1))
    Y = csr_matrix(np.eye(5, 45, dtype=np.float32))
    batch = TextSource(tokens[np.arange(5)], Y).batch(np.arange(5), CPU)
    network.eval()
    shortlists = [x.shortlist for x in network.walk(network.vectors(batch.inputs), batch.targets)]
    network(batch).backward()
    for head, shortlist in zip(network.heads[1:], shortlists[1:], strict=True):
        seen = np.unique(shortlist[shortlist >= 0].numpy())
        others = np.setdiff1d(np.arange(head.nodes), seen)
        assert head.nodes < 20 or len(others)
        assert (head.weights.grad[others] == 0).all()
        assert (head.bias.grad[others] == 0).all()
        assert (head.bias.grad[seen] != 0).all()


def test_true_clusters_and_labels_are_always_scored(module, tokens):
    network, tree = cascade(module, beams=(1, 2))
    Y = random_targets(40, 45)
    targets = Targets.from_csr(Y)
    vectors = network.vectors(tokens.batch(np.arange(40), CPU))
    for depth, level in enumerate(network.walk(vectors, targets)):
        counts = np.diff(tree.targets(Y, depth).indptr)
        assert counts.max() > 2  # more than the beam is wide
        assert (level.truth.sum(1).numpy() == counts).all()


def test_the_loss_is_the_sum_of_means_over_what_is_scored(module, tokens):
    network, _ = cascade(module)
    Y = random_targets(12, 45)
    batch = TextSource(tokens[np.arange(12)], Y).batch(np.arange(12), CPU)
    network.eval()
    expected = 0.0
    for level in network.walk(network.vectors(batch.inputs), batch.targets):
        s, y = (x.detach().double().numpy() for x in (level.scores, level.truth))
        there = np.ones(s.shape, bool) if level.mask is None else level.mask.numpy()
        each = np.logaddexp(0, s) - s * y
        expected += np.mean([row[ok].mean() for row, ok in zip(each, there, strict=True)])
    assert float(network(batch).detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("prediction", ["weighted", "level"])
def test_answers_are_the_best_of_what_the_beam_meets(module, tokens, prediction):
    network, tree = cascade(module, prediction=prediction)
    network.eval()
    vectors = network.vectors(tokens.batch(np.arange(20), CPU)).detach()
    scores, ids = (x.numpy() for x in network.top_k(vectors, 30))
    parts = [part.double().numpy() for part in vectors.split([8, 32, 32], 1)]
    weights = [
        (h.weights.detach().double().numpy(), h.bias.detach().numpy()) for h in network.heads
    ]
    sure = [1 / (1 + np.exp(-(x @ w.T + b))) for x, (w, b) in zip(parts, weights, strict=True)]
    for row in range(20):
        above = np.argsort(-sure[0][row])[:2]
        middle = [c for p in above for c in range(*tree.levels_[1][p : p + 2])]
        beam = sorted(middle, key=lambda c: -sure[1][row, c])[:3]
        found = {}
        for p in beam:
            for leaf in range(*tree.levels_[2][p : p + 2]):
                factor = sure[1][row, p] if prediction == "weighted" else 1
                found[int(tree.label_of_leaf_[leaf])] = sure[2][row, leaf] * factor
        order = sorted(found, key=lambda label: (-found[label], label))[:30]
        assert ids[row, : len(order)].tolist() == order
        np.testing.assert_allclose(scores[row, : len(order)], [found[x] for x in order], rtol=1e-4)
        # what the beam does not meet is padding, as in linear trees
        assert (ids[row, len(order) :] == 45).all()
        assert np.isneginf(scores[row, len(order) :]).all()


def fit(encoder, views, corpus, **options):
    options = {"resolutions": [2, 4], "beam": 2, "ranker": "network"} | options
    made = CascadeClassifier(encoder, options.pop("trainer", trainer()), **options)
    return made.fit(views, corpus.targets, corpus.labels)


def test_it_learns(encoder, views, corpus):
    tuned = trainer(epochs=8, learning_rate=2e-3, head_learning_rate=2e-2)
    made = fit(encoder, views, corpus, trainer=tuned, ranker=None, validation=0.2)
    truth = corpus.targets.toarray()
    network, ranker = made.rank_by_network(views, 2), made.rank(views, 2)
    for ranking in (network, ranker):
        assert np.take_along_axis(truth, ranking.ids[:, :1], 1).mean() > 0.8
    assert made.features(views).shape == (300, views.words.shape[1] + 32)


def test_what_features_are(encoder, views, corpus):
    made = fit(encoder, views, corpus, ranker=None)
    words = views.words.copy()
    words.data[: words.indptr[1]] = 0
    lengths = np.sqrt(made.features(type(views)(words, views.tokens)).power(2).sum(1)).A1
    assert lengths[0] == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(lengths[1:], np.sqrt(2), rtol=1e-5)


def test_a_label_never_seen_comes_last(encoder, views, corpus):
    made = fit(encoder, views, corpus, beam=4)
    ids = made.rank(views, 10).ids
    assert (ids[:, -1] == len(corpus.labels) - 1).all()
    assert all(sorted(row) == list(range(10)) for row in ids.tolist())


class Interrupted(Exception):
    pass


def test_an_interrupted_training_goes_on_to_the_same_end(
    encoder, views, corpus, tmp_path, monkeypatch
):
    tuned = trainer(epochs=1, checkpoint_seconds=0)
    whole = fit(encoder, views, corpus, trainer=tuned, ranker=None).rank_by_network(views, 5)
    forward, calls = Cascade.forward, []

    def failing(self, batch):
        calls.append(1)
        if len(calls) == 5:
            raise Interrupted
        return forward(self, batch)

    monkeypatch.setattr(Cascade, "forward", failing)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            fit(encoder, views, corpus, trainer=tuned, ranker=None)
        again = fit(encoder, views, corpus, trainer=tuned, ranker=None).rank_by_network(views, 5)
    assert len(calls) == 5 + 10 - 4  # what was done was not done again
    np.testing.assert_array_equal(whole.ids, again.ids)
    np.testing.assert_array_equal(whole.scores, again.scores)


@pytest.mark.parametrize("ranker", ["network", None])
def test_one_label_and_one_text(encoder, views, ranker):
    for rows, Y in ([0, 1, 2], [[1], [1], [0]]), ([0], [[1, 1]]):
        made = CascadeClassifier(encoder, trainer(), ranker)
        made.fit(views[rows], csr_matrix(np.array(Y, np.float32)))
        ranking = made.rank(views[:4], 5)
        assert ranking.ids.shape == (4, len(Y[0]))
        assert ranking.present.all()


def test_relevances_above_one_are_labels_like_others(encoder, views, corpus):
    more = corpus.targets.copy()
    more.data[:] = 3
    first = fit(encoder, views, corpus).rank(views, 5)
    second = CascadeClassifier(encoder, trainer(), "network", resolutions=[2, 4], beam=2)
    np.testing.assert_array_equal(
        first.scores, second.fit(views, more, corpus.labels).rank(views, 5).scores
    )


def test_levels_layers_and_beams_by_the_number_of_labels(encoder, module):
    def shape(labels, depth, **options):
        made = CascadeClassifier(encoder, **options)
        words = csr_matrix(np.random.default_rng(0).random((50, 8), np.float32))
        made.tree_ = made._clustered(words, csr_matrix((50, labels), dtype=np.float32))
        module.depth = depth
        return made.tree_.level_sizes, made._shape(module)

    assert shape(1000, 6)[0] == [1000]
    assert shape(1000, 6)[1].layers == [[6]]
    sizes, found = shape(13_330, 12)
    assert sizes == [256, 2048, 13_330]
    assert found.layers == [[7, 8], [10], [12]]
    assert found.beams == [64, 64]
    assert found.dropouts == [0.2, 0.3, 0.4]
    assert found.widths == [32, None, None]
    assert shape(4_000, 6)[0] == [512, 4_000]
    assert shape(4_000, 6)[1].layers == [[4, 5], [6]]
    sizes, found = shape(100_000, 12, max_first=128)
    assert sizes == [32, 256, 2048, 16_384, 100_000]
    assert found.layers[1:] == [[6], [8], [10], [12]]
    light = {"layers": [[-5, -4, -3, -2, -1]], "projection": 16, "dropouts": [0.5]}
    sizes, found = shape(1000, 3, max_first=500, cluster_size=60, **light)
    assert sizes == [16, 1000]
    assert found.layers == [[1, 2, 3]] * 2
    assert found.widths == [None, 16]
    assert found.dropouts == [0.5, 0.0]


def test_mistakes_are_told(encoder, views, corpus, tokens):
    with pytest.raises(ParameterError, match="rising powers of two below the 10 labels"):
        fit(encoder, views, corpus, resolutions=[4, 3])
    with pytest.raises(ParameterError, match="rising powers of two below the 10 labels"):
        fit(encoder, views, corpus, resolutions=[16])
    with pytest.raises(ParameterError, match="each of the 3 levels, not 2"):
        fit(encoder, views, corpus, dropouts=[0.1, 0.2])
    with pytest.raises(ParameterError, match="layers must be some of -3 to 3"):
        fit(encoder, views, corpus, layers=[9])
    with pytest.raises(ParameterError, match="one number or 2"):
        fit(encoder, views, corpus, beam=[3])
    with pytest.raises(DataError, match="TextViews"):
        fit(encoder, tokens, corpus)


def test_any_linear_classifier_may_rank(encoder, views, corpus):
    for ranker in (TreeClassifier(), OneVsAll(loss="logistic")):
        made = fit(encoder, views, corpus, ranker=ranker)
        assert type(made.ranker_) is type(ranker)
        assert made.rank(views[:3], 5).ids.shape == (3, 5)
