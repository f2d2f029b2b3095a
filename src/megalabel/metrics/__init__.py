"""What is measured."""

from megalabel.metrics.evaluation import evaluate
from megalabel.metrics.reliability import reliability
from megalabel.metrics.result import Comparison, Evaluation

__all__ = ["Comparison", "Evaluation", "evaluate", "reliability"]
