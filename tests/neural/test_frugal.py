"""Systems of encoders trained from scratch: Astec's stages, InceptionXML and its clusters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch.nn.functional import normalize

from megalabel import checkpoints, systems
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.features import Tfidf
from megalabel.neural import (
    BagEncoder,
    CascadeClassifier,
    ConvolutionalEncoder,
    FullClassifier,
    StagedClassifier,
    Trainer,
)
from megalabel.neural import staged as staged_module
from megalabel.neural.batches import TextSource
from megalabel.neural.cascade_network import Cascade
from megalabel.neural.encoders.bag import ResidualBlock
from megalabel.neural.encoding import encoded
from megalabel.neural.heads import shortlist as shortlist_module
from megalabel.neural.staged import ShortlistModel, nearest
from megalabel.rankers import Ensemble

BAG = BagEncoder(width=12, residual=None)
CONVOLUTIONS = ConvolutionalEncoder(width=12, length=8, token_width=16, filters=4)


def trainer(**options):
    return Trainer(**{"epochs": 1, "batch": 32, "device": "cpu"} | options)


@pytest.fixture(scope="module")
def words(corpus):
    return Tfidf().fit_transform(corpus)


def fit(words, corpus, **options):
    encoder = BagEncoder(width=options.pop("width", 12), residual=None)
    made = StagedClassifier(encoder, options.pop("trainer", trainer()), **options)
    return made.fit(words, corpus.targets, corpus.labels)


def learned_parts(made, words):
    """Vectors, nearness to all labels and the classifiers' scores of all labels, in float64."""
    vectors = encoded(made.module(), words, made.training).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors / np.maximum(lengths, 1e-12) @ made.centroids_.astype(np.float64).T
    block = ResidualBlock(12, 0.0, "sum")
    block.load_state_dict({k: torch.from_numpy(v) for k, v in made.block_.items()})
    with torch.no_grad():
        deeper = block.eval()(torch.from_numpy(vectors).float()).double().numpy()
    return cosines, deeper @ made.weights_.astype(np.float64).T + made.bias_


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_a_score_is_a_mean_of_classifier_and_nearness(words, corpus, beta):
    made = fit(words, corpus, beta=beta, shortlist=4)
    cosines, scores = learned_parts(made, words)
    cosines[:, 9] = -2  # never seen
    near = np.argsort(-cosines, axis=1, kind="stable")[:, :4]
    both = beta * sigmoid(scores) + (1 - beta) * sigmoid(cosines)
    ranking = made.rank(words, 4)
    assert (np.sort(ranking.ids, 1) == np.sort(near, 1)).mean() > 0.99  # but for near ties
    expected = np.take_along_axis(both, ranking.ids, 1)
    np.testing.assert_allclose(ranking.scores, expected, atol=1e-4)


def test_centroids_are_the_means_of_a_labels_texts(words, corpus):
    made = fit(words, corpus)
    vectors = normalize(torch.from_numpy(encoded(made.module(), words, made.training))).numpy()
    sums = corpus.targets.toarray().T @ vectors
    sums /= np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(made.centroids_, sums, atol=1e-3)
    assert (made.centroids_[9] == 0).all()


def test_the_search_is_exact_in_any_chunks(monkeypatch, random):
    vectors, centroids = (
        normalize(torch.from_numpy(random.normal(size=(n, 6)).astype(np.float32))) for n in (9, 101)
    )
    centroids[7] = 0
    whole = vectors.numpy() @ centroids.numpy().T
    whole[:, 7] = -2
    for scores in (1 << 24, 90):
        monkeypatch.setattr(staged_module, "_SCORES", scores)
        cosines, ids = nearest(vectors, centroids, 101)
        np.testing.assert_allclose(cosines.numpy(), -np.sort(-whole, 1), atol=1e-6)
        assert (ids[:, -1] == 7).all()
        np.testing.assert_allclose(np.take_along_axis(whole, ids.numpy(), 1), cosines, atol=1e-6)


def test_it_learns_in_stages(words, corpus):
    tuned = trainer(epochs=15, learning_rate=0.02, head_learning_rate=0.02)
    truth = corpus.targets.toarray()
    for options in ({}, {"clusters": 4, "validation": 0.2}):
        ids = fit(words, corpus, width=64, trainer=tuned, **options).rank(words, 2).ids
        assert np.take_along_axis(truth, ids[:, :1], 1).mean() > 0.95


def test_the_encoder_learns_clusters_and_is_then_left_alone(words, corpus, monkeypatch):
    targets, kept = [], []
    fit_by = Trainer.fit

    def watched(self, model, source, **options):
        targets.append(source.Y)
        kept.append({k: v.clone() for k, v in model.encoder.state_dict().items()})
        return fit_by(self, model, source, **options)

    monkeypatch.setattr(Trainer, "fit", watched)
    made = fit(words, corpus, clusters=5)
    assert [Y.shape[1] for Y in targets] == [4, 10]
    assert targets[0].data.max() == 1
    for name, value in made.encoder_.weights_.items():
        assert not np.array_equal(value, kept[0][name])
        np.testing.assert_array_equal(value, kept[1][name])


def test_true_labels_are_on_the_shortlist_once(words, corpus, monkeypatch):
    made = fit(words, corpus, shortlist=3)
    block = ResidualBlock(12, 0.0, "sum")
    head = staged_module.ShortlistModule(12, 10, None)
    near = np.array([[0, 1, 2], [7, -1, 8]], np.int32)
    model = ShortlistModel(made.encoder_.module(), block, head, near)
    Y = csr_matrix((np.ones(3, np.float32), [1, 3, 5], [0, 1, 3]), (2, 10))
    seen = []
    monkeypatch.setattr(head, "forward", lambda f, t, shortlist: seen.append(shortlist) or f.sum())
    model(TextSource(words[:2], Y).batch(np.arange(2), torch.device("cpu")))
    rows = [sorted(x for x in row if x >= 0) for row in seen[0].tolist()]
    assert rows == [[0, 1, 2], [3, 5, 7, 8]]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("at", [4, 15])
def test_an_interrupted_training_goes_on_to_the_same_end(words, corpus, tmp_path, monkeypatch, at):
    tuned = trainer(checkpoint_seconds=0)
    whole = fit(words, corpus, trainer=tuned).rank(words, 5)
    batch_of, calls = TextSource.batch, []

    def failing(self, rows, device):
        calls.append(1)
        if len(calls) == at:
            raise Interrupted
        return batch_of(self, rows, device)

    monkeypatch.setattr(TextSource, "batch", failing)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            fit(words, corpus, trainer=tuned)
        again = fit(words, corpus, trainer=tuned).rank(words, 5)
    assert len(calls) == 20 + 1  # two trainings of ten steps: what was done was not done again
    np.testing.assert_array_equal(whole.ids, again.ids)
    np.testing.assert_array_equal(whole.scores, again.scores)


@pytest.mark.parametrize("shortlist", [2, 500])
def test_a_label_never_seen_comes_last_and_every_place_is_filled(words, corpus, shortlist):
    made = fit(words, corpus, shortlist=shortlist)
    ids = made.rank(words, 10).ids
    assert all(sorted(row) == list(range(10)) for row in ids.tolist())
    assert (ids[:, -1] == 9).all()
    np.testing.assert_array_equal(made.rank(words, 3).ids, ids[:, :3])


def test_empty_texts_one_label_and_one_text(words):
    empty = csr_matrix((2, words.shape[1]), dtype=np.float32)
    for rows, Y in ([0, 1, 2], [[1], [1], [0]]), ([0], [[1, 1]]):
        made = StagedClassifier(BAG, trainer())
        made.fit(words[rows], csr_matrix(np.array(Y, np.float32)))
        ranking = made.rank(empty, 5)
        assert ranking.ids.shape == (2, len(Y[0]))
        assert np.isfinite(ranking.scores).all()
        assert made.rank(words[:0], 1).ids.shape == (0, 1)


def test_many_labels_learn_by_sparse_steps(words, corpus, monkeypatch):
    monkeypatch.setattr(shortlist_module, "SPARSE", 1)
    assert fit(words, corpus).rank(words, 3).present.all()


def test_encoders_of_tokens_may_be_staged_too(tokens, corpus):
    made = StagedClassifier(CONVOLUTIONS, trainer(), clusters=4)
    made.fit(tokens, corpus.targets)
    assert made.rank(tokens, 3).present.all()


def test_mistakes_are_told(words, tokens, corpus):
    with pytest.raises(DataError, match="reads a matrix of words, not Tokens"):
        fit(tokens, corpus)
    with pytest.raises(ShapeError, match=rf"5.*{words.shape[1]}"):
        fit(words, corpus).rank(words[:, :5], 1)


# ---------------------------------------------------------------------- InceptionXML and clusters
def clustered(views, corpus, **options):
    options = {"resolutions": [4], "beam": 2, "dropouts": [0.0], "layers": "vector"} | options
    made = CascadeClassifier(CONVOLUTIONS, options.pop("trainer", trainer()), "network", **options)
    return made.fit(views, corpus.targets, corpus.labels)


def test_all_levels_see_the_encoders_own_vector(views, corpus):
    made = clustered(views, corpus)
    vectors = encoded(made.module(), views.tokens, made.training)
    np.testing.assert_array_equal(made.features(views), np.hstack([vectors, vectors]))
    assert [weights.shape[1] for weights in made.label_ranker().weights_] == [12, 12]


def test_clusters_alone_move_the_encoder_at_first(views, corpus, monkeypatch):
    tuned = trainer(epochs=1, batch=60)  # five steps
    moved = []
    forward = Cascade.forward

    def watched(self, batch):
        levels = list(self.walk(self.vectors(batch.inputs), batch.targets))
        table = self.encoder.table.weight
        grads = [torch.autograd.grad(x.scores.sum(), table, retain_graph=True)[0] for x in levels]
        moved.append([bool(grad.any()) for grad in grads])
        return forward(self, batch)

    monkeypatch.setattr(Cascade, "forward", watched)
    clustered(views, corpus, trainer=tuned, detached=0.4)
    assert moved == [[True, False]] * 2 + [[True, True]] * 3


def test_a_detached_training_goes_on_to_the_same_end(views, corpus, tmp_path, monkeypatch):
    tuned = trainer(checkpoint_seconds=0)
    whole = clustered(views, corpus, trainer=tuned, detached=0.5).rank(views, 5)
    batch_of, calls = TextSource.batch, []

    def failing(self, rows, device):
        calls.append(1)
        if len(calls) == 4:
            raise Interrupted
        return batch_of(self, rows, device)

    monkeypatch.setattr(TextSource, "batch", failing)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            clustered(views, corpus, trainer=tuned, detached=0.5)
        again = clustered(views, corpus, trainer=tuned, detached=0.5).rank(views, 5)
    assert len(calls) == 10 + 1
    np.testing.assert_array_equal(whole.ids, again.ids)
    np.testing.assert_array_equal(whole.scores, again.scores)


def test_inceptionxml_is_full_or_has_clusters_first(corpus):
    small = {
        "width": 8,
        "max_length": 8,
        "device": "cpu",
        "classifier__encoder__token_width": 16,
        "classifier__encoder__filters": 4,
    }
    full = systems.create("inceptionxml", **small)
    assert isinstance(full.classifier, FullClassifier)
    made = systems.create("inceptionxml", clusters=4, epochs=1, **small).fit(corpus)
    assert isinstance(made.classifier, CascadeClassifier)
    assert made.classifier_.tree_.level_sizes == [4, 10]
    assert len(made.tag("red dress", k=3)) == 3
    with pytest.raises(ParameterError, match="powers of two below the 10 labels"):
        systems.create("inceptionxml", clusters=64, **small).fit(corpus)


def test_attentionxml_may_have_several_trees(corpus):
    made = systems.create(
        "attentionxml",
        size=4,
        hidden=[4],
        max_length=16,
        trees=2,
        clustered_above=4,
        max_leaf=2,
        epochs=1,
        device="cpu",
        classifier__model__arity=2,
    ).fit(corpus)
    assert isinstance(made.classifier, Ensemble)
    trees = [member.tree_ for member in made.classifier_.members_]
    assert [tree.level_sizes for tree in trees] == [[2, 4, 8, 10]] * 2
    assert trees[0].label_of_leaf_.tolist() != trees[1].label_of_leaf_.tolist()
    assert len(made.tag("red dress", k=3)) == 3
