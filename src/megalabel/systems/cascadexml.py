"""cascadexml: label clusters at several resolutions from layers of one encoder, end to end."""

from __future__ import annotations

from collections.abc import Sequence
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


def cascadexml(
    *,
    encoder: Any = "assembled",
    max_length: int = 128,
    resolutions: Sequence[int] | None = None,
    layers: Sequence[Any] | None = None,
    beam: int | Sequence[int] | None = None,
    dropouts: Sequence[float] | None = None,
    prediction: str = "weighted",
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float = 1e-4,
    head_learning_rate: float = 1e-3,
    ranker: Any = None,
    min_df: int | float = 1,
    models: int = 1,
    combine: str = "average",
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is a Hugging Face model by name or folder, or "assembled": made of the texts.

    `ranker` is "one-vs-all", "trees" or a linear classifier, on words and vectors; None:
    one-versus-all for up to 10,000 labels, else three trees; "network": there is none.
    """
    room = neural()
    tokens, made = token_parts(encoder, max_length)
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        device=device,
        seed=seed,
    )
    classifier = room.CascadeClassifier(
        made,
        trainer,
        ranker,
        resolutions=resolutions,
        layers=layers,
        beam=beam,
        dropouts=dropouts,
        prediction=prediction,
        seed=seed,
    )
    features = room.TextViews(Tfidf(min_df=min_df), tokens)
    return neural_tagger(
        several(classifier, models, combine), features, "cascadexml", calibrate, seed
    )


SYSTEM = System(
    name="cascadexml",
    summary="one encoder, ever finer label clusters from its layers, then a linear ranker",
    paper="Kharbanda et al. 2022 (CascadeXML)",
    cost="O(epochs x texts x (encoder + shortlists x width)) + a linear classifier; GPU",
    build=cascadexml,
    plan=plan_neural,
    cost_class="gpu",
)
