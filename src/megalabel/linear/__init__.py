"""Linear classifiers."""

from megalabel.linear.attention import AttentionTree
from megalabel.linear.chunks import ChunkedWeights
from megalabel.linear.dense import DenseTree
from megalabel.linear.ensemble import Ensemble
from megalabel.linear.nearest import NearestLabels
from megalabel.linear.one_vs_all import OneVsAll
from megalabel.linear.online import OnlineTree
from megalabel.linear.prior import Prior
from megalabel.linear.tree import TreeClassifier

__all__ = [
    "AttentionTree",
    "ChunkedWeights",
    "DenseTree",
    "Ensemble",
    "NearestLabels",
    "OneVsAll",
    "OnlineTree",
    "Prior",
    "TreeClassifier",
]
