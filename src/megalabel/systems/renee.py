"""renee: an encoder and a classifier for every label, trained end to end without a shortlist."""

from __future__ import annotations

from typing import Any

from megalabel.systems import System
from megalabel.systems.neural_parts import encoder_parts, neural, neural_tagger, plan_neural
from megalabel.tagger import Tagger


def renee(
    *,
    encoder: Any = None,
    max_length: int = 128,
    loss: Any = "bce",
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float = 1e-4,
    head_learning_rate: float = 0.05,
    dropout: float = 0.5,
    bottleneck: int | None = None,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder; None: one is made of the texts."""
    room = neural()
    tokens, made = encoder_parts(encoder, max_length)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        device=device,
        seed=seed,
    )
    classifier = room.FullClassifier(
        made,
        trainer,
        head=room.DenseHead(),
        loss=loss,
        dropout=dropout,
        bottleneck=bottleneck,
        seed=seed,
    )
    return neural_tagger(classifier, tokens, "renee", calibrate, seed)


SYSTEM = System(
    name="renee",
    summary="a fine-tuned encoder under a classifier for every label, end to end",
    paper="Jain et al. 2023 (Renee)",
    cost="O(epochs x texts x (encoder + labels x width)); GPU",
    build=renee,
    plan=plan_neural,
)
