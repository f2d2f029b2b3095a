"""Prepared: what a fit of a tagger begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, LabelSet
from megalabel.data.examples import Examples
from megalabel.data.strings import beginnings
from megalabel.errors import DataError, ParameterError
from megalabel.features import Precomputed
from megalabel.parts import Classifier, Featurizer


@dataclass
class Prepared:
    """What a fit begins with; made by `Tagger.prepare`."""

    features: Featurizer
    """Fitted."""
    examples: Examples
    """All texts."""
    held_out: np.ndarray
    """Which of them calibration and decision learn from."""
    first: Examples
    """What the classifier is trained on at first."""
    classifier: Classifier
    """Not fitted yet."""
    seconds: float = 0.0
    """How long it took to make the features."""
    memory: int = 0
    """Bytes in use before."""
    used: bool = False
    """True if a fit has taken it up."""


def check_learnable(corpus: Corpus) -> None:
    """Raise a DataError where a corpus has no text or no label."""
    if not len(corpus):
        raise DataError("there is no text to learn from")
    if corpus.texts is not None and not pc.any(pc.not_equal(corpus.texts, "")).as_py():
        raise DataError("all texts are empty: there is nothing to learn from")
    if not len(corpus.labels):
        raise DataError(
            "the corpus has no labels to learn: expected a field `labels` with names, or "
            "`target_ind` with numbers"
        )


def in_random_order(targets: csr_matrix, seed: int) -> np.ndarray:
    """The numbers of texts in random order, any part of which has its share of texts with no label
    that another text has: held out, those are like new texts without any known label."""
    order = np.random.default_rng(seed).permutation(targets.shape[0])
    shared = np.bincount(targets.indices, minlength=targets.shape[1]) > 1
    cells = csr_matrix(
        (shared[targets.indices].astype(np.int64), targets.indices, targets.indptr), targets.shape
    )
    known = np.asarray(cells.sum(axis=1)).ravel() > 0
    place = np.empty(len(order))
    for kind in (known, ~known):
        rows = order[kind[order]]
        place[rows] = (np.arange(len(rows)) + 0.5) / max(1, len(rows))
    return np.argsort(place, kind="stable")


def examples_of(features: Featurizer, vectors: Any, corpus: Corpus) -> Examples:
    """What a classifier is fitted on: a corpus, with what features make of its texts."""

    def columns() -> Sequence[str] | None:
        terms = getattr(features, "terms_", None)  # hashed words have no names
        return None if terms is None else terms.to_pylist()

    return Examples.of(
        vectors,
        corpus.targets,
        corpus.labels,
        excluded=corpus.excluded,
        find_label_rows=cache(lambda: _label_rows(features, corpus.labels)),
        find_columns=columns,
        find_titles=lambda: titles_of(corpus),
    )


def titles_of(corpus: Corpus) -> pa.LargeStringArray | None:
    """What people know the rows of a corpus by: how its texts begin, or its ids."""
    return corpus.ids if corpus.texts is None else beginnings(corpus.texts)


def _label_rows(features: Featurizer, labels: LabelSet) -> Any:
    """The labels' own texts as vectors."""
    if isinstance(features, Precomputed):
        raise ParameterError(
            "the texts of labels are asked for, but the features are vectors made elsewhere; fit "
            "the classifier by itself, with label_rows"
        )
    texts = labels.names if labels.texts is None else labels.texts
    if pc.all(pc.utf8_is_decimal(texts)).as_py():
        raise DataError("the texts of labels are asked for, but these are known by number alone")
    return features.transform(texts)
