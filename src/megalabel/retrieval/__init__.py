"""Nearest-neighbour search, and the classifier that asks the neighbours."""

from megalabel.retrieval.inverted_index import InvertedIndex
from megalabel.retrieval.neighbours import NearestNeighbours

__all__ = ["InvertedIndex", "NearestNeighbours"]
