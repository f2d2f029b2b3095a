"""depsl: a dual encoder, learned from some labels of a batch."""

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


def depsl(
    *,
    encoder: Any = "bag",
    max_length: int = 128,
    loss: Any = "decoupled-softmax",
    temperature: float = 0.05,
    symmetric: bool = False,
    width: int | None = None,
    positives: int = 2,
    negatives: int = 6,
    refresh: int = 5,
    ranker: Any = None,
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    chunk: int | None = None,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or learns from the texts alone ("bag",
    "assembled").

    `loss` is by name, at the `temperature`, or as it is. `ranker` is "auto", "one-vs-all", "trees"
    or a linear classifier, on words and vectors; None: vectors alone rank.
    """
    room = neural()
    features, made, rates = dual_parts(encoder, max_length, ranker)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=rates[0] if learning_rate is None else learning_rate,
        device=device,
        seed=seed,
    )
    classifier = room.DualClassifier(
        made,
        trainer,
        ranker,
        loss=scaled(loss, temperature),
        symmetric=symmetric,
        width=width,
        positives=positives,
        negatives=negatives,
        refresh=refresh,
        clusters="batch",
        chunk=chunk,
        seed=seed,
    )
    return neural_tagger(classifier, features, "depsl", calibrate, seed)


SYSTEM = System(
    name="depsl",
    summary="a dual encoder of texts and labels' texts, on some labels of a batch",
    paper="Kharbanda et al. 2024 (DePSL)",
    cost="O(epochs x (texts + labels of a batch) x encoder) + searches over all labels; GPU",
    build=depsl,
    plan=plan_neural,
    cost_class="gpu",
    suits=speaking_labels,
)
