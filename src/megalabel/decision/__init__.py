"""Probabilities to label sets."""

from megalabel.decision.ascent import Ascent, BlockCoordinateAscent
from megalabel.decision.choosing import METHODS, create, tried
from megalabel.decision.frank_wolfe import FrankWolfe
from megalabel.decision.metric import METRICS, Metric, measure
from megalabel.decision.online import Online
from megalabel.decision.pareto import ParetoCurve, pareto
from megalabel.decision.threshold import Threshold
from megalabel.decision.topk import TopK
from megalabel.decision.weighted import Weighted

__all__ = [
    "METHODS",
    "METRICS",
    "Ascent",
    "BlockCoordinateAscent",
    "FrankWolfe",
    "Metric",
    "Online",
    "ParetoCurve",
    "Threshold",
    "TopK",
    "Weighted",
    "create",
    "measure",
    "pareto",
    "tried",
]
