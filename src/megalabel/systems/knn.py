"""knn: the labels of the training texts most similar to a text. Strong on rare labels."""

from __future__ import annotations

import megalabel
from megalabel.calibration import Joint
from megalabel.data import Corpus
from megalabel.features import Tfidf
from megalabel.retrieval import InvertedIndex, NearestNeighbours
from megalabel.systems import LABEL_POINTS_RACE, System
from megalabel.systems.planning import Plan, Start, too_large, trial, with_label_texts
from megalabel.tagger import Tagger


def knn(
    *,
    neighbours: int = 30,
    similarity: str = "cosine",
    power: float = 3.0,
    ngram_range: tuple[int, int] = (1, 1),
    min_df: int | float = 1,
    keep_titles: bool = True,
    seed: int = 0,
) -> Tagger:
    """Nearest neighbours by tf-idf or BM25, with calibrated votes."""
    counts = similarity == "bm25"  # which weighs counts by itself
    features = Tfidf(
        ngram_range=ngram_range,
        min_df=min_df,
        sublinear_tf=not counts,
        use_idf=not counts,
        norm=None if counts else "l2",
    )
    classifier = NearestNeighbours(
        neighbours=neighbours, similarity=similarity, power=power, keep_titles=keep_titles
    )
    return Tagger(classifier, features, Joint(), seed=seed, system="knn")


def plan(tagger: Tagger, corpus: Corpus) -> Plan:
    """Vectors, an index beside them, and a search for each text that calibrates."""
    start, corpus = Start.now(), with_label_texts(tagger, corpus)
    if (refusal := too_large(tagger, corpus)) is not None:
        return refusal
    made = trial(tagger, corpus)
    entries = int(made.nonzeros * len(corpus))
    terms = int(made.power(made.terms))
    model = int(made.line(made.model))
    # at the peak there are the vectors, their normalised copy, and the index being built
    vectors = 8 * entries + 8 * len(corpus)
    index = InvertedIndex.index_bytes(len(corpus), terms, entries)
    searching = megalabel.get_threads() * InvertedIndex.search_bytes(len(corpus), terms)
    kept = vectors + model + searching
    training = max(2 * vectors + index, kept)
    memory = start.peak_with(tagger, len(corpus), training, kept)
    calibrating = made.line(made.ranking) * min(len(corpus), tagger.calibration_texts)
    return Plan(memory, model, made.line(made.seconds) + calibrating, start.available)


SYSTEM = System(
    name="knn",
    summary="labels of the most similar training texts, by weighted votes; strong on rare labels",
    paper="Cover and Hart 1967; Robertson and Zaragoza 2009 (BM25)",
    cost="O(words of all texts)",
    build=knn,
    plan=plan,
    cost_class="cheap",
    race=(
        LABEL_POINTS_RACE,
        {"similarity": "bm25"},
        {"power": 1.5},
        {"power": 5.0},
        {"neighbours": 60},
        {"neighbours": 15},
        {"ngram_range": (1, 2)},
    ),
)
