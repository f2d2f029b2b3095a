"""Probabilities to label sets."""

from megalabel.decision.topk import TopK

__all__ = ["TopK"]
