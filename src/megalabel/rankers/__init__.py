"""What ranks labels from stored arrays, without torch."""

from megalabel.rankers.attention import AttentionTree, OnnxStates
from megalabel.rankers.dense import DenseTree
from megalabel.rankers.ensemble import Ensemble
from megalabel.rankers.nearest import NearestLabels

__all__ = ["AttentionTree", "DenseTree", "Ensemble", "NearestLabels", "OnnxStates"]
