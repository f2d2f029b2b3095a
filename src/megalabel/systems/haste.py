"""haste: an encoder under frequent labels that see all features, and groups of rare ones that share
a few."""

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


def haste(
    *,
    encoder: Any = "assembled",
    max_length: int = 128,
    frequent: float = 0.1,
    fan_in: int | None = None,
    group: int = 16,
    grouping: str = "frequency",
    rewire: float = 0.3,
    rewire_every: int | None = None,
    growth: str = "gradient",
    loss: Any = "bce",
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    head_learning_rate: float = 0.05,
    momentum: float = 0.0,
    dropout: float = 0.0,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or learns from the texts alone:
    "assembled", a transformer without pre-training, or "bag", vectors of words added up.

    The share `frequent` of the labels, the most frequent ones, see all features; the `group` labels
    of each group of the others share `fan_in` of them. Labels of a group are about as frequent, or
    with `grouping="clusters"` come with like texts. `rewire` is the share of features that are
    exchanged each time.
    """
    room = neural()
    rewiring = rewired(rewire, rewire_every, growth)
    head = room.heads.FrequentAndSparseHead(
        frequent=frequent,
        fan_in=fan_in,
        group=group,
        grouping=grouping,
        rewiring=rewiring,
        momentum=momentum,
    )
    return full_tagger(
        "haste",
        encoder_of_few(encoder),
        head,
        max_length=max_length,
        loss=loss,
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
    name="haste",
    summary="a fine-tuned encoder; frequent labels see all features, groups of rare ones share few",
    paper="group-shared fixed fan-in (HASTE)",
    cost="O(epochs x texts x (encoder + labels x fan-in)); GPU",
    build=haste,
    plan=plan_neural,
)
