"""Linear classifiers, and the prior that every classifier must beat."""

from megalabel.linear.prior import Prior

__all__ = ["Prior"]
