"""lightxml: the last layers of an encoder under all labels, or under groups of them first."""

from __future__ import annotations

from typing import Any

from megalabel.features import Tfidf
from megalabel.systems import System
from megalabel.systems.neural_parts import (
    neural,
    neural_tagger,
    plan_neural,
    several,
    token_parts,
)
from megalabel.tagger import Tagger


def lightxml(
    *,
    encoder: Any = "assembled",
    max_length: int = 128,
    layers: int = 5,
    grouped_above: int = 100_000,
    group_size: int = 80,
    groups: int = 75,
    bottleneck: int = 400,
    dropout: float = 0.5,
    epochs: float | None = None,
    batch: int | None = 16,
    learning_rate: float = 1e-4,
    head_learning_rate: float = 1e-4,
    models: int = 1,
    combine: str = "average",
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or "assembled": made of the texts.

    Of more labels than `grouped_above`, those of the `groups` best groups are scored, seen through
    a `bottleneck`; of fewer, all.
    """
    room = neural()
    tokens, made = token_parts(encoder, max_length)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        epsilon=1e-12,  # losses are means over up to a hundred thousand labels
        average="swa",
        device=device,
        seed=seed,
    )
    classifier = room.CascadeClassifier(
        made,
        trainer,
        "network",
        max_first=grouped_above,
        cluster_size=group_size,
        layers=[list(range(-layers, 0))],
        projection=bottleneck,
        pooling="first",
        beam=groups,
        dropouts=[dropout],
        input_dropout=dropout,
        seed=seed,
    )
    features = room.TextViews(Tfidf(), tokens)
    return neural_tagger(
        several(classifier, models, combine), features, "lightxml", calibrate, seed
    )


SYSTEM = System(
    name="lightxml",
    summary="the last layers of an encoder under all labels, or groups of them first, end to end",
    paper="Jiang et al. 2021 (LightXML)",
    cost="O(epochs x texts x (encoder + labels or shortlists x width)); GPU",
    build=lightxml,
    plan=plan_neural,
    cost_class="gpu",
)
