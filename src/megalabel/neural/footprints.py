"""What a training takes of a GPU's memory, said without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from megalabel.neural.batches import lengths_of

if TYPE_CHECKING:
    from megalabel.neural.full import FullClassifier

_STATE = 16  # bytes of a parameter in AdamW: itself, its gradient, two moments, in float32
_ACTIVATIONS = 34  # bytes a token, layer and number of its state (Korthikanti et al. 2022, table 2)
_LIBRARIES = 700 << 20  # of CUDA's context and its libraries' buffers


def gpu_bytes(classifier: FullClassifier, rows: Any, labels: int, texts: int) -> int | None:
    """About the most bytes of a GPU that a training takes: the encoder and its optimiser, what is
    kept of a batch for the way back, the head, and the libraries. None: the head does not say.

    Parameters
    ----------
    classifier : FullClassifier
        Not yet trained.
    rows : Any
        Some of the rows, as the encoder reads them.
    labels, texts : int
        How many there will be.
    """
    trainer, module = classifier.training, classifier.encoder.new(rows)
    batch = min(trainer.batch_of(texts), texts)
    parameters = _learning(module) if not classifier.frozen else 0
    width = module.width
    for wider in (classifier.bottleneck, classifier.intermediate):
        if wider is not None:
            parameters += width * wider
            width = wider
    head = classifier.chosen_head().training_bytes(width, labels, batch)
    if head is None:
        return None
    longest = int(np.quantile(lengths_of(rows), 0.99)) if module.depth else 1
    kept = batch * longest * module.state_width * max(1, module.depth) * _ACTIVATIONS
    if trainer.gradient_checkpointing:
        kept //= max(1, module.depth)
    return _STATE * parameters + kept + head + _LIBRARIES


def _learning(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
