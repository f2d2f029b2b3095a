"""Nearest-neighbour search."""
