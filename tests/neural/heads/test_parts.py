"""A head is one class: the classifier over it, the trainer and what answers know it by name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit

from megalabel import checkpoints
from megalabel.data import LabelSet
from megalabel.errors import ParameterError
from megalabel.features import Tfidf
from megalabel.neural import BagEncoder, DenseHead, FullClassifier, Trainer, heads
from megalabel.neural.losses import BCE

sys.path.insert(0, str(Path(__file__).parent))
from toy_head import PrunedHead, PrunedModule


@pytest.fixture(scope="module")
def words(corpus):
    return Tfidf().fit_transform(corpus)


def fit(words, corpus, head, *, rate=0.05, **options):
    own = {"epochs": 6, "batch": 32, "learning_rate": 0.02, "head_learning_rate": rate}
    trainer = Trainer(**own | options, device="cpu")
    encoder = BagEncoder(width=16, dropout=0.0)
    return FullClassifier(encoder, trainer, head=head, dropout=0.0).fit(words, corpus.targets)


def test_heads_are_made_by_name():
    assert {"dense", "pruned"} <= set(heads.names())
    assert heads.create("pruned", threshold=0.5).threshold == 0.5
    with pytest.raises(ParameterError, match="unknown head 'dens'; there are auxiliary, dense"):
        heads.create("dens")
    with pytest.raises(ParameterError, match="did you mean 'momentum'"):
        heads.create("dense", momentun=0.9)
    with pytest.raises(ParameterError, match="momentum of DenseHead"):
        heads.create("dense", momentum=2)


@pytest.mark.parametrize("head", ["pruned", PrunedHead(threshold=0.03)])
def test_a_new_head_is_trained_kept_and_answers(words, corpus, head):
    PrunedModule.made.clear()
    made = fit(words, corpus, head)
    [module] = PrunedModule.made
    steps = 6 * 10
    assert module.updates == [(step + 1, steps) for step in range(steps)]  # told of every step
    threshold = 0.01 if head == "pruned" else 0.03
    assert not ((made.table_ != 0) & (np.abs(made.table_) < 0.99 * threshold)).any()
    assert (made.table_ == 0).any()  # so the hook has had the last word
    # what answers without torch scores as the module does
    vectors = made.module()(words_batch(words)).detach()
    every = torch.arange(10).expand(len(vectors), 10)
    scores = expit(module.scores(vectors, every).detach().numpy())
    ranking = made.label_ranker().rank(vectors.numpy(), 10)
    ids = ranking.ids.astype(int)
    np.testing.assert_allclose(ranking.scores, np.take_along_axis(scores, ids, 1), rtol=5e-3)
    assert np.take_along_axis(corpus.targets.toarray(), ids[:, :1], 1).mean() > 0.8


def words_batch(words):
    from megalabel.neural.batches import rows_on

    return rows_on(words, np.arange(words.shape[0]), torch.device("cpu"))


def test_its_parameters_learn_at_the_rate_of_heads(words, corpus):
    still = {"learning_rate": 0.01, "steps": 1, "warmup": 0, "weight_decay": 0.0}
    head = PrunedHead(threshold=0.0)
    tables = [fit(words, corpus, head, rate=rate, **still).table_ for rate in (0.0, 0.03)]
    moved = np.abs(tables[1].astype(float) - tables[0])
    assert moved.max() == pytest.approx(0.03, rel=0.02)  # the first step of Adam


class Interrupted(Exception):
    pass


def test_an_interrupted_training_of_it_goes_on_to_the_same_end(
    words, corpus, tmp_path, monkeypatch
):
    whole = fit(words, corpus, "pruned", checkpoint_seconds=0)
    after, calls = PrunedModule.after_update, []

    def failing(self, step, total):
        after(self, step, total)
        calls.append(step)
        if len(calls) == 25:
            raise Interrupted

    monkeypatch.setattr(PrunedModule, "after_update", failing)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            fit(words, corpus, "pruned", checkpoint_seconds=0)
        again = fit(words, corpus, "pruned", checkpoint_seconds=0)
    assert calls == [*range(1, 26), *range(25, 61)]
    np.testing.assert_array_equal(whole.table_, again.table_)


@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_the_dense_head_gives_a_ranker_that_scores_as_it_does(random, precision):
    counts = np.array([3, 0, 5, 2])
    head = DenseHead(precision=precision)
    module = head.build(6, counts, 9, BCE(), device=torch.device("cpu"), seed=0)
    # every label is as likely as it is frequent
    np.testing.assert_allclose(expit(module.bias.numpy()), (counts + 0.5) / 10, rtol=1e-5)
    arrays = head.keep(module, counts)
    assert set(arrays) == set(DenseHead.ARRAYS)
    vectors = random.standard_normal((5, 6)).astype(np.float32)
    ranking = head.ranker(arrays, LabelSet.numbered(4)).rank(vectors, 4)
    assert (ranking.ids[:, -1] == 1).all()  # the label never seen
    ids = torch.from_numpy(ranking.ids[:, :3].astype(np.int64))
    scores = expit(module.scores(torch.from_numpy(vectors), ids).numpy())
    np.testing.assert_allclose(ranking.scores[:, :3], scores, rtol=1e-2)
