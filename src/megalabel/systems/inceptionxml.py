"""inceptionxml: convolutions over the words of short texts, under all labels or clusters first."""

from __future__ import annotations

from typing import Any

from megalabel.features import Tfidf
from megalabel.systems import System
from megalabel.systems.neural_parts import neural, neural_tagger, plan_neural, token_parts
from megalabel.tagger import Tagger


def inceptionxml(
    *,
    encoder: Any = None,
    vectors: str | None = None,
    max_length: int = 32,
    width: int = 512,
    dropout: float = 0.25,
    clusters: int | None = None,
    beam: int = 64,
    detached: float = 0.22,
    epochs: float | None = 45,
    batch: int | None = 128,
    learning_rate: float = 5e-3,
    head_learning_rate: float | None = None,
    device: str = "auto",
    calibrate: bool = True,
    seed: int = 0,
) -> Tagger:
    """`encoder` is one that reads tokens; None: attention and convolutions, with so much `width`.

    `vectors` is a file of word vectors to start from. `clusters`, a power of two: so many clusters
    of labels are told apart first, and then the labels of the `beam` best of them; in the first
    share of the training, `detached`, the clusters alone move the encoder (InceptionXML+). None:
    all labels at once.
    """
    room = neural()
    if encoder is None:
        encoder = room.ConvolutionalEncoder(
            width=width, length=max_length, dropout=dropout, vectors=vectors
        )
    features, made = token_parts(encoder, max_length)
    if head_learning_rate is None:  # all labels at once are not trained by Adam
        head_learning_rate = 0.05 if clusters is None else learning_rate
    trainer = room.Trainer(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        weight_decay=0.0,
        warmup=0.3,
        device=device,
        seed=seed,
    )
    if clusters is None:
        head = room.DenseHead()
        classifier = room.FullClassifier(made, trainer, head=head, dropout=0.0, seed=seed)
    else:
        features = room.TextViews(Tfidf(), features)
        classifier = room.CascadeClassifier(
            made,
            trainer,
            "network",
            resolutions=[clusters],
            layers="vector",
            projection=None,
            beam=beam,
            dropouts=[0.0],
            detached=detached,
            seed=seed,
        )
    return neural_tagger(classifier, features, "inceptionxml", calibrate, seed)


SYSTEM = System(
    name="inceptionxml",
    summary="convolutions over the words of short texts, under all labels or clusters first",
    paper="Kharbanda et al. 2021 (InceptionXML)",
    cost="O(epochs x texts x (encoder + labels or shortlists x width)); GPU",
    build=inceptionxml,
    plan=plan_neural,
    cost_class="gpu",
)
