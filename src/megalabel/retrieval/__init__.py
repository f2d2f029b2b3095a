"""Nearest-neighbour search, and the classifier that asks the neighbours."""

from megalabel.retrieval.inverted_index import InvertedIndex
from megalabel.retrieval.neighbours import NearestNeighbours
from megalabel.retrieval.vector_index import VectorIndex

__all__ = ["InvertedIndex", "NearestNeighbours", "VectorIndex"]
