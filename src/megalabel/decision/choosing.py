"""Rules by name, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from megalabel.data import Corpus, Ranking
from megalabel.data.truth import hits
from megalabel.decision.ascent import BlockCoordinateAscent
from megalabel.decision.frank_wolfe import FrankWolfe
from megalabel.decision.metric import measure, metric_of
from megalabel.decision.online import Online
from megalabel.decision.shortlists import expected_value, label_sums
from megalabel.decision.topk import TopK
from megalabel.decision.weighted import Weighted
from megalabel.errors import ParameterError
from megalabel.parts import Decision

METHODS: dict[str, type[Decision]] = {
    "ascent": BlockCoordinateAscent,
    "frank-wolfe": FrankWolfe,
    "online": Online,
    "weighted": Weighted,
    "top": TopK,
}


def create(method: str, usual: Mapping[str, Any] | None = None, **parameters: Any) -> Decision:
    """A decision rule by name.

    Parameters
    ----------
    method : str
        One of `METHODS`.
    usual : mapping, optional
        Values of parameters for whichever rule takes them.
    **parameters
        Parameters that the rule must take.

    Examples
    --------
    >>> create("top", {"k": 3, "candidates": 50}, threshold=0.5)
    TopK(threshold=0.5, candidates=50)
    """
    if method not in METHODS:
        raise ParameterError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    rule = METHODS[method]()
    for name in parameters:
        others = [m for m, kind in METHODS.items() if name in kind.parameter_names()]
        if others and method not in others:
            raise ParameterError(f"{name} is for method {' or '.join(others)}, not for {method}")
    taken = {name: v for name, v in (usual or {}).items() if name in rule.parameter_names()}
    rule.set_params(**taken | parameters).check_parameters()
    return rule


def tried(
    rule: Decision,
    ranking: Ranking,
    k: int,
    metric: str,
    corpus: Corpus,
    train_labels: tuple[np.ndarray, int],
) -> tuple[Ranking, dict[str, float], dict[str, float]]:
    """Decide for the texts of a corpus by a rule, which is fitted to them where it learns.

    Parameters
    ----------
    rule : Decision
    ranking : Ranking
        The candidates of each text; the answer takes their place.
    k : int
        The budget a text.
    metric : str
        What is measured.
    corpus : Corpus
        The texts, perhaps with labels. A rule that learns from their labels is not measured by
        them.
    train_labels : (array, int)
        How often each label occurs in so many training texts.

    Returns
    -------
    The decided labels, and what they and the k most probable labels are worth: precision and the
    metric, as expected by the probabilities and, where the labels are known, in truth.
    """
    truth = corpus.aligned(ranking.labels) if corpus.targets.nnz else None
    targets = None
    if truth is not None and rule.get_params().get("truth") == "labels":
        targets, truth = truth.targets, None
    if rule.learns:
        rule.fit(ranking, targets, train_labels)
    # the answer takes the place of the shortlists, so all else that they tell comes first
    positives = label_sums(ranking)[0]
    top = _worth(TopK().apply(ranking, k), positives, truth, metric, k)
    decided = rule.apply(ranking, k, overwrite=True)
    return decided, _worth(decided, positives, truth, metric, k), top


def _worth(
    decided: Ranking, positives: np.ndarray, truth: Corpus | None, metric: str, k: int
) -> dict[str, float]:
    """What is expected of decided labels, and what they are where the truth is known."""
    cells = max(1, k * len(decided))
    values = {
        f"expected P@{k}": float(decided.scores[decided.present].sum(dtype="float64")) / cells,
        f"expected {metric}": expected_value(decided, positives, metric_of(metric)),
    }
    if truth is not None:
        values |= {
            f"P@{k}": float(hits(decided, truth).sum()) / cells,
            metric: measure(decided, truth, metric),
            "coverage": measure(decided, truth, "coverage"),
        }
    return values
