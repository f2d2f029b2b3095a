"""ngame: a dual encoder on batches of near texts, then classifiers that begin as label vectors."""

from __future__ import annotations

from typing import Any

from megalabel.systems import System
from megalabel.systems.neural_parts import (
    dual_parts,
    neural,
    neural_tagger,
    plan_neural,
    speaking_labels,
)
from megalabel.tagger import Tagger

# of 300 epochs, those after which clusters are twice as large, as published
_DOUBLED = tuple(epoch / 300 for epoch in (10, 20, 25, 50, 75, 100, 125, 150, 200))


def ngame(
    *,
    encoder: Any = "bag",
    max_length: int = 128,
    margin: float = 0.3,
    negatives: int = 10,
    classifier_margin: float = 0.2,
    refresh: int = 5,
    beta: float = 0.5,
    ranker: Any = None,
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    head_learning_rate: float | None = None,
    chunk: int | None = None,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or learns from the texts alone ("bag",
    "assembled").

    `negatives` are the hardest ones of a batch that a text learns from; `beta` is the share of the
    classifiers in a score, 0 the encoder alone. `ranker` is "auto", "one-vs-all", "trees" or a
    linear classifier, on words and vectors; None: vectors alone rank.
    """
    room = neural()
    features, made, rates = dual_parts(encoder, max_length, ranker)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=rates[0] if learning_rate is None else learning_rate,
        head_learning_rate=rates[1] if head_learning_rate is None else head_learning_rate,
        device=device,
        seed=seed,
    )
    dual = room.DualClassifier(
        made,
        None,
        ranker,
        loss=room.Triplet(margin=margin, negatives=negatives),
        positives=1,
        extra=False,
        clusters=_DOUBLED,
        refresh=refresh,
        bank=True,
        chunk=chunk,
        seed=seed,
    )
    classifier = room.StagedDualClassifier(
        dual,
        trainer,
        loss=room.Triplet(margin=classifier_margin, negatives=negatives),
        epochs=1 / 3,
        positives=3,
        negatives=5,
        refresh=refresh,
        beta=beta,
    )
    return neural_tagger(classifier, features, "ngame", calibrate, seed)


SYSTEM = System(
    name="ngame",
    summary="a dual encoder on batches of near texts, then classifiers from label vectors",
    paper="Dahiya et al. 2023 (NGAME)",
    cost="O(epochs x texts x 2 encoder) + clustering of texts; GPU",
    build=ngame,
    plan=plan_neural,
    cost_class="gpu",
    suits=speaking_labels,
)
