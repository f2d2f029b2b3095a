"""A small fitted component of every kind, and what it answers: of these the kept folders are made.

`python -m tests.formats.kinds` writes the folders that are not there yet, each with its answers
beside it, under the number of the format. Folders that are there stay as they are: they show that
what an older megalabel wrote is still read. A new kind is one more function here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse, random

from megalabel import Corpus, LabelSet, Ranking, store
from megalabel.base import Component
from megalabel.calibration import Beta, ByFrequency, ByRank, Isotonic, Platt, Temperature
from megalabel.decision import BlockCoordinateAscent, FrankWolfe, Online, TopK, Weighted
from megalabel.features import BagEmbedding, Concat, Each, Precomputed, Tfidf
from megalabel.labels import Jpv, LabelTree, Richards
from megalabel.linear import OneVsAll, OnlineTree, Prior, TreeClassifier
from megalabel.parts import Calibrator, Classifier, Decision, Featurizer
from megalabel.rankers import DenseTree, Ensemble, NearestLabels
from megalabel.retrieval import NearestNeighbours
from megalabel.tagger import Tagger

FOLDERS = Path(__file__).parent / str(store.FORMAT)
WORDS = [
    "red",
    "blue",
    "dress",
    "gown",
    "jeans",
    "denim",
    "shoes",
    "laces",
    "kettle",
    "spout",
    "Größe",
    "café",
]
TEXTS = [" ".join(WORDS[i * j % 12] for j in range(1, 5)) for i in range(1, 37)]
NAMES = [f"label {i}" for i in range(8)]
LABELS = LabelSet([f"L{i}" for i in range(8)], NAMES, [f"all of {name}" for name in NAMES])
X = random(60, 20, 0.3, "csr", dtype=np.float32, random_state=0)
Y = csr_matrix((random(60, 8, 0.25, "csr", random_state=1) > 0).astype(np.float32))
ROWS, CORPUS = X[:6], Corpus(TEXTS, np.arange(72, dtype=np.float32).reshape(36, 2) % 7)
RANKING = Ranking(
    np.argsort(np.random.default_rng(2).random((1200, 8)), axis=1)[:, :4],
    -np.sort(-np.random.default_rng(3).random((1200, 4), np.float32), axis=1),
    LABELS,
)
TRUTH = csr_matrix(
    (np.random.default_rng(4).random((1200, 8)) < 0.4).astype(np.float32), dtype=np.float32
)
COUNTS = np.array([900, 500, 300, 100, 60, 20, 5, 1])

KINDS: dict[str, Callable[[], Component]] = {}


def kind(make: Callable[[], Component]) -> Callable[[], Component]:
    """Keep a function that makes a fitted component, under its own name."""
    KINDS[make.__name__.replace("_", "-")] = make
    return make


def answers(component: Any) -> list[np.ndarray]:
    """What a component makes of inputs that are always the same."""
    if isinstance(component, Featurizer):
        rows = component.transform(CORPUS[:6])
        rows = rows if isinstance(rows, list) else [rows]
        return [part.toarray() if issparse(part) else np.asarray(part) for part in rows]
    if isinstance(component, Tagger):
        ranking = component.rank(TEXTS[:6], 3)
    elif isinstance(component, Classifier):
        ranking = component.rank(ROWS, 5)
    elif isinstance(component, Calibrator):
        ranking = component.apply(RANKING[:20])
    else:
        assert isinstance(component, Decision)
        ranking = component.apply(RANKING[:20], 2)
    return [ranking.ids, ranking.scores]


def learned(component: Any, **values: Any) -> Any:
    """A component with what a training would have given it."""
    component.restore(values)
    return component


# --- features


@kind
def tfidf() -> Component:
    return Tfidf(ngram_range=(1, 2), stop_words=["red"], min_df=2).fit(TEXTS)


@kind
def tfidf_characters() -> Component:
    options = {"strip_accents": True, "use_idf": False, "norm": "l1", "binary": True}
    return Tfidf(analyzer="char_wb", ngram_range=(2, 3), max_features=40, **options).fit(TEXTS)


@kind
def tfidf_hashing() -> Component:
    return Tfidf(hashing=64, case="lower", normalise=None, sublinear_tf=False).fit(TEXTS)


@kind
def precomputed() -> Component:
    return Precomputed().fit(CORPUS)


@kind
def concat() -> Component:
    return Concat([Tfidf(), Precomputed(norm=None)], weights=[2, 1]).fit(CORPUS)


@kind
def each() -> Component:
    return Each([Tfidf(), Precomputed()]).fit(CORPUS)


@kind
def bag_embedding() -> Component:
    random = np.random.default_rng(5)
    block = {
        "weight": random.normal(size=(3, 3)).astype(np.float32),
        "bias": random.normal(size=3).astype(np.float32),
        "gates": np.array([0.5, 1], np.float32),
    }
    table = random.normal(size=(2, 3)).astype(np.float32)
    words = Precomputed(norm=None)
    return learned(BagEmbedding(words), words_=precomputed(), table_=table, block_=block)


# --- classifiers


@kind
def one_vs_all_float32() -> Component:
    costs = np.linspace(0.5, 2, 8)
    return OneVsAll(positive_costs=costs, relevance="labels").fit(X, Y, LABELS)


@kind
def one_vs_all_float16() -> Component:
    options = {"weighting": "propensity", "propensities": Jpv(0.5, 1.5)}
    return OneVsAll(loss="logistic", precision="float16", **options).fit(X, Y, LABELS)


@kind
def one_vs_all_int8() -> Component:
    options = {"weighting": "propensity", "propensities": Richards(1.0, 0.5)}
    return OneVsAll(precision="int8", **options).fit(X, Y, LABELS)


@kind
def tree_classifier() -> Component:
    return TreeClassifier(trees=2, arity=2, max_leaf=2).fit(X, Y, LABELS)


@kind
def tree_classifier_int8() -> Component:
    tree = LabelTree.from_parents([-1, -1, 0, 0, 0, 1, 1, 1])
    options = {"exact": True, "post": "sigmoid", "loss": "logistic", "precision": "int8"}
    return TreeClassifier(tree=tree, **options).fit(X, Y, LABELS)


@kind
def online_tree() -> Component:
    some = LABELS.take(np.arange(6))
    model = OnlineTree(arity=2, max_leaf=2).fit(X[:40], Y[:40, :6], some)
    return model.partial_fit(X[40:], Y[40:], LABELS)


@kind
def nearest_neighbours() -> Component:
    return NearestNeighbours(neighbours=7).fit(X, Y, LABELS)


@kind
def nearest_neighbours_dense() -> Component:
    return NearestNeighbours(neighbours=7).fit(X.toarray(), Y, LABELS)


@kind
def nearest_neighbours_bm25() -> Component:
    counts = X.copy()
    counts.data = np.ceil(3 * counts.data)
    return NearestNeighbours(neighbours=7, similarity="bm25").fit(counts, Y, LABELS)


@kind
def prior() -> Component:
    return Prior().fit(X, Y, LABELS)


def dense(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Numbers that are always the same."""
    return np.random.default_rng(6).normal(size=shape).astype(dtype)


@kind
def dense_tree() -> Component:
    return learned(
        DenseTree(beams=[2]),
        tree_=LabelTree.from_parents([-1, -1, -1, 0, 0, 1, 1, 2]),
        weights_=[dense(3, 8, dtype=np.float16), dense(8, 12, dtype=np.float16)],
        biases_=[dense(3), dense(8)],
        labels_=LABELS,
    )


@kind
def nearest_labels() -> Component:
    return learned(
        NearestLabels(shortlist=4),
        centroids_=dense(8, 20, dtype=np.float16),
        weights_=dense(8, 20, dtype=np.float16),
        bias_=dense(8),
        block_={"weight": dense(20, 20), "bias": dense(20), "gates": dense(2)},
        label_counts_=COUNTS,
        labels_=LABELS,
    )


@kind
def ensemble() -> Component:
    model = TreeClassifier(arity=2, max_leaf=2)
    return Ensemble(model, models=2, combine="rank").fit(X, Y, LABELS)


# --- calibrators


@kind
def isotonic() -> Component:
    return Isotonic(k=4).fit(RANKING, TRUTH)


@kind
def platt() -> Component:
    return Platt(k=4).fit(RANKING, TRUTH)


@kind
def temperature() -> Component:
    return Temperature(k=4).fit(RANKING, TRUTH)


@kind
def beta() -> Component:
    return Beta(k=4).fit(RANKING, TRUTH)


@kind
def by_frequency() -> Component:
    calibrator = ByFrequency(Isotonic(k=4), bins=3, rerank=True)
    return calibrator.fit(RANKING, TRUTH, label_counts=COUNTS)


@kind
def by_rank() -> Component:
    return ByRank(Platt(k=4)).fit(RANKING, TRUTH)


# --- decisions


@kind
def top_k() -> Component:
    return TopK(caps=np.arange(3, 11))


@kind
def block_coordinate_ascent() -> Component:
    return BlockCoordinateAscent("macro-recall", budget="at-most")


@kind
def frank_wolfe() -> Component:
    return FrankWolfe("macro-f1", k=2, iterations=5).fit(RANKING[:200])


@kind
def online() -> Component:
    rule = Online("macro-f1")
    rule.apply(RANKING[20:40], 2)
    return rule


@kind
def weighted() -> Component:
    return Weighted("logarithm", caps=15).fit(RANKING, train_labels=(COUNTS, 1000))


# --- all in a row


@kind
def tagger() -> Component:
    targets = [[NAMES[len(text) % 8], NAMES[i % 3]] for i, text in enumerate(TEXTS)]
    return Tagger(OneVsAll(), Tfidf(), "isotonic", TopK(0.1)).fit(TEXTS, targets)


def write(folders: Path) -> None:
    """Write each kind that has no folder yet, and its answers."""
    folders.mkdir(exist_ok=True)
    for name, make in KINDS.items():
        if not (folders / name).exists():
            component = make()
            store.save(component, folders / name)
            found = [part.tolist() for part in answers(component)]
            (folders / f"{name}.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    write(FOLDERS)
