from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from megalabel import checkpoints
from megalabel.data import LabelSet
from megalabel.errors import DataError, ShapeError
from megalabel.neural import (
    AttentionClassifier,
    BagEncoder,
    EncoderStates,
    RecurrentEncoder,
    Trainer,
)
from megalabel.neural import attention as attention_module
from megalabel.neural.attention import AttentionModel, LabelAttention
from megalabel.rankers import AttentionTree

SMALL = RecurrentEncoder(token_width=8, size=6, dropout=0.0, token_dropout=0.0)
TREE = {"clustered_above": 4, "max_leaf": 2, "arity": 2, "levels": 2, "beam": 2}


def trainer(**options):
    defaults = {"epochs": 1, "batch": 32, "device": "cpu", "average": "swa"}
    return Trainer(**defaults | options)


def fit(tokens, corpus, **options):
    options = {"hidden": [8]} | options
    made = AttentionClassifier(SMALL, options.pop("trainer", trainer()), **options)
    return made.fit(tokens, corpus.targets, corpus.labels)


def twin(attention, states, mask, labels):
    """Scores by the formula, label by label and row by row, in float64."""
    layers = [m for m in attention.shared if isinstance(m, torch.nn.Linear)]
    queries = attention.queries.weight.detach().double().numpy()
    found = np.zeros(labels.shape)
    for i, row in enumerate(labels):
        h = states[i, mask[i]].double().numpy()
        for j, label in enumerate(row):
            match = np.exp(h @ queries[label])
            x = match / match.sum() @ h
            for layer in layers:
                w, b = (p.detach().double().numpy() for p in (layer.weight, layer.bias))
                x = w @ x + b
                if layer is not layers[-1]:
                    x = np.maximum(x, 0)
            found[i, j] = x[0]
    return found


@pytest.fixture
def attended():
    """Attention over random states of rows of several lengths."""
    torch.manual_seed(0)
    attention = LabelAttention(6, 11, [5, 4])
    torch.nn.init.normal_(attention.queries.weight)
    states = torch.randn(4, 7, 6)
    mask = torch.arange(7) < torch.tensor([7, 1, 3, 5])[:, None]
    return attention, states, mask


def test_scores_are_the_formula(attended):
    attention, states, mask = attended
    everything = np.tile(np.arange(11), (4, 1))
    found = attention(states, mask).detach().numpy()
    np.testing.assert_allclose(found, twin(attention, states, mask, everything), atol=1e-5)
    some = torch.tensor([[3, 0, -1], [10, 10, 2], [1, -1, -1], [5, 6, 7]])
    np.testing.assert_allclose(
        attention(states, mask, some).detach().numpy()[some.numpy() >= 0],
        twin(attention, states, mask, some.clamp(min=0).numpy())[some.numpy() >= 0],
        atol=1e-5,
    )


def test_what_is_padding_is_not_attended_to(attended):
    attention, states, mask = attended
    before = attention(states, mask)
    states[~mask] = 1e4
    torch.testing.assert_close(attention(states, mask), before)


def test_labels_without_a_vector_attend_to_all_tokens_alike(attended):
    attention, states, mask = attended
    with torch.no_grad():
        attention.queries.weight.zero_()
    means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    expected = attention.shared(means).expand(-1, 11)
    torch.testing.assert_close(attention(states, mask), expected)


def test_chunks_of_labels_learn_the_same(attended, monkeypatch):
    attention, states, mask = attended
    made = []
    for pairs in (1 << 18, 12):
        monkeypatch.setattr(attention_module, "_PAIRS", pairs)
        given = states.clone().requires_grad_()
        scores = attention(given, mask)
        (scores**2).sum().backward()
        made.append((scores.detach(), given.grad, attention.queries.weight.grad.clone()))
        attention.zero_grad()
    for first, second in zip(*made, strict=True):
        torch.testing.assert_close(first, second)


def test_it_learns_all_labels_at_once_and_down_a_tree(tokens, corpus):
    tuned = trainer(epochs=12, learning_rate=0.02, head_learning_rate=0.02, batch=32)
    truth = corpus.targets.toarray()
    for options in ({}, TREE | {"beam": 3, "validation": 0.2}):
        made = fit(tokens, corpus, trainer=tuned, **options)
        first = made.rank(tokens, 2).ids[:, :1]
        assert np.take_along_axis(truth, first, 1).mean() > 0.8
        assert len(made.coarse_) == made.tree_.depth - 1


def test_levels_start_from_those_above(tokens, corpus):
    still = trainer(learning_rate=0, head_learning_rate=0)
    made = fit(tokens, corpus, trainer=still, **TREE)
    assert made.tree_.level_sizes == [4, 8, 10]
    for coarse in made.coarse_:
        for name, value in coarse.weights_.items():
            np.testing.assert_array_equal(value, made.encoder_.weights_[name])
    for name, value in made.heads_.items():
        if ".shared" in name:
            np.testing.assert_array_equal(value, made.heads_["0" + name[1:]])
    assert fit(tokens, corpus, **TREE | {"levels": 9}).tree_.level_sizes == [2, 4, 8, 10]


def test_true_clusters_are_always_candidates_in_training(tokens, corpus, monkeypatch):
    counts = []
    forward = AttentionModel.forward

    def watched(self, batch):
        if self._level.parents is not None:
            candidates = self._level.candidates(self._level.parents, torch.device("cpu"))
            numbers, _ = candidates.all_of(self.rows[batch.rows])
            found = batch.targets.of(numbers).sum(1)
            counts.append((found == batch.targets.dense(0, self._level.size).sum(1)).all())
        return forward(self, batch)

    monkeypatch.setattr(AttentionModel, "forward", watched)
    fit(tokens, corpus, **TREE | {"beam": 1})
    assert len(counts) == 20
    assert all(counts)


def restored(made):
    """The models of all levels as learned."""
    models = []
    for depth, encoder in enumerate([*made.coarse_, made.encoder_]):
        none = csr_matrix((1, made.tree_.n_labels), dtype=np.float32)
        level = attention_module._AttentionLevel(made.tree_, depth, none)
        model = AttentionModel(encoder.module(), made.hidden, level)
        own = {k.split(".", 1)[1]: v for k, v in made.heads_.items() if k.startswith(f"{depth}.")}
        state = {k: torch.from_numpy(v.astype(np.float32)) for k, v in own.items()}
        model.attention.load_state_dict(state)
        models.append(model.eval())
    return models


def test_scores_are_products_down_the_path(tokens, corpus):
    made = fit(tokens, corpus, **TREE | {"beam": 99})
    models = restored(made)
    inputs = tokens.batch(np.arange(5), torch.device("cpu"))
    sure = [torch.sigmoid(model.scores(inputs)).detach().numpy() for model in models]
    node = made.tree_.leaf_of_label
    expected = sure[-1].astype(np.float64)  # the last level is numbered by labels
    for depth in reversed(range(len(models) - 1)):
        node = np.searchsorted(made.tree_.levels_[depth + 1], node, side="right") - 1
        expected *= sure[depth][:, node]
    ranking = made.rank(tokens[:5], 9)
    np.testing.assert_allclose(
        ranking.scores, np.take_along_axis(expected, ranking.ids, 1), rtol=1e-4
    )


class Interrupted(Exception):
    pass


def test_an_interrupted_training_goes_on_to_the_same_end(tokens, corpus, tmp_path, monkeypatch):
    tuned = trainer(checkpoint_seconds=0)
    whole = fit(tokens, corpus, trainer=tuned, **TREE).rank(tokens, 5)
    forward, calls = AttentionModel.forward, []

    def failing(self, batch):
        calls.append(1)
        if len(calls) == 15:
            raise Interrupted
        return forward(self, batch)

    monkeypatch.setattr(AttentionModel, "forward", failing)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            fit(tokens, corpus, trainer=tuned, **TREE)
        again = fit(tokens, corpus, trainer=tuned, **TREE).rank(tokens, 5)
    assert len(calls) == 30 + 1  # three levels of ten steps: what was done was not done again
    np.testing.assert_array_equal(whole.ids, again.ids)
    np.testing.assert_array_equal(whole.scores, again.scores)


def test_a_label_never_seen_comes_last_and_every_place_is_filled(tokens, corpus):
    for tree in ({}, TREE | {"beam": 1}):
        ids = fit(tokens, corpus, **tree).rank(tokens, 10).ids
        assert all(sorted(row) == list(range(10)) for row in ids.tolist())
        assert (ids[:, -1] == 9).all()


def test_one_label_and_one_text(tokens):
    for rows, Y in ([0, 1, 2], [[1], [1], [0]]), ([0], [[1, 1]]):
        made = AttentionClassifier(SMALL, trainer())
        ranking = made.fit(tokens[rows], csr_matrix(np.array(Y, np.float32))).rank(tokens[:4], 5)
        assert ranking.ids.shape == (4, len(Y[0]))
        assert ranking.present.all()
        assert made.rank(tokens[:0], 1).ids.shape == (0, 1)


def test_large_levels_learn_by_sparse_steps(tokens, corpus, monkeypatch):
    whole = fit(tokens, corpus, **TREE).rank(tokens, 3)
    monkeypatch.setattr(attention_module, "SPARSE", 1)
    found = fit(tokens, corpus, **TREE)
    assert found.rank(tokens, 3).ids.shape == whole.ids.shape


def test_relevances_above_one_are_labels_like_others(tokens, corpus):
    more = corpus.targets.copy()
    more.data[:] = 3
    first = fit(tokens, corpus).rank(tokens, 5)
    second = AttentionClassifier(SMALL, trainer(), hidden=[8]).fit(tokens, more).rank(tokens, 5)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert more.data.min() == 3  # the caller's stay as they are


def test_mistakes_are_told(tokens, corpus):
    with pytest.raises(DataError, match="reads a matrix of words, not Tokens"):
        AttentionClassifier(BagEncoder()).fit(tokens, corpus.targets)
    with pytest.raises(ShapeError):
        fit(tokens[:9], corpus)


def test_what_does_not_fit_is_not_restored(tokens, corpus):
    learned = fit(tokens, corpus, **TREE).label_ranker().learned()
    queries, layers, states = (learned[name] for name in ("queries_", "layers_", "states_"))
    bad = [
        {"queries_": [queries[0], queries[1][:-1], queries[2]]},
        {"queries_": [part[:, :-1] for part in queries]},
        {"layers_": [layers[0][:1], *layers[1:]]},
        {"tree_": 3},
        {"states_": states[:1]},
        {"states_": [3, 4, 5]},
        {"states_": [EncoderStates(), *states[1:]]},
        {"label_counts_": np.zeros(3)},
        {"labels_": LabelSet(["a"])},
    ]
    for change in bad:
        with pytest.raises(ValueError, match=r"AttentionTree|labels"):
            AttentionTree().restore(learned | change)
    with pytest.raises(ValueError, match="EncoderStates"):
        EncoderStates().restore({"encoder_": 3})


def test_some_labels_over_encoders_of_torch(tokens, corpus):
    model = fit(tokens, corpus, **TREE).label_ranker()
    taken = model.take_labels([4, 0, 2])
    assert taken.labels_ == corpus.labels.take(np.array([4, 0, 2]))
    for before, after in zip(model.states_, taken.states_, strict=True):
        assert after.encoder_.weights_ == before.encoder_.weights_  # shared, not copied
