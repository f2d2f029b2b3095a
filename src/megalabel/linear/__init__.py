"""Linear classifiers."""

from megalabel.linear.chunks import ChunkedWeights
from megalabel.linear.one_vs_all import OneVsAll
from megalabel.linear.online import OnlineTree
from megalabel.linear.prior import Prior
from megalabel.linear.tree import TreeClassifier

__all__ = [
    "ChunkedWeights",
    "OneVsAll",
    "OnlineTree",
    "Prior",
    "TreeClassifier",
]
