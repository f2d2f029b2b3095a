"""spartex: an encoder trained end to end under labels that each see a few features."""

from __future__ import annotations

from typing import Any

from megalabel.systems import System
from megalabel.systems.neural_parts import (
    encoder_of_few,
    full_tagger,
    neural,
    plan_neural,
    rewired,
)
from megalabel.tagger import Tagger


def spartex(
    *,
    encoder: Any = "assembled",
    max_length: int = 128,
    fan_in: int | None = None,
    intermediate: int | None = None,
    auxiliary: float = 0.4,
    auxiliary_until: float = 0.15,
    rewire: float = 0.3,
    rewire_every: int | None = None,
    growth: str = "gradient",
    loss: Any = "bce",
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    head_learning_rate: float = 0.05,
    dropout: float = 0.0,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or learns from the texts alone:
    "assembled", a transformer without pre-training, or "bag", vectors of words added up.

    A label sees `fan_in` features. `auxiliary` is what the loss of clusters of labels counts for at
    first; it falls to 0 by the share `auxiliary_until` of the training. `rewire` is the share of
    features that are exchanged each time.
    """
    room = neural()
    rewiring = rewired(rewire, rewire_every, growth)
    head = room.heads.FixedFanInHead(fan_in=fan_in, rewiring=rewiring)
    if auxiliary:
        head = room.heads.AuxiliaryHead(head, share=auxiliary, until=auxiliary_until)
    return full_tagger(
        "spartex",
        encoder_of_few(encoder),
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


SYSTEM = System(
    name="spartex",
    summary="a fine-tuned encoder, and for every label a few features, chosen in training",
    paper="Ullah et al. 2024 (SparTEx)",
    cost="O(epochs x texts x (encoder + labels x fan-in)); GPU",
    build=spartex,
    plan=plan_neural,
)
