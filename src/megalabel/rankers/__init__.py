"""What ranks labels from stored arrays, without torch."""

from megalabel.rankers.attention import AttentionTree, OnnxStates
from megalabel.rankers.boosting import BoostedTrees
from megalabel.rankers.buckets import HashedLabels
from megalabel.rankers.by_text import ByText
from megalabel.rankers.combining import Boosted, Combiner, Means, Stack
from megalabel.rankers.dense import DenseTree
from megalabel.rankers.dual import DualVectors
from megalabel.rankers.ensemble import Ensemble
from megalabel.rankers.label_vectors import LabelVectors
from megalabel.rankers.lexical import LexicalMatcher
from megalabel.rankers.mix import Mix
from megalabel.rankers.nearest import NearestLabels
from megalabel.rankers.rectified import Rectified
from megalabel.rankers.sparse import SparseLabels

__all__ = [
    "AttentionTree",
    "Boosted",
    "BoostedTrees",
    "ByText",
    "Combiner",
    "DenseTree",
    "DualVectors",
    "Ensemble",
    "HashedLabels",
    "LabelVectors",
    "LexicalMatcher",
    "Means",
    "Mix",
    "NearestLabels",
    "OnnxStates",
    "Rectified",
    "SparseLabels",
    "Stack",
]
