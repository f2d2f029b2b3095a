from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import store
from megalabel.data import LabelSet, Ranking
from megalabel.errors import ParameterError
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.rankers import Ensemble
from megalabel.rankers.ensemble import combined

WAYS = ["average", "rank", "sigmoid", "softmax", "round-robin"]
LABELS = LabelSet([f"l{i}" for i in range(30)])


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def ranking(random, rows=12, k=8, short=True):
    """Random answers; in some rows the last places are left over."""
    ids = np.array([random.permutation(30)[:k] for _ in range(rows)])
    scores = -np.sort(-random.normal(size=(rows, k)), axis=1)
    if short:
        for row in range(0, rows, 3):
            ids[row, k - row // 3 :], scores[row, k - row // 3 :] = 30, -np.inf
    return Ranking(ids, scores, LABELS)


def twin(rankings, how):
    """The same by dictionaries, label by label."""
    longest = max(r.k for r in rankings)
    answers = []
    for row in range(len(rankings[0])):
        total = dict.fromkeys(range(30), 0.0)
        named = set()
        for number, r in enumerate(rankings):
            there = r.ids[row] < 30
            ids, scores = r.ids[row][there], r.scores[row][there].astype(float)
            named |= set(ids.tolist())
            values = {
                "average": scores,
                "rank": longest - np.arange(len(ids)),
                "sigmoid": 1 / (1 + np.exp(-scores)),
                "softmax": np.exp(scores) / np.exp(scores).sum(),
                "round-robin": 1 - (np.arange(len(ids)) * len(rankings) + number) / 1e3,
            }[how]
            if how == "average":  # of margins, what is not named is no better than what is
                lowest = min(0.0, scores.min(initial=0))
                total = {label: value + lowest for label, value in total.items()}
                values = scores - lowest
            for label, value in zip(ids.tolist(), values, strict=True):
                if how == "round-robin":
                    total[label] = max(total[label], value)
                else:
                    total[label] += value
        scale = {"rank": longest * len(rankings), "round-robin": 1}.get(how, len(rankings))
        total = {label: value / scale for label, value in total.items()}
        answers.append(sorted((-total[label], label) for label in named))
    return answers


@pytest.mark.parametrize("how", WAYS)
def test_the_same_as_label_by_label(how, random):
    rankings = [ranking(random), ranking(random, k=5, short=False), ranking(random)]
    before = [(r.ids.copy(), r.scores.copy()) for r in rankings]
    found = combined(rankings, how)
    for row, expected in enumerate(twin(rankings, how)):
        assert found.ids[row, : len(expected)].tolist() == [label for _, label in expected]
        assert not found.present[row, len(expected) :].any()
        if how != "round-robin":
            values = [-value for value, _ in expected]
            np.testing.assert_allclose(found.scores[row, : len(expected)], values, rtol=1e-5)
    for r, (ids, scores) in zip(rankings, before, strict=True):
        np.testing.assert_array_equal(r.ids, ids)
        np.testing.assert_array_equal(r.scores, scores)


@pytest.mark.parametrize("how", WAYS)
def test_of_the_same_answers_it_is_that_answer(how, random):
    one = ranking(random)
    found = combined([one, one, one], how)
    np.testing.assert_array_equal(found.ids, one.ids)
    if how == "average":
        np.testing.assert_array_equal(found.scores, one.scores)
    else:
        there = found.present
        assert found.scores[there].min() >= 0
        assert found.scores[there].max() <= 1


def data(rows=80, labels=12):
    random = np.random.default_rng(0)
    X = csr_matrix(
        (random.random((rows, 20)) * (random.random((rows, 20)) < 0.4)), dtype=np.float32
    )
    return X, csr_matrix((random.random((rows, labels)) < 0.2).astype(np.float32))


@pytest.mark.parametrize("how", WAYS)
def test_of_models_that_do_not_depend_on_the_seed_it_is_the_model(how):
    X, Y = data()
    alone = OneVsAll().fit(X, Y).rank(X, 5)
    found = Ensemble(OneVsAll(), 3, combine=how).fit(X, Y).rank(X, 5)
    # scores of exactly 0 or 1 are ties, which go to the lower label as before
    np.testing.assert_array_equal(alone.ids, found.ids)


def test_members_have_seeds_of_their_own(tmp_path):
    X, Y = data()
    model = TreeClassifier(max_leaf=2, arity=2, beam=2, seed=5)
    made = Ensemble(model, 3).fit(X, Y)
    assert [member.seed for member in made.members_] == [5, 6, 7]
    assert model.seed == 5
    answers = [member.rank(X, 12) for member in made.members_]
    assert any((answers[0].ids != other.ids).any() for other in answers[1:])
    store.save(made, tmp_path / "model")
    again = store.load(tmp_path / "model")
    first, second = made.rank(X, 4), again.rank(X, 4)
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.scores, second.scores)
    # labels behind the ones asked for are looked at too
    np.testing.assert_array_equal(first.ids, made.rank(X, 9).ids[:, :4])


def test_seeds_of_parts_are_raised_too(tiny_model):
    from megalabel.neural import FullClassifier, PretrainedEncoder, Trainer
    from megalabel.rankers.ensemble import _reseeded

    model = FullClassifier(PretrainedEncoder(tiny_model), Trainer(seed=3), seed=4)
    made = _reseeded(model, 2)
    assert (made.seed, made.trainer.seed) == (6, 5)
    assert made.encoder is not model.encoder


def test_mistakes_are_told():
    X, Y = data()
    with pytest.raises(ParameterError, match="combine"):
        Ensemble(OneVsAll(), combine="best").fit(X, Y)
    made = Ensemble(OneVsAll(), 2).fit(X, Y)
    for change in ({"members_": []}, {"members_": [3]}, {"labels_": LABELS}, {"labels_": 1}):
        with pytest.raises(ValueError, match="Ensemble"):
            Ensemble(OneVsAll()).restore(made.learned() | change)


def test_a_label_that_a_model_does_not_name_is_not_before_those_it_names():
    first = Ranking([[0, 1, 2]], [[-0.2, -0.4, -0.6]], LABELS)
    second = Ranking([[0, 1, 3]], [[-0.1, -0.3, -3.0]], LABELS)
    found = combined([first, second], "average")
    assert found.ids[0].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(found.scores[0], [-0.15, -0.35, -1.8, -1.8])


def test_one_model_twice_is_the_model(random):
    once = ranking(random)
    twice = combined([once, once], "average")
    np.testing.assert_array_equal(twice.ids, once.ids)
    np.testing.assert_array_equal(twice.scores, once.scores)
