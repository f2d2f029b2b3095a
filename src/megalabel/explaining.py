"""Why a label: the words of a text that spoke for it, and those against."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from megalabel.data.matrix import canonical
from megalabel.errors import ParameterError
from megalabel.features import Concat, Tfidf
from megalabel.parts import Classifier, Featurizer


class Reason(NamedTuple):
    """What one classifier made of a text: its margin, the bias in it, the words' shares, and which
    of several trees it is in."""

    margin: float
    bias: float
    words: list[tuple[str, float]]
    tree: int


def explained(
    classifier: Classifier, features: Featurizer, text: str, label: int, words: int
) -> list[Reason]:
    """The reasons of the classifiers on the way to a label, each with its largest words."""
    explain = getattr(classifier, "explain", None)
    if explain is None:
        raise ParameterError(f"{type(classifier).__name__} has no words to explain by")
    vector = canonical(features.transform([text]), "features")
    names = _names_of_columns(features, text)
    reasons = []
    for step in explain(vector, label):
        spelled = [names(column) for column in step.features[:words].tolist()]
        pairs = list(zip(spelled, step.contributions[:words].tolist(), strict=True))
        reasons.append(Reason(step.margin, step.bias, pairs, step.tree))
    return reasons


def _names_of_columns(features: Featurizer, text: str) -> Callable[[int], str]:
    """What the columns of a text's vector stand for; numbers where there are no words."""
    if isinstance(features, Concat):
        parts = [_names_of_columns(part, text) for part in features.parts_]
        starts = np.cumsum([0, *(part.n_features for part in features.parts_)])

        def named(column: int) -> str:
            part = int(np.searchsorted(starts, column, "right")) - 1
            return parts[part](column - int(starts[part]))

        return named
    terms = getattr(features, "terms_", None)
    if terms is not None:
        return lambda column: str(terms[column].as_py())
    found: dict[int, str] = {}
    if isinstance(features, Tfidf):  # with hashing: the columns of the text's own terms
        own = sorted(dict.fromkeys(features.analyse(text)), key=len)
        rows = features.transform(own)
        for i, term in enumerate(own):
            # the columns of a phrase are its own and those of shorter terms in it
            columns = set(rows.indices[rows.indptr[i] : rows.indptr[i + 1]].tolist())
            if len(columns - found.keys()) == 1:
                found[(columns - found.keys()).pop()] = term
    return lambda column: found.get(column, str(column))
