"""What is measured."""

from megalabel.metrics.comparison import Comparison
from megalabel.metrics.evaluation import Evaluator, evaluate
from megalabel.metrics.reliability import reliability
from megalabel.metrics.result import Evaluation
from megalabel.metrics.shown import HEADLINE

__all__ = ["HEADLINE", "Comparison", "Evaluation", "Evaluator", "evaluate", "reliability"]
