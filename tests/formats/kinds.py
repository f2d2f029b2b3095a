"""A small fitted component of every kind, and what it answers: of these the kept folders are made.

`python -m tests.formats.kinds` writes the folders that are not there yet, each with its answers
beside it, under the number of the format. Folders that are there stay as they are: they show that
what an older megalabel wrote is still read. A new kind is one more function here.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse, random
from tests.tiny_bert import write_bert
from tests.tiny_static import write_model2vec

from megalabel import Corpus, LabelSet, Ranking, store, systems
from megalabel.base import Component
from megalabel.calibration import Beta, ByFrequency, ByRank, Isotonic, Joint, Platt, Temperature
from megalabel.data import Concept, Vocabulary
from megalabel.data.examples import Examples
from megalabel.data.strings import strings
from megalabel.decision import (
    BlockCoordinateAscent,
    FrankWolfe,
    Online,
    Threshold,
    TopK,
    Weighted,
)
from megalabel.exporting import without_torch
from megalabel.features import (
    BagEmbedding,
    Concat,
    Each,
    NameWords,
    Precomputed,
    Projected,
    StaticEmbedding,
    StemmedWords,
    Tfidf,
)
from megalabel.labels import Jpv, LabelPoints, LabelTree, Richards
from megalabel.linear import OneVsAll, OnlineTree, Prior, TreeClassifier
from megalabel.mixing import mix
from megalabel.parts import Calibrator, Classifier, Decision, Featurizer
from megalabel.rankers import (
    BoostedTrees,
    DenseTree,
    DualVectors,
    Ensemble,
    LabelVectors,
    NearestLabels,
    SparseLabels,
)
from megalabel.retrieval import NearestNeighbours, VectorIndex
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
TARGETS = [[NAMES[len(text) % 8], NAMES[i % 3]] for i, text in enumerate(TEXTS)]
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
BOOSTED = np.where(X.toarray() > 0, X.toarray(), np.nan)[:, :4]
COUNTS = np.array([900, 500, 300, 100, 60, 20, 5, 1])

KINDS: dict[str, Callable[[], Component]] = {}
# what it takes to open a kind, by how its name begins
NEEDS = {
    "neural": ["torch", "transformers"],
    "onnx": ["onnxruntime", "tokenizers"],
    "static": ["tokenizers"],
}


def kind(make: Callable[[], Component]) -> Callable[[], Component]:
    """Keep a function that makes a fitted component, once, under its own name."""
    KINDS[make.__name__.replace("_", "-")] = made = cache(make)
    return made


def answers(component: Any) -> list[np.ndarray]:
    """What a component makes of inputs that are always the same."""
    if isinstance(component, Featurizer):
        rows = component.transform(CORPUS[:6])
        words = [rows.words.data] if hasattr(rows, "words") else []
        rows = getattr(rows, "tokens", rows)
        rows = [rows.ids, rows.indptr, *words] if hasattr(rows, "ids") else rows
        rows = rows if isinstance(rows, list) else [rows]
        if isinstance(component, NameWords):
            found = component.transform(CORPUS[:6])
            rows.append(component.features(found, np.tile(np.arange(5), (6, 1))))
        return [part.toarray() if issparse(part) else np.asarray(part) for part in rows]
    if isinstance(component, BoostedTrees):
        return [component.margins(BOOSTED[:20])]
    if isinstance(component, Tagger):
        ranking = component.rank(TEXTS[:6], 3)
        if (vocabulary := ranking.labels.vocabulary) is not None:
            found = vocabulary.matches("name", ["LABEL 1", "nimi 2"])
            starts, _ = ranking.labels.all_names()
            return [ranking.ids, ranking.scores, *found, starts, vocabulary.subtree("L0")]
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


# --- what is known of labels beside a model


@kind
def vocabulary() -> Component:
    concepts = [
        Concept(f"http://x/L{i}", {"en": name, "fi": f"nimi {i}"}, broader=[f"http://x/L{i // 2}"])
        for i, name in enumerate(NAMES)
    ]
    labels = LabelSet(LABELS.ids, NAMES, None, Vocabulary.of(concepts), np.arange(8), "en")
    return Tagger(Prior(), Tfidf(), None).fit(Corpus(TEXTS, targets=TARGETS, labels=labels))


# --- features


@kind
def tfidf() -> Component:
    return Tfidf(ngram_range=(1, 2), stop_words=["red"], min_df=2).fit(TEXTS)


@kind
def tfidf_stems() -> Component:
    options = {"stemmer": "english", "stop_words": "english"}
    return Tfidf(**options).fit([*TEXTS, "the dresses", "shoe", "of a kettle"])


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


@contextmanager
def static() -> Iterator[str]:
    """The folder of static word vectors; a relative path, as folders are kept."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        table = np.random.default_rng(5).normal(size=(14, 4)).astype(np.float32)
        yield write_model2vec(Path("words"), WORDS, {"embeddings": table}, normalize=True)


@kind
def static_embedding() -> Component:
    with static() as folder:
        return StaticEmbedding(folder).fit()


@kind
def name_words() -> Component:
    names = ["red dress", "Jeans (denim) -- Dressed", "CAFÉ, Größen", "kettles", ""]
    return NameWords().fit(Corpus(TEXTS, labels=names))


@kind
def name_words_stems() -> Component:
    names = ["red dresses", "Jeans of denim", "The café", "kettle", ""]
    return NameWords(stemmer="en", stop_words="en").fit(Corpus(TEXTS, labels=names))


@kind
def stemmed_words() -> Component:
    names = ["red dresses", "Jeans of denim", "The café", "kettle", ""]
    return StemmedWords().fit(Corpus(TEXTS, labels=names))


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


@kind
def projected() -> Component:
    random = np.random.default_rng(6)
    weight, bias = (random.normal(size=shape).astype(np.float32) for shape in ((3, 2), (3,)))
    views = [
        {"weight": weight, "bias": bias, "tanh": True, "unit": True},
        {"weight": None, "bias": None, "tanh": False, "unit": False},
    ]
    return Projected.of(precomputed(), views)


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
def nearest_neighbours_titles() -> Component:
    titles = strings([f"text {number}" for number in range(X.shape[0])])
    some = Examples.of(X, Y, LABELS, find_titles=lambda: titles)
    return NearestNeighbours(neighbours=7).fit_examples(some)


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
def dual_vectors() -> Component:
    return DualVectors.of(LABELS, dense(8, 20, dtype=np.float16), [12, 8], [0.0, 0.5])


@kind
def sparse_labels() -> Component:
    return SparseLabels.from_dense(dense(8, 20), dense(8), LABELS, fan_in=5)


@kind
def sparse_labels_int8() -> Component:
    options = {"fan_in": 5, "group": 4, "precision": "int8", "head": 2}
    return SparseLabels.from_dense(dense(8, 20), dense(8), LABELS, **options)


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
def label_vectors() -> Component:
    index = VectorIndex(similarity="cosine", precision="float16", lists=3).fit(dense(8, 20))
    index = index.remove([4]).add([4], dense(9, 20)[8:])
    return learned(LabelVectors(scale=3.0), index_=index, label_counts_=COUNTS, labels_=LABELS)


@kind
def ensemble() -> Component:
    model = TreeClassifier(arity=2, max_leaf=2)
    return Ensemble(model, models=2, combine="rank").fit(X, Y, LABELS)


@kind
def boosted_trees() -> Component:
    return BoostedTrees(trees=6, max_leaves=4, min_rows=4).fit(BOOSTED, Y[:, 0].toarray().ravel())


def mixed(form: str) -> Component:
    """A mix of two taggers, in a form."""
    corpus = Corpus(TEXTS, targets=TARGETS)
    members = [
        Tagger(classifier, calibration=None).fit(corpus)
        for classifier in (OneVsAll(), NearestNeighbours(neighbours=5))
    ]
    unseen = Corpus([f"{text} {i}" for i, text in enumerate(TEXTS)], targets=TARGETS)
    return mix(members, unseen, form=form, shortlist=6)


@kind
def mix_means() -> Component:
    return mixed("means")


@kind
def mix_stack() -> Component:
    return mixed("stack")


@kind
def tagger_lexical() -> Component:
    names = ["red dresses", "Jeans of denim", "The café", "kettle", "spouts"]
    targets = [[names[(len(text) + i) % 5], names[i % 3]] for i, text in enumerate(TEXTS)]
    corpus = Corpus(TEXTS, targets=targets, labels=LabelSet(names))
    tagger = systems.create("lexical", classifier__trees=BoostedTrees(trees=3, min_rows=3))
    return tagger.fit(corpus)


@kind
def mix_boosted() -> Component:
    return mixed("boosted")


@kind
def zeroshot() -> Component:
    return systems.create("zeroshot").fit(Corpus(TEXTS, labels=LABELS)).plain()


@kind
def zeroshot_vectors() -> Component:
    labels = LabelSet(LABELS.ids, ["red", "blue gown", "", "Größe", "x", "y", "z", "café"], NAMES)
    made = systems.create("zeroshot", encoder=Tfidf(), judge=None)
    return made.fit(Corpus(TEXTS, labels=labels)).plain()


@kind
def zeroshot_joined() -> Component:
    return zeroshot_vectors().add_labels(["a fjord", "the gown"])


@kind
def tagger_lexical_joined() -> Component:
    return tagger_lexical().add_labels(["a fjord", "the gown"])


# --- calibrators


@kind
def isotonic() -> Component:
    return Isotonic(k=4).fit(RANKING, TRUTH)


@kind
def joint() -> Component:
    return Joint(k=4).fit(RANKING, TRUTH, label_counts=COUNTS)


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
def threshold() -> Component:
    return Threshold(2, at_least=0).fit(RANKING, TRUTH)


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
    return Tagger(OneVsAll(), Tfidf(), "isotonic", TopK(0.1)).fit(TEXTS, TARGETS)


@kind
def tagger_label_points() -> Component:
    points = LabelPoints("cooccurrence", threshold=0.3, weight=0.5, texts="both")
    names = [*TEXTS[:4], *NAMES[4:]]  # texts that are labels, which do not carry their own
    targets = [[names[(i + 1) % 8], names[4 + i % 3]] for i in range(len(TEXTS))]
    labels = LabelSet(LABELS.ids, names, LABELS.texts)
    corpus = Corpus(TEXTS, targets=targets, labels=labels)
    return Tagger(OneVsAll(), Tfidf(), "isotonic", label_points=points).fit(corpus)


# --- taggers of neural systems, which hold the parts that answer and what trains


def trained(classifier: Any, *, source: str | None = None, words: bool = False) -> Tagger:
    """A tagger over tokens, or over words and tokens."""
    from megalabel import neural

    tokens = neural.Tokenizer(source, vocabulary=40, max_length=8)
    features = neural.TextViews(Tfidf(), tokens) if words else tokens
    return Tagger(classifier, features, None).fit(TEXTS, TARGETS)


def trainer() -> Any:
    """Few steps, which are long enough to tell the labels apart."""
    from megalabel import neural

    rates = {"learning_rate": 0.02, "head_learning_rate": 0.1}
    return neural.Trainer(steps=20, batch=12, device="cpu", **rates)


def full(encoder: Any, loss: Any, **options: Any) -> Any:
    """A classifier over all labels."""
    from megalabel import neural

    return neural.FullClassifier(encoder, trainer(), loss=loss, **options)


def assembled(encoder: str) -> Any:
    """An encoder of one layer."""
    from megalabel import neural

    small = {"width": 4, "layers": 1, "heads": 2, "feed_forward": 4, "max_length": 8}
    return neural.AssembledEncoder(encoder=encoder, pretrain_epochs=0, **small)


@contextmanager
def bert() -> Iterator[str]:
    """The folder of a pre-trained encoder; a relative path, as folders are kept."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        write_bert(Path("bert"), TEXTS, vocabulary=40, width=4, inner=4, length=8)
        yield "bert"


@kind
def neural_assembled() -> Component:
    from megalabel import neural

    head = neural.heads.DenseHead()
    return trained(full(assembled("transformer"), neural.BCE(), head=head))


@kind
def neural_assembled_recurrent() -> Component:
    from megalabel import neural

    return trained(full(assembled("bi-gru"), neural.SupervisedContrastive()))


@kind
def neural_convolutional() -> Component:
    from megalabel import neural

    encoder = neural.ConvolutionalEncoder(width=6, length=4, token_width=16, filters=2)
    return trained(full(encoder, neural.Focal(), bottleneck=3))


@kind
def neural_fixed_fan_in() -> Component:
    from megalabel import neural

    rewiring = neural.Rewiring(every=2, fraction=0.5)
    head = neural.heads.FixedFanInHead(fan_in=3, rewiring=rewiring)
    return trained_bag(head=head, intermediate=8)


@kind
def neural_grouped_fan_in() -> Component:
    from megalabel import neural

    return trained_bag(head=neural.heads.GroupedFanInHead(fan_in=3, group=2, grouping="clusters"))


@kind
def neural_auxiliary() -> Component:
    from megalabel import neural

    head = neural.heads.FrequentAndSparseHead(frequent=0.25, fan_in=3, group=4)
    return trained_bag(head=neural.heads.AuxiliaryHead(head, until=0.5))


@kind
def neural_mach() -> Component:
    from megalabel import neural

    return trained_bag(head=neural.heads.MachHead(tables=2, buckets=4))


def trained_bag(**options: Any) -> Tagger:
    """A tagger of vectors of words."""
    from megalabel import neural

    classifier = full(neural.BagEncoder(width=4), "bce", **options)
    return Tagger(classifier, Tfidf(), None).fit(TEXTS, TARGETS)


@kind
def neural_recurrent() -> Component:
    from megalabel import neural

    encoder = neural.RecurrentEncoder(token_width=4, size=2)
    return trained(full(encoder, neural.SquaredHinge()))


@kind
def neural_pretrained() -> Component:
    from megalabel import neural

    with bert() as source:
        encoder = neural.PretrainedEncoder(source, pooling="first", layers=[-1, 1])
        return trained(full(encoder, neural.Softmax()), source=source)


@kind
def neural_cascade() -> Component:
    from megalabel import neural

    with bert() as source:
        encoder = neural.PretrainedEncoder(source)
        options = {"ranker": "network", "resolutions": [2, 4], "beam": 2}
        classifier = neural.CascadeClassifier(encoder, trainer(), **options)
        return trained(classifier, source=source, words=True)


@kind
def neural_recursive() -> Component:
    from megalabel import neural

    with bert() as source:
        encoder = neural.PretrainedEncoder(source)
        classifier = neural.RecursiveClassifier(encoder, trainer(), min_clusters=2)
        return trained(classifier, source=source, words=True)


@kind
def neural_attention() -> Component:
    from megalabel import neural

    encoder = neural.RecurrentEncoder(token_width=4, size=2)
    options = {"clustered_above": 4, "max_leaf": 2, "arity": 2, "levels": 2, "beam": 2}
    return trained(neural.AttentionClassifier(encoder, trainer(), hidden=[3], **options))


@kind
def neural_staged() -> Component:
    from megalabel import neural

    encoder = neural.BagEncoder(width=4)  # one that has learned before
    encoder.keep(encoder.begin(Tfidf().fit_transform(TEXTS), seed=0))
    classifier = neural.StagedClassifier(encoder, trainer(), shortlist=3)
    return Tagger(classifier, Tfidf(), None).fit(TEXTS, TARGETS)


@kind
def neural_dual() -> Component:
    from megalabel import neural

    encoder = neural.BagEncoder(width=4, residual=None)
    options = {"width": 3, "classifier_width": 2, "negatives": 1, "clusters": "batch"}
    classifier = neural.DualClassifier(
        encoder, trainer(), classifier_loss="decoupled-softmax", **options
    )
    return Tagger(classifier, Tfidf(), None).fit(CORPUS.texts, TARGETS, labels=LABELS)


@kind
def neural_dual_staged() -> Component:
    from megalabel import neural

    dual = neural.DualClassifier(
        neural.BagEncoder(width=4, residual=None),
        loss=neural.DecoupledSoftmax(),
        clusters=[0.2, 0.5],
        bank=True,
    )
    loss = neural.CosineLikelihood(certainty=0.75, steepness=3.0)
    classifier = neural.StagedDualClassifier(dual, trainer(), loss=loss)
    return Tagger(classifier, Tfidf(), None).fit(TEXTS, TARGETS)


@kind
def neural_ensemble() -> Component:
    from megalabel import neural

    encoder = neural.RecurrentEncoder(token_width=4, size=2, cell="gru")
    return trained(Ensemble(full(encoder, neural.BCE()), models=2))


@kind
def neural_text_views() -> Component:
    from megalabel import neural

    return neural.TextViews(Tfidf(), neural.Tokenizer(vocabulary=40)).fit(TEXTS)


@kind
def neural_static() -> Component:
    from megalabel import neural

    with static() as source:
        return trained(full(neural.StaticEncoder(source), neural.BCE()), source=source)


@kind
def neural_frozen() -> Component:
    from megalabel import neural

    with bert() as source:
        encoder = neural.FrozenEncoder(source, width=3, hidden=4)
        embedding = neural.Embedding(source, max_length=8)
        return Tagger(full(encoder, neural.BCE()), embedding, None).fit(TEXTS, TARGETS)


# --- the same by onnxruntime


@kind
def onnx_embedding() -> Component:
    return without_torch(neural_convolutional())


@kind
def onnx_attention() -> Component:
    return without_torch(neural_attention())


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
