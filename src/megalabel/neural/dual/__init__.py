"""Dual encoders: labels known by their texts, batches that hold hard negatives, and vectors of
labels of their own."""

from megalabel.neural.dual.classifier import DualClassifier, StagedDualClassifier
from megalabel.neural.dual.pairs import map_of_pairs

__all__ = ["DualClassifier", "StagedDualClassifier", "map_of_pairs"]
