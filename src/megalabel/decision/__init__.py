"""Probabilities to label sets."""
