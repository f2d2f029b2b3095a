"""What is known of the label space."""

from megalabel.labels.propensity import JPV_CONSTANTS, jpv
from megalabel.labels.tree import LabelTree
from megalabel.labels.vectors import label_vectors

__all__ = ["JPV_CONSTANTS", "LabelTree", "jpv", "label_vectors"]
