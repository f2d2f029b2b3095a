"""What is known of the label space."""

from megalabel.labels.costs import label_costs, read_costs
from megalabel.labels.growing import GrowingTree
from megalabel.labels.propensity import JPV_CONSTANTS, jpv
from megalabel.labels.tree import LabelTree
from megalabel.labels.vectors import label_vectors

__all__ = [
    "JPV_CONSTANTS",
    "GrowingTree",
    "LabelTree",
    "jpv",
    "label_costs",
    "label_vectors",
    "read_costs",
]
