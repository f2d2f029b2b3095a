"""Every classifier and tagger among some labels: as among all, without the others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from tests.formats.kinds import KINDS, LABELS, ROWS, TEXTS, X, Y

from megalabel import Ranking, systems
from megalabel.calibration import METHODS
from megalabel.data import Corpus, LabelSet
from megalabel.data.synthetic import generate
from megalabel.errors import ParameterError, ShapeError, UnknownLabelError
from megalabel.labels import LabelTree
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.parts import Classifier
from megalabel.rankers import DenseTree, Ensemble
from megalabel.retrieval import NearestNeighbours
from megalabel.tagger import Tagger

N = len(LABELS)
CLASSIFIERS = {
    name: model
    for name, model in ((name, make()) for name, make in KINDS.items())
    if isinstance(model, Classifier)
} | {
    "trees": TreeClassifier(trees=3, arity=2, max_leaf=2, beam=1).fit(X, Y, LABELS),
    "tree, margins": TreeClassifier(arity=2, max_leaf=2, beam=2, post="noop").fit(X, Y, LABELS),
    "tree, best first": TreeClassifier(arity=2, max_leaf=2, exact=True).fit(X, Y, LABELS),
    "places": Ensemble(OneVsAll(), models=2, combine="rank", retained=3).fit(X, Y, LABELS),
    "dense neighbours": NearestNeighbours(neighbours=3).fit(X.toarray(), Y, LABELS),
}
# those whose answer is by the scores of all labels, so that some of them keep their order
EXACT = [name for name, model in CLASSIFIERS.items() if not model.may_miss]
masks = st.lists(st.booleans(), min_size=N, max_size=N).map(lambda marks: np.array(marks, bool))


def rows_for(name):
    """The rows that a classifier sees: sparse ones where it takes those."""
    return X.toarray() if name == "dense neighbours" else ROWS


def cells(ranking: Ranking) -> list[dict[int, float]]:
    return [
        dict(zip(ids[there].tolist(), scores[there].tolist(), strict=True))
        for ids, scores, there in zip(ranking.ids, ranking.scores, ranking.present, strict=True)
    ]


def is_ranking_among(ranking: Ranking, mask: np.ndarray, k: int) -> None:
    """Only labels that are allowed, none twice, best first, and then places left over."""
    assert ranking.ids.shape == ranking.scores.shape == (len(ranking), min(k, N))
    for ids, scores, there in zip(ranking.ids, ranking.scores, ranking.present, strict=True):
        count = int(there.sum())
        assert there[:count].all()
        assert mask[ids[:count]].all()
        assert len(set(ids[:count].tolist())) == count
        assert (np.diff(scores[:count]) <= 0).all()
        assert (ids[count:] == N).all()
        assert (scores[count:] == -np.inf).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
@settings(max_examples=25, deadline=None)
@given(mask=masks, k=st.integers(1, N + 2))
def test_classifiers_rank_among_some_labels(name, mask, k):
    model, rows = CLASSIFIERS[name], rows_for(name)
    among = model.rank_allowed(rows, k, mask)
    is_ranking_among(among, mask, k)
    if mask.all():
        whole = model.rank(rows, k)
        np.testing.assert_array_equal(among.ids, whole.ids)
        np.testing.assert_array_equal(among.scores, whole.scores)
    whole = model.rank(rows, N)
    reached = whole.present.sum(axis=1) == N
    wanted = min(k, int(mask.sum()))
    assert (among.present.sum(axis=1)[reached] == wanted).all()
    if name in EXACT and name != "places":  # whose scores depend on how deep they look
        expected = whole.only(mask).top(k)
        np.testing.assert_array_equal(among.ids, expected.ids)
        np.testing.assert_allclose(among.scores, expected.scores, rtol=1e-6)


@pytest.mark.parametrize("name", ["trees", "tree, margins", "tree, best first"])
@pytest.mark.parametrize("label", range(N))
def test_a_beam_goes_to_where_labels_are_allowed(name, label):
    among = CLASSIFIERS[name].rank_allowed(X, 3, np.arange(N) == label)
    assert (among.ids[:, 0] == label).all()
    assert (among.ids[:, 1:] == N).all()


def test_a_filtered_beam_search_gives_the_scores_of_a_wide_one():
    narrow = TreeClassifier(arity=2, max_leaf=2, beam=1).fit(X, Y, LABELS)
    wide = TreeClassifier(arity=2, max_leaf=2, beam=50).fit(X, Y, LABELS)
    for label in range(N):
        mask = np.arange(N) == label
        expected = wide.rank(X, N).only(mask).top(1)
        np.testing.assert_allclose(narrow.rank_allowed(X, 1, mask).scores, expected.scores)
        # one row at a time takes another way through the tree
        one = narrow.rank_allowed(X[:1], 1, mask)
        np.testing.assert_array_equal(one.scores, narrow.rank_allowed(X, 1, mask).scores[:1])


def test_levels_of_networks_look_below_allowed_clusters_alone():
    rng = np.random.default_rng(0)
    tree = LabelTree.from_parents([-1, -1, 0, 0, 0, 1, 1, 1])
    model = DenseTree(beams=[1])
    model.restore(
        {
            "tree_": tree,
            "weights_": [rng.normal(size=(n, 3)).astype(np.float16) for n in tree.level_sizes],
            "biases_": [np.zeros(n, np.float32) for n in tree.level_sizes],
            "labels_": LabelSet.numbered(tree.n_labels),
        }
    )
    rows = rng.normal(size=(20, 6)).astype(np.float32)
    for label in range(tree.n_labels):
        mask = np.arange(tree.n_labels) == label
        assert (model.rank_allowed(rows, 2, mask).ids[:, 0] == label).all()


def test_masks_of_another_form_are_refused():
    model = CLASSIFIERS["prior"]
    for mask in (np.ones(N), np.ones(N - 1, bool)):
        with pytest.raises(ShapeError, match=f"a bool for each of {N} labels"):
            model.rank_allowed(X, 1, mask)


# ---------------------------------------------------------------------- taggers
@pytest.fixture(scope="module")
def shop() -> Corpus:
    return generate(texts=600, labels=200).corpus


TAGGERS = {
    "knn": lambda: systems.create("knn"),
    "prior": lambda: systems.create("prior"),
    "xr-linear": lambda: systems.create("xr-linear", classifier__max_leaf=5, classifier__beam=2),
    "plain": lambda: systems.create("dismec", calibrate=False),
    **{
        method: lambda method=method: systems.create("dismec", calibration=method)
        for method in METHODS
    },
}


@pytest.fixture(scope="module")
def tagger_of(shop):
    made = {}

    def get(name: str) -> Tagger:
        if name not in made:
            made[name] = TAGGERS[name]().fit(shop)
        return made[name]

    return get


@pytest.mark.parametrize("name", TAGGERS)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_labels_keep_the_probabilities_that_they_have_among_all(tagger_of, shop, name, share, k):
    tagger, texts = tagger_of(name), [*shop.texts.to_pylist()[:40], "", "zzyzx"]
    labels = len(tagger.labels)
    mask = np.random.default_rng(k).random(labels) < share
    mask[3] = True
    among, whole = (tagger.rank(texts, k, allowed=allowed) for allowed in (mask, None))
    kept = [{label: score for label, score in row.items() if mask[label]} for row in cells(whole)]
    for own, expected in zip(cells(among), kept, strict=True):
        assert all(mask[label] for label in own)
        assert list(own.values()) == sorted(own.values(), reverse=True)
        assert {label: own[label] for label in own if label in expected} == {
            label: score for label, score in expected.items() if label in own
        }
        if not tagger.classifier_.may_miss:
            assert set(list(own)[: len(expected)]) == set(expected)
    if name != "xr-linear":
        assert (among.present.sum(axis=1) == min(k, labels, mask.sum())).all()
    if mask.all():
        np.testing.assert_array_equal(among.ids, whole.ids)
        np.testing.assert_array_equal(among.scores, whole.scores)


@pytest.mark.parametrize("name", ["knn", "xr-linear", "joint"])
def test_answers_among_some_labels_do_not_depend_on_the_batch(tagger_of, shop, name):
    tagger, texts = tagger_of(name), shop.texts.to_pylist()[:20]
    mask = np.arange(len(tagger.labels)) % 7 == 0
    whole = tagger.rank(texts, 5, allowed=mask)
    for i, text in enumerate(texts):
        one = tagger.rank([text], 5, allowed=mask)
        np.testing.assert_array_equal(one.ids[0], whole.ids[i])
        np.testing.assert_array_equal(one.scores[0], whole.scores[i])


def test_labels_may_be_given_by_name_number_or_mask(tagger_of):
    tagger = tagger_of("knn")
    names = tagger.labels.names.to_pylist()
    wanted = {names[3], names[5]}
    for allowed in ([names[3], names[5]], [3, 5], tagger.labels.select(label=wanted)):
        tags = tagger.tag(["red dress"], 5, allowed=allowed)[0]
        assert {tag.label for tag in tags} <= wanted
    with pytest.raises(ParameterError, match="no label is allowed"):
        tagger.tag("red dress", allowed=[])
    with pytest.raises(UnknownLabelError):
        tagger.tag("red dress", allowed=["no such label"])
    with pytest.raises(ShapeError, match="allowed is"):
        tagger.tag("red dress", allowed=np.ones(2, bool))
    for allowed in ([-1], [10**6], [0.5], 3.5):
        with pytest.raises(ParameterError, match="expected a mask of the"):
            tagger.tag("red dress", allowed=allowed)
    with pytest.raises(ParameterError, match="several labels in a list"):
        tagger.tag("red dress", allowed=names[3])


def test_cells_that_a_corpus_leaves_out_are_left_out_among_some_labels_too(tagger_of, shop):
    tagger = tagger_of("knn")
    some, mask = shop[:10], np.arange(len(tagger.labels)) % 3 == 0
    best = tagger.rank(some, 1, allowed=mask).ids[:, 0]
    left_out = csr_matrix(
        (np.ones(10, np.float32), (np.arange(10), best)), (10, len(tagger.labels))
    )
    again = Corpus(some.texts, targets=some.targets, labels=some.labels, excluded=left_out)
    ranking = tagger.rank(again, 3, allowed=mask)
    assert not (ranking.ids == best[:, None]).any()
    assert ranking.present.all()


def test_a_decision_is_made_among_some_labels(tagger_of, shop):
    tagger = tagger_of("joint")
    mask = np.arange(len(tagger.labels)) % 2 == 0
    decided = tagger.decide(shop[:10], 3, threshold=0.01, allowed=mask)
    assert (decided.ids[decided.present] % 2 == 0).all()


def test_a_mix_ranks_among_some_labels():
    tagger = KINDS["mix-boosted"]()
    n = len(tagger.labels)
    whole = tagger.rank(TEXTS, n)
    for label in range(n):
        among = tagger.rank(TEXTS, 3, allowed=[label])
        assert (among.ids[:, 0] == label).all()
        assert not among.present[:, 1:].any()
    mask = np.arange(n) % 2 == 0
    for own, expected in zip(
        cells(tagger.rank(TEXTS, n, allowed=mask)), cells(whole.only(mask)), strict=True
    ):
        assert own == pytest.approx(expected)
        assert [*own] == [*expected]
