"""dexml: a dual encoder whose texts are compared with all labels."""

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


def dexml(
    *,
    encoder: Any = "bag",
    max_length: int = 128,
    temperature: float = 0.05,
    unit: bool = True,
    ranker: Any = None,
    epochs: float | None = None,
    batch: int = 512,
    learning_rate: float | None = None,
    chunk: int = 4096,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or learns from the texts alone ("bag",
    "assembled"); it reads `chunk` labels at a time.

    As published for very many labels: `unit=False`, products of vectors of any length in place of
    cosines, at a `temperature` of 1. `ranker` is "auto", "one-vs-all", "trees" or a linear
    classifier, on words and vectors; None: vectors alone rank.
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
        loss=room.DecoupledSoftmax(temperature=temperature),
        unit=unit,
        all_labels=True,
        chunk=chunk,
        seed=seed,
    )
    return neural_tagger(classifier, features, "dexml", calibrate, seed)


SYSTEM = System(
    name="dexml",
    summary="a dual encoder whose texts are compared with all labels",
    paper="Gupta et al. 2024 (DEXML)",
    cost="O(steps x labels x encoder); GPU",
    build=dexml,
    plan=plan_neural,
    cost_class="gpu",
    suits=speaking_labels,
)
