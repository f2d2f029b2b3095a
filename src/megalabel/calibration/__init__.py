"""Scores to probabilities."""
