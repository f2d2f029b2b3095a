"""The curve between precision and a tail metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, Ranking
from megalabel.data.truth import hits, label_matrix
from megalabel.decision.ascent import BlockCoordinateAscent
from megalabel.decision.metric import Function, Metric, measure, metric_of
from megalabel.decision.shortlists import expected_value, label_sums

WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)


class Point(NamedTuple):
    """What one weight of the metric comes to: by the probabilities, and in truth where known."""

    weight: float
    expected_precision: float
    expected_metric: float
    precision: float | None = None
    metric: float | None = None


@dataclass(frozen=True)
class ParetoCurve:
    """Points from the best precision to the best metric; prints as a table in percent."""

    metric: str
    k: int
    points: tuple[Point, ...]

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain numbers."""
        return asdict(self) | {"points": [point._asdict() for point in self.points]}

    def __str__(self) -> str:
        known = self.points and self.points[0].precision is not None
        names = [f"expected P@{self.k}", f"expected {self.metric}"]
        names += [f"P@{self.k}", self.metric] if known else []
        names = [f"{name} %" for name in names]
        widths = [max(8, len(name) + 2) for name in names]
        lines = ["weight" + "".join(f"{n:>{w}}" for n, w in zip(names, widths, strict=True))]
        for point in self.points:
            cells = zip(point[1 : len(names) + 1], widths, strict=True)
            shown = "".join(f"{100 * (value or 0):>{w}.2f}" for value, w in cells)
            lines.append(f"{point.weight:<6g}" + shown)
        return "\n".join(lines)


def pareto(
    ranking: Ranking,
    k: int = 5,
    metric: str | Metric | Function = "macro-f1",
    *,
    weights: Sequence[float] = WEIGHTS,
    truth: Corpus | csr_matrix | None = None,
    **options: Any,
) -> ParetoCurve:
    """What a tail metric costs in precision: decisions for (1 - weight) P@k + weight metric.

    Parameters
    ----------
    ranking : Ranking
        Probabilities of the candidates of each text.
    k : int
        The budget.
    metric : str, Metric or callable
    weights : sequence of float
        Of the metric, from 0 to 1.
    truth : Corpus or CSR matrix, optional
        The true labels, to measure what the decisions are worth beside what they promise.
    **options
        Of `BlockCoordinateAscent`.

    Examples
    --------
    >>> from megalabel import LabelSet
    >>> labels = LabelSet(["common", "rare"])
    >>> ranking = Ranking([[0, 1], [0, 1]], [[0.6, 0.5], [0.6, 0.1]], labels)
    >>> print(pareto(ranking, k=1, weights=(0, 1)))
    weight  expected P@1 %  expected macro-f1 %
    0                60.00                37.50
    1                55.00                58.52
    """
    named = metric_of(metric)
    if truth is not None:
        truth = label_matrix(truth, ranking.labels)
    positives = label_sums(ranking)[0]
    points = []
    for weight in weights:
        rule = BlockCoordinateAscent(metric, weight=weight, **options)
        decided = rule.apply(ranking, k)
        cells = max(1, k * len(ranking))
        point = Point(
            float(weight),
            float(decided.scores[decided.present].sum(dtype=np.float64)) / cells,
            expected_value(decided, positives, named),
        )
        if truth is not None:
            found = float(hits(decided, truth).sum()) / cells
            point = point._replace(precision=found, metric=measure(decided, truth, named))
        points.append(point)
    return ParetoCurve(named.name, k, tuple(points))
