"""Components for some of their labels, and of several label sets in a row."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from tests.components import every_component
from tests.formats.kinds import COUNTS, KINDS, LABELS, RANKING, ROWS, TEXTS, X, Y, learned

from megalabel import Ranking
from megalabel.calibration import ByFrequency, Isotonic
from megalabel.data import LabelSet
from megalabel.decision import TopK, Weighted
from megalabel.errors import MegalabelError, NotFittedError, ParameterError
from megalabel.labels import LabelTree
from megalabel.linear import ChunkedWeights, OneVsAll, Prior, TreeClassifier
from megalabel.parts import Calibrator, Classifier, Decision
from megalabel.rankers import DenseTree, Ensemble
from megalabel.retrieval import NearestNeighbours
from megalabel.tagger import Tagger

N = len(LABELS)
FITTED = {name: make() for name, make in KINDS.items()}
CLASSIFIERS = {
    name: model
    for name, model in FITTED.items()
    if isinstance(model, Classifier) and name != "online-tree"
}
# Those whose scores do not depend on which other labels there are.
FILTERED = {
    **{name: CLASSIFIERS[name] for name in CLASSIFIERS if name.startswith("one-vs-all")},
    "prior": CLASSIFIERS["prior"],
    "tree, exact": CLASSIFIERS["tree-classifier-int8"],
    "trees, wide beams": TreeClassifier(trees=2, arity=2, max_leaf=2, beam=50).fit(X, Y, LABELS),
    "trees, noop": TreeClassifier(arity=2, max_leaf=2, beam=50, post="noop").fit(X, Y, LABELS),
}
some_labels = st.permutations(range(N)).flatmap(
    lambda order: st.integers(1, N).map(lambda n: np.array(order[:n]))
)


def scores(ranking: Ranking) -> Iterator[dict[str, float]]:
    """The scores of each row by label id."""
    ids = ranking.labels.ids.to_pylist()
    for row, values, there in zip(ranking.ids, ranking.scores, ranking.present, strict=True):
        yield {ids[i]: v for i, v in zip(row[there], values[there].tolist(), strict=True)}


def same(one: Ranking, other: Ranking) -> None:
    assert list(scores(one)) == list(scores(other))
    assert [list(row) for row in scores(one)] == [list(row) for row in scores(other)]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_all_labels_in_order_answer_the_same(name):
    model = CLASSIFIERS[name]
    taken = model.take_labels(np.arange(N))
    assert type(taken) is type(model)
    assert taken.labels_ == model.labels_
    assert taken.labels_.texts == model.labels_.texts
    np.testing.assert_array_equal(taken.rank(ROWS, 5).ids, model.rank(ROWS, 5).ids)
    np.testing.assert_array_equal(taken.rank(ROWS, 5).scores, model.rank(ROWS, 5).scores)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_in_another_order_have_their_scores(name):
    model = CLASSIFIERS[name]
    order = np.random.default_rng(0).permutation(N)
    taken = model.take_labels(order)
    assert taken.labels_.ids.to_pylist() == LABELS.take(order).ids.to_pylist()
    for found, expected in zip(scores(taken.rank(X, N)), scores(model.rank(X, N)), strict=True):
        assert found == pytest.approx(expected, rel=1e-6)
    back = taken.take_labels(np.argsort(order))
    same(back.rank(X, N), model.rank(X, N))


@pytest.mark.parametrize("name", FILTERED)
@settings(max_examples=15, deadline=None)
@given(chosen=some_labels)
def test_without_some_labels_the_others_rank_as_before(name, chosen):
    model = FILTERED[name]
    ids = set(LABELS.take(chosen).ids.to_pylist())
    left = model.take_labels(chosen).rank(X, N)
    for found, whole in zip(scores(left), scores(model.rank(X, N)), strict=True):
        assert found == {label: score for label, score in whole.items() if label in ids}
        assert list(found.values()) == sorted(found.values(), reverse=True)


@settings(max_examples=15, deadline=None)
@given(chosen=some_labels)
def test_dense_rows_without_some_labels(chosen):
    """Whole numbers, whose sums do not depend on how a product is computed."""
    rng = np.random.default_rng(1)
    rows = rng.integers(-3, 4, (9, 5)).astype(np.float32)
    parents = [[-1] * N, [-1, -1, -1, 0, 0, 1, 1, 2]]
    for parent, beams, sizes in zip(parents, ([], [9]), ([N], [3, N]), strict=True):
        widths = [5] if len(sizes) == 1 else [2, 3]
        model = learned(
            DenseTree(beams=beams),
            tree_=LabelTree.from_parents(parent),
            weights_=[
                rng.integers(-3, 4, shape).astype(np.float16)
                for shape in zip(sizes, widths, strict=True)
            ],
            biases_=[rng.integers(-3, 4, size).astype(np.float32) for size in sizes],
            labels_=LABELS,
        )
        ids = set(LABELS.take(chosen).ids.to_pylist())
        left = model.take_labels(chosen).rank(rows, N)
        for found, whole in zip(scores(left), scores(model.rank(rows, N)), strict=True):
            assert found == {label: score for label, score in whole.items() if label in ids}


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@settings(max_examples=15, deadline=None)
@given(chosen=some_labels, cut=st.integers(0, N))
def test_labels_taken_apart_and_joined_are_as_before(precision, chosen, cut):
    """Bit for bit: weights are neither scaled nor rounded again."""
    costs = np.linspace(0.5, 2, N)
    model = OneVsAll(precision=precision, positive_costs=costs).fit(X, Y, LABELS)
    whole = model.take_labels(chosen)
    np.testing.assert_array_equal(whole.positive_costs, costs[chosen])
    first, second = (model.take_labels(part) for part in (chosen[:cut], chosen[cut:]))
    joined = first.with_labels([second], LABELS.take(chosen))
    for name, value in whole.weights_.learned().items():
        np.testing.assert_array_equal(joined.weights_.learned()[name], value)
    same(joined.rank(X, N), whole.rank(X, N))
    np.testing.assert_array_equal(joined.positive_costs, costs[chosen])


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_weights_of_many_labels_are_taken_as_they_are(precision):
    """Gaps between children that are bridged, and more than one section of features."""
    rng = np.random.default_rng(0)
    cells = rng.integers(3000, size=20_000), rng.integers(70_001, size=20_000) // 50 * 50
    weights = csr_matrix((rng.normal(size=20_000).astype(np.float32), cells), (3000, 70_001))
    level = ChunkedWeights.build(weights, [0, 3000], precision)
    for chosen in (np.arange(3000), np.arange(0, 3000, 7), np.array([2999, 0]), np.arange(0)):
        taken = level.take_labels(chosen)
        assert taken.precision == precision
        difference = taken.to_csr() - level.to_csr()[chosen]
        assert difference.nnz == 0
        if len(chosen) == 3000:
            for name, value in level.learned().items():
                np.testing.assert_array_equal(taken.learned()[name], value)
    several = ChunkedWeights.build(weights, [0, 1000, 3000], precision)
    with pytest.raises(ParameterError, match="several parents"):
        several.take_labels([0, 1])


@pytest.mark.parametrize("name", ["tree-classifier", "tree-classifier-int8"])
def test_trees_taken_apart_and_joined_keep_their_scores(name):
    model = CLASSIFIERS[name].set_params(beam=50)
    parts = [model.take_labels(np.arange(3)), model.take_labels(np.arange(3, N))]
    joined = parts[0].with_labels(parts[1:], LABELS)
    for found, expected in zip(scores(joined.rank(X, N)), scores(model.rank(X, N)), strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    if model.tree is not None:
        assert [tree.n_labels for tree in (parts[0].tree, parts[1].tree)] == [3, N - 3]


def test_neighbours_vote_for_the_labels_that_are_left():
    model = CLASSIFIERS["nearest-neighbours"]
    taken = model.take_labels([6, 2])
    neighbours, _ = model.index_.search(model._queries(X), model.neighbours)
    before = list(scores(model.rank(X, N)))
    for row, found in enumerate(scores(taken.rank(X, 2))):
        carried = Y[neighbours[row][neighbours[row] < X.shape[0]]].sum(axis=0).A1
        voted = {label: found[label] for label, n in (("L6", 6), ("L2", 2)) if carried[n] > 0}
        assert voted == {label: before[row][label] for label in voted}
    index = taken.index_.rows.shape[0]
    taken.partial_fit(X[:3], Y[:3, [6, 2]], taken.labels_)  # the other one stays as it is
    assert taken.index_.rows.shape[0] == index + 3
    assert model.index_.rows.shape[0] == index


def test_a_model_with_labels_of_its_own_goes_on_learning():
    taken = Prior().fit(X, Y, LABELS).take_labels([3, 1])
    assert taken.partial_fit(X, Y[:, [3, 1]], taken.labels_).rows_ == 2 * X.shape[0]


def test_members_are_cut_as_their_ensemble_is():
    costs = np.arange(1, N + 1) / N
    model = Ensemble(OneVsAll(positive_costs=costs), models=2).fit(X, Y, LABELS)
    taken = model.take_labels([7, 0])
    assert [len(member.labels_) for member in taken.members_] == [2, 2]
    np.testing.assert_array_equal(taken.model.positive_costs, costs[[7, 0]])


# --- what comes after a classifier


def cut(ranking: Ranking, chosen: np.ndarray) -> Ranking:
    """A ranking of some labels, numbered as they are taken."""
    return Ranking.from_csr(ranking.to_csr()[:, chosen], len(chosen), LABELS.take(chosen))


def test_groups_by_frequency_are_those_of_the_labels():
    calibrator = KINDS["by-frequency"]()
    chosen = np.array([6, 0, 3])
    np.testing.assert_array_equal(calibrator.take_labels(chosen).bins_, calibrator.bins_[chosen])
    later = calibrator.take_labels(np.array([0, N + 3]))  # a label that came after calibration
    assert later.bins_.tolist() == [calibrator.bins_[0], 0]
    assert isinstance(later, ByFrequency)
    assert isinstance(later.maps_[0], Isotonic)


@pytest.mark.parametrize("name", ["isotonic", "platt", "temperature", "beta", "by-rank"])
def test_maps_for_all_labels_stay(name):
    calibrator = KINDS[name]()
    taken = calibrator.take_labels([2, 1])
    assert isinstance(taken, Calibrator)
    np.testing.assert_array_equal(
        taken.apply(RANKING[:9]).scores, calibrator.apply(RANKING[:9]).scores
    )


def test_rules_of_the_labels_that_are_taken():
    chosen = np.array([5, 1, 2])
    for name in ("weighted", "frank-wolfe"):
        rule = KINDS[name]()
        np.testing.assert_array_equal(rule.take_labels(chosen).weights_, rule.weights_[chosen])
    assert TopK(caps=np.arange(N)).take_labels(chosen).caps.tolist() == [5, 1, 2]
    assert TopK(caps=3).take_labels(chosen).caps == 3
    online = KINDS["online"]()
    taken = online.take_labels(chosen)
    np.testing.assert_array_equal(taken.labels_, online.labels_[chosen])
    seen = online.seen_
    taken.apply(cut(RANKING[:5], chosen), 1)
    assert (online.seen_, taken.seen_) == (seen, seen + 5)


def test_a_rule_decides_as_before_among_the_labels_left():
    chosen = np.array([5, 1, 2, 7])
    rule = Weighted("power-law").fit(RANKING, train_labels=(COUNTS, 1000))
    assert isinstance(rule, Decision)
    found = rule.take_labels(chosen).apply(cut(RANKING[:50], chosen), 1)
    weights, mass = rule.weights_[chosen, 0], RANKING[:50].to_csr()[:, chosen].toarray()
    has = mass.any(1)
    np.testing.assert_array_equal(found.ids[has, 0], (weights * mass)[has].argmax(1))


def test_a_tagger_of_some_labels():
    tagger = KINDS["tagger"]()
    assert isinstance(tagger, Tagger)
    chosen = np.array([4, 2])
    taken = tagger.take_labels(chosen)
    assert taken.labels == tagger.labels.take(chosen)
    np.testing.assert_array_equal(taken.label_counts_, tagger.label_counts_[chosen])
    assert taken.features_ is tagger.features_
    before = list(scores(tagger.rank(TEXTS, len(tagger.labels))))
    for row, found in enumerate(scores(taken.rank(TEXTS, 2))):
        assert found == {label: before[row][label] for label in found}


# --- what cannot be


def test_labels_that_cannot_be_taken():
    model = CLASSIFIERS["one-vs-all-float32"]
    for numbers, message in (
        ([0, 0], "taken twice"),
        ([N], f"no label {N}: there are {N}"),
        ([-1], "no label -1"),
        ([0.5], "by number"),
        ([[0]], "one dimension"),
        (["L1"], "by number"),
    ):
        with pytest.raises(ParameterError, match=message):
            model.take_labels(numbers)
    with pytest.raises(NotFittedError):
        OneVsAll().take_labels([0])
    with pytest.raises(MegalabelError, match="at least one label"):
        CLASSIFIERS["tree-classifier"].take_labels([])
    assert len(model.take_labels([]).labels_) == 0
    with pytest.raises(ParameterError, match="OnlineTree cannot be cut"):
        KINDS["online-tree"]().take_labels([0])


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_numbers_beyond_the_labels_are_refused(name):
    with pytest.raises(ParameterError, match="no label"):
        CLASSIFIERS[name].take_labels([N])


def test_what_cannot_be_joined_says_so():
    for name in ("prior", "nearest-neighbours", "online-tree", "dense-tree"):
        model = KINDS[name]()
        with pytest.raises(ParameterError, match=f"{type(model).__name__} cannot be merged"):
            model.with_labels([model], LabelSet(["a"]))


def test_parameters_by_label_are_parameters():
    for kind in every_component():
        if not inspect.isabstract(kind):
            assert set(kind.parameter_names()) >= kind.BY_LABEL
    assert isinstance(CLASSIFIERS["nearest-neighbours"], NearestNeighbours)
