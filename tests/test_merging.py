"""Models of some labels each made one, and models made smaller."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import megalabel
from megalabel import systems
from megalabel.data import Corpus, LabelSet, synthetic
from megalabel.decision import Weighted
from megalabel.errors import DataError, MegalabelError, ParameterError
from megalabel.features import Concat, Tfidf
from megalabel.labels import Jpv, LabelTree
from megalabel.tagger import Tagger

QUERIES = ["red evening gown", "", "a brass lamp with a blue shade", "zzyzx"]


@pytest.fixture(scope="module")
def shop():
    """A thousand texts with some hundred labels that are used."""
    corpus = synthetic.generate(texts=1_000, labels=1_000).corpus
    return corpus.with_labels(np.sort(np.argsort(-corpus.label_counts, kind="stable")[:101]))


def shards(corpus, n):
    return [corpus.label_shard(i, n) for i in range(1, n + 1)]


def merged(system, corpus, n, **parameters):
    return megalabel.merge([systems.create(system, **parameters).fit(s) for s in shards(corpus, n)])


def assert_same(one, other):
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.scores, other.scores)
    assert one.labels == other.labels


# --- parts of a label set


def test_shards_are_all_labels_in_order(shop):
    for n in (1, 2, 7, 101):
        parts = shards(shop, n)
        assert [x for p in parts for x in p.labels.ids.to_pylist()] == shop.labels.ids.to_pylist()
        assert max(len(p.labels) for p in parts) - min(len(p.labels) for p in parts) <= 1
        assert all(len(p) == len(shop) for p in parts)
        whole = np.hstack([p.targets.toarray() for p in parts])
        np.testing.assert_array_equal(whole, shop.targets.toarray())
    for number, of in ((0, 2), (3, 2), (1, 102), (-1, 2)):
        with pytest.raises(ParameterError, match="101 labels"):
            shop.label_shard(number, of)


def test_some_labels_of_a_corpus():
    labels = LabelSet(["Q1", "Q2", "Q3"], ["cat", "dog", "bird"], ["purrs", "barks", "sings"])
    Y, E = csr_matrix([[1, 2, 3], [0, 0, 4]]), csr_matrix([[0, 1, 0], [0, 0, 1]])
    corpus = Corpus(["x", "y"], np.eye(2), Y, labels, ids=["a", "b"], excluded=E, source={"s": 1})
    for chosen in (["bird", "Q1"], [2, 0], np.array([2, 0])):
        part = corpus.with_labels(chosen)
        assert part.labels.names.to_pylist() == ["bird", "cat"]
        assert part.labels.texts.to_pylist() == ["sings", "purrs"]
        assert part.targets.toarray().tolist() == [[3, 1], [4, 0]]
        assert part.excluded.toarray().tolist() == [[0, 0], [1, 0]]
        assert part.ids.to_pylist() == ["a", "b"]
        assert part.features.shape == (2, 2)
    assert corpus.with_labels(np.array([False, True, True])).labels.ids.to_pylist() == ["Q2", "Q3"]
    assert len(corpus.with_labels([]).labels) == 0
    with pytest.raises(MegalabelError, match="fish"):
        corpus.with_labels(["fish"])
    with pytest.raises(DataError, match="twice"):
        corpus.with_labels(["cat", "Q1"])


# --- one-versus-all


@pytest.mark.parametrize("n", [1, 3, 8])
def test_merged_is_trained_at_once(shop, n):
    whole = systems.create("dismec", calibrate=False).fit(shop)
    one = merged("dismec", shop, n)
    for a, b in zip(
        one.classifier_.weights_.learned().values(),
        whole.classifier_.weights_.learned().values(),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert_same(one.rank(shop, 10), whole.rank(shop, 10))
    np.testing.assert_array_equal(one.label_counts_, whole.label_counts_)
    assert one.evaluate(shop).to_dict() == whole.evaluate(shop).to_dict()


@pytest.mark.parametrize(
    "parameters",
    [
        {"weighting": "propensity"},
        {"classifier__precision": "float16"},
        {"features": Concat([Tfidf(), Tfidf(analyzer="char_wb", ngram_range=(3, 3))])},
    ],
)
def test_merged_whatever_the_parameters(shop, parameters):
    whole = systems.create("ova-logistic", calibrate=False, **parameters).fit(shop)
    assert_same(merged("ova-logistic", shop, 4, **parameters).rank(shop, 5), whole.rank(shop, 5))


def test_weights_of_eight_bits_are_not_rounded_again(shop):
    whole = systems.create("dismec", classifier__precision="int8", calibrate=False).fit(shop)
    one = merged("dismec", shop, 4, classifier__precision="int8")
    assert_same(one.rank(shop, 5), whole.rank(shop, 5))


def test_costs_are_put_together(shop):
    costs = np.linspace(0.5, 2, 101)
    parts = shards(shop, 3)
    fitted, first = [], 0
    for i, part in enumerate(parts):
        own = costs[first : first + len(part.labels)] if i else None
        fitted.append(systems.create("dismec", classifier__positive_costs=own).fit(part))
        first += len(part.labels)
    one = megalabel.merge(fitted)
    expected = costs.copy()
    expected[: len(parts[0].labels)] = 1
    np.testing.assert_array_equal(one.classifier.positive_costs, expected)
    whole = systems.create("dismec", classifier__positive_costs=expected, calibrate=False).fit(shop)
    assert_same(one.rank(shop, 5), whole.rank(shop, 5))


def test_merged_is_saved_and_says_of_what(shop, tmp_path):
    one = merged("dismec", shop, 2)
    one.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model", verify=True)
    assert_same(loaded.rank(QUERIES, 5), one.rank(QUERIES, 5))
    assert loaded.provenance_["corpus"]["labels"] == 101
    assert [part["label_shard"] for part in loaded.provenance_["merged"]] == ["1/2", "2/2"]
    assert_same(megalabel.merge([loaded]).rank(QUERIES, 5), one.rank(QUERIES, 5))


# --- trees


@pytest.mark.parametrize("system", ["xr-linear", "parabel", "bonsai", "plt"])
def test_merged_trees_are_a_tree_of_their_branches(shop, system):
    options = {"max_leaf": 10}
    if system == "bonsai":
        options["negatives"] = "teacher"  # what the beam finds depends on the other branches
    one = merged(system, shop, 3, **options)
    assert sum(part["labels"] for part in one.provenance_["merged"]) == 101
    options["calibrate"] = False
    whole = systems.create(system, classifier__tree=one.classifier_.trees_, **options).fit(shop)
    assert_same(one.rank(shop, 10), whole.rank(shop, 10))
    usual = systems.create(system, **options).fit(shop).evaluate(shop)
    assert one.evaluate(shop)["P@1"] > usual["P@1"] - 0.03


@pytest.mark.parametrize("post", ["l3-hinge", "sigmoid"])
def test_trees_of_different_depth(shop, post):
    parts = shards(shop, 3)
    options = {"classifier__post": post, "classifier__beam": 200}
    trees = [LabelTree.from_parents([-1] * len(parts[0].labels)), None, None]
    fitted = [
        systems.create("xr-linear", arity=2, max_leaf=m, classifier__tree=t, **options).fit(p)
        for p, m, t in zip(parts, (10, 10, 3), trees, strict=True)
    ]
    assert len({f.classifier_.trees_[0].depth for f in fitted}) == 3
    for tagger in fitted:
        tagger.classifier_.max_leaf = 10
    one = megalabel.merge(fitted)
    # every label has the score it had
    scores = one.rank(shop, 101).to_csr().toarray()
    own = np.hstack([f.rank(shop, 101).to_csr().toarray() for f in fitted])
    np.testing.assert_allclose(scores, own, rtol=1e-5)


def test_labels_too_few_for_clusters_are_in_every_tree(shop):
    parts = shards(shop, 2)
    options = {"beam": 200, "calibrate": False}
    fitted = [
        systems.create("parabel", max_leaf=m, **options).fit(p)
        for p, m in zip(parts, (100, 10), strict=True)
    ]
    assert [len(f.classifier_.trees_) for f in fitted] == [1, 3]
    fitted[1].classifier_.max_leaf = 100
    one = megalabel.merge(fitted)
    assert len(one.classifier_.trees_) == 3
    scores = one.rank(shop, 101).to_csr().toarray()
    own = np.hstack([f.rank(shop, 101).to_csr().toarray() for f in fitted])
    np.testing.assert_allclose(scores, own, rtol=1e-5)


def test_trees_that_cannot_be_joined(shop):
    parts = shards(shop, 2)
    for options in ({"bias": 0}, {"post": "noop"}):
        made = [
            systems.create(
                "xr-linear", **{f"classifier__{k}": v for k, v in options.items()}
            ).set_params(classifier__tree=tree)
            for tree in (LabelTree.from_parents([-1] * 50), None)
        ]
        made[1].set_params(classifier__max_leaf=10)
        fitted = [m.fit(p) for m, p in zip(made, parts, strict=True)]
        fitted[1].classifier_.max_leaf = None
        with pytest.raises(ParameterError, match="levels cannot be joined"):
            megalabel.merge(fitted)
    trees = [systems.create("parabel", max_leaf=10).fit(p) for p in parts]
    trees[1].classifier_.trees_ = trees[1].classifier_.trees_[:2]
    with pytest.raises(ParameterError, match=r"models of \[3, 2\] trees"):
        megalabel.merge(trees)


@pytest.mark.parametrize("own", [np.linspace(0.1, 1, 101), Jpv(0.6, 2.6), "jpv-amazon"])
def test_propensities_of_the_parts_are_those_of_all(shop, own, tmp_path):
    options = {"weighting": "propensity", "precision": "float32", "calibrate": False}
    fitted, start = [], 0
    for number, part in enumerate(shards(shop, 2)):
        p = own[start : start + len(part.labels)] if isinstance(own, np.ndarray) else own
        start += len(part.labels)
        tagger = systems.create("dismec", propensities=p, **options).fit(part)
        tagger.save(tmp_path / str(number))
        fitted.append(Tagger.load(tmp_path / str(number)))
    one = megalabel.merge(fitted)
    np.testing.assert_array_equal(one.classifier.propensities, own)
    whole = systems.create("dismec", propensities=own, **options).fit(shop)
    assert_same(one.rank(QUERIES, 9), whole.rank(QUERIES, 9))


def test_propensities_that_cannot_be_joined(shop):
    kinds = (np.full(50, 0.5), None)
    fitted = [
        systems.create("dismec", weighting="propensity", propensities=p).fit(part)
        for p, part in zip(kinds, shards(shop, 2), strict=True)
    ]
    with pytest.raises(ParameterError, match="in model 1 but None in model 2"):
        megalabel.merge(fitted)


# --- what cannot be merged


def test_what_does_not_belong_together_is_told(shop):
    first, second = shards(shop, 2)
    whole, fitted = (systems.create("dismec", calibrate=False).fit(c) for c in (shop, first))

    def refused(other, message, error=MegalabelError):
        with pytest.raises(error, match=message):
            megalabel.merge([fitted, other])

    name = first.labels.ids[0].as_py()
    refused(whole, f"50 labels are in several of the models: '{name}', .*…", DataError)
    refused(systems.create("dismec", cost=2.0).fit(second), r"cost is 0.7 .* 2.0 in model 2")
    refused(systems.create("xr-linear").fit(second), "a OneVsAll but model 2 a TreeClassifier")
    refused(systems.create("dismec", min_df=2).fit(second), "min_df is 1 and 2")
    other = shop.with_labels(second.labels.ids.to_pylist())
    refused(systems.create("dismec").fit(other), "calibrate=false")
    refused(systems.create("dismec").fit(second[:900]), r"terms_ has \d+ and \d+ values, '.*' in")
    texts = second.texts.to_pylist()
    longer = [f"{texts[0]} {texts[1]}", *texts[1:]]  # no new word, but some in one more text
    changed = Corpus(longer, targets=second.targets, labels=second.labels)
    refused(systems.create("dismec", calibrate=False).fit(changed), "idf_ differs")
    vectors = Corpus(features=np.eye(1000), targets=second.targets, labels=second.labels)
    refused(systems.create("dismec", calibrate=False).fit(vectors), "a Tfidf and a Precomputed")
    refused(systems.create("dismec"), "not been fitted")
    learned = systems.create("dismec", calibrate=False).set_params(decision=Weighted())
    refused(learned.fit(second), "model 2 has learned its decision, Weighted, for its own labels")
    normed = {"calibrate": False, "classifier__relevance_norm": "l2"}
    with pytest.raises(ParameterError, match="relevance_norm"):
        megalabel.merge([systems.create("dismec", **normed).fit(c) for c in (first, second)])
    with pytest.raises(ParameterError, match="no model"):
        megalabel.merge([])
    with pytest.raises(ParameterError, match="Prior cannot be merged"):
        megalabel.merge([systems.create("prior").fit(p) for p in (first, second)])


# --- pruning


@pytest.mark.parametrize("system", ["dismec", "xr-linear", "plt"])
def test_pruned_keeps_what_is_large(shop, system, tmp_path):
    tagger = systems.create(system).fit(shop)
    before = tagger.rank(QUERIES, 5)
    smaller = tagger.prune(0.3)
    assert_same(tagger.rank(QUERIES, 5), before)  # it is another tagger
    for old, new in zip(levels(tagger), levels(smaller), strict=True):
        expected = old.toarray()
        small = np.abs(expected[:, :-1]) <= 0.3
        expected[:, :-1][small] = 0
        np.testing.assert_array_equal(new.toarray(), expected)
    sizes = []
    for name, each in (("tagger", tagger), ("smaller", smaller)):
        each.save(tmp_path / name)
        sizes.append(sum(f.stat().st_size for f in (tmp_path / name).iterdir()))
    assert sizes[1] < sizes[0]
    assert_same(Tagger.load(tmp_path / "smaller").rank(QUERIES, 5), smaller.rank(QUERIES, 5))
    assert smaller.classifier_.prune == 0.3
    assert smaller.provenance_["pruned"] == {"threshold": 0.3, "max_per_label": None}
    assert_same(tagger.prune().rank(QUERIES, 5), before)


def levels(tagger):
    classifier = tagger.classifier_
    parts = [classifier.weights_] if hasattr(classifier, "weights_") else classifier.levels_[0]
    return [part.to_csr() for part in parts]


@pytest.mark.parametrize("system", ["dismec", "xr-linear"])
@pytest.mark.parametrize("most", [0, 1, 7, 10**6])
def test_at_most_so_many_weights_a_label(shop, system, most):
    tagger = systems.create(system, precision="float32").fit(shop)
    for old, new in zip(levels(tagger), levels(tagger.prune(max_per_label=most)), strict=True):
        old, new = old.toarray(), new.toarray()
        np.testing.assert_array_equal(new[:, -1], old[:, -1])
        for before, after in zip(old[:, :-1], new[:, :-1], strict=True):
            kept = np.argsort(-np.abs(before), kind="stable")[:most]
            expected = np.zeros_like(before)
            expected[kept] = before[kept]
            np.testing.assert_array_equal(after, expected)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_pruned_in_few_bits(shop, precision):
    tagger = systems.create("dismec", classifier__precision=precision).fit(shop)
    smaller = tagger.prune(0.3)
    assert smaller.classifier_.weights_.precision == precision
    [old], [new] = levels(tagger), levels(smaller)
    kept = new.toarray() != 0
    np.testing.assert_allclose(new.toarray()[kept], old.toarray()[kept], rtol=1e-5)
    assert new.nnz < old.nnz


def test_what_cannot_be_pruned_is_told(shop):
    with pytest.raises(ParameterError, match="NearestNeighbours has no weights"):
        systems.create("knn").fit(shop).prune(0.1)
    tagger = systems.create("dismec").fit(shop)
    with pytest.raises(ParameterError, match="threshold must be a number of at least 0"):
        tagger.prune(-1)
    with pytest.raises(ParameterError, match="max_per_label must be an integer"):
        tagger.prune(max_per_label=1.5)
