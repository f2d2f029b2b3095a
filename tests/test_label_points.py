"""Texts of labels as rows of training: what they teach, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

import megalabel
from megalabel import Corpus, LabelSet, systems
from megalabel.base import clone
from megalabel.checkpoints import kept_in
from megalabel.data.examples import Examples
from megalabel.errors import DataError, ParameterError
from megalabel.features import Tfidf
from megalabel.labels import LabelPoints, LabelTree, cooccurrence
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.mixing import with_members
from megalabel.retrieval import NearestNeighbours
from megalabel.systems.planning import learned_bytes
from megalabel.tagger import Tagger


@pytest.fixture
def described(corpus) -> Corpus:
    """The texts of `corpus`, with names of labels that are words of texts: "boil water spout" is
    carried by none."""
    names = {"never seen": "boil water spout", "kettle": "a steel kettle"}
    labels = corpus.labels.names.to_pylist()
    given = LabelSet(labels, [names.get(name, name) for name in labels])
    return Corpus(corpus.texts, targets=corpus.targets, labels=given)


def some_examples(seed: int = 0) -> tuple[np.ndarray, csr_matrix, np.ndarray, csr_matrix]:
    """Rows, targets of one label each, label rows and their soft targets."""
    random = np.random.default_rng(seed)
    X, Z = random.normal(size=(40, 6)), random.normal(size=(5, 6))
    Y = csr_matrix(np.eye(5, dtype=np.float32)[random.integers(5, size=40)])
    soft = np.eye(5, dtype=np.float32)
    soft[0, 1], soft[3, 4] = 0.5, 0.25
    return X.astype(np.float32), Y, Z.astype(np.float32), csr_matrix(soft)


def same_weights(a, b) -> bool:
    return (a.to_csr() != b.to_csr()).nnz == 0


# --- what a linear classifier makes of them


def test_one_versus_all_takes_a_target_for_the_cost_of_a_positive() -> None:
    X, Y, Z, soft = some_examples()
    model = OneVsAll(precision="float32", prune=0.0)
    taught = clone(model).fit_examples(Examples.of(X, Y).with_label_points(Z, soft, 0.7))
    weighed = clone(model).set_params(relevance="labels")
    weighed.fit(np.concatenate([X, Z]), vstack([Y, 0.7 * soft], "csr"))
    assert same_weights(taught.weights_, weighed.weights_)


def test_one_versus_all_minimises_the_stated_sum() -> None:
    X, Y, Z, soft = some_examples(3)
    model = OneVsAll(precision="float32", prune=0.0, eps=1e-6)
    model.fit_examples(Examples.of(X, Y).with_label_points(Z, soft, 0.7))
    rows = np.hstack([np.concatenate([X, Z]), np.ones((45, 1))]).astype(np.float64)
    costs = np.concatenate([Y.toarray(), 0.7 * soft.toarray()]).astype(np.float64)
    for label in range(5):
        w = model.weights_.to_csr()[label].toarray().ravel().astype(np.float64)
        sign = np.where(costs[:, label] > 0, 1, -1)
        cost = np.where(sign > 0, costs[:, label], 1)
        gap = np.maximum(0, 1 - sign * (rows @ w))
        gradient = w - 2 * rows.T @ (cost * sign * gap)
        assert np.abs(gradient).max() < 1e-3 * np.abs(2 * rows.T @ (cost * sign)).max()


def test_rows_are_left_out_of_labels_of_which_they_say_nothing() -> None:
    X, Y, Z, soft = some_examples(5)
    silent = np.zeros((40, 5), np.float32)
    silent[3:9, 1] = silent[5:20, 4] = 1
    silent[Y.toarray() > 0] = 1  # what a text carries it says
    some = Examples.of(X, Y).with_label_points(Z, soft, silent=csr_matrix(silent))
    model = OneVsAll(precision="float32", prune=0.0, eps=1e-6).fit_examples(some)
    tree = LabelTree.from_parents([-1, -1, 0, 0, 0, 1, 1], np.array([-1, -1, 0, 1, 2, 3, 4]))
    nodes = TreeClassifier(tree=tree, precision="float32", prune=0.0, eps=1e-6)
    trees = [model.weights_, *nodes.fit_examples(some).levels_[0]]
    for level, (labels, reached) in enumerate(
        ((range(5), range(5)), ([[0, 1, 2], [3, 4]], range(5)), (range(5), None))
    ):
        for node, below in enumerate(labels):
            below = np.atleast_1d(below)
            truth = np.minimum(np.concatenate([Y.toarray(), soft.toarray()])[:, below].sum(1), 1)
            quiet = np.append(silent[:, below].max(1), np.zeros(5)) * (truth == 0)
            cost = np.where(truth > 0, truth, 1) * (1 - quiet)
            if reached is None:  # the rows of siblings
                own = [0, 1, 2] if node < 3 else [3, 4]
                seen = np.concatenate([Y.toarray(), soft.toarray()])[:, own].sum(1)
                cost *= (seen > 0) | (np.append(silent[:, own].max(1), np.zeros(5)) > 0)
            sign = np.where(truth > 0, 1, -1)
            rows = np.hstack([np.concatenate([X, Z]), np.ones((45, 1))]).astype(np.float64)
            w = trees[level].to_csr()[node].toarray().ravel().astype(np.float64)
            gap = np.maximum(0, 1 - sign * (rows @ w))
            gradient = w - 2 * rows.T @ (cost * sign * gap)
            assert np.abs(gradient).max() < 1e-3 * np.abs(2 * rows.T @ (cost * sign)).max()


def test_nodes_of_a_tree_take_the_sum_of_targets_below_them_for_the_cost() -> None:
    X, Y, Z, soft = some_examples(1)
    nodes = np.array([-1, -1, 0, 1, 2, 3, 4])
    tree = LabelTree.from_parents([-1, -1, 0, 0, 0, 1, 1], nodes)
    model = TreeClassifier(tree=tree, precision="float32", prune=0.0)
    taught = clone(model).fit_examples(Examples.of(X, Y).with_label_points(Z, soft, 0.7))
    by_hand = 0.7 * soft  # the sums below the two nodes, cut off at 1: as one of one label is
    by_node = by_hand.toarray()
    by_node[0] = [0.7, 0, 0, 0, 0]
    by_node[3] = [0, 0, 0, 0.7, 0]
    weighed = clone(model).set_params(relevance="nodes")
    weighed.fit(np.concatenate([X, Z]), vstack([Y, csr_matrix(by_node)], "csr"))
    assert same_weights(taught.levels_[0][0], weighed.levels_[0][0])
    weighed.set_params(relevance="labels").fit(
        np.concatenate([X, Z]), vstack([Y, csr_matrix(by_hand)], "csr")
    )
    assert same_weights(taught.levels_[0][1], weighed.levels_[0][1])


def test_relevances_of_texts_weigh_as_without_label_points() -> None:
    X, Y, Z, soft = some_examples(2)
    Y = csr_matrix(Y * 3)
    for relevance, expected in ((None, (Y > 0).astype(np.float32)), ("labels", Y)):
        model = OneVsAll(precision="float32", prune=0.0, relevance=relevance)
        taught = clone(model).fit_examples(Examples.of(X, Y).with_label_points(Z, soft))
        weighed = clone(model).set_params(relevance="labels")
        weighed.fit(np.concatenate([X, Z]), vstack([expected, soft], "csr"))
        assert same_weights(taught.weights_, weighed.weights_)


def test_a_resumed_fit_does_not_take_up_that_of_another_weight(tmp_path, described) -> None:
    for name in ("dismec", "xr-linear"):
        models = []
        for weight in (0.1, 0.9):
            tagger = systems.create(name, calibrate=False, label_points=LabelPoints(weight=weight))
            with kept_in(tmp_path / name):
                models.append(tagger.fit(described).rank(["boil"], 10).scores)
        assert not np.array_equal(*models)


# --- taggers


def test_labels_of_no_text_are_found_by_their_names(described) -> None:
    def place(points: LabelPoints | str | None) -> int:
        tagger = systems.create("dismec", label_points=points).fit(described)
        names = [tag.label for tag in tagger.tag("boil the water at the spout", k=10)]
        assert tagger.n_texts_ == len(described)
        assert tagger.reliability_["texts"] == tagger.held_out(len(described))
        return names.index("boil water spout")

    assert place(None) == 9  # the last
    for points in ("self", "cooccurrence", LabelPoints("symmetric"), LabelPoints("random-walk")):
        assert place(points) < 5


def test_label_points_are_not_counted(described) -> None:
    tagger = systems.create("dismec", label_points="self").fit(described)
    assert tagger.label_counts_.tolist() == described.label_counts.tolist()
    assert len(tagger.text_hashes_) <= len(described)
    assert tagger.reliability_["texts"] == tagger.held_out(len(described))


def test_features_are_fitted_on_texts_alone(described) -> None:
    alone = systems.create("dismec").fit(described)
    taught = systems.create("dismec", label_points="self").fit(described)
    assert taught.features_.terms_.equals(alone.features_.terms_)
    assert np.array_equal(taught.features_.idf_, alone.features_.idf_)


def test_targets_are_of_the_texts_that_are_trained_on(described, monkeypatch) -> None:
    seen = []

    def fit_examples(self, examples):
        seen.append(examples)
        return fitting(self, examples)

    fitting = OneVsAll.fit_examples
    monkeypatch.setattr(OneVsAll, "fit_examples", fit_examples)
    tagger = Tagger(OneVsAll(), Tfidf(), label_points=LabelPoints("cooccurrence", threshold=0.2))
    tagger.fit(described)
    first, whole = seen
    assert first.n_texts == len(described) - tagger.held_out(len(described))
    assert whole.n_texts == len(described)
    for examples in seen:
        numbers = examples.label_points
        known = [
            i for i, row in enumerate(tagger.features_.transform(described.labels.names)) if row.nnz
        ]
        expected = cooccurrence(examples.targets[examples.texts], 0.2)[known]
        assert (examples.targets[numbers] != expected).nnz == 0
        assert examples.label_point_weight == 1


def test_calibrated_probabilities_and_answers_are_kept(described, tmp_path) -> None:
    points = LabelPoints("cooccurrence", weight=0.5, share=0.9, sample="tail-first")
    tagger = systems.create("xr-linear", label_points=points).fit(described)
    tagger.save(tmp_path / "model")
    again = megalabel.load(tmp_path / "model")
    assert again.label_points.get_params() == points.get_params()
    texts = described.texts[:50]
    assert np.array_equal(tagger.rank(texts).scores, again.rank(texts).scores)
    assert clone(again).fit(described).tag("red dress") == tagger.tag("red dress")


def test_longer_texts_of_labels_are_taken_where_asked_for() -> None:
    labels = LabelSet(["a", "b"], ["dog", "cat"], ["barks", "purrs"])
    for texts, expected in (
        ("names", ["dog", "cat"]),
        ("texts", ["barks", "purrs"]),
        ("both", ["dog barks", "cat purrs"]),
    ):
        assert LabelPoints(texts=texts).texts_of(labels).to_pylist() == expected
        assert LabelPoints(texts=texts).texts_of(LabelSet(["dog"])).to_pylist() == ["dog"]


def test_shares_of_labels_are_drawn_by_the_seed() -> None:
    counts = np.array([500, 1, 2, 300, 1, 3, 2, 200])
    drawn = [LabelPoints(share=0.5, seed=seed).chosen(counts).tolist() for seed in range(20)]
    assert drawn[0] == LabelPoints(share=0.5).chosen(counts).tolist()
    assert len({tuple(numbers) for numbers in drawn}) > 1
    assert {len(n) for n in drawn} == {4}
    rare = LabelPoints(share=5 / 8, sample="tail-first").chosen(counts)
    assert rare.tolist() == [1, 2, 4, 5, 6]
    assert LabelPoints(share=0.0).chosen(counts).tolist() == []
    assert LabelPoints().chosen(counts).tolist() == list(range(8))


def test_no_label_points_at_all_are_as_none(described) -> None:
    alone = systems.create("dismec").fit(described)
    none = systems.create("dismec", label_points=LabelPoints(share=0.0)).fit(described)
    ours, theirs = (tagger.rank(described.texts, 3) for tagger in (alone, none))
    assert np.array_equal(ours.scores, theirs.scores)
    assert np.array_equal(ours.ids, theirs.ids)


def test_parameters_of_label_points_are_set_through_the_tagger(described) -> None:
    tagger = systems.create("dismec", label_points="cooccurrence", label_points__threshold=0.4)
    assert tagger.label_points.get_params()["threshold"] == 0.4
    assert tagger.label_points.targets == "cooccurrence"
    tagger = systems.create("dismec", label_points__weight=0.4)
    assert (tagger.label_points.targets, tagger.label_points.weight) == ("self", 0.4)


@pytest.mark.parametrize("name", ["dismec", "bonsai"])
def test_a_plan_counts_label_points_in(name, corpus) -> None:
    words = sorted({word for text in corpus.texts.to_pylist() for word in text.split()})
    pairs = [f"{first} {second}" for first in words for second in words if first < second]
    targets = csr_matrix(
        (corpus.targets.data, corpus.targets.indices, corpus.targets.indptr),
        (len(corpus), len(pairs)),
    )
    many = Corpus(corpus.texts, targets=targets, labels=pairs)
    plans = []
    for points in (None, "self"):
        tagger = systems.create(name, calibrate=False, label_points=points)
        plans.append(systems.get(name).plan(tagger, many))
    assert plans[1].disk > 1.5 * plans[0].disk
    assert plans[1].disk == pytest.approx(learned_bytes(tagger.fit(many)), rel=0.5)


# --- nearest neighbours


def test_a_label_point_votes_as_a_neighbour_by_its_weight() -> None:
    X, Y, Z, _ = some_examples(4)
    own = csr_matrix(np.eye(5, dtype=np.float32))
    taught = NearestNeighbours().fit_examples(Examples.of(X, Y).with_label_points(Z, own, 0.5))
    by_hand = NearestNeighbours().fit(np.concatenate([X, Z]), vstack([Y, 0.5 * own], "csr"))
    by_hand.prior_ = taught.prior_  # label points are not counted
    ours, theirs = (model.rank(X, 5) for model in (taught, by_hand))
    assert np.array_equal(ours.ids, theirs.ids)
    assert np.array_equal(ours.scores, theirs.scores)
    assert taught.prior_.label_counts_.tolist() == Y.sum(axis=0).A1.tolist()


def test_neighbours_are_called_by_the_names_of_labels(described) -> None:
    tagger = systems.create("knn", label_points="self").fit(described)
    neighbours = tagger.classifier_
    titles = [neighbours.title(row) for row in range(len(described), len(described) + 10)]
    assert "boil water spout" in titles
    more = Corpus(["a new gown"], targets=[["dress"]], labels=described.labels)
    neighbours = tagger.partial_fit(more).classifier_  # another one, as "gown" is a new word
    assert neighbours.title(len(neighbours.label_starts_) - 2) == "a new gown"


def test_a_label_that_is_a_text_gives_away_no_labels_of_a_neighbour(monkeypatch) -> None:
    seen = []
    fitting = NearestNeighbours.fit_examples
    monkeypatch.setattr(
        NearestNeighbours,
        "fit_examples",
        lambda self, some: (seen.append(some), fitting(self, some))[1],
    )
    tagger = systems.create("knn", label_points="self").fit(depends(PACKAGES * 10))
    targets = seen[-1].targets[seen[-1].label_points]
    assert (targets != csr_matrix(np.eye(5))).nnz == 0
    assert "bash: shell" not in {tag.label for tag in tagger.tag("bash: shell", k=5)}


# --- what they are refused for


def test_refusals_say_why(corpus) -> None:
    def fit(name: str, some: Corpus, **parameters: object) -> None:
        systems.create(name, **parameters).fit(some)

    with pytest.raises(ParameterError, match="prior learns nothing from texts of labels"):
        fit("prior", corpus, label_points="self")
    with pytest.raises(ParameterError, match="take label_points='self', not 'cooccurrence'"):
        fit("knn", corpus, label_points="cooccurrence")
    numbered = Corpus(corpus.texts, targets=corpus.targets)
    with pytest.raises(DataError, match="known by number alone"):
        fit("dismec", numbered, label_points="self")
    vectors = Corpus(features=np.eye(300, dtype=np.float32), targets=corpus.targets)
    named = Corpus(features=vectors.features, targets=corpus.targets, labels=corpus.labels)
    with pytest.raises(ParameterError, match="vectors made elsewhere"):
        fit("dismec", named, label_points="self")
    with pytest.raises(ParameterError, match="label_shard"):
        fit("dismec", corpus.label_shard(1, 2), label_points="self")
    with pytest.raises(ParameterError, match="label_points"):
        fit("dismec", corpus, label_points="names")
    with pytest.raises(ParameterError, match=r"leave out weight=0\.5"):
        fit("online-plt", corpus, label_points=LabelPoints(weight=0.5))


# --- texts that are labels

PACKAGES = ["libc: C library", "bash: shell", "grep: text search", "sed: text editor", "awk: text"]


def depends(texts: list[str], ids: list[str] | None = None, own: bool = False) -> Corpus:
    """Packages that need the first one, which needs the second; and, if asked for, themselves."""
    labels = LabelSet([text.split(":")[0] for text in PACKAGES], PACKAGES)
    targets = [[PACKAGES[text.endswith(PACKAGES[0])], *([text] if own else [])] for text in texts]
    return Corpus(texts, targets=targets, labels=labels, ids=ids)


def test_a_text_that_is_a_label_is_not_answered_with_it(tmp_path) -> None:
    train = depends(PACKAGES * 10)
    tagger = systems.create("dismec", label_points="self").fit(train)
    assert tagger.leaves_own_out_
    tagger.save(tmp_path / "model")
    for model in (tagger, megalabel.load(tmp_path / "model")):
        for text in PACKAGES[1:]:
            assert text not in {tag.label for tag in model.tag(text, k=5)}
            assert text not in {tag.label for tag in model.tag([text], k=5)[0]}
        ranking = model.rank(PACKAGES, 5)
        assert (ranking.ids != np.arange(5)[:, None]).all()
        assert ranking.present.sum() == 20
        # other texts are answered with any label
        assert "bash: shell" in {tag.label for tag in model.tag("shell", k=2)}


def test_a_text_is_a_label_by_its_identifier_too() -> None:
    train = depends(
        [f"needs {text}" for text in PACKAGES] * 6, [t.split(":")[0] for t in PACKAGES] * 6
    )
    tagger = systems.create("dismec", label_points="self").fit(train)
    asked = Corpus(["shell", "shell"], ids=["bash", "zsh"])
    first, second = tagger.rank(asked, 5).tags()
    assert "bash: shell" not in {tag.label for tag in first}
    assert "bash: shell" in {tag.label for tag in second}


def test_numbers_are_no_identifiers_of_both() -> None:
    labels = LabelSet(["1", "2"], ["red dress", "blue jeans"])
    train = Corpus(
        ["red", "blue"] * 20,
        targets=csr_matrix(np.eye(2)[[1, 0] * 20]),
        labels=labels,
        ids=["1", "2"] * 20,
    )
    assert not systems.create("dismec", label_points="self").fit(train).leaves_own_out_


def test_where_texts_carry_their_own_label_it_is_answered() -> None:
    tagger = systems.create("dismec", label_points="self").fit(depends(PACKAGES * 10, own=True))
    assert not tagger.leaves_own_out_
    assert tagger.tag("bash: shell", k=2)[0].label in PACKAGES[:2]
    assert {tag.label for tag in tagger.tag("bash: shell", k=2)} == set(PACKAGES[:2])


def test_without_label_points_nothing_is_left_out() -> None:
    tagger = systems.create("dismec").fit(depends(PACKAGES * 10))
    assert not tagger.leaves_own_out_
    assert tagger.rank(PACKAGES, 5).present.all()


def test_own_labels_are_left_out_of_calibration_and_evaluation(monkeypatch) -> None:
    rankings = []

    def fit(self, ranking, Y, **more):
        rankings.append((ranking, Y))
        return fitting(self, ranking, Y, **more)

    from megalabel.calibration import Isotonic

    fitting = Isotonic.fit
    monkeypatch.setattr(Isotonic, "fit", fit)
    train = depends(PACKAGES * 10)
    tagger = systems.create("dismec", label_points="self").set_params(calibration="isotonic")
    tagger.fit(train)
    tagger.calibrate(train, method="isotonic")
    for ranking, _ in rankings:
        assert ranking.present.sum(axis=1).max() <= 4  # of five labels, one is its own
    assert tagger.evaluate(train, k=1)["P@1"] == 1


def test_cells_that_a_corpus_leaves_out_are_left_out_as_well() -> None:
    tagger = systems.create("dismec", label_points="self").fit(depends(PACKAGES * 10))
    excluded = csr_matrix(np.eye(5)[[1, 2, 3, 4, 0]])
    asked = Corpus(PACKAGES, labels=tagger.labels, excluded=excluded)
    present = tagger.rank(asked, 5)
    assert present.present.sum() == 15
    assert not (present.ids == np.array([1, 2, 3, 4, 0])[:, None]).any()


def test_a_label_that_is_a_text_is_taught_that_texts_labels(monkeypatch) -> None:
    seen = []
    fitting = OneVsAll.fit_examples
    monkeypatch.setattr(
        OneVsAll, "fit_examples", lambda self, some: (seen.append(some), fitting(self, some))[1]
    )
    tagger = Tagger(OneVsAll(), Tfidf(), calibration=None, label_points="self")
    tagger.fit(depends(PACKAGES[:3] * 10))
    targets = seen[-1].targets[seen[-1].label_points].toarray()
    expected = np.eye(5)
    expected[1:3, 0] = expected[0, 1] = 1  # what the three that are texts of training need
    assert targets.tolist() == expected.tolist()


def test_some_labels_of_a_tagger_leave_their_own_out(tmp_path) -> None:
    tagger = systems.create("dismec", label_points="self", calibrate=False)
    some = tagger.fit(depends(PACKAGES * 10)).take_labels([3, 0])
    assert some.rank(["sed: text editor"], 2).present.sum() == 1
    assert some.rank(["bash: shell"], 2).present.sum() == 2


def test_a_mix_leaves_out_what_a_member_does() -> None:
    train = depends(PACKAGES * 10)
    others = depends([f"{text} {number}" for number in range(60) for text in PACKAGES])
    members = [
        systems.create("dismec", calibrate=False, label_points=points).fit(train)
        for points in ("self", None)
    ]
    mixed = megalabel.mix(members, others, form="means")
    again = with_members(mixed, members)
    for tagger in (mixed, again):
        assert tagger.rank(PACKAGES, 5).present.sum() == 20
    assert with_members(mixed, members[1:] * 2).rank(PACKAGES, 5).present.all()
