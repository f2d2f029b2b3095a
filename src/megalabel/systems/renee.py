"""renee: an encoder and a classifier for every label, trained end to end without a shortlist."""

from __future__ import annotations

from typing import Any

from megalabel.systems import System
from megalabel.systems.neural_parts import full_tagger, neural, plan_neural
from megalabel.tagger import Tagger


def renee(
    *,
    encoder: Any = "assembled",
    max_length: int = 128,
    loss: Any = "bce",
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    head_learning_rate: float = 0.05,
    dropout: float = 0.5,
    bottleneck: int | None = None,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, such a model that is not trained itself
    ("frozen:" and its name), a folder of static word vectors, or learns from the texts alone:
    "assembled", a transformer without pre-training, or "bag", vectors of words added up.

    `max_length` cuts the texts of an encoder that reads tokens. `learning_rate` is that of the
    encoder; None: 1e-4 for a Hugging Face model, else 2e-3.
    """
    return full_tagger(
        "renee",
        encoder,
        neural().DenseHead(),
        max_length=max_length,
        loss=loss,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        dropout=dropout,
        bottleneck=bottleneck,
        device=device,
        calibrate=calibrate,
        seed=seed,
    )


SYSTEM = System(
    name="renee",
    summary="a fine-tuned encoder under a classifier for every label, end to end",
    paper="Jain et al. 2023 (Renee)",
    cost="O(epochs x texts x (encoder + labels x width)); GPU",
    build=renee,
    plan=plan_neural,
    cost_class="gpu",
)
