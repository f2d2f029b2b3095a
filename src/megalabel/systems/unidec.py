"""unidec: a dual encoder and a classifier, learned in one pass from some labels of a batch."""

from __future__ import annotations

from typing import Any

from megalabel.systems import System
from megalabel.systems.neural_parts import (
    dual_parts,
    neural,
    neural_tagger,
    plan_neural,
    scaled,
    speaking_labels,
)
from megalabel.tagger import Tagger


def unidec(
    *,
    encoder: Any = "bag",
    max_length: int = 128,
    loss: Any = "decoupled-softmax",
    classifier_loss: Any = "decoupled-softmax",
    temperature: float = 0.07,
    classifier_temperature: float = 1.0,
    auxiliary: bool = True,
    symmetric: bool = False,
    share: float = 0.5,
    width: int | None = None,
    classifier_width: int | None = None,
    dropout: float = 0.5,
    positives: int = 2,
    negatives: int = 6,
    refresh: int = 5,
    answer: str = "both",
    scores: str = "products",
    mined_by: str = "both",
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

    `width` is that of the projection of texts and labels' texts, `classifier_width` of that of
    texts beside labels' own vectors; None: there is none. `answer` is "both", "labels" (the dual
    encoder alone) or "classifier", `scores` "products" (as losses see them, with biases) or
    "cosines". Labels are `mined_by` "both" or the dual encoder alone ("labels"). `ranker` is
    "auto", "one-vs-all", "trees" or a linear classifier, on words and vectors; None: vectors alone
    rank.

    As published: `scores="cosines"`, `mined_by="labels"`, `width=384`, `classifier_width=384`.
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
    classifier = room.DualClassifier(
        made,
        trainer,
        ranker,
        loss=scaled(loss, temperature),
        classifier_loss=scaled(classifier_loss, classifier_temperature),
        auxiliary=auxiliary,
        symmetric=symmetric,
        share=share,
        width=width,
        classifier_width=classifier_width,
        dropout=dropout,
        positives=positives,
        negatives=negatives,
        refresh=refresh,
        clusters="batch",
        chunk=chunk,
        answer=answer,
        scores=scores,
        mined_by=mined_by,
        seed=seed,
    )
    return neural_tagger(classifier, features, "unidec", calibrate, seed)


SYSTEM = System(
    name="unidec",
    summary="a dual encoder and a classifier in one pass, on some labels of a batch",
    paper="Kharbanda et al. 2024 (UniDEC)",
    cost="O(epochs x (texts + labels of a batch) x encoder) + searches over all labels; GPU",
    build=unidec,
    plan=plan_neural,
    cost_class="gpu",
    suits=speaking_labels,
)
