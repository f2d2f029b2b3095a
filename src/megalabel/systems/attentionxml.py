"""attentionxml: recurrent layers that each label attends to, down a tree of many labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megalabel.systems import System
from megalabel.systems.neural_parts import (
    neural,
    neural_tagger,
    plan_neural,
    several,
    token_parts,
)
from megalabel.tagger import Tagger


def attentionxml(
    *,
    encoder: Any = None,
    vectors: str | None = None,
    max_length: int = 500,
    size: int = 256,
    hidden: Sequence[int] = (256,),
    clustered_above: int = 100_000,
    levels: int = 3,
    max_leaf: int = 8,
    beam: int = 160,
    epochs: float | None = None,
    batch: int | None = 40,
    learning_rate: float = 1e-3,
    head_learning_rate: float = 1e-3,
    trees: int = 1,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is one that reads tokens; None: word vectors and an LSTM of `size` states each way.

    `vectors` is a file of word vectors to start from. Of more labels than `clustered_above` a tree
    with so many `levels` of clusters is made, the last ones with up to `max_leaf` labels; `epochs`
    are those of each level.
    """
    room = neural()
    if encoder is None:
        encoder = room.RecurrentEncoder(size=size, vectors=vectors)
    tokens, made = token_parts(encoder, max_length)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        epsilon=1e-12,  # losses are means over up to a hundred thousand labels
        weight_decay=0.0,
        warmup=0.0,
        schedule="constant",
        clip=5.0,
        average="swa",
        device=device,
        seed=seed,
    )
    classifier = room.AttentionClassifier(
        made,
        trainer,
        hidden=hidden,
        clustered_above=clustered_above,
        levels=levels,
        max_leaf=max_leaf,
        beam=beam,
        seed=seed,
    )
    return neural_tagger(
        several(classifier, trees, "average"), tokens, "attentionxml", calibrate, seed
    )


SYSTEM = System(
    name="attentionxml",
    summary="an LSTM whose states each label weighs for itself, down a tree of many labels",
    paper="You et al. 2019 (AttentionXML)",
    cost="O(levels x epochs x texts x length x (encoder + labels or candidates x width)); GPU",
    build=attentionxml,
    plan=plan_neural,
    cost_class="gpu",
)
