"""What is known of the label space."""

from megalabel.labels.propensity import JPV_CONSTANTS, jpv

__all__ = ["JPV_CONSTANTS", "jpv"]
