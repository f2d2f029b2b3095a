"""A map over frozen vectors, trained on pairs of texts and labels, or of texts and their parts."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_matrix

from megalabel.checkpoints import Checkpoint
from megalabel.neural.dual.batches import DualSource
from megalabel.neural.dual.network import DualModel, Objective, View
from megalabel.neural.encoders import FrozenEncoder
from megalabel.neural.losses import Loss
from megalabel.neural.trainer import Trainer

_NEVER = 1 << 30  # epochs after which labels are mined: those that are hard were given


def map_of_pairs(
    encoder: FrozenEncoder,
    loss: Loss,
    trainer: Trainer,
    X: np.ndarray,
    Z: np.ndarray,
    Y: csr_matrix,
    hard: np.ndarray,
    *,
    negatives: int,
    name: str,
) -> dict[str, np.ndarray]:
    """The arrays of a map (`features.mapped`) under which texts are near the labels that they have.

    It begins as the identity, whatever was trained before.

    Parameters
    ----------
    encoder : FrozenEncoder
        The kind of map.
    loss : Loss
        Of cosines.
    trainer : Trainer
    X, Z : float32 arrays
        The vectors of texts and of labels, as the frozen model makes them.
    Y : CSR matrix (texts, labels)
        Pairs that go together.
    hard : int32 array (texts, most)
        Labels of each text that do not go with it, though they seem to; -1 for none.
    negatives : int
        How many of these are drawn for each text of a batch.
    name : str
        Of the training, in checkpoints.

    Examples
    --------
    >>> from megalabel.features.mapped import mapped
    >>> from megalabel.neural.losses import create
    >>> X, Z = np.split(np.eye(8, dtype=np.float32), 2)
    >>> none, map = np.zeros((4, 0), np.int32), FrozenEncoder(activation=None, dropout=0)
    >>> trainer = Trainer(steps=60, learning_rate=0.05, device="cpu")
    >>> loss = create("contrastive").set_params(temperature=0.05)
    >>> arrays = map_of_pairs(
    ...     map, loss, trainer, X, Z, csr_matrix(np.eye(4)), none, negatives=0, name="pairs"
    ... )
    >>> texts, labels = (mapped(x, arrays, None) for x in (X, Z))
    >>> (texts @ labels.T).argmax(axis=1)
    array([0, 1, 2, 3])
    """
    digest = np.frombuffer(name.encode(), np.uint8)
    checkpoint = Checkpoint(trainer, X, Z, csr_matrix(Y), hard, digest)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trainer.seed)
        module = encoder.begin(X, trainer.seed, trainer, checkpoint)
    view = View(module.width, None, unit=True)
    model = DualModel(
        module, module, view, Objective(loss), None, None, trainer, labels=len(Z), bank=None
    )
    source = DualSource(
        np.ascontiguousarray(X, np.float32),
        np.ascontiguousarray(Z, np.float32),
        csr_matrix(Y, dtype=np.float32),
        csr_matrix(Y.shape, dtype=np.float32),
        negatives=negatives,
        refresh=_NEVER,
        seed=trainer.seed,
    )
    source.hard = hard
    trainer.fit(model, source, checkpoint=checkpoint, name=name)
    made: dict[str, np.ndarray] = model.encoder.arrays()  # type: ignore[operator]
    return made
