"""Dual encoders: labels known by their texts, batches that hold hard negatives, and vectors of
labels of their own."""

from megalabel.neural.dual.classifier import DualClassifier, StagedDualClassifier

__all__ = ["DualClassifier", "StagedDualClassifier"]
