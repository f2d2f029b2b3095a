"""Scores to probabilities."""

from megalabel.calibration.isotonic import Isotonic

__all__ = ["Isotonic"]
