"""dst: dense vectors of texts, and for every label a few features that training chooses."""

from __future__ import annotations

from typing import Any

from megalabel.systems import System
from megalabel.systems.neural_parts import (
    FROZEN,
    encoder_of_few,
    full_tagger,
    neural,
    plan_neural,
    rewired,
)
from megalabel.tagger import Tagger


def dst(
    *,
    encoder: Any = "bag",
    max_length: int = 128,
    fan_in: int | None = None,
    intermediate: int | None = None,
    rewire: float = 0.3,
    rewire_every: int | None = None,
    growth: str = "gradient",
    loss: Any = "bce",
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float = 2e-3,
    head_learning_rate: float | None = None,
    dropout: float = 0.1,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model or static word vectors by name or folder, which stay as
    they are; "vectors", those that come with the corpus; or "bag", vectors of words that are
    learned from the texts.

    A label sees `fan_in` features: of a text's vector, or of a layer of so many as `intermediate`
    says. `rewire` is the share of features that are exchanged each time; 0: a network that stays.
    `head_learning_rate` is that of labels; None: 0.01 over vectors of a model, else 0.05.
    """
    room = neural()
    rewiring = rewired(rewire, rewire_every, growth)
    head = room.heads.FixedFanInHead(fan_in=fan_in, rewiring=rewiring)
    return full_tagger(
        "dst",
        encoder_of_few(_frozen(encoder)),
        head,
        max_length=max_length,
        loss=loss,
        intermediate=intermediate,
        dropout=dropout,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        device=device,
        calibrate=calibrate,
        seed=seed,
    )


def _frozen(encoder: Any) -> Any:
    """An encoder by name or folder as one that is not trained itself; "vectors": the corpus's."""
    if encoder == "vectors":
        return neural().FrozenEncoder()
    named = isinstance(encoder, str) and encoder not in ("bag", "assembled")
    return f"{FROZEN}{encoder.removeprefix(FROZEN)}" if named else encoder


SYSTEM = System(
    name="dst",
    summary="vectors that stay as they are, and for every label a few features, chosen in training",
    paper="Schultheis and Babbar 2023 (dynamic sparse training)",
    cost="O(epochs x texts x labels x fan-in)",
    build=dst,
    plan=plan_neural,
)
