"""xr-transformer: an encoder fine-tuned down a label tree, and a linear ranker over it."""

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


def xr_transformer(
    *,
    encoder: Any = "assembled",
    max_length: int = 128,
    arity: int = 16,
    max_leaf: int = 16,
    beam: int = 5,
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float = 5e-5,
    head_learning_rate: float = 1e-3,
    ranker: Any = None,
    min_df: int | float = 1,
    models: int = 1,
    combine: str = "softmax",
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or "assembled": made of the texts.

    `epochs` are those of each level of the tree. `ranker` is "one-vs-all", "trees" or a linear
    classifier, on words and vectors; None: one-versus-all for up to 10,000 labels, else three
    trees.
    """
    room = neural()
    tokens, made = token_parts(encoder, max_length)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        weight_decay=0.0,
        schedule="linear",
        device=device,
        seed=seed,
    )
    classifier = room.RecursiveClassifier(
        made, trainer, ranker, arity=arity, max_leaf=max_leaf, beam=beam, seed=seed
    )
    features = room.TextViews(Tfidf(min_df=min_df), tokens)
    return neural_tagger(
        several(classifier, models, combine), features, "xr-transformer", calibrate, seed
    )


SYSTEM = System(
    name="xr-transformer",
    summary="an encoder fine-tuned down a label tree, then linear classifiers on words and vectors",
    paper="Zhang et al. 2021 (XR-Transformer)",
    cost="O(levels x epochs x texts x encoder) + a linear classifier; GPU",
    build=xr_transformer,
    plan=plan_neural,
    cost_class="gpu",
)
