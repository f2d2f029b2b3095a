"""astec: weighted word vectors learned on label clusters, then classifiers on nearest labels."""

from __future__ import annotations

from typing import Any

from megalabel.features import Tfidf
from megalabel.systems import System
from megalabel.systems.neural_parts import encoder_parts, neural, neural_tagger, plan_neural
from megalabel.tagger import Tagger


def astec(
    *,
    encoder: Any = None,
    vectors: str | None = None,
    max_length: int = 128,
    width: int = 300,
    dropout: float = 0.5,
    clusters: int = 65_536,
    shortlist: int = 500,
    beta: float = 0.5,
    epochs: float | None = None,
    batch: int | None = None,
    surrogate_learning_rate: float = 0.02,
    learning_rate: float = 2e-3,
    min_df: int | float = 1,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is one that gives a vector of a text, as it is or by its name or folder; None:
    vectors of words, of so much `width`, weighted and added up.

    `vectors` is a file of word vectors to start from; `max_length` cuts texts, where the encoder
    does not read words; `epochs` are those of each of the two trainings.
    """
    room = neural()
    if encoder is None:
        encoder = room.BagEncoder(width=width, dropout=dropout, residual=None, vectors=vectors)
    features, encoder = encoder_parts(encoder, max_length)
    if encoder.reads == "words":
        features = Tfidf(min_df=min_df)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=learning_rate,
        weight_decay=0.0,
        device=device,
        seed=seed,
    )
    classifier = room.StagedClassifier(
        encoder,
        trainer,
        surrogate_learning_rate=surrogate_learning_rate,
        clusters=clusters,
        shortlist=shortlist,
        beta=beta,
        dropout=dropout,
        seed=seed,
    )
    return neural_tagger(classifier, features, "astec", calibrate, seed)


SYSTEM = System(
    name="astec",
    summary="weighted word vectors learned on label clusters, then classifiers on nearest labels",
    paper="Dahiya et al. 2021 (DeepXML, Astec)",
    cost="O(epochs x texts x (words + clusters + shortlist) x width) + a search over all labels",
    build=astec,
    plan=plan_neural,
    cost_class="gpu",
)
