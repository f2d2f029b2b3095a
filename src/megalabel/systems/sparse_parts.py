"""What the systems share whose labels see few features."""

from __future__ import annotations

from typing import Any

from megalabel.systems.neural_parts import encoder_parts, neural, neural_tagger
from megalabel.tagger import Tagger

FROZEN = "frozen:"  # before a model that is not trained itself


def rewiring(fraction: float, every: int | None, growth: str) -> Any:
    """How features are exchanged, from a system's flat parameters."""
    return neural().Rewiring(fraction=fraction, falls=True, every=every, growth=growth)


def frozen(encoder: Any) -> Any:
    """An encoder by name or folder as one that is not trained itself; "vectors": the corpus's."""
    if encoder == "vectors":
        return neural().FrozenEncoder()
    named = isinstance(encoder, str) and encoder not in ("bag", "assembled")
    return f"{FROZEN}{encoder.removeprefix(FROZEN)}" if named else encoder


def sparse_tagger(
    system: str,
    head: Any,
    *,
    encoder: Any,
    max_length: int,
    loss: Any,
    intermediate: int | None,
    dropout: float,
    epochs: float | None,
    batch: int | None,
    learning_rate: float | None,
    head_learning_rate: float,
    device: str,
    calibrate: bool,
    seed: int,
) -> Tagger:
    """An encoder under a head of all labels, trained end to end."""
    room = neural()
    features, made = encoder_parts(encoder, max_length, pretrain_epochs=0)
    if learning_rate is None:  # what has learned before is to be moved less
        learning_rate = 1e-4 if isinstance(made, room.PretrainedEncoder) else 2e-3
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
        head=head,
        loss=loss,
        intermediate=intermediate,
        dropout=dropout,
        seed=seed,
    )
    return neural_tagger(classifier, features, system, calibrate, seed)
