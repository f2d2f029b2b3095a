"""What is known of the label space."""

from megalabel.labels.cooccurrence import (
    cooccurrence,
    random_walks,
    symmetric_cooccurrence,
)
from megalabel.labels.costs import (
    label_costs,
    read_caps,
    read_costs,
    read_propensities,
    read_weights,
    write_propensities,
)
from megalabel.labels.growing import GrowingTree
from megalabel.labels.points import LabelPoints
from megalabel.labels.propensity import (
    JPV_CONSTANTS,
    PROPENSITIES,
    Jpv,
    PropensityModel,
    Richards,
    direct_propensities,
    jpv,
    label_propensities,
)
from megalabel.labels.tree import LabelTree
from megalabel.labels.vectors import label_vectors

__all__ = [
    "JPV_CONSTANTS",
    "PROPENSITIES",
    "GrowingTree",
    "Jpv",
    "LabelPoints",
    "LabelTree",
    "PropensityModel",
    "Richards",
    "cooccurrence",
    "direct_propensities",
    "jpv",
    "label_costs",
    "label_propensities",
    "label_vectors",
    "random_walks",
    "read_caps",
    "read_costs",
    "read_propensities",
    "read_weights",
    "symmetric_cooccurrence",
    "write_propensities",
]
