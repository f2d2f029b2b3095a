"""Two losses as heads ask for them, plain enough to be seen to be right."""

from __future__ import annotations

import torch
from torch.nn import functional


class Bce:
    """Binary cross entropy with a weight for each label."""

    separable = True

    def __init__(self, weights=None, reduction="sum"):
        self.weights = weights
        self.reduction = reduction

    def _factor(self, scores, labels, mask):
        factor = torch.ones_like(scores, dtype=torch.float32)
        if self.weights is not None:
            factor = factor * self.weights[labels]
        if self.reduction == "mean":
            factor = factor / scores.shape[1]
        return factor if mask is None else factor * mask

    def __call__(self, scores, targets, *, labels=None, mask=None):
        each = functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
        return (each * self._factor(scores, labels, mask)).sum(1)

    def gradient(self, scores, targets, *, labels=None, mask=None):
        return (torch.sigmoid(scores) - targets) * self._factor(scores, labels, mask)


class Softmax:
    """The cross entropy of a softmax over labels, shared over a row's labels."""

    separable = False
    normalised = True
    temperature = 0.5

    def row_targets(self, targets, labels=None, mask=None, *, step=0):
        return targets / targets.sum(1, keepdim=True).clamp(min=1e-9)

    def __call__(self, scores, targets, **_):
        logs = (scores / self.temperature).log_softmax(1)
        return -(self.row_targets(targets) * logs).sum(1)

    def gradient(self, scores, targets, **_):
        shares = (scores / self.temperature).softmax(1)
        t = self.row_targets(targets)
        return (t.sum(1, keepdim=True) * shares - t) / self.temperature
