"""siamesexml: a dual encoder on batches of labels, then corrections of the labels' vectors."""

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


def siamesexml(
    *,
    encoder: Any = "bag",
    max_length: int = 128,
    negatives: int = 10,
    beta: float = 0.5,
    ranker: Any = None,
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    head_learning_rate: float | None = None,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or learns from the texts alone ("bag",
    "assembled").

    `negatives` are the hardest texts of a batch that a label learns from; `beta` is the share of
    corrected vectors in a score. `ranker` is "auto", "one-vs-all", "trees" or a linear classifier,
    on words and vectors; None: vectors alone rank.
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
        loss=room.CosineLikelihood(negatives=negatives),
        over="labels",
        seed=seed,
    )
    classifier = room.StagedDualClassifier(
        dual,
        trainer,
        loss=room.CosineLikelihood(certainty=0.75, steepness=3.0, least=0.05, negatives="all"),
        epochs=0.4,
        positives=3,
        negatives=5,
        beta=beta,
    )
    return neural_tagger(classifier, features, "siamesexml", calibrate, seed)


SYSTEM = System(
    name="siamesexml",
    summary="a dual encoder on batches of labels, then corrections of the labels' vectors",
    paper="Dahiya et al. 2021 (SiameseXML)",
    cost="O(epochs x texts x 2 encoder) + a search over all labels; GPU",
    build=siamesexml,
    plan=plan_neural,
    cost_class="gpu",
    suits=speaking_labels,
)
